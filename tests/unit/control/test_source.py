"""The source that only knows the network file."""

from __future__ import annotations

from pathlib import Path

from hyroads.controller.control.source import ConfiguredSource
from hyroads.controller.core.estimate.link_estimate import LinkEstimator
from hyroads.controller.core.estimate.link_estimate import Source as From
from hyroads.controller.files.documents import read_file

TRIANGLE = Path(__file__).resolve().parents[3] / "mininet" / "networks" / "triangle.yaml"


def test_a_file_without_measuring_access_points_says_its_capacities_once_and_for_ever() -> None:
    network = read_file(TRIANGLE)
    source = ConfiguredSource(network)
    estimator = LinkEstimator({link.id: link.technology for link in network.links})
    for second in (5.0, 6.0, 5000.0):
        estimator = estimator.after(source.take(second).samples)
        estimates = estimator.estimates(second)
        assert {link: e.capacity_mbps for link, e in estimates.items()} == {
            link.id: link.capacity_mbps for link in network.links
        }
        assert {e.source for e in estimates.values()} == {From.CONFIGURED}
    assert not source.take(6.0).samples
    assert source.heard() is source.heard() and not source.heard().observers
