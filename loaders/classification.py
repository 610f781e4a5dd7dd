"""Classes and their scores: whether a bundle asks for them, and how many of them a model has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loaders.signature import OutputSpec


def is_asked_for(metadata: Mapping[str, Any]) -> bool:
    """Whether the bundle's `[output]` says so, or has keys that mean nothing else."""
    output = metadata.get("output", {})
    task = output.get("task")
    return task == "classification" or (task is None and any(output.get(key) for key in ("labels", "top_k", "softmax")))


def classification(classes: Sequence[Any]) -> OutputSpec:
    """The output of a model that gives one score for each of `classes`, in their order."""
    return OutputSpec(task="classification", labels=tuple(str(name) for name in classes))


def score_counts(shapes: Iterable[Sequence[Any]]) -> tuple[int | None, ...]:
    """Numbers per row that each output gives, as `metadata["score_counts"]` holds them; None where that is not fixed.

    shapes: of the outputs, with the batch dimension; an extent that may vary is no integer.
    """
    return tuple(shape[1] if len(shape) == 2 and isinstance(shape[1], int) else None for shape in shapes)


def known_counts(found: OutputSpec, metadata: Mapping[str, Any]) -> frozenset[int]:
    """How many scores a row may get, by what the model says of itself; empty where it does not say.

    More than one number: the model has several outputs, to any of which labels may belong.
    """
    classes = found.labels or metadata.get("classes")
    if classes:
        # Several outputs with classes of their own are given as one list of lists: what a label belongs to is open.
        return frozenset() if isinstance(classes[0], list) else frozenset({len(classes)})
    counts = metadata.get("score_counts", ())
    return frozenset(counts) if None not in counts else frozenset()
