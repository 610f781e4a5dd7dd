"""`jitney tune` with real servers of its own, and with a running one."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest
from click.testing import CliRunner, Result

from service.batching.policy import BatchPolicy
from service.bench.bodies import json_body
from service.bench.client import Client
from service.bench.own_server import ServerFailed, model_settings, own_server
from service.cli import main
from service.tune.advice import Advice
from service.tune.check import MOST_ATTEMPTS, attempts
from service.tune.curve import Curve
from service.tune.learnt import learnt
from service.tune.live import LEAST_BATCHES, NothingMeasured, live_figures
from service.tune.report import attempt_line
from tests.system.conftest import ROOT

pytestmark = pytest.mark.system

SLEEP = 3


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A linear regression in a file; the service would refuse it without ALLOW_PICKLE."""
    import joblib
    import numpy as np
    from sklearn.linear_model import LinearRegression

    joblib.dump(LinearRegression().fit(np.eye(4), np.arange(4)), tmp_path / "m.joblib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALLOW_PICKLE", "true")
    return tmp_path / "m.joblib"


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments])


def test_what_is_recommended_for_a_model_keeps_the_latency_under_its_own_load(model, tmp_path):
    (tmp_path / ".env").write_text(
        "API_KEYS=not-for-this-one\nBATCH_SIZE_BUCKETS=3,5\nMAX_BATCH_SIZE=5\nMAX_INSTANCES=8\n"
    )
    written = ["--env", str(tmp_path / "new.env"), "--chart", str(tmp_path / "chart.svg")]
    result = tune(str(model), "--slo-ms", "5000", "--duration", "1", "--json", *written)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [point["rows"] for point in told["curve"]] == [1, 2, 4, 8, 16, 32, 64]
    assert told["checks"][-1]["kept"]
    assert told["checks"][-1]["latency_ms"]["p99"] <= 5000
    assert told["checks"][-1]["wrong_answers"] == 0
    assert f"MAX_BATCH_SIZE={told['settings']['MAX_BATCH_SIZE']}\n" in (tmp_path / "new.env").read_text()
    assert (tmp_path / "chart.svg").read_text().startswith("<?xml")
    assert "kept." in result.stderr


