"""One operation of the API, and what its description depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loaders.handle import ModelHandle
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Served:
    """What is described.

    `model`: whose inputs and answers are described; None describes every kind of input, while no model is loaded or
    where several are served. `has_keys`, `has_metrics_key`: whether predictions and `/metrics` need a key.
    """

    model: ModelHandle | None
    settings: Settings
    has_keys: bool = False
    has_metrics_key: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `describe`: the rest of its OpenAPI object: parameters, body, answers, security."""

    method: str
    path: str
    operation_id: str
    tag: str
    summary: str
    describe: Callable[[Served], dict[str, Any]]

    def as_openapi(self, served: Served) -> dict[str, Any]:
        """The Operation Object."""
        head = {"operationId": self.operation_id, "tags": [self.tag], "summary": self.summary}
        return head | self.describe(served)


def ref(name: str, section: str = "schemas") -> dict[str, Any]:
    """A reference to a component of the document."""
    return {"$ref": f"#/components/{section}/{name}"}


# Either of them will do.
KEY_NEEDED: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]
