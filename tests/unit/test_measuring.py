"""What is measured before the first caller comes, for schedulers that go by time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.clock import FakeClock

from loaders import ModelHandle
from loaders.signature import EncodedText, InputSpec, TabularInput, TextInput
from service.models.measuring import BUDGET_S, SHORT_S, measure


def encode(text: str) -> EncodedText:
    """A token a word, and one at either end."""
    return EncodedText((1, *(2 for _ in text.split()), 3), truncated=False)


class Measured:
    """What is learnt of a model whose batches take `second_per_token` for each of their tokens."""

    def __init__(self, second_per_token: float, spec: InputSpec, max_batch_size: int, fails_at: int = 10**9) -> None:
        self.clock = FakeClock()
        self.learnt: dict[tuple[int, int], float] = {}
        self.runs: list[tuple[int, int]] = []
        self._second_per_token = second_per_token
        self._fails_at = fails_at
        handle = ModelHandle.from_callable(lambda rows: rows, name="m", input=spec)
        measure(handle, max_batch_size, self.predict, self.learn, clock=self.clock)

    def predict(self, model: ModelHandle, rows: list[Any], parameters: Mapping[str, Any]) -> list[Any]:
        tokens = max(len(row.ids) for row in rows)
        if len(rows) * tokens >= self._fails_at:
            raise MemoryError
        # The first run of each kind takes longer.
        again = (len(rows), tokens) in self.runs
        self.clock.advance(self._second_per_token * len(rows) * tokens * (1 if again else 3))
        self.runs.append((len(rows), tokens))
        return rows

    def learn(self, rows: int, tokens: int, seconds: float) -> None:
        self.learnt[rows, tokens] = seconds


def test_sizes_and_lengths_are_doubled_up_to_what_the_model_takes_and_the_better_run_counts():
    measured = Measured(1e-6, TextInput(encode=encode, max_length=40), max_batch_size=6)
    assert set(measured.learnt) == {(rows, tokens) for rows in (1, 2, 4, 6) for tokens in (8, 16, 32)}
    for (rows, tokens), seconds in measured.learnt.items():
        assert seconds == pytest.approx(1e-6 * rows * tokens)


def test_the_padded_length_counts():
    measured = Measured(1e-6, TextInput(encode=encode, max_length=40, pad_to_multiple_of=24), max_batch_size=1)
    assert set(measured.learnt) == {(1, 24), (1, 40)}


def test_a_slow_model_is_measured_once_with_the_cheapest_first_and_not_beyond_the_budget():
    measured = Measured(0.01, TextInput(encode=encode), max_batch_size=64)
    assert list(measured.learnt) == sorted(measured.learnt, key=lambda kind: kind[0] * kind[1])
    slow = [kind for kind in measured.learnt if 0.01 * 3 * kind[0] * kind[1] > SHORT_S]
    assert slow
    assert all(measured.runs.count(kind) == 1 for kind in slow)
    last = 0.01 * 3 * measured.runs[-1][0] * measured.runs[-1][1]
    assert measured.clock.now <= BUDGET_S + last


def test_a_batch_that_does_not_fit_ends_the_measuring_and_not_the_start(caplog):
    measured = Measured(1e-6, TextInput(encode=encode, max_length=40), max_batch_size=8, fails_at=100)
    assert set(measured.learnt) == {(1, 8), (2, 8), (4, 8), (8, 8), (1, 16), (2, 16), (4, 16), (1, 32), (2, 32)}
    assert "larger batches are not measured" in caplog.text


@pytest.mark.parametrize("spec", [TabularInput(width=3), TextInput()])
def test_nothing_is_measured_of_a_model_that_takes_no_tokens(spec):
    assert Measured(1e-6, spec, max_batch_size=4).runs == []
