"""What a row tells the model of the fault run to do: `[action, value]`."""

from __future__ import annotations

from enum import IntEnum


class Action(IntEnum):
    ECHO = 0  # answer with the value
    RAISE = 1  # an error of this row's
    DIE = 2  # SystemExit on the worker thread
    SLEEP = 3  # for `value` milliseconds, once per batch; then echo
    SHORT = 4  # one result too few for the batch
    HANG = 5  # for longer than any run


def expected(value: float, version: str) -> float:
    """What version `version` of the model answers to a row with this value."""
    return value * int(version)
