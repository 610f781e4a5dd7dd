"""Batches of several threads on one card: the next one is copied to it while it computes the one before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from loaders.formats.torch_outputs import of_each_tensor, readable


class CudaPipeline:
    """Runs one module on one card for any number of threads, each with a batch of its own.

    All batches are computed in the card's default stream, one behind the other; rows are copied to the card in a stream
    beside it. A thread holds the lock while it puts its batch into the first one, whole, from the module's first
    operator to the copy of its results: so no batch finds the buffers of the module, or of its results, half done by
    another. It then waits for its own results only, without the lock, and without Python's.

    *Thread:* any, several at once.
    """

    def __init__(self, torch: ModuleType, device: str) -> None:
        self._torch = torch
        self._device = torch.device(device)
        self._computing = torch.cuda.default_stream(self._device)
        self._copying = torch.cuda.Stream(self._device)
        self._launching = threading.Lock()

    def __call__(self, compute: Callable[..., Any], *arrays: NDArray[Any]) -> Any:
        """What `compute` gives for the arrays as tensors on the card, as `to_numpy` has it.

        `compute` runs alone. An error of the card shows in whichever thread calls it next, and in the others after it.
        """
        torch = self._torch
        with torch.inference_mode(), torch.cuda.stream(self._computing):
            tensors, there = self._send(arrays)
            with self._launching:
                self._computing.wait_event(there)
                results = of_each_tensor(compute(*tensors), torch, self._fetch)
                done = torch.cuda.Event(blocking=True)  # a thread that sleeps leaves its core to those that serve HTTP
                done.record(self._computing)
            done.synchronize()
            return of_each_tensor(results, torch, lambda tensor: tensor.numpy())

    def _send(self, arrays: tuple[NDArray[Any], ...]) -> tuple[list[Any], Any]:
        """Begin to copy the arrays to the card; the tensors there, and the event behind their last number.

        From page-locked memory the card copies by itself, beside what it computes.
        """
        torch = self._torch
        locked = [torch.from_numpy(array).pin_memory() for array in arrays]
        with torch.cuda.stream(self._copying):
            tensors = [tensor.to(self._device, non_blocking=True) for tensor in locked]
        there = torch.cuda.Event()
        there.record(self._copying)
        for tensor in tensors:
            # The memory is of the copying stream, and would go to its next batch as soon as Python drops the tensor,
            # though the module may have to read it yet: also that of a batch that fails on its way.
            tensor.record_stream(self._computing)
        return tensors, there

    def _fetch(self, tensor: Any) -> Any:
        """Page-locked memory that holds the tensor as soon as the card gets there; one on the CPU is copied at once."""
        torch = self._torch
        tensor = readable(tensor, torch)
        is_on_card = tensor.device == self._device
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_on_card)
        # In the computing stream: a result may be a buffer of the module, which the next batch writes to.
        host.copy_(tensor, non_blocking=is_on_card)
        return host
