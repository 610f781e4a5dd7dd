from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.sharing import frames
from service.sharing.frames import FrameError, FrameKind, FrameReader, encoded, send

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(5.0)
    with ours, theirs:
        yield ours, theirs


def sent(head: object = None, *parts: bytes) -> bytes:
    return b"".join(encoded(FrameKind.ASK, head, parts))


def test_frames_follow_one_another_and_then_the_stream_ends(pair: Pair):
    ours, theirs = pair
    send(ours, [*encoded(FrameKind.ASK, {"a": [1, None]}, [b"xyz", b"1234"]), *encoded(FrameKind.CANCEL, [7])])
    ours.close()
    reader = FrameReader(theirs)
    first, second = reader.read(), reader.read()
    assert first is not None
    assert second is not None
    assert (first.kind, first.head, bytes(first.body)[:3]) == (FrameKind.ASK, {"a": [1, None]}, b"xyz")
    assert (second.kind, second.head, bytes(second.body)) == (FrameKind.CANCEL, [7], b"")
    assert reader.read() is None


def test_every_part_begins_where_an_array_may(pair: Pair):
    ours, theirs = pair
    send(ours, encoded(FrameKind.ASK, None, [b"abc", b"defg"]))
    frame = FrameReader(theirs).read()
    assert frame is not None
    assert bytes(frame.body[frames.ALIGNMENT : frames.ALIGNMENT + 4]) == b"defg"


def test_a_frame_that_ends_too_soon_is_none(pair: Pair):
    ours, theirs = pair
    ours.sendall(sent([1], b"x" * 99)[:-1])
    ours.close()
    with pytest.raises(FrameError, match="ends within"):
        FrameReader(theirs).read()


def test_a_stranger_is_noticed_at_once(pair: Pair):
    ours, theirs = pair
    ours.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    with pytest.raises(FrameError, match="begin"):
        FrameReader(theirs).read()


def test_a_frame_over_the_limit_is_refused_before_it_is_read(pair: Pair):
    ours, theirs = pair
    ours.sendall(sent(None, b"x" * 100)[:17])
    with pytest.raises(FrameError, match="limit"):
        FrameReader(theirs, max_frame_bytes=100).read()


def test_a_frame_over_the_limit_is_not_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 100)
    with pytest.raises(FrameError, match="limit"):
        sent(None, b"x" * 100)


@pytest.mark.parametrize("head", [b"{", b"\xff", b"[" * 100_000])
def test_a_head_that_is_no_json_is_refused(pair: Pair, head: bytes):
    ours, theirs = pair
    ours.sendall(frames._HEADER.pack(b"JtN1", 1, len(head), 0) + head)
    with pytest.raises(FrameError, match="head"):
        FrameReader(theirs).read()


def test_a_kind_that_is_not_known_is_refused(pair: Pair):
    ours, theirs = pair
    ours.sendall(frames._HEADER.pack(b"JtN1", 99, 4, 0) + b"null")
    with pytest.raises(FrameError):
        FrameReader(theirs).read()


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_worse(garbage: bytes):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(sent([1], b"abc") + garbage)
        ours.shutdown(socket.SHUT_WR)
        reader = FrameReader(theirs)
        assert reader.read() is not None
        try:
            while reader.read() is not None:
                pass
        except FrameError:
            assert garbage
