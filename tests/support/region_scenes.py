"""Scenes of regions with one controller each, or several, on real packets: controllers that are killed, frozen and
started again, a border agent that dies, a region in the middle. Tests and benchmarks judge what they saw.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import yaml
from network_names import network_name
from scene_process import make, udp_load

from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.programs import EmulationError, wait_until
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.traffic import Traffic
from hyroads.rest.client import Client, ClientError

REGIONS = ("north", "south")
INNER = {"north": ("a", "b"), "south": ("d", "c")}
LOAD, COUNTED = 5001, 5300
INTERVAL_S, BYTES = 0.001, 200
SECONDS, RESTART_S = 12.0, 26.0
"""How long counted packets are sent. Controllers take some seconds to start, and packets have to be sent meanwhile."""


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


def led_by(emulation: Emulation, region: str, but: int = -1) -> int:
    """Which of a region's controllers leads, one of them not being asked; -1: none of those that answer."""
    for number in emulation.controllers_of(region):
        with suppress(ClientError):
            if number != but and client_of(emulation, number).get("/ha")["role"] == "leader":
                return number
    return -1


def client_of(emulation: Emulation, number: int) -> Client:
    return emulation.rest.only(emulation.rest_urls[number])


def asked(emulation: Emulation, region: str) -> Client:
    """A client of the controller that leads a region."""
    number = emulation.controllers_of(region)[0] if emulation.etcd is None else led_by(emulation, region)
    if number < 0:
        raise EmulationError(f"nobody leads region {region}")
    return client_of(emulation, number)


def flows_at(client: Client) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in client.flows()}


def flows_of(emulation: Emulation, region: str) -> dict[str, dict[str, Any]]:
    return flows_at(asked(emulation, region))


def devices_at(client: Client) -> dict[str, Any]:
    """What a region's devices were told so far."""
    health = client.health()
    return {
        "flow_mods": {each["node"]: each["flow_mods"] for each in health["switches"]},
        "revisions": {each["node"]: each["revision"] for each in health["agents"]},
    }


def devices_of(emulation: Emulation, region: str) -> dict[str, Any]:
    return devices_at(asked(emulation, region))


def multipaths(flows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        flow: [each["number"], each["state"], [[path["id"], path["links"]] for path in each["multipath"]]]
        for flow, each in flows.items()
    }


def wait_ok(emulation: Emulation, region: str) -> None:
    """Until all controllers of a region lack nothing, and one leads."""
    urls = [emulation.rest_urls[number] for number in emulation.controllers_of(region)]

    def ok() -> bool:
        with suppress(ClientError, EmulationError):
            asked(emulation, region)
            return all(emulation.rest.only(url).health()["ok"] for url in urls)
        return False

    wait_until(f"controllers of {region}", ok, 30.0, interval_s=0.1)


def wait_crossing(emulation: Emulation) -> None:
    """Until both regions carry what crosses: they have told each other, which a busy machine puts off."""

    def crosses() -> bool:
        flows = {region: flows_of(emulation, region) for region in REGIONS}
        states = {each["state"] for of in flows.values() for each in of.values()}
        return "down-counted@north" in flows["south"] and states == {"multipath"}

    wait_until("flows that cross", crosses, 30.0, interval_s=0.1)


