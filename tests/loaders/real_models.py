"""Models that packages ship or that are trained here, each with its framework's own answer to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders import ModelHandle
from service.inputs import InputLimits, prepare
from service.outputs import present

LIMITS = InputLimits(max_image_pixels=40_000_000, max_text_chars=100_000)


@dataclass(frozen=True)
class Real:
    """A loaded model, instances as a request has them, and what each must be answered with.

    `expected`: one answer per instance, from the framework itself. `together`: how far a number may be from that in
    a batch with others.
    """

    handle: ModelHandle
    instances: list[Any]
    expected: list[Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    together: float = 1e-4


def answers(handle: ModelHandle, instances: list[Any], parameters: Mapping[str, Any] | None = None) -> list[Any]:
    """What clients would get for instances that share one batch."""
    rows = prepare(handle.input, instances, LIMITS)
    assert len({row.shape_key for row in rows}) == 1, "these could not share a batch"
    results = handle.predict_batch([row.payload for row in rows], parameters)
    assert len(results) == len(instances)
    return [present(handle.output, result) for result in results]


def same(one: Any, other: Any, tolerance: float) -> None:
    """Equal labels and keys, and numbers no further apart than `tolerance`."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key], tolerance)
    elif isinstance(one, str | None):
        assert one == other
    elif np.asarray(one).dtype.kind in "fiub":
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(np.asarray(one, float), np.asarray(other, float), rtol=0, atol=tolerance)
    else:
        assert len(one) == len(other)
        for part, counterpart in zip(one, other, strict=True):
            same(part, counterpart, tolerance)


def package(name: str) -> Path:
    """Where an installed package's files lie; the package itself is not imported, as it may need what is not there."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {name} is not installed")
    return Path(spec.submodule_search_locations[0])
