"""What a real server writes: one line for each record, and one for each request."""

from __future__ import annotations

import json
import socket

import pytest

pytestmark = pytest.mark.system

ECHO, RAISE = 0, 1


def test_every_line_is_an_object_and_every_request_has_one(start, tmp_path):
    (tmp_path / ".env").write_text("MAX_BATCHSIZE=4\n")
    server = start(BATCH_POLICY="eager")
    assert server.predict([ECHO, 1], [ECHO, 2]).status_code == 200
    assert server.predict([RAISE, 1]).status_code == 500
    assert server.get("/nothing\nhere").status_code == 404
    assert server.stop() == 0
    entries = [json.loads(line) for line in server.text().splitlines()]
    requests = [entry for entry in entries if entry["logger"] == "jitney.request"]
    assert [(entry["route"], entry["status"], entry.get("rows")) for entry in requests] == [
        ("/predict", 200, 2),
        ("/predict", 500, None),
        ("unmatched", 404, None),
    ]
    assert any("ValueError: a row asked for it" in entry.get("exception", "") for entry in entries)
    (began,) = [entry for entry in entries if "max_batch_size" in entry]
    assert (began["message"], began["batch_policy"]) == (f"serving {tmp_path / 'model.bin'}", "eager")
    assert any("did you mean MAX_BATCH_SIZE?" in entry["message"] for entry in entries)


@pytest.mark.parametrize(
    ("sent", "status", "problem"),
    [
        (b"GET /secret?secret HTTP/1.1\r\nExpect: secret\r\n\r\n", 417, "Expectation Failed (ExpectationFailed)"),
        (b"GET /secret HTTP/1.1\r\nsecret head: secret\r\n\r\n", 400, "Bad Request (InvalidHeaderName)"),
        (b"POST /secret HTTP/1.1\r\nContent-Length: secret\r\n\r\n", 400, "Bad Request (InvalidHeader)"),
    ],
)
def test_what_is_no_request_has_one_line_with_nothing_of_what_was_sent(start, sent, status, problem):
    server = start()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(sent)
        assert client.recv(4096).startswith(f"HTTP/1.1 {status} ".encode())
    assert f'route="unmatched",status="{status}"}} 1.0' in server.get("/metrics").text
    assert server.stop() == 0
    assert "secret" not in server.text()
    (line,) = [json.loads(line) for line in server.text().splitlines() if '"client"' in line]
    assert (line["status"], line["problem"], line["route"]) == (status, problem, "unmatched")
    assert "Invalid" not in server.text().replace(line["problem"], "")


def test_for_people_a_request_is_a_line_too(start):
    server = start(LOG_FORMAT="text")
    assert server.predict([ECHO, 1]).status_code == 200
    assert server.stop() == 0
    (line,) = [line for line in server.text().splitlines() if "jitney.request" in line]
    assert " INFO jitney.request: POST /predict 200 request_id=" in line


def test_gunicorns_own_access_log_comes_only_where_it_is_asked_for(start, tmp_path):
    server = start("--access-logfile", str(tmp_path / "access.log"))
    assert server.predict([ECHO, 1]).status_code == 200
    assert server.stop() == 0
    assert '"POST /predict HTTP/1.1" 200' in (tmp_path / "access.log").read_text()
    assert "HTTP/1.1" not in server.text()
