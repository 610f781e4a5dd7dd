"""The shipped dashboard and its provisioning; whether its queries find something, a real Prometheus says elsewhere."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import yaml

from tests.deploy.dashboard import DASHBOARD, GRAFANA, PANELS, queries
from tests.deploy.prometheus import ALERTS, RECORDING, recorded, rules


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    a, b = one["gridPos"], other["gridPos"]
    beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
    below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    return not (beside or below)


def test_no_panel_covers_another_and_none_has_the_number_of_another():
    panels = DASHBOARD["panels"]
    assert not [(one["title"], other["title"]) for one, other in combinations(panels, 2) if overlap(one, other)]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_panel_asks_the_chosen_prometheus_about_the_chosen_services():
    (chosen,) = {panel["datasource"]["uid"] for panel in PANELS}
    assert chosen == "${datasource}"
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "job"}
    assert not [title for title, query in queries() if "$" in query or 'job=~"serving.*"' not in query]


def test_the_limits_that_panels_show_are_those_of_the_alerts():
    alerts = {rule["alert"]: rule["expr"] for rule in rules(ALERTS)}
    limits = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        for panel in PANELS
        if "thresholds" in panel["fieldConfig"]["defaults"]
    }
    assert alerts["JitneyErrors"].startswith(f"job:http_errors:ratio5m > {limits['Failed']} ")
    assert alerts["JitneySlow"].startswith(f"route:http_request_duration_seconds:p99_5m > {limits['Request time']} ")
    assert alerts["JitneyBacklog"].endswith(f" > {limits['Backlog']}")
    assert alerts["JitneyBatchRetries"].endswith(f" > {limits['Batches that were split']}")


def test_no_rule_is_recorded_that_nobody_looks_at():
    looked_at = [query for _, query in queries()]
    looked_at += [rule["expr"] for file in (ALERTS, RECORDING) for rule in rules(file)]
    assert recorded() == {name for name in recorded() if any(name in query for query in looked_at)}


def test_grafana_is_told_where_the_dashboard_and_its_numbers_are():
    provisioning = GRAFANA / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "jitney.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
