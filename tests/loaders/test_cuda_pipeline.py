"""Batches of several threads on one card, with a card that is made up, and on a real one where there is one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.callers import Callers, all_at_once
from support.fake_card import DEVICE, FakeCard
from support.models import GUARD_S
from support.parking import GRACE_S, Parking

from loaders import ModelHandle, load_model
from loaders.formats.cuda_pipeline import CudaPipeline
from loaders.formats.torch_outputs import to_numpy
from loaders.formats.torch_runtime import ArrayModule, run_on
from service.batching.batcher import ThreadedBatcher

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_fake_card() -> tuple[FakeCard, CudaPipeline]:
    card: Any = FakeCard()
    return card, CudaPipeline(card, DEVICE)


def test_rows_are_on_the_card_before_they_are_computed_on_and_results_are_there_before_they_are_read() -> None:
    _, run = on_fake_card()
    np.testing.assert_array_equal(run(lambda x, y: x * 2 + y, ROWS, ROWS), ROWS * 3)


def test_rows_travel_beside_what_the_card_computes_and_results_behind_it() -> None:
    card, run = on_fake_card()

    def compute(*tensors: Any) -> Any:
        card.log("computes")
        assert card.current is card.default
        return tensors[0] + tensors[1]

    run(compute, ROWS, ROWS)
    kept = ["kept for computing"] * 2
    assert card.told == ["rows in copying", "rows in copying", *kept, "computes", "results in computing", "waits"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_every_kind_of_output_comes_as_from_a_cpu(dtype: torch.dtype) -> None:
    def compute(tensor: torch.Tensor) -> Any:
        given = tensor.to(dtype)
        return {"a": [given, "text"], 2: (given[:, 0], None), "transposed": given.T, "few": torch.eye(2).to_sparse()}

    _, run = on_fake_card()
    ours, theirs = run(compute, ROWS), to_numpy(compute(torch.from_numpy(ROWS)), torch)
    assert repr(ours) == repr(theirs)
    assert ours["a"][0].dtype == theirs["a"][0].dtype


def test_an_output_that_was_on_the_cpu_all_the_time_is_copied() -> None:
    constant = torch.tensor([1.5, 2.5])
    card, run = on_fake_card()
    given = run(lambda tensor: constant, ROWS)
    constant.zero_()
    assert given.tolist() == [1.5, 2.5]
    assert "results in computing" not in card.told


def test_a_module_is_never_in_two_batches_at_once_but_the_next_rows_are_on_their_way() -> None:
    card, run = on_fake_card()
    parking, callers, inside = Parking(), Callers(), []

    def compute(tensor: Any) -> Any:
        inside.append(threading.get_ident())
        if len(inside) == 1:
            parking.stop_here()
            assert len(inside) == 1, "the next one came in"
        return tensor

    callers.start(lambda: run(compute, ROWS))
    assert parking.parked.wait(GUARD_S)
    callers.start(lambda: run(compute, ROWS + 1))
    assert not threading.Event().wait(GRACE_S)
    assert card.told.count("rows in copying") == 2
    parking.go.set()
    first, second = callers.finish()
    np.testing.assert_array_equal(first, ROWS)
    np.testing.assert_array_equal(second, ROWS + 1)


def test_the_next_batch_is_given_to_the_card_while_a_thread_waits_for_the_one_before() -> None:
    card, run = on_fake_card()
    callers, waiting, both = Callers(), threading.Event(), threading.Barrier(2, timeout=GUARD_S)

    def meet() -> None:
        waiting.set()
        both.wait()

    card.before_wait = meet
    callers.start(lambda: run(lambda tensor: tensor * 2, ROWS))
    assert waiting.wait(GUARD_S)
    callers.start(lambda: run(lambda tensor: tensor * 3, ROWS))
    first, second = callers.finish()
    np.testing.assert_array_equal(first, ROWS * 2)
    np.testing.assert_array_equal(second, ROWS * 3)


def test_a_thread_waits_for_its_own_results_and_not_for_what_the_card_has_to_do_next() -> None:
    card, run = on_fake_card()
    callers, doors = Callers(), [Parking(), Parking()]
    arrived = iter(doors)
    card.before_wait = lambda: next(arrived).stop_here()
    for number, door in enumerate(doors, start=1):
        callers.start(lambda number=number: run(lambda tensor: tensor * number, ROWS))
        assert door.parked.wait(GUARD_S)
    doors[0].go.set()
    deadline = time.monotonic() + GUARD_S
    while not callers.outcomes and time.monotonic() < deadline:
        time.sleep(0.005)
    np.testing.assert_array_equal(callers.outcomes[0], ROWS)
    assert len(card.default) == 2, "results of the second batch, and the event behind them"
    doors[1].go.set()
    callers.finish()


def test_an_error_is_of_the_batch_that_it_belongs_to() -> None:
    card, run = on_fake_card()

    def fail(tensor: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        run(fail, ROWS)
    assert card.told[-1] == "kept for computing", "the card may be reading the rows still"
    np.testing.assert_array_equal(run(lambda tensor: tensor, ROWS), ROWS)


def test_an_array_module_gives_the_same_rows_on_a_card() -> None:
    card: Any = FakeCard()
    module = torch.nn.Linear(3, 2).eval()
    on_card = ArrayModule(card, module, DEVICE, torch.float32)
    on_cpu = ArrayModule(torch, module, "cpu", torch.float32)
    np.testing.assert_array_equal(np.stack(on_card(list(ROWS))), np.stack(on_cpu(list(ROWS))))
    assert "waits" in card.told


def test_on_a_cpu_rows_are_not_copied_and_nothing_is_waited_for() -> None:
    rows = ROWS.copy()
    run_on(torch, "cpu")(lambda tensor: tensor.add_(1), rows)
    assert rows[0, 0] == 1


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that models can be loaded to, as far as their handles tell."""
    from torch.export import passes

    real_load, real_to = torch.jit.load, torch.nn.Module.to
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "Stream", type("Stream", (), {"__init__": lambda stream, device: None}))
    monkeypatch.setattr(torch.jit, "load", lambda path, map_location: real_load(path))
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, to: module if to == DEVICE else real_to(module, to))
    monkeypatch.setattr(passes, "move_to_device_pass", lambda program, device: program)


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize("which", ["traced", "exported", "sentiment"])
def test_threads_share_a_model_on_a_card_and_none_on_a_cpu(which: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(which)
    assert load_model(path, device="cuda").is_pipelined
    assert not load_model(path, device="cpu").is_thread_safe


def test_a_compiled_text_model_is_compiled_once_for_all_threads(
    bundle: Callable[..., Path], sentiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, made = torch.compile, []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(threading.get_ident())
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda model, **options: compiled(model, backend=backend, **options))
    handle = load_model(bundle('[model]\nfile = "sentiment"\ncompile = true\n', sentiment))
    encode: Any = handle.input.encode  # type: ignore[union-attr]
    rows = [[encode(text) for text in texts] for texts in (["a good film", "bad"], ["not bad", "", "good"])]
    expected = [handle.predict_batch(batch) for batch in rows]
    programs, turns = len(made), threading.Lock()

    def ask(batch: list[Any]) -> list[Any]:
        with turns:  # the pipeline's lock
            return handle.predict_batch(batch)

    given = all_at_once([lambda batch=batch: ask(batch) for batch in rows])
    for ours, theirs in zip(given, expected, strict=True):
        np.testing.assert_array_equal(np.stack(ours), np.stack(theirs))
    assert len(made) == programs, "another thread compiles it anew"
    handle.close()
    torch.compiler.reset()


class Busy(torch.nn.Module):
    """Keeps the card busy for `cycles`, then gives the rows back from a buffer that it writes to in each batch."""

    def __init__(self, cycles: int) -> None:
        super().__init__()
        self._cycles = cycles
        self.register_buffer("memory", torch.zeros(64, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.memory[: len(x)].copy_(x)
        torch.cuda._sleep(self._cycles)
        return self.memory[: len(x)]


def on_card(module: Any) -> ModelHandle:
    predict = ArrayModule(torch, module.to(DEVICE), DEVICE, torch.float32)
    return ModelHandle("m", "1", "f", predict, device=DEVICE, release=predict.close, is_thread_safe=True)


def cycles_of(seconds: float) -> int:
    """How many cycles of `torch.cuda._sleep` the card needs so many seconds for."""
    begun, over = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)  # wakes the card
    begun.record()
    torch.cuda._sleep(10_000_000)
    over.record()
    over.synchronize()
    return int(10_000_000 * seconds / (begun.elapsed_time(over) / 1000))


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("which", ["traced", "exported", "sentiment", "embedder"])
def test_on_a_card_many_threads_get_the_numbers_that_one_gets(which: str, request: pytest.FixtureRequest) -> None:
    handle = load_model(request.getfixturevalue(which), device="cuda")
    rng = np.random.default_rng(1)
    batches: list[list[Any]] = []
    for size in [1, 2, 3, 5, 8, 13] * 8:
        if handle.input.kind == "text":
            encode: Any = handle.input.encode  # type: ignore[union-attr]
            batches.append([encode(" ".join(["good film"] * int(rng.integers(1, 30)))) for _ in range(size)])
        else:
            batches.append(list(rng.normal(size=(size, 4)).astype(np.float32)))
    expected = [np.stack(handle.predict_batch(batch)) for batch in batches]
    given = all_at_once([lambda batch=batch: np.stack(handle.predict_batch(batch)) for batch in batches])
    for ours, theirs in zip(given, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    handle.close()


@pytest.mark.gpu
@needs_cuda
def test_on_a_card_each_caller_gets_its_own_rows_from_a_buffer_that_all_batches_use() -> None:
    handle = on_card(Busy(cycles_of(0.0005)))

    def client(number: int) -> bool:
        for turn in range(20):
            rows = [np.array([number, turn, index, 7], np.float32) for index in range(1 + number % 3)]
            assert [row.tolist() for row in batcher.submit(rows)] == [row.tolist() for row in rows]
        return True

    with ThreadedBatcher(
        handle.predict_batch, instances=2, max_batch_size=16, policy="eager", is_pipelined=lambda key: True
    ) as batcher:
        assert all_at_once([lambda number=number: client(number) for number in range(64)]) == [True] * 64
    handle.close()


@pytest.mark.gpu
@needs_cuda
def test_a_card_computes_while_the_next_batch_is_collated() -> None:
    """Host and card need 20 ms each for a batch: one thread 40 ms for both, two 20 ms."""
    handle = on_card(Busy(cycles_of(0.02)))
    rows = [np.ones(4, np.float32)] * 32
    handle.predict_batch(rows)

    def work(batches: int) -> None:
        for _ in range(batches):
            time.sleep(0.02)
            handle.predict_batch(rows)

    began = time.monotonic()
    work(20)
    alone_s = time.monotonic() - began
    began = time.monotonic()
    all_at_once([lambda: work(10)] * 2)
    assert time.monotonic() - began < 0.7 * alone_s
    handle.close()


@pytest.mark.gpu
@needs_cuda
def test_rows_are_copied_to_a_card_that_computes() -> None:
    """The event behind the second batch's rows is over long before the first batch is."""
    handle = on_card(Busy(cycles_of(1.0)))
    run: Any = handle.predict._run_on  # type: ignore[attr-defined]
    callers = Callers()
    callers.start(lambda: handle.predict_batch([np.ones(4, np.float32)]))
    time.sleep(0.2)
    _, there = run._send((np.ones((64, 4), np.float32),))
    there.synchronize()
    assert not torch.cuda.default_stream(DEVICE).query(), "the first batch is not over"
    callers.finish()
    handle.close()


@pytest.mark.gpu
@needs_cuda
def test_close_frees_the_card() -> None:
    class Large(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.zeros(1 << 26, dtype=torch.uint8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    handle = on_card(Large())
    all_at_once([lambda: handle.predict_batch([np.ones(4, np.float32)] * 64)] * 8)
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    handle.close()
    after = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    assert all(now <= then - (1 << 26) for now, then in zip(after, before, strict=True))


@pytest.mark.gpu
@needs_cuda
def test_memory_that_a_batch_lacks_costs_no_other_batch_its_answer() -> None:
    class Hungry(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) > 1:
                torch.empty(1 << 46, dtype=torch.uint8, device=x.device)
            return x * 2

    handle = on_card(Hungry())

    def ask(rows: int) -> Any:
        return handle.predict_batch([np.ones(4, np.float32)] * rows)

    outcomes = all_at_once([lambda rows=rows: ask(rows) for rows in [1, 2] * 10])
    assert [type(outcome) for outcome in outcomes] == [list, torch.OutOfMemoryError] * 10
    handle.close()
