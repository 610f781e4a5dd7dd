"""Models that answer with their own name and version, for repositories of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loaders.handle import ModelHandle
from loaders.signature import InputSpec, TabularInput


class Named:
    """Loads models that answer with their own name and version; `inputs` may say what one takes."""

    fmt = "named"

    def __init__(self) -> None:
        self.inputs: dict[str, InputSpec] = {}

    def load(self, path: Path, *, name: str, version: str, metadata: Any = None) -> ModelHandle:
        what = f"{name}/{version}"
        return ModelHandle(
            name,
            version,
            "named",
            lambda rows: [what] * len(rows),
            input=self.inputs.get(what, TabularInput(width=1)),
            warnings=("trained by an older library in /opt/train/run",) if version == "1" else (),
        )
