"""Every route: importing this module puts them all on the blueprint."""

from __future__ import annotations

from service.http import docs, native, probes, v1
from service.http.blueprint import blueprint
from service.http.v2 import repository, routes

docs.register(blueprint)

__all__ = ["blueprint", "native", "probes", "repository", "routes", "v1"]
