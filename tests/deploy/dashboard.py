"""The shipped Grafana dashboard, as data."""

from __future__ import annotations

import json
from typing import Any

from tests.system.conftest import ROOT

GRAFANA = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "jitney.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

# What Grafana puts in for its variables.
_CHOSEN = {"$job": "serving.*", "$__rate_interval": "1m"}


def queries() -> list[tuple[str, str]]:
    """The title of the panel, and what it asks Prometheus, with the variables filled in."""
    found = []
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"]
            for variable, value in _CHOSEN.items():
                expression = expression.replace(variable, value)
            found.append((panel["title"], expression))
    return found
