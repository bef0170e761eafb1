"""Regions with controllers of their own on real packets: what packets, multipaths and rates notice of controllers that
are killed and started again, of a border agent that dies, and of a region in the middle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import region_scenes
from not_made import needs_etcd
from region_scenes import goes_on, is_unmoved, nothing_lost, rates_stay, shown, takeover_shown
from scene_process import see

SCENES = region_scenes.__file__


@pytest.mark.alone
@pytest.mark.parametrize(
    "which", ["both", *(pytest.param(which, marks=pytest.mark.nightly) for which in ("each", "all"))]
)
def test_nothing_is_lost_or_moved_when_owners_are_killed_and_started_again(tmp_path: Path, which: str) -> None:
    if which == "all":
        needs_etcd()
    found = see(SCENES, tmp_path / f"{which}.json", nothing_lost, tries=2, timeout_s=200.0)
    for run in found["runs"]:
        print(shown(run), file=sys.stderr)
        assert is_unmoved(run), run
    assert nothing_lost(found)


@pytest.mark.nightly
@pytest.mark.alone
def test_rates_of_the_other_region_stay_under_load(tmp_path: Path) -> None:
    def holds(seen: dict[str, Any]) -> bool:
        return all(map(rates_stay, seen["runs"]))

    found = see(SCENES, tmp_path / "loaded.json", holds, tries=2, timeout_s=200.0)
    for run in found["runs"]:
        print(shown(run), file=sys.stderr)
        assert is_unmoved(run), run
        assert rates_stay(run)


@pytest.mark.alone
def test_flows_go_through_a_region_in_the_middle_whatever_becomes_of_its_controller(tmp_path: Path) -> None:
    def holds(seen: dict[str, Any]) -> bool:
        return not seen["packets"]["through"]["lost_s"] and bool(seen["mbps"] > 20.0)

    found = see(SCENES, tmp_path / "transit.json", holds, tries=2, timeout_s=200.0)
    packets = found["packets"]["through"]
    print(f"through: TCP {found['mbps']:.1f} Mb/s, lost {len(packets['lost_s'])} of {packets['sent']}", file=sys.stderr)
    assert found["after"] == found["before"]
    assert [set(region) for region in found["before"]] == [
        {"down", "up@east@south"}, {"down@north", "up@east"}, {"down@north@south", "up"},
    ]  # fmt: skip
    assert {state for region in found["before"] for _, state, _ in region.values()} == {"multipath"}
    assert holds(found)


@pytest.mark.nightly
@pytest.mark.alone
def test_tcp_goes_on_when_the_agent_at_the_border_dies(tmp_path: Path) -> None:
    def share(seen: dict[str, Any]) -> float:
        mbps = seen["mbps"]
        return sum(mbps[40:55]) / 15 / (sum(mbps[10:29]) / 19)

    found = see(SCENES, tmp_path / "border.json", lambda seen: share(seen) > 0.4, tries=2, timeout_s=200.0)
    silent = max(len(run) for run in "".join("0" if mbps < 0.1 else " " for mbps in found["mbps"]).split(" "))
    print(f"border agent: {share(found):.2f} of TCP after 1 to 2.5 s, nothing for {silent / 10:.1f} s", file=sys.stderr)
    assert set(found["moved"]) == {"down:e@north", "up"}
    assert {state for _, state, _ in found["moved"].values()} == {"multipath"}
    assert share(found) > 0.4 and silent <= 10


@pytest.mark.alone
@pytest.mark.parametrize("which", ["leaders", pytest.param("frozen", marks=pytest.mark.nightly)])
def test_another_controller_of_a_region_goes_on_with_what_crosses(tmp_path: Path, which: str) -> None:
    needs_etcd()
    found = see(SCENES, tmp_path / f"{which}.json", nothing_lost, tries=2, timeout_s=200.0)
    for run in found["runs"]:
        print(takeover_shown(run), file=sys.stderr)
        assert goes_on(run), run
    assert nothing_lost(found)
