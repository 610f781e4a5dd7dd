"""Rows of several requests in one frame, and their answers in another: both ends of either, side by side."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from service.batching.tickets import BatchInfo, FlushReason, Priority, Ticket
from service.errors import JitneyError, PredictionFailed
from service.sharing import failures
from service.sharing.frames import Buffer, Frame, FrameError, FrameKind, encoded
from service.sharing.values import Convert, Unsendable, pack, unpack

# Of a lane: the parameters and the shape of its rows; the model is the owner's only one.
Lane = tuple[tuple[Any, ...], tuple[Any, ...]]


class Asked(NamedTuple):
    """A request as it goes to the owner. `number`: names it on this connection. `timeout_s`: what is left of it.

    `origin`: the text of where it comes from, for those who trace batches; None where it is not traced.
    """

    number: int
    timeout_s: float
    priority: Priority
    request_id: str
    rows: list[Any]
    lengths: list[int]
    origin: str | None = None


class Told(NamedTuple):
    """An answer as it comes to a front end; with a failure there are no results.

    `batches`: one for each row; with a failure None for a row that was in none, and nothing where none was let in.
    """

    number: int
    results: list[Any]
    batches: list[BatchInfo | None]
    failure: JitneyError | None
    failed_rows: tuple[int, ...]


def ask(lane: Lane, requests: Sequence[Asked], coming: int = 0) -> list[Buffer]:
    """A frame that asks for all of them. Raises Unsendable, or FrameError for one that is too large.

    coming: how many other requests the front end has received that will soon ask too.
    """
    described, parts = pack([row for request in requests for row in request.rows])
    heads = [
        [
            request.number,
            request.timeout_s,
            int(request.priority),
            request.request_id,
            len(request.rows),
            None if set(request.lengths) == {1} else request.lengths,
            request.origin,
        ]
        for request in requests
    ]
    return encoded(FrameKind.ASK, [_written(lane), heads, described, coming], parts)


def asked(frame: Frame) -> tuple[Lane, list[Asked], int]:
    """What `ask` was given; raises FrameError for anything else."""
    try:
        lane, heads, described, coming = frame.head
        rows = unpack(described, frame.body)
        requests, at = [], 0
        for number, timeout_s, priority, request_id, count, lengths, origin in heads:
            if type(count) is not int or count < 1:
                raise ValueError("no row")
            own = rows[at : at + count]
            at += count
            who = int(number), float(timeout_s), Priority(priority), str(request_id)
            requests.append(Asked(*who, own, lengths or [1] * count, None if origin is None else str(origin)))
        if at != len(rows):
            raise ValueError("rows without a request, or the other way round")
        return _read(lane), requests, int(coming)
    except (ValueError, TypeError, LookupError) as error:
        raise FrameError("requests are not described as they should be") from error


def cancel(numbers: Sequence[int]) -> list[Buffer]:
    """A frame that withdraws requests."""
    return encoded(FrameKind.CANCEL, list(numbers))


def answer(
    done: Sequence[tuple[int, Ticket]], refused: Sequence[tuple[int, JitneyError]], convert: Convert
) -> list[Buffer]:
    """A frame with the outcomes of requests that are over, and of those that were not let in.

    convert: makes what can be sent of a result that cannot; where it raises a PredictionFailed, that request fails.
    """
    failed: list[list[Any]] = [[number, failures.described(error), [], []] for number, error in refused]
    well: list[tuple[int, Ticket]] = []
    batches: dict[BatchInfo, int] = {}

    def places(ticket: Ticket) -> list[int | None]:
        return [None if info is None else batches.setdefault(info, len(batches)) for info in ticket.batches]

    for number, ticket in done:
        if ticket.failure is None:
            well.append((number, ticket))
        else:
            failed.append([number, failures.described(ticket.failure), sorted(ticket.failed_rows), places(ticket)])
    described, parts, well, unsendable = _packed(well, convert)
    failed += unsendable
    heads = [[number, places(ticket)] for number, ticket in well]
    return encoded(FrameKind.ANSWER, [heads, [list(info) for info in batches], failed, described], parts)


def answered(frame: Frame) -> list[Told]:
    """The outcomes that `answer` was given; raises FrameError for anything else."""
    try:
        heads, infos, failed, described = frame.head
        batches = [_batch(info) for info in infos]
        results = unpack(described, frame.body)
        told, at = [], 0
        for number, places in heads:
            end = at + len(places)
            told.append(Told(number, results[at:end], [batches[place] for place in places], None, ()))
            at = end
        if at != len(results):
            raise ValueError("results without a request, or the other way round")
        for number, failure, rows, places in failed:
            ran = [None if place is None else batches[place] for place in places]
            told.append(Told(number, [], ran, failures.restored(failure), tuple(map(int, rows))))
        return told
    except (ValueError, TypeError, LookupError) as error:
        raise FrameError("answers are not described as they should be") from error


def _packed(
    well: list[tuple[int, Ticket]], convert: Convert
) -> tuple[Any, list[Buffer], list[tuple[int, Ticket]], list[list[Any]]]:
    """All results together; where one has no form, only its own request fails."""
    try:
        return *pack([result for _, ticket in well for result in ticket.results], convert), well, []
    except (PredictionFailed, Unsendable):
        pass
    sendable, failed = [], []
    for number, ticket in well:
        try:
            pack(ticket.results, convert)
        except (PredictionFailed, Unsendable) as error:
            fault = error if isinstance(error, PredictionFailed) else PredictionFailed("the model's result is none")
            failed.append([number, failures.described(fault), [], []])
        else:
            sendable.append((number, ticket))
    return *pack([result for _, ticket in sendable for result in ticket.results], convert), sendable, failed


def _batch(info: Sequence[Any]) -> BatchInfo:
    made = BatchInfo(*info)
    return made._replace(reason=FlushReason(made.reason))


# Few lanes are in use at a time, and each is written and read for every frame.
@lru_cache(maxsize=1024, typed=True)
def _written(lane: Hashable) -> str:
    return json.dumps(pack([lane])[0])


@lru_cache(maxsize=1024)
def _read(written: str) -> Lane:
    lane: Lane = unpack(json.loads(written), memoryview(b""))[0]
    parameters, shape = lane
    if type(parameters) is not tuple or type(shape) is not tuple:
        raise ValueError("no lane")
    return lane
