"""What waits in the queue and what comes back: plain data, with one writer per field."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from service.batching.one_shot import OneShotEvent


class Priority(IntEnum):
    """Who goes first. Rows of lower priority fill what is left of a batch, and have a bounded wait (see `lanes`)."""

    HIGH = 1
    NORMAL = 2
    LOW = 3


class FlushReason(StrEnum):
    """Why a batch left when it did; the values are metric labels."""

    SIZE = "size"  # the lane held as many rows as a batch may have
    TOKENS = "tokens"  # the rows at the front use up the token budget, exactly or beyond it
    LATENCY = "latency"  # the oldest row had waited its full time
    IDLE = "idle"  # eager policy: the worker was free and nobody was on the way
    ENOUGH = "enough"  # further rows would make no row cheaper, says the scheduler
    DRAIN = "drain"  # the batcher is closing


# A named tuple, here and below, is made in a third of the time of a frozen dataclass; of these each request makes some.
class BatchInfo(NamedTuple):
    """How one batch ran; shared by all of its rows.

    `size`: rows. `started_at`: clock reading when the model was called. `model_s`: seconds in the model, extra
    runs included. `runs`: model calls, 1 unless the batch was split. `tokens`: sum of the rows' own lengths.
    `padded_length`: what the model padded its rows to, tokens: the longest of them, or more where it rounds up.
    `instance`: number of the worker thread that ran it, from 0. `packed_rows`: how many rows of `padded_length` tokens
    the model computed, where it lets several of the batch share one; None where it computed each in a row of its own.
    """

    batch_id: int
    size: int
    reason: FlushReason
    started_at: float
    model_s: float
    runs: int
    tokens: int
    padded_length: int
    instance: int = 0
    packed_rows: int | None = None

    @property
    def computed_rows(self) -> int:
        """Rows of `padded_length` tokens."""
        return self.size if self.packed_rows is None else self.packed_rows

    @property
    def padding_tokens(self) -> int:
        """Tokens that were computed only because rows of different length shared the batch."""
        return self.computed_rows * self.padded_length - self.tokens

    @property
    def padding_share(self) -> float:
        """Of the tokens that were computed, those that were padding, 0 to 1."""
        return self.padding_tokens / (self.computed_rows * self.padded_length)


class Answer(NamedTuple):
    """What a request gets back. `results[i]` and `batches[i]` belong to the caller's row i.

    `enqueued_at`: clock reading at admission, seconds; a row's queue time is `batches[i].started_at - enqueued_at`.
    `queue_s`: the longest time that any row of the request waited for its batch, seconds. `model_s`: time in the model
    of the slowest batch that carried a row of the request, seconds.
    """

    results: list[Any]
    batches: list[BatchInfo]
    enqueued_at: float
    queue_s: float
    model_s: float


@dataclass(slots=True, eq=False)
class Row:
    """One row of one request. `length`: its cost in tokens, at least 1."""

    ticket: Ticket
    index: int
    payload: Any
    length: int = 1


class LaneName:
    """A caller's key as the worker sees it: hashed once, where the caller is, and never raising when it is compared.

    Keys are the same when they are of one type and equal. So whatever a key's own `__eq__` does, only rows of keys of
    its own kind may find themselves in one lane with it, or without company.
    """

    __slots__ = ("_hash", "key")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LaneName) or self._hash != other._hash:
            return False
        if self.key is other.key:
            return True
        try:
            return type(self.key) is type(other.key) and bool(self.key == other.key)
        except Exception:
            return False


@dataclass(slots=True, eq=False)
class Ticket:
    """One request while it is in the batcher; it needs no lock of its own.

    Writers: the request thread makes it and, holding the admission's lock, sets `abandoned`. The worker threads write
    results, batches and failures, holding the delivery's lock, as several batches may hold rows of it at a time. Who
    writes the last result, or a failure, sets `done`; what comes after a failure is read by nobody. `rows` holds those
    that no batch has taken, by index and so in the caller's order; it changes under the admission's lock only, and is
    replaced rather than emptied, so that a worker may look through it without the lock. Rows that left it hold the
    ticket, but not the other way round: a request is freed without the garbage collector. Four fields belong to the
    lane, that is to the thread that leads the workers: `level` is the priority that the request has now, `turn_at` when
    it last queued up, `credit` how many rows it may still send before it must queue again, `unserved` how many rows the
    lane counts for it. `taken_at`: clock reading when the last of its rows left `rows` for a batch; like `rows` it is
    the admission's. `batches` holds those that failed as well. `origin`: what `ask` was told of where the request comes
    from, set before it is admitted. `request_id`: what the log calls the request.
    """

    lane: LaneName
    deadline: float
    results: list[Any]
    batches: list[BatchInfo | None]
    unanswered: int
    unserved: int
    rows: dict[int, Row]
    priority: Priority
    enqueued_at: float
    turn_at: float
    failure: BaseException | None = None
    failed_rows: tuple[int, ...] = ()
    abandoned: bool = False
    done: OneShotEvent = field(default_factory=OneShotEvent)
    level: Priority = Priority.NORMAL
    credit: int = 0
    taken_at: float | None = None
    origin: object | None = None
    request_id: str = ""

    @classmethod
    def of(
        cls,
        payloads: Sequence[Any],
        lengths: Sequence[int],
        *,
        key: Hashable,
        deadline: float,
        priority: Priority = Priority.NORMAL,
        enqueued_at: float = 0.0,
    ) -> Ticket:
        """A ticket for `payloads`, one row each; `lengths` in tokens, as many as payloads.

        `enqueued_at` stands until the admission sets it.
        """
        count = len(payloads)
        rows: dict[int, Row] = {}
        nothing: list[Any] = [None] * count
        # By position, because a class that is called by names takes twice as long.
        ticket = cls(
            LaneName(key), deadline, nothing, nothing.copy(), count, count, rows, priority, enqueued_at, enqueued_at
        )
        for index in range(count):
            rows[index] = Row(ticket, index, payloads[index], lengths[index])
        return ticket

    @property
    def key(self) -> Hashable:
        """What the caller gave: rows share a batch with rows of equal keys only."""
        return self.lane.key

    @property
    def over(self) -> bool:
        """Nobody needs the rest of its rows: the caller has left, or has its error already."""
        return self.abandoned or self.failure is not None

    def expired(self, now: float) -> bool:
        """Its deadline has passed, or its caller is gone."""
        return self.abandoned or self.failure is not None or now >= self.deadline

    def answer(self, row: Row, result: Any, info: BatchInfo) -> None:
        """Record a row's own result. *Thread:* a worker's, with the delivery's lock."""
        self.results[row.index] = result
        self.batches[row.index] = info
        self.unanswered -= 1

    def fail(self, error: BaseException, row: Row | None = None, info: BatchInfo | None = None) -> None:
        """Record the first error; `row` when a row of its own caused it, `info` when that was in a batch.

        *Thread:* as `answer`, or whoever ends it.
        """
        if self.failure is None:
            self.failure = error
        if row is not None:
            self.failed_rows += (row.index,)
            self.batches[row.index] = info


@dataclass(slots=True, eq=False)
class Batch:
    """Rows that a worker thread has taken out of the queue to run them together; all are of one lane.

    `is_behind`: it queues behind another batch at its device, so that its time is not its own.
    """

    lane: LaneName
    rows: list[Row]
    reason: FlushReason
    is_behind: bool = False


def requests_of(rows: Sequence[Row]) -> str:
    """The requests that `rows` are of, as the log calls them."""
    ids = dict.fromkeys(row.ticket.request_id for row in rows)
    ids.pop("", None)
    return f"request {', '.join(ids)}" if ids else "requests without an id"


@dataclass(slots=True, eq=False)
class Job:
    """A function that a worker thread calls between two batches. It writes the outcome, then sets `done`.

    `awaited`: somebody waits for the outcome, and learns of a failure. `is_wanted`: the waiter makes it False when it
    leaves; then the call need not take place.
    """

    run: Callable[[], Any]
    awaited: bool = True
    is_wanted: bool = True
    result: Any = None
    failure: BaseException | None = None
    done: OneShotEvent = field(default_factory=OneShotEvent)