def streams(
    emulation: Emulation, ends: dict[str, tuple[str, str]], during: Callable[[], None], seconds: float = SECONDS
) -> dict[str, Any]:
    """Counted streams side by side; what of each was lost, and when, and whether all took longer than ``during``."""
    with ThreadPoolExecutor() as pool:
        runs = {
            name: pool.submit(
                Traffic(emulation, source, target, lambda: None).stream, seconds, INTERVAL_S, BYTES, lambda: None
            )
            for name, (source, target) in ends.items()
        }
        time.sleep(1.5)
        during()
        was_watched = not any(run.done() for run in runs.values())
        found = {name: run.result() for name, run in runs.items()}
    return {
        name: {
            "sent": each.sent,
            "lost_s": [each.sent_at_s(number) for number in each.lost],
            "outlasts": was_watched,
        }
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
    controllers = [emulation.controllers[number] for region in names for number in emulation.controllers_of(region)]
    watched = other or names[0]
    found: dict[str, Any] = {"killed": names}
    rates: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    wait_crossing(emulation)
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
        ends = {"inner": INNER[watched], "crossing": ("a", "d")}
        found["packets"] = streams(emulation, ends, kill, RESTART_S)
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


def taken_over(emulation: Emulation, region: str, how: int) -> dict[str, Any]:
    """The leader of a region is killed, or frozen and thawed. The next one is asked for a flow that crosses."""
    (other,) = set(REGIONS) - {region}
    wait_crossing(emulation)
    led, found = {which: led_by(emulation, which) for which in REGIONS}, dict[str, Any](region=region)
    old = led[region]

    def seen() -> dict[str, Any]:
        clients = {which: client_of(emulation, number) for which, number in led.items()}
        return {
            which: [multipaths(flows_at(client)), devices_at(client)["revisions"]] for which, client in clients.items()
        }

    def is_over() -> bool:
        led[region] = led_by(emulation, region, but=old)
        return led[region] >= 0 and bool(client_of(emulation, led[region]).health()["ok"])

    def kill() -> None:
        found["before"] = seen()
        found["killed_s"] = time.monotonic()
        emulation.controllers[old].kill(how)
        wait_until(f"the next controller of {region}", is_over, 20.0, interval_s=0.01)
        found["back_s"] = time.monotonic()
        time.sleep(2.0)
        if how == signal.SIGSTOP:
            emulation.controllers[old].kill(signal.SIGCONT)
            time.sleep(2.0)
            found["old is"] = client_of(emulation, old).get("/ha")["role"]
        found["after"] = seen()
        source, target = ("a", "d") if region == "north" else ("d", "a")
        match = {"eth_type": 0x0800, "ip_proto": 17, "udp_dst": 5400}
        new = client_of(emulation, led[region]).declare_flow(f"new-{region}", source, target, match=match)
        found["declared"], found["beyond"] = new["state"], sorted(flows_of(emulation, other))

    found["packets"] = streams(emulation, {**INNER, "crossing": ("a", "d")}, kill)
    if how == signal.SIGKILL:
        emulation.controllers[old].start()
    wait_ok(emulation, region)
    return found


def leaders_killed(emulation: Emulation) -> dict[str, Any]:
    """Of two controllers of each region, the one that leads."""
    return {"runs": [taken_over(emulation, region, signal.SIGKILL) for region in REGIONS]}


def leaders_frozen(emulation: Emulation) -> dict[str, Any]:
    return {"runs": [taken_over(emulation, region, signal.SIGSTOP) for region in REGIONS]}


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
        "leaders": (leaders_killed, two_buildings(), 4),
        "frozen": (leaders_frozen, two_buildings(), 4),
        "all": (both_killed, two_buildings(), 4),
    }[out.stem]
    options = EmulationOptions(regions=True, controllers=count, etcd_members=1 if count == 2 * len(REGIONS) else 0)
    return make(network, network_name(f"reg-{out.stem}"), body, out, options)


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


def is_unmoved(run: dict[str, Any]) -> bool:
    """Nothing changed in the other region, and the controller that is started again finds what it had, with the same
    numbers, and has nothing to change.
    """
    is_same = run["own again"] == run["own"] and run.get("after") == run.get("before")
    return is_same and not any(run["flow_mods again"])


def nothing_lost(seen: dict[str, Any]) -> bool:
    """Whether no packet was lost from the kill on until all was as before, and some were sent all that time."""
    sent = [each["outlasts"] for run in seen["runs"] for each in run["packets"].values()]
    return all(sent) and not any(lost_after(run, stream) for run in seen["runs"] for stream in run["packets"])


def rates_stay(run: dict[str, Any]) -> bool:
    """Whether no rate left its mean before the kill by more than a tenth; the same demand was there all the time."""
    usual = {flow: sum(mbps["before"]) / len(mbps["before"]) for flow, mbps in run["rates_mbps"].items()}
    return all(each["outlasts"] for each in run["packets"].values()) and all(
        0.9 * usual[flow] <= each <= 1.1 * usual[flow]
        for flow, mbps in run["rates_mbps"].items()
        for each in mbps["after"]
    )


def takeover_shown(run: dict[str, Any]) -> str:
    lost = {stream: lost_after(run, stream) for stream in run["packets"]}
    return f"leader of {run['region']} gone, next after {run['back_s'] - run['killed_s']:.3f} s: lost {lost}"


def goes_on(run: dict[str, Any]) -> bool:
    """Whether nothing moved in either region, and what the next leader was asked for is in force in both."""
    is_there = f"new-{run['region']}@{run['region']}" in run["beyond"]
    is_obeyed = run["declared"] == "multipath" and is_there and run.get("old is", "follower") == "follower"
    return run["after"] == run["before"] and is_obeyed
