"""What a hostile client may send to each of the protocols, on the wire: one answer, in its form, and no harm."""

from __future__ import annotations

import base64
import http.client
import io
import json
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from support.payload import Payload
from test_connections import answer, connected
from test_early_answers import peak_kib, send

from tests.system.conftest import Server, starting

pytestmark = pytest.mark.system

ECHO = 0
PATHS = ["/predict", "/v1/models/scripted:predict", "/v2/models/scripted/infer"]
MAX_BODY_BYTES = 2 * 1024 * 1024


def body_of(path: str) -> bytes:
    if path.startswith("/v2"):
        row = {"name": "input", "datatype": "FP64", "shape": [1, 2], "data": [ECHO, 5]}
        return json.dumps({"inputs": [row]}).encode()
    return json.dumps({"instances": [[ECHO, 5]]}).encode()


def head(path: str, *lines: str | bytes, method: str = "POST") -> bytes:
    first = [f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json"]
    raw = [line if isinstance(line, bytes) else line.encode() for line in [*first, *lines]]
    return b"\r\n".join(raw) + b"\r\n\r\n"


def good(path: str) -> bytes:
    body = body_of(path)
    return head(path, f"Content-Length: {len(body)}") + body


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with starting(tmp_path_factory.mktemp("server")) as start:
        yield start(MODEL_NAME="scripted", MAX_BODY_BYTES=MAX_BODY_BYTES, API_KEYS="")


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def a_good_request_is_answered_afterwards(server: Server, path: str) -> Iterator[None]:
    yield
    with connected(server) as connection:
        connection.sendall(good(path))
        response = answer(connection)
        assert response.status == 200
        assert b"5.0" in response.read()


def check_form(path: str, response: http.client.HTTPResponse) -> bytes:
    """The error is in the form of its protocol, small, and no page for people."""
    body = response.read()
    assert len(body) < 8 * 1024
    assert b"<" not in body
    assert b"Traceback" not in body
    document = json.loads(body, parse_constant=pytest.fail)
    if path.startswith("/v"):
        assert (response.headers["Content-Type"], document.keys()) == ("application/json", {"error"})
    else:
        assert response.headers["Content-Type"] == "application/problem+json"
        assert document["status"] == response.status
    return body


def rest_of(connection: socket.socket) -> bytes:
    """What else comes until the server closes."""
    data = b""
    try:
        while part := connection.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return data


# A second request, for whoever takes the body of the first for something else.
SMUGGLED = b"GET /livez HTTP/1.1\r\nHost: smuggled\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: gzip, chunked, chunked"],
        [b"Transfer-Encoding\xa0: chunked"],
        [b"Transfer-Encoding : chunked"],
        [b"Transfer-Encoding: \x0bchunked"],
        [b"Transfer-Encoding:\n chunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5, 6"],
        ["Content-Length: +5"],
        ["Content-Length: -5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5 5"],
        ["Content-Length: " + "9" * 50],
        [b"Content-Length: \xb5"],
        ["Content-Length : 5"],
    ],
    ids=lambda lines: repr(lines)[:50],
)
def test_a_body_of_doubtful_length_is_one_refusal_and_the_end_of_the_connection(server, path, lines):
    with connected(server) as connection:
        connection.sendall(head(path, *lines) + b"0\r\n\r\n" + SMUGGLED)
        response = answer(connection)
        body = response.read()
        assert response.status in (400, 413, 501), body
        assert b"<" not in body
        assert b"HTTP/1.1 200" not in rest_of(connection)
        assert "Traceback" not in server.text()


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\n", b"-1\r\n", b"5;" + b"x" * 100_000, b"5" * 100_000, b"0x5\r\nhello\r\n0\r\n\r\n",
b"5\r\nhelloworld\r\n0\r\n\r\n", b"5\nhello\n0\n\n", b"\r\n",
    ],
    ids=lambda chunks: repr(chunks[:20]),
)  # fmt: skip
def test_chunks_that_are_none_are_refused_and_end_the_connection(server, path, chunks):
    with connected(server) as connection:
        sender = send(connection, head(path, "Transfer-Encoding: chunked") + chunks + SMUGGLED)
        response = answer(connection)
        assert response.status in (400, 413)
        response.read()
        assert b"HTTP/1.1 200" not in rest_of(connection)
        sender.join(20)


