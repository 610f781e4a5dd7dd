"""BentoML."""

from __future__ import annotations

from typing import Any

import orjson

from benchmark.peers.forms import Form, Numbers, in_base64
from benchmark.peers.peer import SERVERS, Launch, Peer
from benchmark.peers.workloads import Input


def _body(given: Any) -> bytes:
    return orjson.dumps({"instances": [given]})


def _picture(file: Input) -> bytes:
    return _body(in_base64(file))


def _read(content: bytes) -> Numbers:
    (row,) = orjson.loads(content)
    return [float(value) for value in row]


def _command(launch: Launch) -> list[str]:
    where = ["--host", "127.0.0.1", "--port", str(launch.port), "--working-dir", str(SERVERS)]
    return [launch.environment.program("bentoml"), "serve", "serve_bentoml:Service", *where]


PEER = Peer(
    name="bentoml",
    title="BentoML",
    packages=("bentoml",),
    tuning="one worker, a batchable method with a latency limit so high that nothing is refused; JSON, pictures in "
    "base64; its own metrics and access log off",
    forms={
        "tabular": Form("/predict", _body, _read),
        "text": Form("/predict", _body, _read),
        "picture": Form("/predict", _picture, _read),
    },
    command=_command,
    environ=lambda launch: {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(launch.scratch)},
)
