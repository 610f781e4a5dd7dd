"""Waiting rows, sorted into lanes. A lane holds rows that may share a batch; batches never mix lanes.

Everything here belongs to the worker thread that leads. The order inside a lane is first come first served by request,
with one exception: a request larger than a batch gives up its turn after each batch's worth of rows and queues
again behind the callers that came meanwhile, so that one bulk caller does not hold up single rows.

Requests of higher priority go first, and those of lower priority fill what is left of a batch. One that has waited
for its turn `PATIENCE_S` seconds is treated as one of the highest from then on, so that nobody starves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice

from service.batching.policy import BatchLimits, Company
from service.batching.schedulers import Fifo, Scheduler
from service.batching.tickets import FlushReason, LaneName, Priority, Row, Ticket

# How often in a row a scheduler may leave out the row whose turn it is.
MAX_PASSES = 16

# How long a request lets those of higher priority go first, seconds.
PATIENCE_S = 1.0

# Why a batch leaves that further rows might have joined.
_SHORT = frozenset({FlushReason.LATENCY, FlushReason.IDLE})


Turns = OrderedDict[Ticket, None]
"""The requests of one priority, in the order in which they have their turn; `levels[priority - 1]` of a lane."""


class Lane:
    """The waiting requests of one compatibility key. `quantum`: rows a request may send before it queues again."""

    def __init__(self, name: LaneName, quantum: int) -> None:
        self.name = name
        self.rows = 0
        self._quantum = quantum
        self._levels: tuple[Turns, Turns, Turns] = (OrderedDict(), OrderedDict(), OrderedDict())
        self._arrivals: OrderedDict[Ticket, None] = OrderedDict()
        self._of_priority = [0, 0, 0]  # requests by the priority of their own, whatever level they have now
        self._front: Row | None = None  # the row whose turn it was when a batch was last chosen
        self._passes = 0  # batches that left without it

    @property
    def key(self) -> Hashable:
        """The key of its first caller; those of the others are equal to it."""
        return self.name.key

    def __repr__(self) -> str:
        return f"<Lane {self.key!r} rows={self.rows} requests={len(self._arrivals)}>"

    def add(self, ticket: Ticket) -> None:
        """Let a request queue at the end."""
        ticket.credit = self._quantum
        ticket.level = ticket.priority
        self._levels[ticket.level - 1][ticket] = None
        self._arrivals[ticket] = None
        self._of_priority[ticket.priority - 1] += 1
        self.rows += ticket.unserved

    def next_turn(self) -> Ticket:
        """The request at the front; the lane must not be empty."""
        high, normal, low = self._levels
        return next(iter(high or normal or low))

    def promote(self, now: float) -> None:
        """Treat requests as the highest that have let others go first for long enough."""
        highest, *others = self._levels
        for turns in others:
            while turns and now - (ticket := next(iter(turns))).turn_at >= PATIENCE_S:
                del turns[ticket]
                ticket.level = Priority.HIGH
                highest[ticket] = None

    def oldest(self) -> Ticket | None:
        """The request that has waited longest and still has rows here; it need not be the one at the front."""
        return next(iter(self._arrivals), None)

    def drop(self, now: float) -> None:
        """Forget requests whose deadline has passed or whose caller is gone; their rows never reach the model."""
        for ticket in [ticket for ticket in self._arrivals if ticket.expired(now)]:
            self._forget(ticket)

    def take(self, rows: list[Row], now: float) -> None:
        """Remove rows that leave in a batch, and let requests that had their turn queue again."""
        self._passes += 1
        if self._front in rows:
            self._front = None
        for row in rows:
            ticket = row.ticket
            ticket.unserved -= 1
            ticket.credit -= 1
            self.rows -= 1
            if ticket.unserved == 0:
                self._forget(ticket)
            elif ticket.credit == 0:
                ticket.credit = self._quantum
                ticket.turn_at = now
                del self._levels[ticket.level - 1][ticket]
                ticket.level = ticket.priority
                self._levels[ticket.level - 1][ticket] = None

    def in_order(self) -> Iterator[Row]:
        """The waiting rows in the order in which they have their turn."""
        for turns in self._levels:
            yield from self._in_order(turns)

    def _in_order(self, turns: Iterable[Ticket]) -> Iterator[Row]:
        later: list[Iterator[Row]] = []
        for ticket in turns:
            rows = iter(ticket.rows.values())
            yield from islice(rows, ticket.credit)
            if ticket.unserved > ticket.credit:
                later.append(rows)
        while later:
            for rows in list(later):
                turn = list(islice(rows, self._quantum))
                yield from turn
                if len(turn) < self._quantum:
                    later.remove(rows)

    def select(self, scheduler: Scheduler, limits: BatchLimits) -> list[Row]:
        """The rows of the next batch: of the highest priority those that the scheduler chooses, and when that is all of
        them, others in their order as far as they fit. A scheduler that passed over the row at the front too often is
        overruled.

        Empty when the callers of all rows have gone.
        """
        most = max(limits.max_rows, scheduler.look_ahead(limits))
        # Among equals, those that have lost their patience go before nobody; to set them apart would only take from the
        # scheduler what it could choose among, and most of all where rows wait long.
        are_equals = sum(map(bool, self._of_priority)) == 1
        for rows in [self.in_order()] if are_equals else map(self._in_order, self._levels):
            waiting = tuple(islice(rows, most))
            if waiting:
                break
        else:
            return []
        front = waiting[0]
        if front is not self._front:
            self._front, self._passes = front, 0
        if self._passes >= MAX_PASSES:
            scheduler = Fifo()
        positions = scheduler.select(waiting, limits, self._passes)
        _check_selection(positions, waiting, limits)
        chosen = [waiting[position] for position in positions]
        if len(chosen) == len(waiting) < self.rows and not are_equals:
            self._fill_up(chosen, front.ticket.level, limits)
        return chosen

    def _fill_up(self, chosen: list[Row], level: Priority, limits: BatchLimits) -> None:
        longest = max(row.length for row in chosen)
        for lower in self._levels[level:]:
            for row in self._in_order(lower):
                longest = max(longest, row.length)
                if not limits.fits(len(chosen) + 1, longest):
                    return
                chosen.append(row)

    def front(self, limits: BatchLimits) -> list[Row]:
        """The rows that arrival order would send next: those that answer for a scheduler that fails."""
        return list(islice(self.in_order(), limits.max_rows))

    def uses_up_tokens(self, limits: BatchLimits) -> bool:
        """Whether the rows at the front use up the token budget, exactly or beyond it: no further row can join them."""
        if limits.max_tokens is None:
            return False
        longest = 0
        for count, row in enumerate(islice(self.in_order(), limits.max_rows), start=1):
            longest = max(longest, row.length)
            if count * longest >= limits.max_tokens:
                return True
        return False

    def _forget(self, ticket: Ticket) -> None:
        del self._levels[ticket.level - 1][ticket], self._arrivals[ticket]
        self._of_priority[ticket.priority - 1] -= 1
        self.rows -= ticket.unserved
        ticket.unserved = 0


def _never(lane: Lane) -> bool:  # noqa: ARG001
    return False


def _check_selection(positions: Sequence[int], waiting: Sequence[Row], limits: BatchLimits) -> None:
    """Hold a scheduler to its promise: a wrong choice must never lose or double a row."""
    if len(positions) == 1 and 0 <= positions[0] < len(waiting):
        return  # one row always fits
    if not positions or len(set(positions)) != len(positions):
        raise ValueError("the scheduler chose no row, or one row twice")
    if min(positions) < 0 or max(positions) >= len(waiting):
        raise ValueError("the scheduler chose a row that is not there")
    if not limits.fits(len(positions), max(waiting[position].length for position in positions)):
        raise ValueError("the scheduler chose more than a batch may hold")


class Lanes:
    """All lanes of a batcher, and the decision which of them sends a batch now."""

    def __init__(self, *, quantum: int, company: Company) -> None:
        self.company = company
        self._quantum = quantum
        self._lanes: dict[Lane, None] = {}
        self._by_name: dict[LaneName, Lane] = {}

    def __repr__(self) -> str:
        return f"<Lanes {list(self._lanes)!r}>"

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, ticket: Ticket) -> None:
        """Put a request into its lane, unless its caller has gone; the lane is made for the first of its kind."""
        if ticket.over:
            return
        lane = self._by_name.get(ticket.lane)
        if lane is None:
            lane = self._by_name[ticket.lane] = Lane(ticket.lane, self._quantum)
        self._lanes[lane] = None
        lane.add(ticket)

    def drop_expired(self, now: float) -> None:
        """Forget what nobody waits for any more."""
        for lane in list(self._lanes):
            lane.drop(now)
            self.tidy(lane)

    def tidy(self, lane: Lane) -> None:
        """Remove a lane that has emptied; keys are made from requests, so empty lanes must not pile up."""
        if lane.rows == 0 and lane in self._lanes:
            del self._lanes[lane]
            # Lanes live by their identity: a key that changes its mind about what it equals can remove another name
            # here, but not another lane; the worst is that its rows find no company.
            self._by_name.pop(lane.name, None)

    def due_at(self, patience_s: float, is_behind: Callable[[Lane], bool] = _never) -> float | None:
        """When the next row has waited for company long enough (clock reading, may have passed); None when nothing
        waits but in lanes that are behind, see `ready`.
        """
        waiting = [lane.oldest() for lane in self._lanes if not is_behind(lane)]
        admitted = [ticket.enqueued_at for ticket in waiting if ticket is not None]
        return min(admitted) + patience_s if admitted else None

    def ready(
        self,
        now: float,
        limits: BatchLimits,
        *,
        draining: bool,
        patience_s: float,
        is_enough: Callable[[Lane], bool] = _never,
        is_behind: Callable[[Lane], bool] = _never,
    ) -> tuple[Lane, FlushReason] | None:
        """The lane that sends a batch now and why: of those that may, the one with the highest priority at its front;
        among equals the one whose front row queued first. `patience_s`: how long rows wait for company at present (see
        `Company`). `is_enough`: whether a lane need not wait for more rows.

        `is_behind`: whether a batch of the lane would only queue behind another one at its device, so that its rows may
        as well wait for company here. Such a lane sends no batch that is short, unless another one that is behind too
        would pass it.
        """
        best: tuple[tuple[Priority, float], Lane, FlushReason] | None = None
        short: tuple[tuple[Priority, float], Lane, FlushReason] | None = None
        for lane in self._lanes:
            lane.promote(now)
            # Lanes are nearly in the order of their turns, so that of many only the first are judged in full.
            front = lane.next_turn()
            turn = front.level, front.turn_at
            if best is not None and turn >= best[0]:
                continue
            reason = self._reason(lane, now, limits, draining=draining, patience_s=patience_s)
            waits_on = reason in _SHORT and is_behind(lane)
            if (reason is None or waits_on) and is_enough(lane):
                reason, waits_on = FlushReason.ENOUGH, False
            if reason is None:
                continue
            if not waits_on:
                best = (turn, lane, reason)
            elif short is None or turn < short[0]:
                short = (turn, lane, reason)
        if best is not None and short is not None and short[0] < best[0] and is_behind(best[1]):
            return short[1:]
        return None if best is None else best[1:]

    def _reason(
        self, lane: Lane, now: float, limits: BatchLimits, *, draining: bool, patience_s: float
    ) -> FlushReason | None:
        oldest = lane.oldest()
        if oldest is None:
            return None
        if lane.uses_up_tokens(limits):
            return FlushReason.TOKENS
        if lane.rows >= limits.max_rows:
            return FlushReason.SIZE
        if draining:
            return FlushReason.DRAIN
        if now >= oldest.enqueued_at + self.company.latency_s:
            return FlushReason.LATENCY
        if now >= oldest.enqueued_at + patience_s:
            return FlushReason.IDLE
        return None
