"""How a request's own thread waits for its rows, whoever runs them, and what it takes home."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.batching.tickets import Answer, Ticket
from service.errors import ClientGone, DeadlineExceeded, PredictionFailed

# How often a waiting request looks whether its client is still there, seconds.
GONE_CHECK_S = 0.25

# The longest single wait of a request thread, seconds; a later deadline is reached in several.
LONGEST_WAIT_S = 60.0


def wait_for(
    ticket: Ticket,
    is_gone: Callable[[], bool] | None,
    abandon: Callable[[Ticket], bool],
    clock: Callable[[], float],
) -> None:
    """Return when the ticket is done; raise when its deadline passes or its client leaves first.

    abandon: withdraws its rows; False where the answer is there already.
    """
    longest_s = LONGEST_WAIT_S if is_gone is None else GONE_CHECK_S
    while not ticket.done.wait(max(0.0, min(ticket.deadline - clock(), longest_s))):
        now = clock()
        is_late = now >= ticket.deadline
        if not is_late and (is_gone is None or not is_gone()):
            continue
        if not abandon(ticket):
            return
        if is_late:
            raise DeadlineExceeded(now - ticket.enqueued_at)
        raise ClientGone("the client closed its connection")


def answer_of(ticket: Ticket) -> Answer:
    """What the caller of a request that went well gets."""
    if len(ticket.batches) == 1 and (only := ticket.batches[0]) is not None:  # as most are, and quicker
        return Answer(ticket.results, [only], ticket.enqueued_at, only.started_at - ticket.enqueued_at, only.model_s)
    batches = [info for info in ticket.batches if info is not None]
    queue_s = max([info.started_at for info in batches], default=ticket.enqueued_at) - ticket.enqueued_at
    model_s = max([info.model_s for info in batches], default=0.0)
    return Answer(ticket.results, batches, ticket.enqueued_at, queue_s, model_s)


def named(failure: BaseException, rows: Sequence[int]) -> BaseException:
    """The failure of a request, with the rows that it is about."""
    if isinstance(failure, PredictionFailed):
        failure.rows = tuple(sorted(rows))
    return failure
