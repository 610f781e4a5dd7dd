"""What the description depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loaders.handle import ModelHandle
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Served:
    """What is described.

    `model`: whose inputs and answers are described; None describes every kind of input, while no model is loaded or
    where several are served. `sample`: its prediction for one row, None where that is not known.
    """

    model: ModelHandle | None
    settings: Settings
    sample: Any | None = None
