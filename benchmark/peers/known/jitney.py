"""Jitney as `jitney serve` starts it."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from benchmark.peers.forms import Form, Numbers, as_it_is
from benchmark.peers.models import model_for
from benchmark.peers.peer import Launch, Peer

ROOT = Path(__file__).parents[3]

_PREDICT = "/predict"

# For texts a ceiling, as the scheduler chooses. A copy on one core computes two pictures as cheaply as eight.
_MOST_ROWS = {"text": "32", "picture": "2"}


def _probabilities(content: bytes) -> Numbers:
    return [float(value) for value in orjson.loads(content)["predictions"][0]]


def _best_classes(content: bytes) -> Numbers:
    best = orjson.loads(content)["predictions"][0]
    return [*(float(one["label"]) for one in best), *(one["score"] for one in best)]


def _command(_launch: Launch) -> list[str]:
    return [sys.executable, "-m", "gunicorn", "-c", "python:service.gunicorn_config", "service:create_app()"]


def _environ(launch: Launch) -> dict[str, str]:
    workload = launch.workload
    # A text or a picture keeps one core busy as well as two: each core gets a batch of its own. A single caller of the
    # text model has one core then, which the table shows; of the ONNX model a batch that is alone has both.
    copies = {"MODEL_INSTANCES": str(workload.native_threads), "OMP_NUM_THREADS": "1"}
    if workload.name == "text":
        # Some hundred calls of a batch each need Python's lock: HTTP and tokenising have processes of their own.
        copies |= {"WEB_WORKERS": str(workload.native_threads), "MODEL_SHARING": "one"}
    return {
        "PYTHONPATH": str(ROOT),
        "MODEL_PATH": str(model_for(workload.name, launch.models)),
        "BIND": f"127.0.0.1:{launch.port}",
        "BATCH_POLICY": "eager",
        "SCHEDULER": "cost" if workload.name == "text" else "fifo",
        "MAX_BATCH_SIZE": _MOST_ROWS.get(workload.name, str(workload.max_batch_size)),
        # The most that a free worker waits for requests that are being read; it waits for nothing else.
        "MAX_BATCH_LATENCY_MS": "10",
        "LOG_LEVEL": "warning",
        **(copies if workload.native_threads > 1 else {}),
    }


PEER = Peer(
    name="jitney",
    title="**Jitney**",
    packages=("jitney", "gunicorn", "gunicorn-h1c", "flask"),
    tuning="`BATCH_POLICY=eager` with `MAX_BATCH_LATENCY_MS=10`; for texts and pictures `MODEL_INSTANCES` with one "
    "native thread for each core; for texts `SCHEDULER=cost`, which packs them, with batches of up to 32, and a front "
    "end for each core (`MODEL_SHARING=one`); for pictures batches of up to 2; validation, metrics, deadlines, "
    "admission and request ids are on, as ever",
    forms={
        "tabular": Form(
            _PREDICT,
            lambda row: orjson.dumps({"instances": [row], "parameters": {"proba": True}}),
            _probabilities,
        ),
        "text": Form(_PREDICT, lambda text: orjson.dumps({"text": text}), _probabilities),
        "picture": Form(_PREDICT, as_it_is, _best_classes, content_type="image/jpeg"),
    },
    command=_command,
    has_own_packages=False,
    environ=_environ,
)
