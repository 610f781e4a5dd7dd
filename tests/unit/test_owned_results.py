"""What is handed out shares no memory with what the model will write into next."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from service.batching.isolation import own_results
from service.errors import OutputCountMismatch

Pair = namedtuple("Pair", "left right")


def test_rows_of_a_reused_array_keep_their_values() -> None:
    buffer = np.arange(6.0).reshape(3, 2)
    results = own_results(buffer, 3)
    buffer[:] = -1
    assert [row.tolist() for row in results] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda view: view,
        lambda view: [view],
        lambda view: (view,),
        lambda view: {"scores": view},
        lambda view: {"deep": [({"scores": view},)]},
        lambda view: Pair(view, 1),
    ],
)
def test_views_are_copied_however_deep_they_are_nested(wrap: Any) -> None:
    buffer = np.zeros((2, 3))
    results = own_results([wrap(buffer[0]), wrap(buffer[1])], 2)
    before = repr(results)
    buffer[:] = 7
    assert repr(results) == before


def test_a_reused_list_is_copied() -> None:
    reused: list[Any] = [[1], [2]]
    results = own_results(reused, 2)
    reused[0][0] = 99
    reused[1] = None
    assert results == [[1], [2]]


def test_objects_inside_an_array_are_copied_too() -> None:
    view = np.zeros(2)
    holder = np.empty(1, dtype=object)
    holder[0] = view
    results = own_results(holder, 1)
    view[:] = 5
    assert results[0].tolist() == [0, 0]


def test_records_of_a_structured_array_are_copied() -> None:
    table = np.zeros(2, dtype=[("score", "f8")])
    results = own_results([table[0], table[1]], 2)
    table["score"] = 9
    assert [row["score"] for row in results] == [0, 0]


def test_windows_on_raw_memory_are_copied() -> None:
    raw = bytearray(b"ab")
    results = own_results([memoryview(raw), raw], 2)
    raw[0] = 0
    assert results == [b"ab", b"ab"]


def test_tuples_stay_tuples() -> None:
    assert own_results([(1, 2), Pair(3, 4)], 2) == [(1, 2), Pair(3, 4)]
    assert isinstance(own_results([Pair(3, 4)], 1)[0], Pair)


def test_torch_tensors_are_copied() -> None:
    torch = pytest.importorskip("torch")
    buffer = torch.zeros(2, 2, requires_grad=True)
    results = own_results(buffer, 2)
    nested = own_results([{"logits": buffer[0]}, {"logits": buffer[1]}], 2)
    with torch.no_grad():
        buffer.fill_(3)
    assert [row.tolist() for row in results] == [[0, 0], [0, 0]]
    assert nested[1]["logits"].tolist() == [0, 0]
    assert not results[0].requires_grad


class Frame:
    """Iterates over its columns, as data frames do."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Any:
        return iter("ab")

    def to_numpy(self) -> Any:
        return self._table


def test_a_data_frame_gives_its_rows() -> None:
    assert [row.tolist() for row in own_results(Frame(np.arange(4).reshape(2, 2)), 2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "scalar", [np.float32(1), np.array(1.0), 3, None, "ab", {"a": 1, "b": 2}, {1, 2}, iter([1, 2])]
)
def test_what_is_not_a_sequence_of_rows_is_refused(scalar: Any) -> None:
    with pytest.raises(OutputCountMismatch, match="output count: the model gave"):
        own_results(scalar, 2)
