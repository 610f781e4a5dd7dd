"""All peers, in the order in which they are run."""

from __future__ import annotations

from benchmark.peers.known import (
    bentoml,
    fastapi_batcher,
    flask_batcher,
    flask_naive,
    infinity,
    jitney,
    litserve,
    mlserver,
    mosec,
    pytriton,
    raw,
    torchserve,
)

_MODULES = (
    raw,
    jitney,
    flask_naive,
    flask_batcher,
    fastapi_batcher,
    litserve,
    bentoml,
    mlserver,
    torchserve,
    mosec,
    pytriton,
    infinity,
)

PEERS = {module.PEER.name: module.PEER for module in _MODULES}
