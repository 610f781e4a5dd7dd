"""From bytes to requests: what is plain, what is not, and what is waited for."""

from __future__ import annotations

import socket
import time

import pytest
from support.front_end import FrontEnd, all_that_comes, config, judged_by_gunicorn, judged_here

from service.server.connection import State
from service.wsgi_environ import ACCEPTED, ANNOUNCED, ARRIVED_AT

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"


def app(environ, start_response):
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /a%20b/%c3%a9?q=%20&r HTTP/1.1\r\nHost: x:81\r\nCookie: a\r\nCookie: b\r\nX-Y: z\r\n\r\n",
        b"GET //a//b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://h/p?q HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /p? HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /p HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: https\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: http\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Ssl: off\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX_Forwarded_For: 1\r\nScript-Name: /s\r\nSCRIPT_NAME: /s\r\n\r\n",
    ],
    ids=lambda sent: repr(sent[:40]),
)
@pytest.mark.parametrize(
    "peer, server",
    [
        (("127.0.0.1", 5), ("127.0.0.1", 80)),
        (("203.0.113.9", 5), ("10.0.0.1", 81)),
        (("::1", 5, 0, 0), ("::", 80, 0, 0)),
        ("", "/run/jitney.sock"),
    ],
    ids=["trusted", "not trusted", "IPv6", "local"],
)
@pytest.mark.parametrize("prefix", ["", "/a%20b"])
def test_an_app_sees_of_a_request_what_gunicorn_would_show_it(sent, peer, server, prefix, monkeypatch):
    monkeypatch.setenv("SCRIPT_NAME", prefix)
    cfg = config()
    assert judged_here(sent, cfg, peer, server) == judged_by_gunicorn(sent, cfg, peer, server)


def test_an_app_has_what_else_gunicorn_gives_it_and_what_the_service_adds():
    seen = {}

    def look(environ, start_response):
        seen.update(environ)
        return app(environ, start_response)

    for sent in (GET, GET.replace(b"1.1", b"1.0")):
        seen.clear()
        with FrontEnd(look) as front_end:
            client = front_end.connect()
            client.sendall(sent)
            front_end.turn()
            assert seen["gunicorn.socket"] is front_end.handed_over[0].sock
        assert callable(seen["wsgi.early_hints"])
        assert callable(seen["wsgi.file_wrapper"])
        seen["wsgi.errors"].writelines(["no", "thing"])
        seen["wsgi.errors"].flush()
        assert seen[ACCEPTED] is True
        assert 0 <= time.monotonic() - seen[ARRIVED_AT] < 5
        assert callable(seen[ANNOUNCED])


