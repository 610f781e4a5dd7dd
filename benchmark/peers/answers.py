"""Whether a server computes what the model computes: no figure is worth anything before that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmark.peers.forms import Form, Numbers
from benchmark.peers.load import client_for
from benchmark.peers.workloads import Input
from service.bench.bodies import Body

# All inputs at once in part, so that answers are of batches, and rows that were mixed up are seen.
AT_ONCE = 32


class WrongAnswers(Exception):
    """The server's answers are not the raw model's; the message says how many, and what the first one was."""


def check(url: str, form: Form, inputs: Sequence[Input], right: Sequence[Numbers], tolerance: float) -> None:
    """Ask for each input, many at a time. Raises WrongAnswers."""
    faults = [
        fault
        for (outcome, content), numbers in zip(_ask(url, form, inputs), right, strict=True)
        if (fault := fault_in(outcome, content, form, numbers, tolerance))
    ]
    if faults:
        raise WrongAnswers(f"{len(faults)} of {len(inputs)} answers are wrong: {faults[0]}")


def fault_in(outcome: str, content: bytes, form: Form, right: Numbers, tolerance: float) -> str:
    """What is wrong with one answer; empty where it is right."""
    if outcome != "200":
        return f"it ended with {outcome}"
    try:
        given = form.read(content)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return f"it cannot be read ({type(error).__name__})"
    if len(given) != len(right):
        return f"it has {len(given)} numbers, not {len(right)}"
    apart = float(np.abs(np.subtract(given, right)).max())
    # Written so that NaN is wrong, too.
    return "" if apart <= tolerance else f"a number is off by {apart:.2g}, allowed is {tolerance:g}"


def _ask(url: str, form: Form, inputs: Sequence[Input]) -> list[tuple[str, bytes]]:
    from gevent.pool import Pool

    bodies = [Body(form.body(given), 1, form.content_type) for given in inputs]
    with client_for(url, form, AT_ONCE) as client:
        return list(Pool(AT_ONCE).imap(client.predict, bodies))
