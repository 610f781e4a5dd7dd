"""Everything that can go wrong with a request, as one shallow tree of exceptions that carry data.

None of them knows a status code: `service.http.problems` maps them, and a test checks that the map is complete.
The text of an exception goes to the client: it says what was wrong, where, what is allowed and which setting
changes it, and never holds a path, a traceback or the input itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class JitneyError(Exception):
    """Base of every error that a request can end with."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with the input. `loc`: where, e.g. `instances[3][0]`; `msg`: what."""

    loc: str
    msg: str


class MalformedBody(JitneyError):
    """The body cannot be parsed at all."""


class UnsupportedMedia(JitneyError):
    """The content type is not one that is understood here."""


class UnsupportedEncoding(JitneyError):
    """The body's content encoding is not one that is understood here. `allowed`: those that are."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"the Content-Encoding is none that is taken here, which are {', '.join(allowed)}; give one")
        self.allowed = tuple(allowed)


class InvalidInput(JitneyError):
    """The body parses, but is not valid input for this model. `faults`: at least one."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(faults[0].msg)
        self.faults = faults

    @classmethod
    def at(cls, loc: str, msg: str) -> InvalidInput:
        """The error for a single fault."""
        return cls(Fault(loc, msg))


class TooLarge(JitneyError):
    """Something is over its limit. `setting`: the environment variable that sets the limit."""

    def __init__(self, what: str, limit: int, setting: str) -> None:
        super().__init__(f"{what} is over the limit of {limit} ({setting})")
        self.limit = limit
        self.setting = setting


class Unauthorized(JitneyError):
    """The request has no key, or one that does not open what it asks for."""


class Forbidden(JitneyError):
    """What the request asks for is switched off here, whatever key it has."""


NOT_SERVED = "no model of this name is served here; GET /models lists those that are"


class UnknownModel(JitneyError):
    """The path names a model or version that is not served here."""


class UnknownVersion(UnknownModel):
    """The model is served here, but not in this version. `served`: the versions that are."""

    def __init__(self, message: str, served: Sequence[str]) -> None:
        super().__init__(message)
        self.served = tuple(served)


class VersionMismatch(JitneyError):
    """The body asks for a version that is not served here. `served`: those that are, or the one that the path names."""

    def __init__(self, asked: str, served: Sequence[str]) -> None:
        named = ", ".join(repr(version) for version in served)
        super().__init__(f"model_version is not served here; served: {named}")
        self.asked = asked
        self.served = tuple(served)


class QueueFull(JitneyError):
    """There is no room for all rows of the request; none was queued.

    `retry_after_s`: when the backlog is expected to have gone down, seconds.
    """

    def __init__(self, rows: int, queued: int, limit: int, retry_after_s: float) -> None:
        never = "; a request of this size can never enter" if rows > limit else ""
        super().__init__(
            f"the queue holds {queued} rows and has no room for {rows} more: "
            f"the limit is {limit} (MAX_QUEUE_SIZE){never}"
        )
        self.rows = rows
        self.queued = queued
        self.limit = limit
        self.retry_after_s = retry_after_s


class LoadFailed(JitneyError):
    """A model that was to be loaded now could not be; what was served before still is."""


class NotReady(JitneyError):
    """The model is still loading, or could not be loaded. `retry_after_s`: when to ask again, None where not known."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Draining(JitneyError):
    """The service is stopping and takes no new work."""


class WorkerDead(JitneyError):
    """The thread that owns the model has ended; nobody would answer."""


class DeadlineExceeded(JitneyError):
    """The request's deadline passed. `waited_s`: seconds from admission to giving up. `hint`: what sets the limit.

    `limit_s`: the seconds that it was given, where they are known; it is noticed a little later that they are over.
    """

    def __init__(self, waited_s: float, hint: str = "", *, limit_s: float | None = None) -> None:
        # A limit as its caller wrote it, and what was measured to about a millisecond, or two digits below ten.
        within_ms = f"{waited_s * 1000:.0f}" if waited_s >= 0.01 else f"{waited_s * 1000:.2g}"
        if limit_s is not None:
            within_ms = f"{limit_s * 1000:.12g}"
        super().__init__(f"no answer within {within_ms} ms" + (f" ({hint})" if hint else ""))
        self.waited_s = waited_s
        self.limit_s = limit_s


class ClientGone(JitneyError):
    """The caller closed its connection while it waited."""


class PredictionFailed(JitneyError):
    """Base of the errors that are the model's fault.

    `rows`: indices of the caller's own rows that failed, ascending. `reason`: the word that metrics count it under.
    `request_id`: what the log calls the request that failed by it; empty where its caller gave none.
    """

    reason = "model"
    request_id = ""

    def __init__(self, message: str, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.rows = tuple(rows)


class ModelFailed(PredictionFailed):
    """The model raised on these rows, also when they were alone."""


class OutOfMemory(PredictionFailed):
    """A single row of this request does not fit into memory."""

    reason = "oom"


class SchedulerFailed(PredictionFailed):
    """The scheduler raised, or chose what it must not choose, while these rows were at the front."""

    reason = "scheduler"


class OutputCountMismatch(PredictionFailed):
    """The model answered with a different number of results than it was given rows."""

    reason = "output_count"


class NonFiniteOutput(PredictionFailed):
    """The model answered with NaN or infinity, which JSON cannot hold."""

    reason = "non_finite"
