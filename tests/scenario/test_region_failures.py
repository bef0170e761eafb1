"""Regions with a controller each on real packets: what packets, multipaths and rates notice of controllers that are
killed and started again, of a border agent that dies, and of a region in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from scene_process import make, see, udp_load

from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.programs import wait_until
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.traffic import Traffic

REGIONS = ("north", "south")
INNER = {"north": ("a", "b"), "south": ("d", "c")}
LOAD, COUNTED = 5001, 5300
SECONDS, INTERVAL_S, BYTES = 12.0, 0.001, 200


def two_buildings() -> dict[str, Any]:
    """The file, with a loaded and a counted flow within each region and over the border."""
    network: dict[str, Any] = yaml.safe_load(find_network("two-buildings").read_text())
    ends = {**INNER, "down": ("a", "d")}
    network["flows"] = [
        {"id": f"{name}-{kind}", "from": source, "to": target,
         "match": {"eth_type": 0x0800, "ip_proto": 17, "udp_dst": port}}
        for name, (source, target) in ends.items()
        for kind, port in (("load", LOAD), ("counted", COUNTED))
    ]  # fmt: skip
    return network


def loaded(emulation: Emulation) -> AbstractContextManager[None]:
    """UDP on the loaded flows, more than they can have."""
    addresses = emulation.addressing.host_ip
    ends = [*INNER.values(), ("a", "d")]
    return udp_load([(emulation.inside(source), addresses[target], LOAD) for source, target in ends], 15, 0.0058)


def asked(emulation: Emulation, region: str) -> Any:
    return emulation.rest.only(emulation.rest_urls[REGIONS.index(region)])


def flows_of(emulation: Emulation, region: str) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in asked(emulation, region).flows()}


def devices_of(emulation: Emulation, region: str) -> dict[str, Any]:
    """What a region's devices were told so far."""
    health = asked(emulation, region).health()
    return {
        "flow_mods": {each["node"]: each["flow_mods"] for each in health["switches"]},
        "revisions": {each["node"]: each["revision"] for each in health["agents"]},
    }


def multipaths(flows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        flow: [each["number"], each["state"], [[path["id"], path["links"]] for path in each["multipath"]]]
        for flow, each in flows.items()
    }


def wait_ok(emulation: Emulation, region: str) -> None:
    def ok() -> bool:
        try:
            return bool(asked(emulation, region).health()["ok"])
        except Exception:  # noqa: BLE001 - nobody answers yet
            return False

    wait_until(f"controller of {region}", ok, 30.0, interval_s=0.1)


def streams(emulation: Emulation, ends: dict[str, tuple[str, str]], during: Callable[[], None]) -> dict[str, Any]:
    """Counted streams side by side; what of each was lost, and when."""
    with ThreadPoolExecutor() as pool:
        runs = {
            name: pool.submit(
                Traffic(emulation, source, target, lambda: None).stream, SECONDS, INTERVAL_S, BYTES, lambda: None
            )
            for name, (source, target) in ends.items()
        }
        time.sleep(1.5)
        during()
        found = {name: run.result() for name, run in runs.items()}
    return {
        name: {"sent": each.sent, "lost_s": [each.sent_at_s(number) for number in each.lost]}
        for name, each in found.items()
    }


