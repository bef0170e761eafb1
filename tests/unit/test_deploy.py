"""deploy/: promtool accepts rules and configuration, dashboards have what Grafana asks, and all they name is there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana import DASHBOARDS, DEPLOY, RULES, alerts, dashboard, metrics_of, queries
from metrics_page import listed
from prometheus import promtool

# What Grafana's dashboard schema (38) requires, and the kinds that it has.
TOP = {
    "uid": str, "title": str, "schemaVersion": int, "panels": list, "time": dict, "templating": dict, "tags": list,
    "editable": bool, "timezone": str, "refresh": str, "annotations": dict, "graphTooltip": int,
}  # fmt: skip
PANEL = {
    "id": int, "type": str, "title": str, "gridPos": dict, "datasource": dict, "targets": list, "fieldConfig": dict,
    "options": dict,
}  # fmt: skip
UNITS = {"short", "bps", "pps", "s", "percentunit", "bytes", "reqps", "cps"}
CALCULATIONS = {"lastNotNull", "last", "max", "mean", "min", "sum"}


def documented() -> set[str]:
    parts = ("All programs", "The controller", "Several controllers", "The slicer", "SNMPVisor")
    return {name for part in parts for name in listed(part)}


def shaped(document: dict[str, Any], fields: dict[str, type]) -> None:
    for name, kind in fields.items():
        assert isinstance(document.get(name), kind), name


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_has_what_grafana_asks(path: Path) -> None:
    found = dashboard(path)
    shaped(found, TOP)
    assert found["uid"] == path.stem and len(found["uid"]) <= 40
    (variable,) = found["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    taken: Counter[tuple[int, int]] = Counter()
    for panel in found["panels"]:
        shaped(panel, PANEL)
        at = panel["gridPos"]
        assert at["x"] >= 0 and at["x"] + at["w"] <= 24, panel["title"]
        taken.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))
        assert panel["type"] in {"timeseries", "stat"} and panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["fieldConfig"]["overrides"] == []
        if panel["type"] == "stat":
            assert set(panel["options"]["reduceOptions"]["calcs"]) <= CALCULATIONS
        for target in panel["targets"]:
            shaped(target, {"refId": str, "expr": str, "legendFormat": str, "datasource": dict})
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs and len(set(refs)) == len(refs)
    assert max(taken.values()) == 1, "panels lie on each other"
    assert len({panel["id"] for panel in found["panels"]}) == len(found["panels"])


def test_every_metric_that_a_panel_or_an_alert_names_is_on_the_page() -> None:
    known = documented() | {"up"}
    for where, expression in [*(query for path in DASHBOARDS for query in queries(path)), *alerts().items()]:
        names = metrics_of(expression)
        assert names and names <= known, (where, names - known)


def test_the_rules_are_sound_and_fire_when_they_should() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", RULES)
    assert "SUCCESS" in promtool("test", "rules", RULES.with_name("hyroads.rules.test.yml"))
    tested = yaml.safe_load(RULES.with_name("hyroads.rules.test.yml").read_text())["tests"]
    for test in tested:
        assert {case["alertname"] for case in test["alert_rule_test"]} == set(alerts()), test["name"]


def test_the_configuration_is_sound() -> None:
    promtool("check", "config", "--syntax-only", RULES.with_name("prometheus.yml"))
    jobs = yaml.safe_load(RULES.with_name("prometheus.yml").read_text())["scrape_configs"]
    assert {job["job_name"] for job in jobs} == {"hyroads-controller", "hyroads-slicer", "hyroads-snmpvisor"}
    sources = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/hyroads.yml").read_text())
    providers = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/hyroads.yml").read_text())
    assert sources["apiVersion"] == providers["apiVersion"] == 1
    assert {"name", "type", "url", "access"} <= set(sources["datasources"][0]) and providers["providers"][0]["options"]
