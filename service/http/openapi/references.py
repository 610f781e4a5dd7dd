"""References to the components of the document."""

from __future__ import annotations

from typing import Any


def ref(name: str, section: str = "schemas") -> dict[str, Any]:
    """A reference to a component of the document."""
    return {"$ref": f"#/components/{section}/{name}"}
