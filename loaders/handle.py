"""A loaded model: one batch function with everything the server must know about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loaders.formats.rows import rows_by_name
from loaders.names import checked_name
from loaders.signature import InputSpec, OutputSpec, TabularInput

PredictFn = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class ModelHandle:
    """A model that is ready to predict.

    `predict` takes a list of prepared rows and gives one result per row, in order. `parameters` names the
    request options that it understands, passed to it as keyword arguments. `metadata` is what the bundle said,
    for information. `warnings`: what the operator should know, shown at the start. `is_thread_safe`: several threads
    may call `predict` at once, so that worker threads need no copies of it.

    Handles are compared by identity: two loads of one file are two models.

    *Thread:* only the worker thread calls `predict_batch` and `close`; with several worker threads each has a handle of
    its own, unless `is_thread_safe`.
    """

    name: str
    version: str
    fmt: str
    predict: PredictFn
    input: InputSpec = field(default_factory=TabularInput)
    output: OutputSpec = field(default_factory=OutputSpec)
    path: Path | None = None
    device: str = "cpu"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    release: Callable[[], None] | None = None
    is_thread_safe: bool = False

    def __post_init__(self) -> None:
        """Raise TypeError for what says neither yes nor no: `"no"` would be a yes, and the model called by several."""
        if not isinstance(self.is_thread_safe, bool):
            raise TypeError(f"is_thread_safe={self.is_thread_safe!r}: must be True or False")

    @property
    def is_pipelined(self) -> bool:
        """Whether batches of several threads follow each other in it: they share it, and it has one device."""
        return self.is_thread_safe and self.device != "cpu"

    def predict_batch(self, rows: Sequence[Any], parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """One result per row, in the order of `rows`; whatever the model raises comes through.

        rows: 1 <= len(rows), all prepared for `input` and of one shape (texts may differ in length).
        An object of arrays, one entry per row in each, becomes one object per row. A result that is not a sequence is
        handed on unchanged: the batcher counts and refuses it.
        """
        results = self.predict(list(rows), **(parameters or {}))
        if isinstance(results, dict):
            results = rows_by_name(results, len(rows))
        if isinstance(results, np.ndarray) and results.ndim > 0:
            return list(results)
        return results  # type: ignore[no-any-return]

    def close(self) -> None:
        """Free what the model holds; it must not be called afterwards."""
        if self.release is not None:
            self.release()

    @classmethod
    def from_callable(
        cls,
        fn: PredictFn,
        *,
        name: str,
        version: str = "1",
        input: InputSpec | None = None,
        output: OutputSpec | None = None,
        parameters: Sequence[str] = (),
        is_thread_safe: bool = False,
    ) -> ModelHandle:
        """Serve any function from a list of rows to one result per row.

        Without `input`, a row is a float64 array of any width. `is_thread_safe`: it may be called by several threads at
        once, as MODEL_INSTANCES above 1 does, since a function cannot be copied. Raises ValueError for a name or a
        version that no URL could reach, see `loaders.names`, and TypeError for an `is_thread_safe` that is no bool.
        """
        for what, value in (("name", name), ("version", version)):
            try:
                checked_name(value)
            except ValueError as fault:
                raise ValueError(f"{what}={value!r}: {fault}") from None
        return cls(
            name=name,
            version=version,
            fmt="callable",
            predict=fn,
            input=input or TabularInput(),
            output=output or OutputSpec(),
            parameters=frozenset(parameters),
            is_thread_safe=is_thread_safe,
        )
