"""Writes the `jitney.toml` of a demo bundle, with the SHA-256 of its artifact pinned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from loaders.bundle import BUNDLE_FILE, pin

Value = str | int | float | bool | Sequence[str] | Sequence[int] | Sequence[float]
Table = Mapping[str, Value]


def write_bundle(
    directory: Path,
    *,
    name: str,
    fmt: str,
    file: str,
    input: Table,
    output: Table | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Describe the artifact `file` (a file or a directory inside `directory`) so that it can be served.

    `notes`: comment lines at the top, e.g. where the weights come from.
    """
    model: Table = {"name": name, "version": "1", "format": fmt, "file": file}
    lines = [f"# {note}" for note in notes]
    for title, table in (("model", model), ("input", input), ("output", output or {})):
        if table:
            lines += ["", f"[{title}]"] if lines else [f"[{title}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
    (directory / BUNDLE_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    pin(directory)


def _toml(value: Value) -> str:
    """The value in TOML, which spells strings, numbers, booleans and lists of them as JSON does."""
    return json.dumps(value if isinstance(value, str | int | float) else list(value), ensure_ascii=False)
