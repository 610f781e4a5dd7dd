"""What a build tells its user while it runs, and how it looks on a terminal and in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_CLEAR_LINE = "\r\x1b[K"
_BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens to one model. `fraction`: how much of it is done, 0 to 1, where that is known."""

    model: str
    message: str
    fraction: float | None = None

    def continues(self, other: Step | None) -> bool:
        """Whether this is the same step as `other`, only further on."""
        return other is not None and (self.model, self.message) == (other.model, other.message)

    def __str__(self) -> str:
        return f"{self.model}: {self.message}"


Report = Callable[[Step], None]


class Say(Protocol):
    """Reports a step of the model that is being built: `say("training", 0.25)`."""

    def __call__(self, message: str, fraction: float | None = None, /) -> None: ...


def say_for(model: str, report: Report) -> Say:
    """A reporter that already knows which model it speaks of."""

    def say(message: str, fraction: float | None = None, /) -> None:
        report(Step(model, message, fraction))

    return say


def console_report(*, terminal: bool | None = None) -> Report:
    """Shows steps on standard error: with a moving bar on a terminal, otherwise as one line per step.

    `terminal`: None asks standard error itself.
    """
    import click

    moving = sys.stderr.isatty() if terminal is None else terminal
    last: Step | None = None

    def report(step: Step) -> None:
        nonlocal last
        continues = step.continues(last)
        last = step
        if not continues:
            click.echo((_CLEAR_LINE if moving else "") + str(step), err=True, color=moving)
        if moving and step.fraction is not None:
            # The bar lives on the line below its step; whatever comes next wipes it.
            bar = _bar(step.fraction) if step.fraction < 1 else ""
            click.echo(_CLEAR_LINE + bar, nl=False, err=True, color=True)

    return report


def _bar(fraction: float) -> str:
    done = round(_BAR_WIDTH * min(max(fraction, 0.0), 1.0))
    return f"  [{'#' * done}{'.' * (_BAR_WIDTH - done)}] {fraction:4.0%}"
