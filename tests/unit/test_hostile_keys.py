"""Keys come from callers: whatever one does when it is compared, it does to itself."""

from __future__ import annotations

from typing import Any

import pytest
from support.core import Core

from service.batching.tickets import LaneName


class Key:
    """Falls into the same place of every table as `"plain"`, and answers as it is told when it is compared."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer

    def __hash__(self) -> int:
        return hash("plain")

    def __eq__(self, other: object) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return next(self.answer) if hasattr(self.answer, "__next__") else self.answer  # type: ignore[no-any-return]


class NoTruth:
    def __bool__(self) -> bool:
        raise ValueError


@pytest.mark.parametrize("answer", [KeyError("no"), RecursionError(), True, False, NotImplemented, NoTruth()])
@pytest.mark.parametrize("first", ["hostile", "plain"])
def test_a_key_that_misbehaves_when_it_is_compared_costs_nobody_an_answer(first: str, answer: Any) -> None:
    core = Core(max_batch_size=2, latency_s=1.0)
    keys: list[Any] = ["plain", Key(answer), "plain", Key(answer), "plain"]
    if first == "hostile":
        keys.insert(0, Key(answer))
    tickets = [core.submit([number], key=key) for number, key in enumerate(keys)]
    core.run()
    assert [core.outcome(ticket) for ticket in tickets] == [[number] for number in range(len(keys))]
    plain = [number for number, key in enumerate(keys) if isinstance(key, str)]
    assert [call.rows for call in core.model.calls if isinstance(call.key, str)] == [plain[:2], plain[2:]]
    core.assert_at_rest()


def test_a_key_that_changes_its_mind_about_what_it_equals_does_not_remove_a_neighbour() -> None:
    for flips in range(16):
        minds = [bool(flips >> bit & 1) for bit in range(4)]
        core = Core(max_batch_size=1, latency_s=1.0)
        tickets = [core.submit([number, number], key=Key(iter(minds * 100))) for number in range(4)]
        core.run()
        assert [core.outcome(ticket) for ticket in tickets] == [[number, number] for number in range(4)]
        core.assert_at_rest()


def test_a_key_that_changes_while_it_waits_does_not_keep_the_worker_from_ending() -> None:
    class Growing:
        value = 0

        def __hash__(self) -> int:
            return self.value

    key = Growing()
    core = Core(max_batch_size=1, before=lambda _: setattr(key, "value", key.value + 1))
    ticket = core.submit([1, 2, 3], key=key)
    core.run()
    assert core.outcome(ticket) == [1, 2, 3]
    core.assert_at_rest()


def test_equal_keys_of_unlike_types_name_different_lanes() -> None:
    assert LaneName("k") == LaneName("k")
    assert LaneName(float("nan")) != LaneName(float("nan"))
    assert LaneName(1) != LaneName(True)
    assert LaneName(1) != 1