@pytest.mark.parametrize("sent", [GET, POST, POST.replace(b"Host", b"Connection: keep-alive\r\nHost")])
def test_a_plain_request_needs_no_second_parser(sent):
    with FrontEnd(app) as front_end:
        client = front_end.connect()
        client.sendall(sent)
        front_end.turn()
        assert [conn.is_plain or conn.state is State.IDLE for conn in front_end.handed_over] == [True]
        assert all_that_comes(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("step", [1, 7, 30])
def test_a_request_is_handed_over_when_its_last_byte_has_come_and_not_before(step):
    with FrontEnd(app) as front_end:
        client = front_end.connect()
        for start in range(0, len(POST), step):
            assert front_end.handed_over == []
            client.sendall(POST[start : start + step])
            front_end.turn()
        assert len(front_end.handed_over) == 1
        assert all_that_comes(client).endswith(b"hello")


def test_a_head_that_comes_a_byte_at_a_time_is_parsed_a_few_times_only(monkeypatch):
    with FrontEnd(app) as front_end:
        parser, calls = front_end.environs.parser, []
        judge = parser.judge
        monkeypatch.setattr(parser, "judge", lambda conn: (calls.append(1), judge(conn))[1])
        client = front_end.connect()
        head = GET[:-2] + b"X: " + b"a" * 3000 + b"\r\n\r\n"
        for byte in head:
            client.sendall(bytes([byte]))
            front_end.turn()
        assert len(front_end.handed_over) == 1
        assert len(calls) < 20


def test_pipelined_requests_are_served_one_by_one_in_their_order():
    with FrontEnd(app) as front_end:
        client = front_end.connect()
        client.sendall(POST + GET + POST.replace(b"hello", b"world") + POST[:-2])
        front_end.turn()
        assert all_that_comes(client).count(b"HTTP/1.1 200") == 3
        client.sendall(b"lo")
        front_end.turn()
        assert all_that_comes(client).endswith(b"hello")


def test_the_time_of_a_request_runs_from_its_first_byte_however_many_follow():
    with FrontEnd(app, patience_s=10.0) as front_end:
        client = front_end.connect()
        client.sendall(POST[:10])
        front_end.turn()
        (conn,) = front_end.poller.waiting()
        deadline = conn.deadline
        for byte in POST[10:-1]:
            client.sendall(bytes([byte]))
            front_end.turn()
        assert conn.deadline == deadline
        front_end.reception.look(deadline - 9.9)
        assert front_end.refused == []
        front_end.traffic.owing.update(range(100))  # no thread may be held by one more
        front_end.reception.look(deadline + 0.1)
        assert front_end.refused == [408]
        assert b" 408 " in all_that_comes(client)


def test_a_silent_connection_is_closed_without_a_word_when_it_has_been_kept_long_enough():
    with FrontEnd(app) as front_end:
        client = front_end.connect()
        front_end.reception.look(time.monotonic() + 74)
        assert len(front_end.traffic.open) == 1
        front_end.reception.look(time.monotonic() + 76)
        assert front_end.traffic.open == set()
        assert client.recv(10) == b""


def test_a_body_that_is_late_may_have_a_thread_but_never_more_than_half_of_them():
    with FrontEnd(app, threads=8, serves=False) as front_end:
        clients = [front_end.connect() for _ in range(40)]
        for client in clients:
            client.sendall(POST[:-1])
        front_end.turn(3)
        assert front_end.handed_over == []
        front_end.reception.look(time.monotonic() + 1)
        assert len(front_end.handed_over) == 4
        front_end.traffic.leave(front_end.handed_over[0])
        front_end.reception.look(time.monotonic() + 1)
        assert len(front_end.handed_over) == 5
        for client in clients:
            client.sendall(b"o")
        front_end.turn(3)
        assert len(front_end.handed_over) == 40


@pytest.mark.parametrize(
    "sent, at_once",
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 2000000\r\n\r\n", True),  # the app is to refuse it
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", False),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhe", False),
        (b"POST / HTTP/1.1\r\nContent-Le", False),
        (b"nonsense\r\n\r\n", True),
    ],
)
def test_what_is_handed_over_at_once(sent, at_once):
    with FrontEnd(app, serves=False) as front_end:
        client = front_end.connect()
        client.sendall(sent)
        front_end.turn()
        assert len(front_end.handed_over) == at_once


def test_unfinished_requests_beyond_what_may_be_kept_in_memory_are_refused_and_others_are_not(monkeypatch):
    monkeypatch.setattr("service.server.traffic._LEAST_KEPT_BYTES", 100_000)
    with FrontEnd(app, max_body_bytes=10_000) as front_end:
        clients = [front_end.connect() for _ in range(20)]
        for client in clients:
            client.sendall(b"POST / HTTP/1.1\r\nContent-Length: 10000\r\n\r\n" + b"x" * 9000)
            front_end.turn()
        assert set(front_end.refused) == {503}
        assert len(front_end.refused) == 20 - 160_000 // 9_041
        assert b"Retry-After: 1\r\n" in all_that_comes(clients[-1])
        late = front_end.connect()
        late.sendall(POST)
        front_end.turn()
        assert all_that_comes(late).endswith(b"hello")
        clients[0].sendall(b"x" * 1000)
        front_end.turn(3)
        assert all_that_comes(clients[0]).count(b"x") == 10_000
        assert repr(front_end.traffic).count("kept_bytes=0") == 0
        for client in clients:
            client.close()
        front_end.turn(3)
        assert "kept_bytes=0" in repr(front_end.traffic)


def test_a_long_answer_to_a_client_that_does_not_read_holds_no_thread_and_arrives_when_it_reads():
    body = bytes(range(256)) * 20_000

    def long(environ, start_response):
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    with FrontEnd(long) as front_end:
        client = front_end.connect()
        client.sendall(GET + GET)
        front_end.turn()
        assert front_end.traffic.inside == set()
        (conn,) = front_end.poller.waiting()
        assert conn.state is State.SENDING
        data = b""
        while len(data) < 2 * len(body):
            data += all_that_comes(client)
            front_end.turn()
        assert data.count(b"HTTP/1.1 200") == 2
        front_end.reception.look(time.monotonic() + 74)
        assert len(front_end.traffic.open) == 1


def test_a_client_that_reads_nothing_is_cut_off_when_patience_ends():
    def long(environ, start_response):
        start_response("200 OK", [("Content-Length", "5000000")])
        return [b"x" * 5_000_000]

    with FrontEnd(long, patience_s=5.0) as front_end:
        front_end.connect().sendall(GET)
        front_end.turn()
        front_end.reception.look(time.monotonic() + 4)
        assert len(front_end.traffic.open) == 1
        front_end.reception.look(time.monotonic() + 6)
        assert front_end.traffic.open == set()
        assert "kept_bytes=0" in repr(front_end.traffic)


