"""docs/reference/metrics.md against what a running controller and a slicer offer, whatever names they are given."""

from __future__ import annotations

import metrics_page
import pytest
from controller_process import ControllerProcess

NASTY = 'a"b\\c} 1{'


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = {"slices": {"research": {"wifi": 0.25}}}
    with ControllerProcess(tmp_path_factory.mktemp("metrics"), settings) as controller:
        flow = {"id": NASTY, "from": "a", "to": "c", "match": {"eth_type": 2048}}
        assert controller.rest("POST", "/flows?wait=false", flow)[0] == 202
        assert controller.rest("GET", f"/{'nowhere' * 9}")[0] == 404
        return controller.metrics()


def test_the_page_lists_every_metric_with_its_kind_labels_and_unit(text: str) -> None:
    assert metrics_page.check(text, "All programs", "The controller") > 30


def test_prometheus_finds_nothing_wrong(text: str) -> None:
    metrics_page.lint(text)


def test_requests_are_counted_by_what_they_ask_for(text: str) -> None:
    assert 'hyroads_rest_requests_total{code="202",method="POST",resource="flows"} 1.0' in text
    assert 'hyroads_rest_requests_total{code="404",method="GET",resource="none"} 1.0' in text
    assert "nowhere" not in text
