"""Seldon's MLServer, which speaks the open inference protocol."""

from __future__ import annotations

import json

import orjson

from benchmark.peers.forms import Form, in_base64, read_v2, v2_body
from benchmark.peers.models import model_for
from benchmark.peers.peer import Launch, Peer
from benchmark.peers.workloads import Input

_PATH = "/v2/models/m/infer"


def _row(row: Input) -> bytes:
    given = {"name": "x", "shape": [1, 64], "datatype": "FP64", "data": row}
    return orjson.dumps({"inputs": [given], "outputs": [{"name": "predict_proba"}]})


def _text(text: Input) -> bytes:
    return v2_body([1, 1], "BYTES", [text], parameters={"content_type": "str"})


def _picture(file: Input) -> bytes:
    return v2_body([1, 1], "BYTES", [in_base64(file)], parameters={"content_type": "str"})


def _command(launch: Launch) -> list[str]:
    is_table = launch.workload.name == "tabular"
    settings = {
        "host": "127.0.0.1",
        "http_port": launch.port,
        "grpc_port": launch.port + 1,
        "metrics_endpoint": None,
        "debug": False,
        "use_structured_logging": False,
        # A model of half a millisecond is not worth the way to another process.
        "parallel_workers": 0 if is_table else 1,
    }
    model = {
        "name": "m",
        "implementation": "mlserver_sklearn.SKLearnModel" if is_table else "serve_mlserver.Model",
        "max_batch_size": launch.workload.max_batch_size,
        "max_batch_time": launch.workload.window_ms / 1000,
        "parameters": {"uri": str(model_for("tabular", launch.models) / "model.joblib")} if is_table else {},
    }
    (launch.scratch / "settings.json").write_text(json.dumps(settings))
    (launch.scratch / "model-settings.json").write_text(json.dumps(model))
    return [launch.environment.program("mlserver"), "start", str(launch.scratch)]


PEER = Peer(
    name="mlserver",
    title="MLServer",
    packages=("mlserver", "mlserver-sklearn"),
    tuning="adaptive batching; its own scikit-learn runtime in the server's process for rows, one model process with a "
    "model class of one's own for texts and pictures (in base64); its metrics off",
    forms={
        "tabular": Form(_PATH, _row, read_v2),
        "text": Form(_PATH, _text, read_v2),
        "picture": Form(_PATH, _picture, read_v2),
    },
    command=_command,
)
