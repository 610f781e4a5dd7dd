"""The shipped scrape configurations and rules: promtool takes them, and they do what their unit tests say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.prometheus import ALERTS, CONFIGURATIONS, RECORDING, promtool, recorded, rules
from tests.system.conftest import ROOT

UNIT_TESTS = Path(__file__).parent / "rules"


def anchors(document: Path) -> set[str]:
    """What a link can lead to: the headings, as web pages of repositories name them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def alerts_expected(*, firing: bool) -> set[str]:
    """The alerts that some unit test expects to fire, or not to."""
    cases = yaml.safe_load((UNIT_TESTS / "alerts.yml").read_text())["tests"]
    checks = [check for case in cases for check in case["alert_rule_test"]]
    return {check["alertname"] for check in checks if bool(check["exp_alerts"]) is firing}


@pytest.mark.parametrize("name", ["prometheus.yml", "replicas.yml"])
def test_prometheus_takes_the_configurations_and_their_rules(name):
    told = promtool("check", "config", CONFIGURATIONS / name)
    assert told.count("rules found") == 2


@pytest.mark.parametrize("name", ["recording.yml", "alerts.yml"])
def test_the_rules_do_what_their_unit_tests_say(name):
    assert "SUCCESS" in promtool("test", "rules", UNIT_TESTS / name)


def test_every_recording_rule_has_a_unit_test_or_is_part_of_one_that_has():
    cases = yaml.safe_load((UNIT_TESTS / "recording.yml").read_text())["tests"]
    asked = " ".join(check["expr"] for case in cases for check in case["promql_expr_test"])
    asked += " ".join(rule["expr"] for rule in rules(RECORDING))
    assert recorded() == {name for name in recorded() if name in asked}


def test_every_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_it_does_not():
    alerts = {rule["alert"] for rule in rules(ALERTS)}
    assert alerts_expected(firing=True) == alerts
    assert alerts_expected(firing=False) == alerts


def test_alerts_stand_in_the_order_of_urgency():
    assert [rule["alert"] for rule in rules(ALERTS)][:3] == ["JitneyErrors", "JitneySlow", "JitneyQueueGrowing"]


@pytest.mark.parametrize("rule", rules(ALERTS), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_urgent_it_is_and_where_to_read_what_to_do(rule):
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    document, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / document)


def test_a_rule_is_recorded_once():
    names = [rule["record"] for rule in rules(RECORDING)]
    assert len(names) == len(set(names))
