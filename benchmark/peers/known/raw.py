"""The model in process: no peer, but the line that none can cross with batches like these."""

from benchmark.peers.forms import plain_forms
from benchmark.peers.peer import Peer

PEER = Peer(
    name="raw",
    title="raw model, in process",
    packages=(),
    tuning="as many bodies as there are callers at once, decoded, predicted in batches of the size that the servers "
    "are given, and encoded, on one thread; latency counts until a body's batch is done",
    forms=plain_forms(),
    command=None,
    has_own_packages=False,
)
