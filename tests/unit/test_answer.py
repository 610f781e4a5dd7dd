"""What an answer looks like on the wire, beside gunicorn's own."""

from __future__ import annotations

import re
import socket
import threading
from types import SimpleNamespace

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import InvalidResponseHeader, InvalidResponseHeaderName
from gunicorn.http.wsgi import Response

from service.server.answer import Answer, ClientGone

TEXT = ("Content-Type", "text/plain")


def read_all(sock: socket.socket) -> bytes:
    data = b""
    sock.setblocking(False)
    try:
        while piece := sock.recv(1 << 20):
            data += piece
    except BlockingIOError:
        pass
    return re.sub(rb"Date: [^\r]*", b"Date: -", data)


def by_gunicorn(app, method: str, version: tuple[int, int], closes: bool) -> tuple[bytes, bool]:
    here, there = socket.socketpair()
    with here, there:
        request = SimpleNamespace(
            method=method, version=version, should_close=lambda: closes or version < (1, 1), headers=[]
        )
        answer = Response(request, here, Config())
        for part in app(answer.start_response):
            answer.write(part)
        answer.close()
        return read_all(there), answer.should_close()


def by_us(app, method: str, version: tuple[int, int], closes: bool) -> tuple[bytes, bool]:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        answer = Answer(here, lambda: False)
        answer.begin(method, version[1], must_close=closes or version < (1, 1))
        answer.send(app(answer.start_response))
        return read_all(there), answer.must_close


def with_length(start_response):
    start_response("200 OK", [TEXT, ("Content-Length", "5")])
    return [b"he", b"llo"]


def of_unknown_length(start_response):
    start_response("200 OK", [TEXT])
    return (part for part in [b"he", b"", b"llo"])


def of_one_piece(start_response):
    start_response("200 OK", [TEXT])
    return [b"hello"]


def nothing(start_response):
    start_response("204 No Content", [("Content-Length", "0")])
    return []


def not_modified(start_response):
    start_response("304 Not Modified", [("Content-Length", "7"), ("ETag", '"a"')])
    return []


def more_than_announced(start_response):
    start_response("200 OK", [("Content-Length", "3")])
    return [b"hello", b"more"]


def written(start_response):
    write = start_response("200 OK", [TEXT])
    write(b"first")
    return [b"second"]


def connection_headers(start_response):
    start_response(
        "404 Not Found",
        [
            ("Connection", "keep-alive"),
            ("Keep-Alive", "5"),
            ("Server", "x"),
            ("Date", "y"),
            ("X-A", " b\t"),
            ("X-A", "é"),
        ],
    )
    return [b"no"]


def upgraded(start_response):
    start_response("101 Switching Protocols", [("Connection", "Upgrade"), ("Upgrade", "websocket")])
    return []


def empty(start_response):
    start_response("200 OK", [("Content-Length", "0")])
    return []


def silent(start_response):
    start_response("200 OK", [TEXT])
    return iter(())


@pytest.mark.parametrize(
    "app",
    [
        with_length, of_unknown_length, of_one_piece, nothing, not_modified, more_than_announced, written,
        connection_headers, upgraded, empty, silent,
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("version", [(1, 0), (1, 1)])
@pytest.mark.parametrize("closes", [True, False])
def test_the_bytes_and_the_end_of_the_connection_are_gunicorns(app, method, version, closes):
    def joined(told: tuple[bytes, bool]) -> tuple[bytes, bytes, bool]:
        head, _, body = told[0].partition(b"\r\n\r\n")
        return head, unchunked(body) if b"chunked" in head else body, told[1]

    assert joined(by_us(app, method, version, closes)) == joined(by_gunicorn(app, method, version, closes))


def unchunked(body: bytes) -> bytes:
    data = b""
    while body != b"0\r\n\r\n":
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        assert length > 0
        assert rest[length : length + 2] == b"\r\n"
        data, body = data + rest[:length], rest[length + 2 :]
    return data


@pytest.fixture
def pair():
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("X-A", "a\r\nSet-Cookie: b", InvalidResponseHeader),
        ("X-A", "a\nb", InvalidResponseHeader),
        ("X-A", "a\0b", InvalidResponseHeader),
        ("X-A\r\nX-B", "a", InvalidResponseHeaderName),
        ("X A", "a", InvalidResponseHeaderName),
        ("", "a", InvalidResponseHeaderName),
        (b"X-A", "a", TypeError),
    ],
)
def test_a_header_that_would_be_more_than_one_is_refused(pair, name, value, error):
    answer = Answer(pair[0], lambda: False)
    with pytest.raises(error):
        answer.start_response("200 OK", [(name, value)])
    assert not answer.has_begun


