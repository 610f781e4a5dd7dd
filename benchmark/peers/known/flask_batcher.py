"""Jitney's idea in its plainest form."""

from benchmark.peers.forms import plain_forms
from benchmark.peers.known.plain_gunicorn import gunicorn
from benchmark.peers.peer import Peer

# As many as there are callers at most: fewer would keep batches from filling.
THREADS = 128

PEER = Peer(
    name="flask_batcher",
    title="Flask + queue.Queue",
    packages=("flask", "gunicorn"),
    tuning=f"gunicorn, one process with {THREADS} threads, one more with the model",
    forms=plain_forms(),
    command=gunicorn("flask_batcher:app", THREADS),
    has_own_packages=False,
)
