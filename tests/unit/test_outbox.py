"""Answers that get ready one after the other leave together, and nobody's is held up by more than that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.front_end import FrontEnd, all_that_comes
from support.models import GUARD_S

from service.server import outbox
from service.server.connection import State

REQUEST = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


def short(_environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


class Meanwhile:
    """What the other threads of the core do when one lets them go on; each thing is done once."""

    def __init__(self) -> None:
        self.things: list[Callable[[], None]] = []

    def __call__(self) -> None:
        while self.things:
            self.things.pop(0)()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    others = Meanwhile()
    monkeypatch.setattr(outbox, "_let_others_go_on", others)
    return others


@pytest.fixture
def front() -> Iterator[FrontEnd]:
    with FrontEnd(short, serves=False, shares_core=True) as front_end:
        yield front_end


def asking(front_end: FrontEnd, count: int, request: bytes = REQUEST) -> list[socket.socket]:
    """Clients whose requests have been handed over."""
    clients = [front_end.connect() for _ in range(count)]
    for client in clients:
        client.sendall(request)
    front_end.turn(2)
    assert len(front_end.handed_over) == count
    return clients


def test_what_gets_ready_while_the_first_lets_others_go_on_leaves_with_it(front: FrontEnd, meanwhile: Meanwhile):
    clients = asking(front, 3)
    seen: list[bytes] = []
    first, *others = front.handed_over
    for conn in others:
        meanwhile.things.append(lambda conn=conn: front.serving.serve(conn))
    meanwhile.things.append(lambda: seen.extend(map(all_that_comes, clients)))
    front.serving.serve(first)
    assert seen == [b"", b"", b""], "as long as others go on"
    assert all(all_that_comes(client).endswith(b"\r\n\r\nok") for client in clients)
    assert all(conn.state is State.IDLE for conn in front.handed_over)
    assert not front.traffic.inside


def test_what_comes_behind_a_full_outbox_is_sent_without_its_first(
    front: FrontEnd, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outbox, "MOST_TOGETHER", 2)
    clients = asking(front, 2)
    seen: list[bool] = []
    first, second = front.handed_over
    meanwhile.things += [
        lambda: front.serving.serve(second),
        lambda: seen.extend(all_that_comes(client).endswith(b"ok") for client in clients),
    ]
    front.serving.serve(first)
    assert seen == [True, True]


def test_who_is_alone_waits_for_nobody(front: FrontEnd, meanwhile: Meanwhile):
    [client] = asking(front, 1)
    meanwhile.things.append(lambda: pytest.fail("it has waited for others"))
    front.serving.serve(front.handed_over[0])
    assert all_that_comes(client).endswith(b"ok")


def test_a_client_that_has_left_holds_up_no_other(front: FrontEnd, meanwhile: Meanwhile):
    gone, there = asking(front, 2)
    first, second = front.handed_over
    gone.close()
    meanwhile.things.append(lambda: front.serving.serve(second))
    front.serving.serve(first)
    assert all_that_comes(there).endswith(b"ok")
    assert first not in front.traffic.open
    assert second in front.traffic.open


def test_a_client_without_room_holds_up_no_other(front: FrontEnd, meanwhile: Meanwhile):
    slow, quick = asking(front, 2)
    first, second = front.handed_over
    first.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    while True:
        try:
            first.sock.send(b"x" * 4096)
        except BlockingIOError:
            break
    meanwhile.things.append(lambda: front.serving.serve(second))
    front.serving.serve(first)
    assert all_that_comes(quick).endswith(b"ok")
    assert first.state is State.SENDING
    all_that_comes(slow)
    front.turn(2)
    assert all_that_comes(slow).endswith(b"ok")


def test_a_client_that_has_to_be_waited_for_comes_last(
    front: FrontEnd, meanwhile: Meanwhile, monkeypatch: pytest.MonkeyPatch
):
    """As much of what was not read is in memory as may be."""
    asking(front, 2)
    first, second = front.handed_over
    seen: list[bool] = []
    monkeypatch.setattr(first.answer.__class__, "send_more", lambda answer: answer is not first.answer)
    monkeypatch.setattr(
        second.answer.__class__, "wait_until_sent", lambda _answer: seen.append(second in front.poller.waiting())
    )
    monkeypatch.setattr(front.traffic, "keep", lambda conn, _total_bytes: conn is not first)

    def serve_second() -> None:
        front.serving.serve(second)
        second.answer.unsent = b""

    meanwhile.things.append(serve_second)
    front.serving.serve(first)
    assert seen == [True], "the other connection is read again already"


class Closed(list[bytes]):
    """A body that has something done after it was sent, as `call_on_close` of Flask's responses asks for."""

    def __init__(self, parts: list[bytes], close: Callable[[], None]) -> None:
        super().__init__(parts)
        self.close = close


IN_CHUNKS = b"POST /predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"


@pytest.mark.parametrize("kind", ["long", "in parts", "to be closed", "on threads anywhere", "to a request in chunks"])
def test_other_answers_are_sent_at_once(kind: str, meanwhile: Meanwhile):
    body = b"x" * (100_000 if kind == "long" else 4)
    seen: list[bytes] = []

    def app(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        start_response("200 OK", [("Content-Length", str(len(body)))])
        if kind == "in parts":
            return iter([body[:2], body[2:]])
        return Closed([body], lambda: seen.append(all_that_comes(client))) if kind == "to be closed" else [body]

    with FrontEnd(app, serves=False, shares_core=kind != "on threads anywhere") as front_end:
        [client] = asking(front_end, 1, IN_CHUNKS if kind == "to a request in chunks" else REQUEST)
        meanwhile.things.append(lambda: pytest.fail("it has waited for others"))
        front_end.serving.serve(front_end.handed_over[0])
        assert b"".join([*seen, all_that_comes(client)]).endswith(body[:1000])
        assert kind != "to be closed" or seen[0].endswith(body)


def test_an_answer_that_is_ready_is_sent_whatever_fails_after_it(meanwhile: Meanwhile):
    with FrontEnd(short, serves=False, shares_core=True) as front_end:
        [client] = asking(front_end, 1)

        def fail(*_: object) -> None:
            raise ValueError("the access log is full")

        front_end.serving._logs_access = True
        front_end.serving._log_access = fail
        front_end.serving.serve(front_end.handed_over[0])
        assert all_that_comes(client).endswith(b"ok")


def test_no_answer_is_left_however_threads_meet():
    """With the real way to let others go on."""
    count = 200
    with FrontEnd(short, serves=False, shares_core=True) as front_end:
        clients = asking(front_end, count)
        waiting = list(front_end.handed_over)
        begin = threading.Barrier(8)

        def work() -> None:
            begin.wait(GUARD_S)
            while True:
                try:
                    conn = waiting.pop()
                except IndexError:
                    return
                front_end.serving.serve(conn)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GUARD_S)
        assert all(all_that_comes(client).endswith(b"ok") for client in clients)
