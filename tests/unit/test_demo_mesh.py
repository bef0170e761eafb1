"""The yardstick of demo ``mesh``, against the joint optimum, which is found another way."""

from __future__ import annotations

from pathlib import Path

import pytest

from hyroads.controller.core.optimum import joint_optimum
from hyroads.controller.files.documents import read_file
from hyroads.mininet.demos import mesh
from hyroads.mininet.run_directory import FOLDER as NETWORKS

MESH = read_file(Path(NETWORKS) / "mesh.yaml")


@pytest.mark.parametrize(
    "gone", [mesh.TWO_CHANNELS, mesh.ONE_CHANNEL, (*mesh.ONE_CHANNEL, "sa"), ("ab", "cb-1", "cb-6")]
)
def test_the_best_placement_is_the_optimum_of_the_links_that_are_left(gone):
    live = MESH.with_capacities(dict.fromkeys(mesh.both_ways(gone), 0.0))
    expected_mbps = joint_optimum(live, MESH.flows).rates_mbps["down"]
    assert mesh.optimum_mbps(MESH, gone) == pytest.approx(expected_mbps, rel=1e-4)


def test_three_backlinks_add_up_on_two_channels_and_on_one():
    assert mesh.optimum_mbps(MESH, mesh.TWO_CHANNELS) == pytest.approx(30.0)
    assert mesh.optimum_mbps(MESH, mesh.ONE_CHANNEL) == pytest.approx(30.0)
