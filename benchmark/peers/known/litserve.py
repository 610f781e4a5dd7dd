"""Lightning's server."""

from benchmark.peers.forms import plain_forms
from benchmark.peers.peer import Peer

PEER = Peer(
    name="litserve",
    title="LitServe",
    packages=("litserve",),
    tuning="one front process, one worker process, `fast_queue=True`",
    forms=plain_forms(),
    command=lambda launch: launch.script("serve_litserve.py", str(launch.port)),
)
