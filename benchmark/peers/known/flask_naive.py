"""What one writes first."""

from benchmark.peers.forms import plain_forms
from benchmark.peers.known.plain_gunicorn import gunicorn
from benchmark.peers.peer import Peer

# More would only fight for the cores in the middle of a model.
THREADS = 4

PEER = Peer(
    name="flask_naive",
    title="Flask, no batching",
    packages=("flask", "gunicorn"),
    tuning=f"gunicorn, one process with {THREADS} threads, each of which calls the model for its request",
    forms=plain_forms(),
    command=gunicorn("flask_naive:app", THREADS),
    has_own_packages=False,
)
