"""The process that owns the model: it loads it, batches what its front ends ask for, and tells them how it is."""

from __future__ import annotations

import logging
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from loaders.errors import ModelError
from loaders.signature import OutputSpec
from service.batching.batcher import ThreadedBatcher
from service.errors import NotReady
from service.lane_key import LaneKey
from service.outputs import present
from service.runtime import Runtime
from service.sharing.asking import Lane
from service.sharing.description import described
from service.sharing.failures import described_load_error
from service.sharing.frames import Buffer, FrameKind
from service.sharing.peer import Peer
from service.sharing.place import Place, is_own
from service.sharing.state import TELL_S, told

_log = logging.getLogger("jitney")

# How long answers that are written may take to leave at the end, seconds.
_FLUSH_S = 1.0

_RAW = OutputSpec()


class Owner:
    """Serves `runtime`, which is to be started after this is made, to the front ends that connect at `place`.

    master_ends: becomes readable when master and front ends are gone. drain_s: how long front ends may take to leave
    after `stop`.

    *Thread:* `run` belongs to the process's main thread.
    """

    def __init__(self, runtime: Runtime, place: Place, master_ends: int, drain_s: float) -> None:
        self._runtime = runtime
        self._place = place
        self._master_ends = master_ends
        self._drain_s = drain_s
        self._lock = threading.Lock()  # guards the two below
        self._peers: set[Peer] = set()
        self._introduction: tuple[FrameKind, Any, list[Buffer]] | None = None
        self._wake, self._woken = socket.socketpair()
        self._stop_at: float | None = None
        self._fault: str | None = None
        runtime.on_fatal = self._on_fatal
        runtime.on_the_way = self._on_the_way

    def stop(self) -> None:
        """End as soon as the last front end has left. *Thread:* any, also in a signal's handler."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._drain_s
        self._interrupt()

    def run(self) -> bool:
        """Serve until told to stop, or until the model cannot serve any more; True for the former."""
        threading.Thread(target=self._introduce, name="jitney-owner-start", daemon=True).start()
        self._serve()
        with self._lock:
            peers = list(self._peers)
        for peer in peers:
            peer.close(_FLUSH_S)
        self._runtime.close(_FLUSH_S)
        if self._fault is not None:
            _log.critical("%s; the process that owns the model ends, and another one takes its place", self._fault)
        return self._fault is None

    def _serve(self) -> None:
        listener = self._place.listener
        poll = select.poll()
        for one in (listener.fileno(), self._woken.fileno(), self._master_ends):
            poll.register(one, select.POLLIN)
        while self._fault is None and not self._may_end():
            ready = {number for number, _ in poll.poll(TELL_S * 1000)}
            if self._woken.fileno() in ready:
                self._woken.recv(64)
            if self._master_ends in ready:
                return
            if listener.fileno() in ready:
                self._accept(listener)
            self._tell_state()

    def _may_end(self) -> bool:
        if self._stop_at is None:
            return False
        with self._lock:
            return not self._peers or time.monotonic() >= self._stop_at

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:  # no file may be opened, for example; whoever connects tries again
            _log.error("a front end cannot be taken: %s", error.strerror)
            return
        if not is_own(connection):
            _log.error("a process of another user is refused at the socket of the model's owner")
            connection.close()
            return
        peer = Peer(connection, self._door, self._key_of, lambda value: present(_RAW, value), self._forget)
        with self._lock:
            self._peers.add(peer)
            introduction = self._introduction
            peer.start()
            if introduction is not None:
                kind, head, parts = introduction
                peer.tell(kind, head, parts)

    def _door(self) -> ThreadedBatcher:
        batcher = self._runtime.batcher()
        assert isinstance(batcher, ThreadedBatcher)
        return batcher

    def _forget(self, peer: Peer) -> None:
        with self._lock:
            self._peers.discard(peer)
        self._interrupt()

    def _introduce(self) -> None:
        """Tell every front end, now and later, of the model, or why there is none."""
        self._runtime.batcher().wait_started(threading.TIMEOUT_MAX)
        introduction = self._described()
        with self._lock:
            self._introduction = introduction
            kind, head, parts = introduction
            for peer in self._peers:
                peer.tell(kind, head, parts)
        self._place.tell(has_model=kind is FrameKind.MODEL)
        self._interrupt()

    def _described(self) -> tuple[FrameKind, Any, list[Buffer]]:
        model = self._runtime.model
        if self._runtime.load_error is not None or model is None:
            error = self._runtime.load_error or NotReady("there is no model")
            return FrameKind.FAILED, described_load_error(error), []
        try:
            head, parts = described(model, self._runtime.sample(model), with_input=self._runtime.given is None)
        except ModelError as error:
            _log.critical("%s", error)
            return FrameKind.FAILED, described_load_error(error), []
        return FrameKind.MODEL, head, parts

    def _on_the_way(self) -> int:
        """How many requests front ends have received that will soon be here. *Thread:* any; it never waits."""
        return sum(peer.coming() for peer in self._peers.copy())  # one step, so that it needs no lock

    def _key_of(self, lane: Lane) -> LaneKey:
        model = self._runtime.model
        if model is None:
            raise NotReady("the model is still loading")
        return LaneKey(model, *lane)

    def _tell_state(self) -> None:
        batcher = self._runtime.batcher()
        state = told(batcher.status(), batcher.retry_after_s, time.monotonic())
        with self._lock:
            for peer in self._peers:
                peer.tell(FrameKind.STATE, state)

    def _on_fatal(self, reason: str) -> None:
        """A model that could not be loaded is told by front ends, which end the service or do not, as they do alone."""
        if self._runtime.load_error is None:
            self._fault = reason
            self._interrupt()

    def _interrupt(self) -> None:
        with suppress(OSError):
            self._wake.send(b"\0", socket.MSG_DONTWAIT)


def own(
    load_app: Callable[[], Any],
    runtimes: Callable[[], list[Any]],
    place: Place,
    master_ends: int,
    drain_s: float,
    watch: Callable[[Any], None],
) -> bool:
    """The whole life of the process; True where its end was asked for.

    load_app: makes the app, and with it the only one of `runtimes`. watch: has batches that take too long seen to.
    """
    load_app()
    here = runtimes()
    if len(here) != 1:
        _log.critical("MODEL_SHARING=one serves an app with one Jitney, and this one has %d", len(here))
        place.tell(has_model=False)
        return False
    owner = Owner(here[0], place, master_ends, drain_s)
    signal.signal(signal.SIGTERM, lambda *_: owner.stop())
    here[0].start()
    watch(here[0])
    return owner.run()
