"""A front end and an owner of its model in one process, with a real socket between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from loaders.signature import OutputSpec
from service.batching.admission import WorkerState
from service.batching.batcher import ThreadedBatcher
from service.batching.tickets import BatchInfo
from service.outputs import present
from service.sharing.asking import Asked, asked
from service.sharing.description import described
from service.sharing.frames import FrameKind, FrameReader, encoded, send
from service.sharing.peer import Peer
from service.sharing.place import Place
from service.sharing.remote import RemoteBatcher
from service.sharing.state import told
from support.callers import Callers
from support.models import GUARD_S

Key = tuple[ModelHandle, tuple[Any, ...], tuple[Any, ...]]


class Heard:
    """What a front end hears of its owner."""

    def __init__(self) -> None:
        self.models: list[ModelHandle] = []
        self.errors: list[ModelError] = []
        self.batches: list[BatchInfo] = []

    def owner_has_loaded(self, model: ModelHandle, sample: Any | None) -> None:
        self.models.append(model)

    def owner_has_failed(self, error: ModelError) -> None:
        self.errors.append(error)

    def owner_has_run(self, model: ModelHandle, info: BatchInfo, longest_wait_s: float) -> None:
        assert longest_wait_s >= 0
        self.batches.append(info)


class Gate:
    """A model that runs when it is let; each row is answered with twice its number."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.release = threading.Event()
        self.release.set()
        self.batches: list[list[Any]] = []

    def __call__(self, rows: list[Any], key: Key) -> Any:
        self.batches.append(rows)
        self.started.release()
        assert self.release.wait(GUARD_S)
        if any(float(row[0]) == 13 for row in rows):
            raise ValueError("thirteen")
        if any(float(row[0]) == 14 for row in rows):
            return []
        return [object() if float(row[0]) == 15 else row * 2 for row in rows]


class OwnerAtHand:
    """An owner without its process: a batcher and its peers, at a place of its own."""

    def __init__(self, place: Place, predict: Callable[..., Any], **options: Any) -> None:
        self.handle = ModelHandle.from_callable(predict, name="m")
        self.batcher = ThreadedBatcher(predict, **{"max_batch_latency_s": 0.0, "policy": "eager", **options})
        self.batcher.start()
        self.peers: list[Peer] = []
        self.place = place

    def accept(self, *, introduce: bool = True) -> Peer:
        connection, _ = self.place.listener.accept()
        peer = Peer(connection, lambda: self.batcher, self._key, lambda value: present(OutputSpec(), value), self.ended)
        self.peers.append(peer)
        peer.start()
        if introduce:
            self.introduce(peer)
        return peer

    def introduce(self, peer: Peer) -> None:
        peer.tell(FrameKind.MODEL, *described(self.handle, None))
        peer.tell(FrameKind.STATE, told(self.batcher.status(), self.batcher.retry_after_s, time.monotonic()))

    def ended(self, peer: Peer) -> None:
        self.peers.remove(peer)

    def _key(self, lane: Any) -> Key:
        return (self.handle, *lane)

    def close(self) -> None:
        for peer in list(self.peers):
            peer.close(GUARD_S)
        self.batcher.close(GUARD_S)


class Both:
    """A front end and its owner."""

    def __init__(self, place: Place, **options: Any) -> None:
        self.gate = Gate()
        self.heard = Heard()
        self.owner = OwnerAtHand(place, self.gate, **options)
        self.front = front_end(place, self.heard)
        self.front.start()
        self.peer = self.owner.accept()
        assert self.front.wait_started(GUARD_S)

    @property
    def key(self) -> Key:
        return (self.heard.models[-1], (), ("f", 1))

    def ask(self, *numbers: float, **more: Any) -> Any:
        return self.front.ask([np.array([number]) for number in numbers], GUARD_S, **{"key": self.key, **more})

    def close(self) -> None:
        self.gate.release.set()
        self.front.close(0.0)
        self.owner.close()


class OwnerByHand:
    """An owner of which a test sends every frame."""

    def __init__(self, place: Place) -> None:
        self.connection, _ = place.listener.accept()
        self.connection.settimeout(GUARD_S)
        self.handle = ModelHandle.from_callable(list, name="m")
        self._frames = FrameReader(self.connection)
        self.tell(FrameKind.MODEL, *described(self.handle, None))
        self.tell_state(WorkerState.RUNNING)

    def tell(self, kind: FrameKind, head: Any, parts: Any = ()) -> None:
        send(self.connection, encoded(kind, head, parts))

    def tell_state(self, state: WorkerState) -> None:
        self.tell(FrameKind.STATE, [time.monotonic(), state, 0, 0.0, 0.01, None, None, None, None, 32])

    def asked(self) -> list[int]:
        return [request.number for request in self.asked_and_coming()[0]]

    def asked_and_coming(self) -> tuple[list[Asked], int]:
        frame = self._frames.read()
        assert frame is not None
        _, requests, coming = asked(frame)
        return requests, coming


def front_end(place: Place, heard: Heard, **options: Any) -> RemoteBatcher:
    return RemoteBatcher(
        place.address,
        listener=heard,
        model_of=lambda key: key[0],
        lane_of=lambda key: key[1:],
        max_batch_size=32,
        max_batch_latency_s=0.005,
        default_timeout_s=GUARD_S,
        **options,
    )


def wait_until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + GUARD_S
    while not holds():
        assert time.monotonic() < give_up_at, "it did not come true"
        time.sleep(0.005)


def with_one_in_the_model(pair: Both) -> Callers:
    """Callers of which one has its row, 1, in the model; it stays there until the gate is released."""
    pair.gate.release.clear()
    callers = Callers()
    callers.start(lambda: pair.ask(1))
    assert pair.gate.started.acquire(timeout=GUARD_S)
    return callers
