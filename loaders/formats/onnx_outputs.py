"""Which outputs of an ONNX session are asked for, and the rows that come of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.formats.onnx_classes import ScoredClasses
from loaders.formats.rows import rows_by_name


class AskedOutputs:
    """All outputs by name, or with `scored` only that of a classifier's scores."""

    def __init__(self, session: Any, scored: ScoredClasses | None) -> None:
        self.names = [output.name for output in session.get_outputs()] if scored is None else [scored.output]
        self._scored = scored

    def rows(self, results: Sequence[Any], count: int) -> Any:
        """One result per row, from what the session gave for `names`; an object by name for several outputs.

        count: rows that went in.
        """
        given = list(results) if self._scored is None else [self._scored.scores(results[0])]
        return rows_by_name(dict(zip(self.names, given, strict=True)), count)