@pytest.mark.parametrize("status", ["200 OK\r\nX: y", "20 OK", "OK", "2000 OK", "200\tOK"])
def test_a_status_that_is_none_is_refused(pair, status):
    with pytest.raises(ValueError):
        Answer(pair[0], lambda: False).start_response(status, [])


def test_a_second_start_needs_an_exception_and_replaces_the_first(pair):
    here, there = pair
    answer = Answer(here, lambda: False)
    answer.start_response("200 OK", [("X-A", "1"), ("Content-Length", "9")])
    with pytest.raises(AssertionError):
        answer.start_response("200 OK", [])
    error = ValueError("boom")
    answer.start_response("500 Oops", [("Content-Length", "2")], (ValueError, error, None))
    answer.send([b"no"])
    assert b"X-A" not in (sent := read_all(there))
    assert sent.startswith(b"HTTP/1.1 500 Oops")
    with pytest.raises(ValueError, match="boom"):
        answer.start_response("500 Oops", [], (ValueError, error, None))


def test_an_app_that_does_not_begin_its_answer_has_failed(pair):
    with pytest.raises(AssertionError):
        Answer(pair[0], lambda: False).send([b"x"])


def test_a_body_that_is_no_bytes_is_refused_before_anything_is_sent(pair):
    answer = Answer(pair[0], lambda: False)
    answer.start_response("200 OK", [])
    with pytest.raises(TypeError):
        answer.send(["text"])
    assert not answer.has_begun


def test_an_answer_that_is_shorter_than_it_says_ends_the_connection(pair):
    answer = Answer(pair[0], lambda: False)
    answer.start_response("200 OK", [("Content-Length", "9")])
    answer.send([b"short"])
    assert answer.must_close


def test_a_part_is_sent_before_the_next_one_is_asked_for(pair):
    here, there = pair
    answer = Answer(here, lambda: False)
    answer.start_response("200 OK", [TEXT])
    seen = []

    def parts():
        yield b"first"
        seen.append(read_all(there))
        yield b"second"

    answer.send(parts())
    assert b"first" in seen[0]
    assert b"second" in read_all(there)


def test_what_the_socket_has_no_room_for_is_left_to_others_when_it_is_the_last(pair):
    here, there = pair
    answer = Answer(here, lambda: False)
    body = bytes(range(256)) * 40_000
    answer.start_response("200 OK", [("Content-Length", str(len(body)))])
    answer.send([body])
    assert answer.unsent
    data = read_all(there)
    while not answer.send_more():
        data += read_all(there)
    data += read_all(there)
    assert data.partition(b"\r\n\r\n")[2] == body


def test_a_stream_waits_for_its_client_and_not_for_ever(pair):
    here, _ = pair
    answer = Answer(here, lambda: False)
    answer.patience_s = 0.1
    answer.start_response("200 OK", [TEXT])
    with pytest.raises(ClientGone):
        answer.send(b"x" * 100_000 for _ in range(100))


def test_a_stream_goes_on_when_its_client_reads(pair):
    here, there = pair
    answer = Answer(here, lambda: False)
    answer.patience_s = 5.0
    answer.start_response("200 OK", [("Content-Length", "10000000")])
    received = []
    there.settimeout(5)

    def read():
        while sum(map(len, received)) < 10_000_000:
            received.append(there.recv(1 << 20))

    reader = threading.Thread(target=read, name="reader")
    reader.start()
    answer.send(b"x" * 100_000 for _ in range(100))
    while not (not answer.unsent or answer.send_more()):
        pass
    reader.join(5)
    assert not reader.is_alive()


def test_hints_come_before_the_answer_and_only_there(pair):
    here, there = pair
    answer = Answer(here, lambda: False)
    answer.send_early_hints([("Link", "</a.css>"), (b"X-B", b"c")])
    with pytest.raises(InvalidResponseHeader):
        answer.send_early_hints([("Link", "a\r\nb")])
    answer.start_response("200 OK", [("Content-Length", "2")])
    answer.send([b"ok"])
    answer.send_early_hints([("Link", "</late>")])
    sent = read_all(there)
    assert sent.startswith(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-B: c\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert b"late" not in sent


def test_the_server_may_end_the_connection_for_reasons_of_its_own(pair):
    here, there = pair
    answer = Answer(here, lambda: True)
    answer.start_response("200 OK", [("Content-Length", "0")])
    answer.send([])
    assert answer.must_close
    assert b"Connection: close" in read_all(there)
