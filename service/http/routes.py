"""Every route: importing this module puts them all on the blueprint."""

from __future__ import annotations

from service.http import docs, native, probes
from service.http.blueprint import blueprint

docs.register(blueprint)

__all__ = ["blueprint", "native", "probes"]