class Boom(Exception):
    pass


@pytest.mark.parametrize("error", [Boom, SystemExit, KeyboardInterrupt, OSError, GeneratorExit])
def test_an_app_that_raises_is_a_500_and_leaves_nothing_behind(error):
    def broken(environ, start_response):
        raise error("secret")

    with FrontEnd(broken) as front_end:
        client = front_end.connect()
        client.sendall(POST)
        front_end.turn()
        sent = all_that_comes(client)
        assert sent.startswith(b"HTTP/1.1 500")
        assert b"secret" not in sent
        assert (front_end.traffic.inside, front_end.traffic.on_the_way) == (set(), set())


@pytest.mark.parametrize("sent", [GET, GET.replace(b"1.1", b"1.0")])
@pytest.mark.parametrize("fails", [True, False])
def test_an_iterable_is_closed_however_the_answer_ends(sent, fails):
    closed = []

    class Parts:
        def __iter__(self):
            yield b"first"
            if fails:
                raise Boom
            yield b"second"

        def close(self):
            closed.append(True)

    def streaming(environ, start_response):
        start_response("200 OK", [])
        return Parts()

    with FrontEnd(streaming) as front_end:
        client = front_end.connect()
        client.sendall(sent)
        front_end.turn(2)
        got = all_that_comes(client)
        assert closed == [True]
        assert got.count(b"HTTP/1.") == 1
        assert (b"second" in got) is not fails
        assert got.endswith(b"0\r\n\r\n") is (not fails and b"1.1" in sent)
        assert front_end.traffic.inside == set()


def test_a_client_that_is_gone_before_its_answer_leaves_nothing_behind():
    with FrontEnd(app, serves=False) as front_end:
        client = front_end.connect()
        client.sendall(POST)
        front_end.turn()
        client.close()
        front_end.serving.serve(front_end.handed_over[0])
        front_end.turn(2)
        assert front_end.traffic.inside == set()
        assert front_end.traffic.open == set()


def test_an_event_that_is_told_twice_does_no_harm():
    with FrontEnd(app) as front_end:
        client = front_end.connect()
        (conn,) = front_end.poller.waiting()
        assert front_end.poller.claim(conn)
        assert not front_end.poller.claim(conn)
        front_end.reception.received([conn])  # and there is nothing to read
        client.sendall(GET)
        front_end.turn()
        assert len(front_end.handed_over) == 1


@pytest.mark.parametrize("sent", [GET, POST + GET])
def test_a_fault_of_the_front_end_itself_costs_one_client_its_answer_and_others_nothing(sent, monkeypatch):
    with FrontEnd(app) as front_end:
        parser, judge = front_end.environs.parser, front_end.environs.parser.judge

        def broken(conn):
            if conn.arrived.startswith(b"GET"):
                raise ValueError("secret")
            return judge(conn)

        monkeypatch.setattr(parser, "judge", broken)
        first, second = front_end.connect(), front_end.connect()
        first.sendall(sent)
        second.sendall(POST)
        front_end.turn(2)
        got = all_that_comes(first)
        assert got.count(b"HTTP/1.1 500") == 1
        assert b"secret" not in got
        assert all_that_comes(second).endswith(b"hello")


def test_a_connection_that_was_claimed_and_closed_while_it_was_being_armed_is_left_alone():
    with FrontEnd(app) as front_end:
        front_end.connect()
        (conn,) = front_end.poller.waiting()
        front_end.departures.end(conn)
        front_end.poller.arm(conn)


def test_what_is_on_the_way_is_known_until_its_rows_wait_or_it_is_answered():
    counts = []

    def look(environ, start_response):
        counts.append(len(front_end.traffic.on_the_way))
        environ[ANNOUNCED]()
        environ[ANNOUNCED]()
        counts.append(len(front_end.traffic.on_the_way))
        return app(environ, start_response)

    with FrontEnd(look) as front_end:
        chunked = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        for sent in (POST, chunked):
            front_end.connect().sendall(sent)
            front_end.turn()
    assert counts == [1, 0, 1, 0]


@pytest.mark.parametrize("ends", [True, False])
def test_an_app_that_reads_on_where_the_client_sends_no_more_is_not_to_blame(ends):
    with FrontEnd(app, patience_s=0.3) as front_end:
        client = front_end.connect()
        client.sendall(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n5\r\nhel")
        if ends:
            client.shutdown(socket.SHUT_WR)
        began = time.monotonic()
        front_end.turn(3)
        assert all_that_comes(client) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert time.monotonic() - began < 5
        assert front_end.traffic.open == set()
        assert front_end.traffic.owing == set()
