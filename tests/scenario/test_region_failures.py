"""Regions with a controller each on real packets: what packets, multipaths and rates notice of controllers that are
killed and started again, of a border agent that dies, and of a region in the middle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from scene_process import make, see

from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.programs import wait_until
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.traffic import Traffic

REGIONS = ("north", "south")
INNER = {"north": ("a", "b"), "south": ("d", "c")}
LOAD, COUNTED = 5001, 5300
SECONDS, INTERVAL_S, BYTES = 12.0, 0.001, 200
SEND = """
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(15):
        try:
            out.sendto(bytes(1400), (sys.argv[1], int(sys.argv[2])))
        except OSError:
            pass
    time.sleep(0.0058)
"""


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


@contextmanager
def loaded(emulation: Emulation) -> Iterator[None]:
    """UDP on the loaded flows, more than they can have."""
    ends = [*INNER.values(), ("a", "d")]
    senders = [
        subprocess.Popen(
            [*emulation.inside(source), sys.executable, "-c", SEND, emulation.addressing.host_ip[target], str(LOAD)]
        )
        for source, target in ends
    ]
    try:
        yield
    finally:
        for sender in senders:
            sender.kill()
            sender.wait()


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


def scene(out: Path) -> int:
    """Which one is in the name of the file."""
    body, network, count = {
        "both": (both_killed, two_buildings(), 2),
        "each": (each_killed, two_buildings(), 2),
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
