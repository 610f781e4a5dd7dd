from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from service.health import liveness, readiness
from service.metrics.batches import BatchMetrics
from service.runtime import Runtime
from service.settings import Settings


def reason(error: BaseException, model_path: str | None = None) -> str:
    """What `/healthz` says of a load that ended so."""
    runtime = Runtime(Settings(model_path=model_path), BatchMetrics(CollectorRegistry()))
    runtime._models.load_error = error
    ready, body = readiness(runtime)
    assert (ready, body["status"]) == (False, "not ready")
    assert liveness(runtime)[0], "a restart does not heal a model that cannot be loaded"
    [only] = body["reasons"]
    return str(only).removeprefix("the model could not be loaded: ")


@pytest.mark.parametrize(
    "message, model_path, shown",
    [
        ("no model at '/srv/models/m.onnx'", "/srv/models/m.onnx", "no model at 'm.onnx'"),
        ("cannot open /opt/lib/libx.so.1: no such file", "m.onnx", "cannot open libx.so.1: no such file"),
        ("in '/home/jo smith/models/m.onnx'", "/home/jo smith/models/m.onnx", "in 'm.onnx'"),
        ("in models/a/m.onnx", "models/a/m.onnx", "in m.onnx"),
        ("reads and/or writes; see text/plain", "m.onnx", "reads and/or writes; see text/plain"),
        ("see https://example.org/a/b", "m.onnx", "see https://example.org/a/b"),
        ("two\n  lines", None, "two lines"),
    ],
)
def test_a_failed_load_is_told_in_one_line_without_directories(message, model_path, shown):
    assert reason(OSError(message), model_path) == f"OSError: {shown}"


def test_a_relative_model_path_is_hidden_in_its_absolute_form_too(tmp_path, monkeypatch):
    directory = tmp_path / "my models"
    directory.mkdir()
    monkeypatch.chdir(directory)
    assert reason(OSError(f"in {directory}/m.onnx"), "m.onnx") == "OSError: in m.onnx"


def test_a_page_long_message_is_cut():
    assert len(reason(RuntimeError("x" * 10_000))) < 500


def test_a_server_that_was_not_started_says_so():
    runtime = Runtime(Settings(), BatchMetrics(CollectorRegistry()))
    ready, body = readiness(runtime)
    assert (ready, body["reasons"], body["worker_alive"], body["queue_depth"]) == (False, ["not started"], False, 0)
    assert liveness(runtime) == (True, {"status": "live", "reasons": []})


def test_a_load_error_that_cannot_be_shown_is_named_by_its_type() -> None:
    class NoText(Exception):
        def __str__(self) -> str:
            return str(self.args[7])

    assert reason(NoText()).startswith("NoText: ")