def sampled(emulation: Emulation, region: str, seconds: float, into: list[dict[str, float]]) -> None:
    """The rates of a region's flows, several times a second."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        into.append({flow: each["rate_mbps"] for flow, each in flows_of(emulation, region).items()})
        time.sleep(0.2)


def killed(emulation: Emulation, names: Sequence[str], *, load: bool) -> dict[str, Any]:
    """The controllers of some regions are killed at once and, two seconds later, started again."""
    other = next((region for region in REGIONS if region not in names), None)
    controllers = [emulation.controllers[REGIONS.index(region)] for region in names]
    watched = other or names[0]
    found: dict[str, Any] = {"killed": names}
    rates: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    found["own"] = {region: multipaths(flows_of(emulation, region)) for region in names}

    def kill() -> None:
        sampled(emulation, watched, 2.0, rates["before"])
        if other is not None:
            found["before"] = multipaths(flows_of(emulation, other)), devices_of(emulation, other)
        found["killed_s"] = time.monotonic()
        for controller in controllers:
            controller.kill()
        if other is not None:
            sampled(emulation, other, 2.0, rates["after"])
        time.sleep(max(0.0, found["killed_s"] + 2.0 - time.monotonic()))
        for controller in controllers:
            controller.start()
        for region in names:
            wait_ok(emulation, region)
        found["back_s"] = time.monotonic()
        sampled(emulation, watched, 3.0, rates["after"])
        if other is not None:
            found["after"] = multipaths(flows_of(emulation, other)), devices_of(emulation, other)

    with loaded(emulation) if load else nullcontext():
        time.sleep(6.0 if load else 0.0)
        found["packets"] = streams(emulation, {"inner": INNER[watched], "crossing": ("a", "d")}, kill)
        found["own again"] = {region: multipaths(flows_of(emulation, region)) for region in names}
        found["flow_mods again"] = [sum(devices_of(emulation, region)["flow_mods"].values()) for region in names]
    of = (f"{watched}-load", f"{watched}-counted")
    found["rates_mbps"] = {
        flow: {when: [each[flow] for each in samples] for when, samples in rates.items()} for flow in of
    }
    found["back_after_s"] = found["back_s"] - found["killed_s"]
    return found


def each_killed(emulation: Emulation) -> dict[str, Any]:
    return {"runs": [killed(emulation, [region], load=False) for region in REGIONS]}


def both_killed(emulation: Emulation) -> dict[str, Any]:
    return {"runs": [killed(emulation, REGIONS, load=False)]}


def each_killed_under_load(emulation: Emulation) -> dict[str, Any]:
    return {"runs": [killed(emulation, [region], load=True) for region in ("south", "north")]}


def three_buildings() -> dict[str, Any]:
    """A third building behind the second one; what goes from end to end crosses the region in the middle."""
    network = two_buildings()
    network["nodes"] |= {"e": {"role": "ap"}, "f": {"role": "ap"}}
    network["regions"]["east"] = ["e", "f"]
    network["links"] += [
        {"id": name, "from": source, "to": target, "technology": kind, "capacity_mbps": mbps, "both": True}
        for name, source, target, kind, mbps in (
            ("de", "d", "e", "ethernet", 100),
            ("ef-wifi", "e", "f", "wifi-east", 20),
            ("ef-plc", "e", "f", "plc-east", 15),
        )
    ]  # fmt: skip
    network["flows"] = [{"id": "down", "from": "a", "to": "f"}, {"id": "up", "from": "f", "to": "a"}]
    return network


def transit(emulation: Emulation) -> dict[str, Any]:
    """The controller of the region in the middle is killed and started again."""
    urls = emulation.rest_urls

    def told() -> list[dict[str, Any]]:
        return [multipaths({each["id"]: each for each in emulation.rest.only(url).flows()}) for url in urls]

    before, middle = told(), emulation.controllers[REGIONS.index("south")]
    mbps = Traffic(emulation, "a", "f", lambda: None).tcp(4.0, "cubic").mbps

    def kill() -> None:
        middle.kill()
        time.sleep(2.0)
        middle.start()
        wait_ok(emulation, "south")

    packets = streams(emulation, {"through": ("a", "f")}, kill)
    return {"before": before, "after": told(), "mbps": mbps, "packets": packets}


def two_border_links() -> dict[str, Any]:
    """The two buildings with a second and slower wire between them, to a node of its own."""
    network = two_buildings()
    network["nodes"]["e"] = {"role": "ap"}
    network["regions"]["south"].append("e")
    network["links"] += [
        {"id": "be", "from": "b", "to": "e", "technology": "ethernet", "capacity_mbps": 50, "both": True},
        {"id": "ed", "from": "e", "to": "d", "technology": "plc-east", "capacity_mbps": 15, "both": True},
    ]
    network["flows"] = [{"id": "down", "from": "a", "to": "d"}, {"id": "up", "from": "d", "to": "a"}]
    return network


def border_agent(emulation: Emulation) -> dict[str, Any]:
    """The agent at the border dies under TCP, and starts again three seconds later."""
    usual = {"down:c@north", "up"}
    wait_until("flows", lambda: flows_of(emulation, "south").keys() == usual, 20.0, interval_s=0.2)
    address = emulation.addressing.host_ip["d"]
    server = subprocess.Popen([*emulation.inside("d"), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    command = ["iperf3", "-c", address, "-t", "9", "-i", "0.1", "-J"]
    client = subprocess.Popen([*emulation.inside("a"), *command], stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(3.0)
        emulation.agent("c").kill()
        time.sleep(2.5)
        moved = multipaths(flows_of(emulation, "south"))
        time.sleep(0.5)
        emulation.agent("c").start()
        printed, _ = client.communicate(timeout=30)
    finally:
        for process in (server, client):
            process.kill()
            process.wait()
    mbps = [each["sum"]["bits_per_second"] / 1e6 for each in json.loads(printed)["intervals"]]
    wait_until("flows again", lambda: flows_of(emulation, "south").keys() == usual, 20.0, interval_s=0.2)
    return {"moved": moved, "mbps": mbps}


def scene(out: Path) -> int:
    """Which one is in the name of the file."""
    body, network, count = {
        "both": (both_killed, two_buildings(), 2),
        "each": (each_killed, two_buildings(), 2),
        "transit": (transit, three_buildings(), 3),
        "border": (border_agent, two_border_links(), 2),
        "loaded": (each_killed_under_load, two_buildings(), 2),
    }[out.stem]
    return make(network, f"t-reg-{out.stem}", body, out, EmulationOptions(regions=True, controllers=count))


def lost_after(run: dict[str, Any], stream: str) -> int:
    """How many packets of a stream were lost from the kill on."""
    return sum(at_s >= run["killed_s"] for at_s in run["packets"][stream]["lost_s"])


def shown(run: dict[str, Any]) -> str:
    lost = {stream: lost_after(run, stream) for stream in run["packets"]}
    rates = {flow: [min(mbps["after"]), max(mbps["after"])] for flow, mbps in run["rates_mbps"].items()}
    before = {flow: sum(mbps["before"]) / len(mbps["before"]) for flow, mbps in run["rates_mbps"].items()}
    return (
        f"killed {run['killed']}, back after {run['back_after_s']:.1f} s: lost {lost}; "
        f"flow-mods again {run['flow_mods again']}; rates {before}, afterwards {rates}"
    )


def assert_unmoved(run: dict[str, Any]) -> None:
    if "before" in run:
        assert run["after"] == run["before"]
    # The controller that is started again finds what it had, with the same numbers, and has nothing to change.
    assert run["own again"] == run["own"]
    assert not any(run["flow_mods again"])


def nothing_lost(seen: dict[str, Any]) -> bool:
    return not any(lost_after(run, stream) for run in seen["runs"] for stream in run["packets"])


@pytest.mark.alone
@pytest.mark.parametrize("which", ["both", pytest.param("each", marks=pytest.mark.nightly)])
def test_nothing_is_lost_or_moved_when_owners_are_killed_and_started_again(tmp_path: Path, which: str) -> None:
    found = see(__file__, tmp_path / f"{which}.json", nothing_lost, tries=2, timeout_s=200.0)
    for run in found["runs"]:
        print(shown(run), file=sys.stderr)
        assert_unmoved(run)
        assert {lost_after(run, stream) for stream in run["packets"]} == {0}


@pytest.mark.nightly
@pytest.mark.alone
def test_rates_of_the_other_region_stay_under_load(tmp_path: Path) -> None:
    found = see(__file__, tmp_path / "loaded.json", nothing_lost, tries=2, timeout_s=200.0)
    for run in found["runs"]:
        print(shown(run), file=sys.stderr)
        assert_unmoved(run)
        for mbps in run["rates_mbps"].values():
            usual = sum(mbps["before"]) / len(mbps["before"])
            assert all(0.9 * usual <= each <= 1.1 * usual for each in mbps["after"])


@pytest.mark.alone
def test_flows_go_through_a_region_in_the_middle_whatever_becomes_of_its_controller(tmp_path: Path) -> None:
    def holds(seen: dict[str, Any]) -> bool:
        return not seen["packets"]["through"]["lost_s"] and bool(seen["mbps"] > 20.0)

    found = see(__file__, tmp_path / "transit.json", holds, tries=2, timeout_s=200.0)
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

    found = see(__file__, tmp_path / "border.json", lambda seen: share(seen) > 0.4, tries=2, timeout_s=200.0)
    silent = max(len(run) for run in "".join("0" if mbps < 0.1 else " " for mbps in found["mbps"]).split(" "))
    print(f"border agent: {share(found):.2f} of TCP after 1 to 2.5 s, nothing for {silent / 10:.1f} s", file=sys.stderr)
    assert set(found["moved"]) == {"down:e@north", "up"}
    assert {state for _, state, _ in found["moved"].values()} == {"multipath"}
    assert share(found) > 0.4 and silent <= 10
