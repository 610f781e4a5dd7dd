"""The kind of input that a bundle's `[input]` is about when it does not say so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loaders.suffixes import FORMAT_OF_SUFFIX, model_files
from loaders.tables import INPUT_TABLES

# Formats whose models take one kind of input only.
_OF_FORMAT = {"pickle": "tabular", "joblib": "tabular", "transformers": "text"}


def with_kind(tables: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The parsed `tables` with `[input] kind`, where it was left out and can be told; otherwise as they are.

    It is told by the model's format, or by the keys that are there, when only one kind has all of them.
    """
    table = tables.get("input")
    if not isinstance(table, dict) or "kind" in table:
        return tables
    model = tables.get("model")
    kind = _OF_FORMAT.get(_format(model if isinstance(model, dict) else {}, directory)) or _of_keys(table)
    return tables if kind is None else {**tables, "input": {"kind": kind, **table}}


def _format(model: Mapping[str, Any], directory: Path) -> str:
    """The format that the bundle or the name of its only model file tells; empty when neither does."""
    if isinstance(model.get("format"), str):
        return str(model["format"])
    if "file" not in model and (directory / "config.json").is_file():
        return "transformers"
    names = [str(model["file"])] if "file" in model else model_files(directory)
    return FORMAT_OF_SUFFIX.get(Path(names[0]).suffix.lower(), "") if len(names) == 1 else ""


def _of_keys(table: Mapping[str, Any]) -> str | None:
    kinds = [kind for kind, model in INPUT_TABLES.items() if table.keys() <= model.model_fields.keys()]
    return kinds[0] if len(kinds) == 1 else None
