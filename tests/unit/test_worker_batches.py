"""What is told about a batch that has run."""

from __future__ import annotations

from typing import Any

import pytest
from support.core import Core

from service.batching.admission import WorkerState


def test_a_batch_is_as_long_as_the_model_says_it_padded_it() -> None:
    core = Core(padded_length=lambda key, longest: longest + len(str(key)))
    core.submit(["a", "b"], lengths=[5, 3], key="key")
    core.run()
    (info,) = core.listener.batches
    assert (info.tokens, info.padded_length, info.padding_tokens) == (8, 8, 8)


class Raises:
    def __call__(self, key: Any, longest: int) -> int:
        raise KeyError(key)


@pytest.mark.parametrize(
    "padded_length", [Raises(), lambda *_: None, lambda *_: "8", lambda *_: 7.5, lambda *_: float("nan"), lambda *_: 4]
)
def test_nonsense_about_the_padding_costs_nobody_an_answer(
    padded_length: Any, caplog: pytest.LogCaptureFixture
) -> None:
    core = Core(padded_length=padded_length)
    tickets = [core.submit([row], lengths=[length]) for row, length in (("a", 5), ("b", 3))]
    core.run()
    assert [core.outcome(ticket) for ticket in tickets] == [["a"], ["b"]]
    (info,) = core.listener.batches
    assert (info.padded_length, info.padding_tokens) == (5, 2)
    assert "padded_length() failed" in caplog.text
    assert core.admission.state is WorkerState.STOPPED