def test_a_model_that_cannot_be_served_is_told_with_the_servers_own_words(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    result = tune(str(tmp_path / "m.onnx"), "--duration", "1")
    assert result.exit_code == 1
    assert "the server has ended" in result.stderr
    assert "Traceback" not in result.output


def test_a_server_that_is_not_ready_in_time_is_given_up(model):
    with pytest.raises(ServerFailed, match="not ready after 0 s"), own_server({"MODEL_PATH": model}, start_limit_s=0):
        raise AssertionError


def test_what_misses_is_stepped_down_until_it_holds_or_nothing_is_left(start):
    server = start(MAX_BATCH_SIZE=8)
    bodies = [json_body({"instances": [[SLEEP, 30]]})]
    advice = Advice(8, 1.0, BatchPolicy.EAGER, 72, 600.0, 5.0)
    seen: list[dict[str, str]] = []

    def same_server(settings):
        seen.append(dict(settings))
        return nullcontext(server.url)

    def tried(slo_ms: float):
        curve = Curve.of({1: 0.03, 8: 0.03})
        return list(
            attempts(advice, curve, slo_ms, bodies, same_server, duration_s=1.0, say=lambda _message, _fraction: None)
        )

    missed = tried(slo_ms=10)
    assert [attempt.kept for attempt in missed] == [False] * MOST_ATTEMPTS
    rates = [attempt.advice.requests_per_s for attempt in missed]
    assert rates == sorted(rates, reverse=True)
    assert rates[1] < rates[0]
    assert [attempt.advice.max_batch_size for attempt in missed] == [8, 4, 2, 1, 1, 1]
    assert [settings["MAX_BATCH_SIZE"] for settings in seen] == ["8", "4", "2", "1", "1", "1"]
    assert [attempt.kept for attempt in tried(slo_ms=20_000)] == [True]


def test_a_load_that_brings_no_request_tells_nothing_and_is_not_made_larger(start):
    server = start()
    advice = Advice(8, 1.0, BatchPolicy.EAGER, 72, 0.01, 5.0)
    tried = attempts(
        advice,
        Curve.of({1: 1.0}),
        5000,
        [json_body({"instances": [[0, 1]]})],
        lambda _: nullcontext(server.url),
        duration_s=0.1,
        say=lambda _message, _fraction: None,
    )
    (only,) = tried
    assert (only.kept, only.measured.clients.requests) == (False, 0)
    assert "longer --duration" in attempt_line(only, 5000)


def test_a_running_service_gives_advice_from_its_own_measurements(start, tmp_path):
    server = start()
    assert "ask again" in tune("--url", server.url).stderr
    for _ in range(LEAST_BATCHES):
        for rows in (1, 4, 16):
            server.predict(*[[0, number] for number in range(rows)])
    server.predict(*[[0, number] for number in range(9)])
    result = tune("--url", server.url, "--json", "--env", str(tmp_path / "new.env"))
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert {1, 4, 16} <= {point["rows"] for point in told["curve"]}
    assert 9 not in {point["rows"] for point in told["curve"]}
    assert re.search(rf"MAX_BATCH_SIZE={told['settings']['MAX_BATCH_SIZE']} rests on \d+ batches of", result.stderr)
    assert "ran fewer than 16 times: 9 (1)" in result.stderr
    assert told["checks"] == []
    assert "scripted, by its own measurements" in result.stderr
    assert "expected p99" in (tmp_path / "new.env").read_text()
    assert "no such model" in tune("--url", server.url, "--name", "another").stderr


TEXT_APP = """
from loaders import ModelHandle
from loaders.signature import EncodedText, TextInput
from service import create_app

def encode(text):
    return EncodedText(tuple(range(len(text.split()))), truncated=False)

def make():
    answer = lambda rows: [len(row.ids) for row in rows]
    return create_app(model_handle=ModelHandle.from_callable(answer, name="m", input=TextInput(encode=encode)))
"""


def test_what_the_scheduler_of_a_service_has_learnt_is_told(start, tmp_path, monkeypatch):
    (tmp_path / "texts.py").write_text(TEXT_APP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    server = start(app="texts:make()", SCHEDULER="cost", WARMUP="false", MODEL_PATH="", MODEL_FORMAT="")
    for _ in range(LEAST_BATCHES):
        assert server.post({"text": "one two three four"}).json()["prediction"] == 4
    with Client(server.url, connections=1) as client:
        (best,) = learnt(client)
    assert (best.tokens, best.rows, best.smallest_rows) == (4, 1, 1)
    assert best.ms_per_row == best.smallest_ms_per_row > 0
    lines = tune("--url", server.url).stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("The scheduler has learnt"))
    assert lines[at + 2].split()[:2] == ["4", "1"]


def test_a_service_that_shows_nothing_is_told(start):
    assert "METRICS_KEY" in "".join(tune("--url", busy(start(METRICS_KEY="a-key-for-it")).url).stderr)
    assert "refused" in tune("--url", "http://127.0.0.1:9").stderr


def busy(server):
    for _ in range(LEAST_BATCHES):
        server.predict([0, 1])
    return server


@pytest.mark.parametrize("arguments", [[], ["somewhere"], ["--url", "http://127.0.0.1:9", "--slo-ms", "0"]])
def test_options_that_make_no_sense_are_refused(arguments):
    assert tune(*arguments).exit_code == 2


def test_a_service_with_several_worker_threads_is_told_of_what_is_reckoned_for_one(start):
    result = tune("--url", busy(start(MODEL_INSTANCES=2)).url, "--json")
    assert "MODEL_INSTANCES=2: what is expected is reckoned for one worker thread." in result.stderr
    assert "Only a load on the service tells" in result.stderr
    assert "MODEL_INSTANCES" not in tune("--url", busy(start()).url).output


def test_what_cannot_be_written_is_said_before_anything_is_measured(model, tmp_path):
    for option in ("--env", "--chart"):
        result = tune(str(model), option, str(tmp_path / "nowhere" / "file"))
        assert (result.exit_code, "measuring" in result.stderr) == (2, False)
        assert option in result.stderr


def test_an_env_file_keeps_what_it_has(start, tmp_path):
    (tmp_path / "own.env").write_text("API_KEYS=keep-me\nMAX_BATCH_SIZE=3\n")
    result = tune("--url", busy(start()).url, "--slo-ms", "5000", "--env", str(tmp_path / "own.env"))
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "own.env").read_text().splitlines()
    assert "API_KEYS=keep-me" in lines
    assert sum(line.startswith("MAX_BATCH_SIZE=") for line in lines) == 1


def test_a_latency_that_a_single_row_does_not_keep_is_not_tried(model, tmp_path):
    result = tune(str(model), "--slo-ms", "0.0001", "--duration", "1", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["checks"] == []
    assert "No settings are expected" in result.stderr


def test_a_proxy_for_the_world_is_not_asked_for_a_server_of_ones_own(model, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with own_server(model_settings(model), start_limit_s=60) as url:
        assert url.startswith("http://127.0.0.1:")


def test_gunicorns_own_variable_changes_nothing(model, monkeypatch):
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--no-such-option")
    with own_server(model_settings(model), start_limit_s=60) as url:
        assert url.startswith("http://127.0.0.1:")


def test_a_tuner_that_is_told_to_stop_leaves_no_server_behind(model):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from service.bench.own_server import model_settings, own_server\n"
        "with own_server(model_settings(Path(sys.argv[1]))) as url:\n"
        "    print(url, flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, str(model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    with Client(url, connections=1, timeout_s=5) as client:
        assert client.get("/livez")[0] == "refused"


@pytest.mark.parametrize("told", [b"[]", b"{}", b'{"model_stats": [1]}', b"<html>"])
def test_a_service_that_is_no_jitney_is_told_from_one(told):
    class Asked:
        def get(self, _path: str) -> tuple[str, bytes]:
            return "200", told

    with pytest.raises(NothingMeasured, match="Jitney"):
        live_figures(Asked())
    assert learnt(Asked()) == []
