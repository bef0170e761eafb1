"""The dashboards and alert rules of deploy/: their queries, and what Grafana asks of a dashboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
RULES = DEPLOY / "prometheus" / "hyroads.rules.yml"
METRIC = re.compile(r"\b(?:(?:hyroads|process|of|dp|port)_\w+|up)\b")


def dashboard(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def queries(path: Path) -> Iterator[tuple[str, str]]:
    """Of each panel: where it is, and the expression."""
    for panel in dashboard(path)["panels"]:
        for target in panel["targets"]:
            yield f"{path.stem}: {panel['title']} {target['refId']}", target["expr"]


def alerts() -> dict[str, str]:
    """By name: the expression."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def metrics_of(expression: str) -> set[str]:
    """Names of metrics, those of a histogram as it is listed."""
    names = set(METRIC.findall(re.sub(r'"[^"]*"', '""', expression)))
    return {re.sub(r"_(bucket|count)$", "", name) for name in names}
