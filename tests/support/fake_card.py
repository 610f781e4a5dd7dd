"""A card that is none: torch on the CPU, with streams that run only when somebody waits for them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

DEVICE = "cuda:0"


class Stream:
    """What has been given to the card, in its order. *Thread:* any; the lock guards the queue, and that one runs it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: deque[Callable[[], object]] = deque()
        self._lock = threading.RLock()

    def add(self, work: Callable[[], object]) -> None:
        with self._lock:
            self._waiting.append(work)

    def run_until(self, event: Event) -> None:
        with self._lock:
            while not event.is_over:
                self._waiting.popleft()()

    def wait_event(self, event: Event) -> None:
        """Operators on the fake run when they are called: what they have to wait for is done here and now."""
        event.run()

    def __len__(self) -> int:
        return len(self._waiting)


class Event:
    def __init__(self, card: FakeCard) -> None:
        self._card = card
        self._stream: Stream | None = None
        self.is_over = False

    def record(self, stream: Stream) -> None:
        self._stream = stream
        stream.add(self._be_over)

    def run(self) -> None:
        assert self._stream is not None, "an event that was never recorded"
        self._stream.run_until(self)

    def synchronize(self) -> None:
        self._card.log("waits")
        self._card.before_wait()
        self.run()

    def _be_over(self) -> None:
        self.is_over = True


class CardTensor(torch.Tensor):
    """A tensor that says that it is on the card. Operators give such tensors too."""

    card: FakeCard

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device(DEVICE)

    def record_stream(self, stream: Stream) -> None:  # type: ignore[override]
        self.card.log(f"kept for {stream.name}")


class LockedTensor(torch.Tensor):
    """Page-locked memory: what is copied from it, or to it, is there when the card gets to it."""

    card: FakeCard

    def to(self, device: torch.device, *, non_blocking: bool) -> Any:  # type: ignore[override]
        assert (str(device), non_blocking) == (DEVICE, True)
        memory = torch.full(self.shape, 99, dtype=self.dtype)
        there = memory.as_subclass(CardTensor)
        there.card = self.card
        stream = self.card.current
        stream.add(lambda: memory.copy_(_plain(self)))
        self.card.log(f"rows in {stream.name}")
        return there

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:  # type: ignore[override]
        assert non_blocking
        stream = self.card.current
        stream.add(lambda: _plain(self).copy_(_plain(source)))
        self.card.log(f"results in {stream.name}")
        return self


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, as what it is: operators do not know how two of the classes here go together."""
    return tensor.as_subclass(torch.Tensor)


class FakeCard:
    """Stands for the `torch` module, of which only the way to the card and back is made up.

    `told`: what happened, in order, on all threads. `before_wait`: happens when a thread begins to wait for an event.
    """

    def __init__(self) -> None:
        self.told: list[str] = []
        self.before_wait: Callable[[], object] = lambda: None
        self.default = Stream("computing")
        self._here = threading.local()
        self.cuda = self

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def log(self, what: str) -> None:
        self.told.append(what)

    # torch

    def from_numpy(self, array: Any) -> Any:
        tensor = torch.from_numpy(array).clone().as_subclass(LockedTensor)
        tensor.card = self
        tensor.pin_memory = lambda: tensor
        return tensor

    def empty(self, shape: Any, *, dtype: Any, pin_memory: bool) -> Any:
        tensor = torch.full(shape, 77, dtype=dtype)
        if not pin_memory:
            return tensor
        locked = tensor.as_subclass(LockedTensor)
        locked.card = self
        return locked

    # torch.cuda

    @property
    def current(self) -> Stream:
        """The stream that the calling thread works in; on a new thread one that nobody looks at."""
        here: Stream | None = getattr(self._here, "stream", None)
        return Stream("no stream") if here is None else here

    def default_stream(self, device: Any) -> Stream:
        return self.default

    def Stream(self, device: Any) -> Stream:
        return Stream("copying")

    def Event(self, *, blocking: bool = False) -> Event:
        return Event(self)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = getattr(self._here, "stream", None)
        self._here.stream = stream
        try:
            yield
        finally:
            self._here.stream = before
