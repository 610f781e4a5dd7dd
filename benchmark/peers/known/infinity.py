"""infinity, a server for embeddings of texts."""

from __future__ import annotations

import orjson

from benchmark.peers.forms import Form, Numbers
from benchmark.peers.models import model_for
from benchmark.peers.peer import Launch, Peer

# It sorts what waits by length, so that a large batch costs it little padding.
_BATCH_SIZE = 32


def _read(content: bytes) -> Numbers:
    return [float(value) for value in orjson.loads(content)["data"][0]["embedding"]]


def _command(launch: Launch) -> list[str]:
    # fmt: off
    return [
        launch.environment.program("infinity_emb"), "v2", "--model-id", str(model_for("text", launch.models)),
        "--served-model-name", "m", "--engine", "torch", "--device", "cpu", "--dtype", "float32",
        "--batch-size", str(_BATCH_SIZE), "--host", "127.0.0.1", "--port", str(launch.port), "--no-compile",
        "--no-bettertransformer", "--log-level", "error", "--no-model-warmup",
    ]
    # fmt: on


PEER = Peer(
    name="infinity",
    title="infinity",
    packages=("infinity-emb", "sentence-transformers"),
    tuning=f"torch engine, float32, batches of {_BATCH_SIZE}, since it sorts texts by length itself",
    forms={"text": Form("/embeddings", lambda text: orjson.dumps({"model": "m", "input": text}), _read)},
    command=_command,
    environ=lambda _: {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"},
    without_forms="serves texts only",
)
