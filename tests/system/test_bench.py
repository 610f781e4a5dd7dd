"""`jitney bench` against a real server."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli import main

pytestmark = pytest.mark.system

ECHO, RAISE, SLEEP = 0, 1, 3


def bench(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", url, "--warm-up", "0.2", "--duration", "1", *arguments])


@pytest.fixture
def bodies(tmp_path: Path) -> Path:
    """Sixteen that differ, some of two rows."""
    file = tmp_path / "bodies.jsonl"
    lines = [{"instances": [[ECHO, number]] * (1 + number % 2)} for number in range(16)]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def test_a_closed_loop_tells_what_clients_and_server_saw(start, bodies):
    server = start()
    result = bench(server.url, "--bodies", str(bodies), "-c", "8", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["requests"] > 16
    assert (told["errors"], told["wrong_answers"], told["distinct_answers"]) == ({}, 0, 16)
    # What was sent in the warm-up and before it is not among what the server is said to have done.
    assert told["server"]["batches"] * told["server"]["mean_batch_size"] == pytest.approx(told["rows"])
    assert told["server"]["mean_batch_size"] > 1
    assert 0 < told["server"]["cpu_ms_per_request"] < 1000
    assert told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]


@pytest.mark.parametrize("how", [["--rate", "50"], ["--rate", "50", "--arrivals", "bursts", "--burst", "5"]])
def test_an_open_loop_keeps_its_rate(start, bodies, how):
    result = bench(start().url, "--bodies", str(bodies), *how, "--json")
    assert result.exit_code == 0, result.output
    assert 25 <= json.loads(result.stdout)["requests"] <= 80


def test_recorded_arrivals_are_all_sent(start, bodies, tmp_path):
    (tmp_path / "times.txt").write_text("\n".join(str(1000 + number / 20) for number in range(13)))
    result = bench(start().url, "--bodies", str(bodies), "--replay", str(tmp_path / "times.txt"), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["requests"] == 13


def test_the_table_is_for_people_and_bodies_are_made_up_where_none_are_given(start):
    result = bench(start(app="typed:app", TYPE="float32").url, "--distinct", "2")
    assert "throughput" in result.stdout, result.output
    assert "server CPU" in result.stdout
    assert "measuring" in result.stderr
    assert "\x1b" not in result.output


def test_errors_of_the_server_are_told_and_end_with_1(start, tmp_path):
    server = start(MAX_QUEUE_SIZE=2, THREADS=80)
    (tmp_path / "slow.jsonl").write_text(json.dumps({"instances": [[SLEEP, 100]]}))
    result = bench(server.url, "--bodies", str(tmp_path / "slow.jsonl"), "-c", "60", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["errors"]["429"] > 0


def test_a_body_that_fails_alone_ends_it_before_any_load(start, tmp_path):
    (tmp_path / "bad.jsonl").write_text(json.dumps({"instances": [[RAISE, 1]]}))
    result = bench(start().url, "--bodies", str(tmp_path / "bad.jsonl"))
    assert result.exit_code == 1
    assert "asked alone, ended with 500" in result.stderr


def test_a_request_that_takes_too_long_is_given_up(start, tmp_path):
    (tmp_path / "slow.jsonl").write_text(json.dumps({"instances": [[SLEEP, 2000]]}))
    result = bench(start().url, "--bodies", str(tmp_path / "slow.jsonl"), "--timeout", "0.2")
    assert "ended with timeout" in result.stderr


def test_what_cannot_be_reached_is_said(tmp_path, bodies):
    result = bench("http://127.0.0.1:9", "--bodies", str(bodies))
    assert result.exit_code == 1
    assert "refused" in result.stderr
    for url in ("http://127.0.0.1:9", "127.0.0.1:9"):
        told = bench(url).stderr
        assert "no server answers at 127.0.0.1, port 9 (refused)" in told
        assert "openapi" not in told
    assert "address of a server" in bench("ftp://127.0.0.1", "--bodies", str(bodies)).stderr


def test_keys_are_sent_along(start, bodies):
    server = start(API_KEYS="a-key-of-ours", METRICS_KEY="another-key")
    assert "401" in bench(server.url, "--bodies", str(bodies)).stderr
    result = bench(server.url, "--bodies", str(bodies), "--header", "X-API-Key: a-key-of-ours", "--json")
    assert result.exit_code == 0, result.output
    assert "METRICS_KEY" in json.loads(result.stdout)["doubts"][0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rows", "none"], "at least 1"),
        (["--header", "word"], "NAME:VALUE"),
        (["--rate", "0"], "--rate"),
        (["--rate", "nan"], "finite"),
        (["--rate", "inf"], "--rate"),
        (["--rate", "1e9"], "--rate"),
        (["--tolerance", "nan"], "finite"),
        (["--timeout", "0"], "--timeout"),
        (["--timeout", "inf"], "finite"),
        (["--warm-up", "nan"], "finite"),
        (["--duration", "inf"], "finite"),
        (["--concurrency", "5000"], "--concurrency"),
        (["--header", "two words: a"], "NAME:VALUE"),
        (["--header", "X-Name: ✓"], "NAME:VALUE"),
        (["--arrivals", "bursts"], "need a --rate"),
        (["--burst", "4"], "need a --rate"),
        (["--rate", "5", "--burst", "4"], "--arrivals bursts"),
        (["--rate", "5", "--concurrency", "4"], "closed loop"),
        (["--connections", "4"], "open loop"),
        (["--bodies", "nowhere"], "nowhere"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, said):
    result = bench("http://127.0.0.1:9", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_rate_and_recorded_times_exclude_each_other(tmp_path):
    (tmp_path / "times.txt").write_text("nothing")
    replay = ["--replay", str(tmp_path / "times.txt")]
    assert "exclude" in bench("http://127.0.0.1:9", "--rate", "5", *replay).stderr
    result = bench("http://127.0.0.1:9", *replay)
    assert (result.exit_code, "line 1 is no time" in result.stderr) == (1, True)


@pytest.mark.parametrize("described", [b"[]", b'{"components": []}', b"<html>", b"[" * 100_000, b"{}"])
def test_a_server_that_is_no_jitney_is_told_from_one(described):
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(described)))
            self.end_headers()
            self.wfile.write(described)

        def log_message(self, *_: object) -> None:
            pass  # not among the output of the test

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.handle_request, name="page")
        thread.start()
        result = bench(f"http://127.0.0.1:{server.server_address[1]}")
        thread.join()
    assert result.exit_code == 1
    assert "--bodies" in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_recorded_times_can_come_from_a_pipe(start, bodies, tmp_path):
    os.mkfifo(tmp_path / "times")
    writer = threading.Thread(target=(tmp_path / "times").write_text, args=("0\n0.1\n",), name="recorder")
    writer.start()
    result = bench(start().url, "--bodies", str(bodies), "--replay", str(tmp_path / "times"), "--json")
    writer.join()
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["requests"] == 2


def test_without_its_packages_it_says_what_to_install(monkeypatch, bodies):
    monkeypatch.setitem(sys.modules, "geventhttpclient", None)
    result = bench("http://127.0.0.1:9", "--bodies", str(bodies))
    assert result.exit_code == 1
    assert "pip install 'jitney[bench]'" in result.stderr