def test_a_chunked_body_is_taken_and_one_over_the_limit_is_not(server, path):
    body = body_of(path)
    with connected(server) as connection:
        pieces = b"".join(b"%x\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7))
        connection.sendall(head(path, "Transfer-Encoding: chunked") + pieces + b"0\r\n\r\n")
        response = answer(connection)
        assert (response.status, b"5.0" in response.read()) == (200, True)
    with connected(server) as connection:
        too_much = (b"400\r\n" + b" " * 1024 + b"\r\n") * (MAX_BODY_BYTES // 1024 + 1) + b"0\r\n\r\n"
        sender = send(connection, head(path, "Transfer-Encoding: chunked") + too_much)
        response = answer(connection)
        assert response.status == 413
        assert b"MAX_BODY_BYTES" in check_form(path, response)
        sender.join(20)


@pytest.mark.parametrize(
    "chunks",
    [
        b"ffffffffff\r\n",
        b"f" * 1000 + b";x=y\r\n{",
        b"%x\r\n" % (MAX_BODY_BYTES + 1),
        b"5\r\n     \r\n%x\r\n" % (MAX_BODY_BYTES - 4),
    ],
    ids=lambda chunks: repr(chunks[:20]),
)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_chunk_that_declares_too_much_is_refused_before_it_comes(server, path, chunks, encoding):
    with connected(server) as connection:
        began = time.monotonic()
        connection.sendall(head(path, "Transfer-Encoding: chunked", f"Content-Encoding: {encoding}") + chunks)
        response = answer(connection)
        assert response.status == 413
        assert b"MAX_BODY_BYTES" in check_form(path, response)
        assert response.headers["Connection"] == "close"
        assert time.monotonic() - began < 3  # milliseconds on a quiet machine; the patience with clients is longer


def test_chunks_that_declare_just_what_is_allowed_are_taken(server, path):
    body = body_of(path).ljust(MAX_BODY_BYTES)
    with connected(server) as connection:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:1000], body[1000:]))
        sender = send(connection, head(path, "Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n")
        response = answer(connection)
        assert (response.status, b"5.0" in response.read()) == (200, True)
        sender.join(20)


@pytest.mark.parametrize(
    "lines, status",
    [
        (["X-A: " + "a" * 9000], 431),
        ([f"X-{i}: a" for i in range(500)], 431),
        ([b"X-A\x00: 1"], 400),
        ([b"X-A: a\x00b"], 400),
        ([b"no colon"], 400),
        ([b" folded: 1"], 400),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_headers_beyond_all_measure_are_refused(server, path, lines, status):
    with connected(server) as connection:
        sender = send(connection, head(path, *lines, "Content-Length: 0"))
        response = answer(connection)
        assert response.status in (status, 400)
        check_form(path, response)
        sender.join(20)


NO_REQUESTS = {
    "no version": (b"POST {} \r\nX-Request-ID: mine.1\r\n\r\n", 400),
    "a version of its own": (b"POST {} HTTP/9.9\r\nHost: x\r\nX-Request-ID: mine.1\r\n\r\n", 400),
    "a target without an end": (b"POST {}?" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 414),
    "a header without an end": (
        b"POST {} HTTP/1.1\r\nX-Request-ID: mine.1\r\nX-A: " + b"a" * 20_000 + b"\r\n\r\n",
        431,
    ),
    "an expectation of its own": (b"POST {} HTTP/1.1\r\nHost: x\r\nX-Request-ID: mine.1\r\nExpect: x\r\n\r\n", 417),
    "a header without a name": (b"HEAD {} HTTP/1.1\r\nX-Request-ID: mine.1\r\nHost: x\r\n: x\r\n\r\n", 400),
}


@pytest.mark.parametrize("name", NO_REQUESTS)
def test_what_is_no_request_is_answered_in_the_form_of_its_path_under_an_id_that_the_log_has(server, path, name):
    sent, status = NO_REQUESTS[name]
    with connected(server) as connection:
        sender = send(connection, sent.replace(b"{}", path.encode()))
        response = answer(connection)
        assert response.status == status
        if sent.startswith(b"HEAD"):
            assert int(response.headers["Content-Length"]) > 0
            assert rest_of(connection) == b""
        else:
            assert b"mine" not in check_form(path, response).replace(b'"request_id":"mine.1"', b"")
        sender.join(20)
    request_id = response.headers["X-Request-ID"]
    assert request_id == "mine.1" or b"mine.1" not in sent
    lines = [json.loads(line) for line in server.text().splitlines() if f'"{request_id}"' in line]
    assert lines[-1]["status"] == status
    assert lines[-1]["problem"].startswith(response.reason)  # then the log says more than the client is told


def test_a_half_sent_request_or_a_slow_body_keeps_nobody_waiting(server, path):
    body = body_of(path)
    with ExitStack() as stack:
        for sent in [good(path)[:20], good(path)[:-10], head(path, "Content-Length: 100000"), b"\r\n", b"P"] * 4:
            stack.enter_context(connected(server)).sendall(sent)
        slow = stack.enter_context(connected(server))
        slow.sendall(head(path, f"Content-Length: {len(body)}"))
        for i in range(len(body) // 10):
            slow.sendall(body[i * 10 : i * 10 + 10])
            began = time.monotonic()
            assert server.get("/healthz").status_code == 200
            assert time.monotonic() - began < 2
        slow.sendall(body[len(body) // 10 * 10 :])
        response = answer(slow)
        assert (response.status, b"5.0" in response.read()) == (200, True)


@pytest.mark.parametrize("size", [10, 60 * 1024, 300 * 1024, 3 * 1024 * 1024])
def test_a_refusal_before_the_body_was_read_arrives_and_the_next_request_is_understood(server, path, size):
    missing = path.replace("scripted", "missing") if "scripted" in path else "/models/missing/predict"
    with connected(server) as connection:
        sender = send(connection, head(missing, f"Content-Length: {size}") + b"x" * size)
        response = answer(connection)
        assert response.status in (404, 413)
        check_form(path, response)
        sender.join(20)
        if (response.headers["Connection"] or "").lower() == "close":
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(10) == b""
        else:
            connection.sendall(good(path))
            assert answer(connection).status == 200


@pytest.mark.parametrize(
    "content_type",
    [
        "application/octet-stream",
        "application/x-pickle",
        "application/vnd.x+pickle",
        "application/json",
        "image/png",
        "",
    ],
)
@pytest.mark.parametrize("kind", ["pickle", "npy", "base64"])
def test_a_pickle_is_refused_and_never_loaded(server, path, tmp_path: Path, content_type, kind):
    trace = tmp_path / "the-payload-ran"
    data = pickle.dumps(Payload(trace))
    if kind == "npy":
        file = io.BytesIO()
        np.save(file, np.array([Payload(trace)], dtype=object), allow_pickle=True)
        data = file.getvalue()
    elif kind == "base64":
        data = base64.b64encode(data)
    with connected(server) as connection:
        lines = [f"Content-Type: {content_type}", f"Content-Length: {len(data)}"]
        connection.sendall(
            head(path).replace(b"\r\nContent-Type: application/json\r\n\r\n", b"\r\n")
            + b"\r\n".join(line.encode() for line in lines)
            + b"\r\n\r\n"
            + data
        )
        response = answer(connection)
        assert response.status in (400, 415, 422)
        assert base64.b64encode(data)[:20] not in check_form(path, response)
    assert not trace.exists()


DEAR = {
    "a megabyte of digits": lambda: b"9" * 1_000_000,
    "a megabyte of noise": lambda: np.random.default_rng(1).bytes(1_000_000),
    "20,000 deep": lambda: b'{"instances":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "100,000 openings": lambda: b"[" * 100_000,
    "150,000 keys": lambda: b"{" + b",".join(b'"%x":1' % i for i in range(150_000)) + b"}",
    "a word that JSON has not": lambda: b'{"instances":[[NaN,1]],"inputs":[{"data":[NaN]}]}',
    "nothing": lambda: b"",
    "half a document": lambda: b'{"instances":[[1',
    "another encoding": lambda: '{"instances":[[0,5]]}'.encode("utf-16"),
    "a mark of byte order": lambda: b'\xef\xbb\xbf{"instances":[[0,5]]}',
}


@pytest.mark.parametrize("name", DEAR)
def test_a_body_that_is_dear_or_no_json_is_refused_soon_for_little_memory(server, path, name):
    data = DEAR[name]()
    before_kib = peak_kib(server)
    with connected(server) as connection:
        began = time.monotonic()
        connection.sendall(head(path, f"Content-Length: {len(data)}") + data)
        response = answer(connection)
        took_s = time.monotonic() - began
        assert response.status in (400, 422)
        check_form(path, response)
    assert took_s < 3  # a fraction of a second on a quiet machine
    assert peak_kib(server) - before_kib < 64 * 1024
