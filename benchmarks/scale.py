"""One real controller, and every access point scripted (dataplane/examples/scripted_campus): how far it goes.

No root, no packets. Run: python benchmarks/scale.py --nodes 100 --flows 100 [--seconds 30] [--cuts 10] [--declares 20]
[--restart] [--json]. Prints the time until all is in force, CPU per second of the controller, slots (how many took
place, how many were missed, and how long they took), memory before and after, rules per switch, the time from a cut to
new rates, and that of a confirmed ``POST /flows``. ``--seconds 600 --cuts 0 --declares 0``: whether slots are missed in
ten minutes, and whether memory grows.

``verdict``: the figures are "not believed" if the devices themselves were late. ``lateness_ms`` says for each part of
the run how much later than it was due a report went out. ``slots_of`` has the slots of each part; the start is a part
of its own, so ``p50_ms`` and ``p99_ms`` are of slots since all was in force.

``--standby 3 [--seconds 20]``: what a warm standby costs. A leader on a real etcd is alone, and then has a standby,
three times in turn; of each time CPU, slots and memory are told. The leader has a core of its own; the standby, the
scripted devices and etcd share another one. Then flows are declared, and in the end the leader is killed: what the next
one sent to change something.

The devices share the machine's cores with the controller. ``cores`` says for each part of the run what both used, and
how long the controller's main thread waited for a core, both per second: what it waited is not its own work. ``main``
is the processor time of that thread alone. With ``--apart`` that thread has a core of its own once all is in force.
With ``--slot-ms 200`` slots, reports and readings come half as often.

The air is noisy: in each reading half of the rows differ by 1 to 3 dB, and their rates by up to 5 %; the dead bands of
real access points (``access_point/reading_changes.py``) decide which rows go out. ``--no-noise``: the air is at rest.
``--moving P``: in each reading each row also takes another rate and signal with probability P. Rows are drawn with
fixed seeds. ``rows_per_s`` says how many rows access points sent, and in how many readings.

``--python-devices`` runs the devices in Python instead, which cannot say how late they are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from hyroads.controller.core.netfile import to_document
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import Network
from hyroads.controller.core.topologies import campus
from hyroads.controller.runtime.persistence import Saved, Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from campus_devices import STILL, Air, CompiledDevices, Devices
from campus_loop import campus_flows
from campus_parts import Parts, cpu_of, memory_mib
from controller_process import ControllerProcess, eventually, free_ports
from ha_lab import Instance
from slot_log import SlotLog, percentile

from hyroads.mininet.etcd import Etcd

CUT_WITHIN_S = 5.0
SLOTS_PER_S = 10
# Flows that are declared later use these TCP ports.
NEW_PORT = 40_000
# After this long a standby that is warm does nothing any more that it does once.
WARM_S = 5.0
# As the controller's own program, with percentiles of fewer slots.
PROGRAM = """
import hyroads.controller.control.slots as slots
slots._REMEMBERED = {slots}
from hyroads.controller.framework.launcher import run_controller
raise SystemExit(run_controller())
"""


def set_apart(controller: ControllerProcess, devices: Devices) -> None:
    """The controller's main thread has a core of its own; its other threads and the devices share the others."""
    first, *others = sorted(os.sched_getaffinity(0))
    main = controller.process.pid
    for thread in [*Path(f"/proc/{main}/task").iterdir(), *Path(f"/proc/{devices.process.pid}/task").iterdir()]:
        os.sched_setaffinity(int(thread.name), others if int(thread.name) != main else {first})


def until_in_force(controller: ControllerProcess, within_s: float, say: bool) -> tuple[float, dict[str, Any]]:
    """Seconds until nothing is pending."""
    began_s = time.monotonic()
    health: dict[str, Any] = {}
    told_s = began_s
    while time.monotonic() - began_s < within_s:
        status, answer = controller.rest("GET", "/health")
        health = answer or {}
        if status and health.get("ok") and not health["pending"] and len(health["switches"]):
            return time.monotonic() - began_s, health
        if say and time.monotonic() - told_s > 5:
            told_s = time.monotonic()
            pending = len(health.get("pending", ())) if status else "no answer"
            print(f"  {told_s - began_s:5.1f} s: pending {pending}", file=sys.stderr)
        time.sleep(0.2)
    errors = health.get("last_errors", ())
    raise SystemExit(f"not in force after {within_s:g} s: pending {str(health.get('pending'))[:200]}, {errors}")


@contextmanager
def started(
    folder: Path, network: Network, flows: int, *, radios: bool, slot_ms: int
) -> Iterator[tuple[ControllerProcess, Path, SlotLog]]:
    """A controller of a network with so many flows in its file."""
    path, settings = prepared(folder, network, flows, radios=radios, slot_ms=slot_ms)
    # One from before labels had a secret: the scripted devices know them from the network file.
    Store(str(folder / "state")).save(Saved())
    controller, log = (
        ControllerProcess(folder, {**settings, "state_file": str(folder / "state")}),
        SlotLog(folder / "slots"),
    )
    controller.command[-1] = log.program
    with controller:
        yield controller, path, log


def devices_of(asked: argparse.Namespace, path: Path, *controllers: ControllerProcess) -> Devices:
    """The scripted devices that the command line names."""
    air = Air(noise=asked.noise or asked.moving is not None, moving=asked.moving or 0.0)
    rig = Devices if asked.python_devices else CompiledDevices
    return rig(path, *controllers, radios=not asked.no_radios, air=air if air.noise else STILL)


def prepared(
    folder: Path, network: Network, flows: int, *, radios: bool, slot_ms: int = 1000 // SLOTS_PER_S
) -> tuple[Path, dict[str, Any]]:
    """The file of a network with so many flows, and settings of a controller."""
    document = to_document(network)
    document["flows"] = [flow_document(flow) for flow in campus_flows(network, flows, random.Random(2))]
    path = folder / "network.json"
    path.write_text(json.dumps(document))
    measured = {"capacities": "measured"} if radios else {}
    return path, {"network": str(path), "timings": {"grace_s": 60.0}, "slot_ms": slot_ms, **measured}


def idle(controller: ControllerProcess, log: SlotLog, seconds: float) -> dict[str, Any]:
    """What it costs while nothing is declared or cut, and how slots are."""
    process = psutil.Process(controller.process.pid)
    family = [process, *process.children(recursive=True)]
    missed, since = controller.rest("GET", "/health")[1]["slots"]["missed"], log.place()
    began_s, cpu_s, began_mib = time.monotonic(), cpu_of(family), memory_mib(family)
    time.sleep(seconds)
    elapsed_s, used_s = time.monotonic() - began_s, cpu_of(family) - cpu_s
    found = log.figures(since)
    slots, missed = found["slots"], controller.rest("GET", "/health")[1]["slots"]["missed"] - missed
    return {
        "cpu_per_s": used_s / elapsed_s,
        "cpu_ms_per_slot": 1e3 * used_s / max(1, slots),
        **found,
        "missed": missed,
        "missed_percent": 100 * missed / max(1, slots + missed),
        "began_mib": began_mib,
        "memory_mib": memory_mib(family),
    }


def sent_per_s(devices: Devices, before: dict[str, int], elapsed_s: float) -> dict[str, float]:
    """Readings that access points sent per second, those of them that had rows, and these rows."""
    after = devices.ask("counts")["counts"]
    names = ("readings", "readings_with_rows", "rows")
    return {name: round((after.get(name, 0) - before.get(name, 0)) / elapsed_s, 1) for name in names}


def cuts(devices: Devices, count: int, rng: random.Random) -> list[float]:
    """Milliseconds from the line of an agent to the last new rates of those who sent by the link."""
    found = []
    for _ in range(count):
        link = rng.choice([link for link in devices.ask("used")["links"] if "ethernet" not in link])
        devices.ask("cut", link=link)
        until_s = time.monotonic() + CUT_WITHIN_S
        while (told := devices.ask("cut-ms"))["ms"] is None and time.monotonic() < until_s:
            time.sleep(0.01)
        found.append(told["ms"] if told["ms"] is not None else 1e3 * CUT_WITHIN_S)
        devices.ask("cut", link=link, up=True)
        time.sleep(1.0)
    return found


def declares(controller: ControllerProcess, network: Network, count: int) -> dict[str, float]:
    """Milliseconds of ``POST /flows`` until it is confirmed, of so many; at least one."""
    took = []
    for flow in campus_flows(network, count, random.Random(3), "new-", NEW_PORT):
        began_s = time.monotonic()
        status, answer = controller.rest("POST", "/flows", flow_document(flow))
        assert status in {200, 201, 202}, (status, answer)
        took.append(1e3 * (time.monotonic() - began_s))
        time.sleep(0.2)
    return {"median": statistics.median(took), "p99": percentile(took, 0.99), "worst": max(took)}


# -- what a standby costs


@contextmanager
def on_core(number: int) -> Iterator[None]:
    """What is started meanwhile runs on one of the cores of this machine alone."""
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    os.sched_setaffinity(0, {cores[min(number, len(cores) - 1)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def used(controller: ControllerProcess, seconds: float) -> dict[str, float]:
    """What a controller uses of CPU and memory in a time, and its slots in it."""
    process = psutil.Process(controller.process.pid)
    family = [process, *process.children(recursive=True)]
    before, began_s, cpu_s = controller.rest("GET", "/health")[1]["slots"], time.monotonic(), cpu_of(family)
    time.sleep(seconds)
    elapsed_s, cpu_s = time.monotonic() - began_s, cpu_of(family) - cpu_s
    after = controller.rest("GET", "/health")[1]["slots"]
    memory = [one.memory_full_info() for one in family]
    return {
        "cpu_ms_per_slot": 1e3 * cpu_s / (elapsed_s * SLOTS_PER_S),
        "p50_ms": after["p50_ms"],
        "p99_ms": after["p99_ms"],
        "missed": after["missed"] - before["missed"],
        "rss_mib": sum(one.rss for one in memory) / 2**20,
        "uss_mib": sum(one.uss for one in memory) / 2**20,
    }


def is_warm(one: Instance) -> bool:
    """Whether it could lead at once."""
    status, health = one.rest("GET", "/health")
    return bool(status) and health["ha"]["warm"]


def standby_cost(folder: Path, network: Network, asked: argparse.Namespace) -> dict[str, Any]:
    """See ``--standby`` in the module."""
    path, settings = prepared(folder, network, asked.flows, radios=not asked.no_radios)
    client_port, peer_port = free_ports(2)
    etcd = Etcd(folder / "etcd", [(client_port, peer_port)], bound_to_parent=True)
    leader, standby = (Instance(folder / name, name, etcd, settings) for name in "ab")
    for one in (leader, standby):
        one.command[-1] = PROGRAM.format(slots=int(asked.seconds * SLOTS_PER_S))
    with on_core(1):
        etcd.start()
    etcd.wait_ready()
    rows: dict[str, list[dict[str, float]]] = {"alone": [], "with a standby": [], "standby": []}
    with ExitStack() as ends:
        ends.callback(etcd.stop)
        ends.callback(end, leader, standby)
        with on_core(0):
            leader.__enter__()
        with on_core(1):
            devices = devices_of(asked, path, leader, standby)
        ends.callback(devices.close)
        until_in_force(leader, asked.within_s, not asked.json)
        for _ in range(asked.standby):
            time.sleep(WARM_S)
            rows["alone"].append(used(leader, asked.seconds))
            with on_core(1):
                standby.__enter__()
            eventually(lambda: is_warm(standby), asked.within_s)
            time.sleep(WARM_S)
            with ThreadPoolExecutor(1) as pool:
                theirs = pool.submit(used, standby, asked.seconds)
                rows["with a standby"].append(used(leader, asked.seconds))
            rows["standby"].append(theirs.result())
            if len(rows["standby"]) < asked.standby:
                standby.__exit__()
        found = costs(rows)
        if asked.declares:
            both = [psutil.Process(one.process.pid) for one in (leader, standby)]
            cpu_s = [cpu_of([each]) for each in both]
            found["declare_ms"] = declares(leader, network, asked.declares)
            used_s = [round(cpu_of([each]) - before_s, 2) for each, before_s in zip(both, cpu_s, strict=True)]
            found["cpu_s of leader and standby while flows are declared"] = used_s
            time.sleep(WARM_S)
        return {**found, "takeover": killed(leader, standby, devices)}


def end(*instances: Instance) -> None:
    """End those that have started."""
    for one in instances:
        if hasattr(one, "process"):
            one.__exit__()


def costs(rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians (the last time's memory), and how much more the leader uses with a standby, pair by pair."""
    found: dict[str, Any] = {
        who: {name: round(statistics.median(each[name] for each in times), 2) for name in times[0]}
        for who, times in rows.items()
    }
    pairs = list(zip(rows["alone"], rows["with a standby"], strict=True))
    for name in ("cpu_ms_per_slot", "p50_ms", "p99_ms", "rss_mib"):
        more = [100 * (with_[name] / alone[name] - 1) for alone, with_ in pairs]
        found[f"leader's {name}, %"] = {"median": round(statistics.median(more), 1), "worst": round(max(more), 1)}
    last = rows["standby"][-1], rows["with a standby"][-1]
    found["memory beside the leader's"] = {
        name: round(last[0][name] / last[1][name], 3) for name in ("rss_mib", "uss_mib")
    }
    return found


def killed(leader: Instance, standby: Instance, devices: Devices) -> dict[str, Any]:
    """The leader is killed: what devices were sent to change something in the second after."""
    before, began_s = devices.ask("counts")["counts"], time.monotonic()
    leader.process.kill()
    eventually(lambda: standby.leads)
    leads_s = time.monotonic() - began_s
    time.sleep(1.0)
    after = devices.ask("counts")["counts"]
    names = ("adds", "deletes", "groups", "configs", "rates")
    return {"leads_ms": 1e3 * leads_s, **{name: after.get(name, 0) - before.get(name, 0) for name in names}}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--flows", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--cuts", type=int, default=10)
    parser.add_argument("--declares", type=int, default=20)
    parser.add_argument("--within-s", type=float, default=300.0)
    parser.add_argument("--restart", action="store_true", help="end the controller, start it again")
    parser.add_argument("--no-radios", action="store_true")
    parser.add_argument("--noise", action=argparse.BooleanOptionalAction, default=True, help="noisy air")
    parser.add_argument("--python-devices", action="store_true", help="the devices in Python")
    parser.add_argument("--moving", type=float, metavar="P", help="noisy air, and a row moves with this probability")
    parser.add_argument("--standby", type=int, default=0, metavar="TIMES", help="measure what a standby costs")
    parser.add_argument("--slot-ms", type=int, default=1000 // SLOTS_PER_S, help="of slots, reports and readings")
    parser.add_argument("--apart", action="store_true", help="give the controller's main thread a core of its own")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    # Whatever was started ends with it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    network = campus(random.Random(1), asked.nodes)
    figures: dict[str, Any] = {"nodes": asked.nodes, "flows": asked.flows}
    if asked.standby:
        with tempfile.TemporaryDirectory() as folder:
            figures.update(standby_cost(Path(folder), network, asked))
    else:
        figures.update(one_controller(network, asked))
    if asked.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:>18}: {value}")
    return 0


def one_controller(network: Network, asked: argparse.Namespace) -> dict[str, Any]:
    """One controller and no standby."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder), network, asked.flows, radios=not asked.no_radios, slot_ms=asked.slot_ms) as running,
    ):
        controller, path, log = running
        devices = devices_of(asked, path, controller)
        try:
            return measured(network, asked, controller, devices, log)
        finally:
            devices.close()


def measured(
    network: Network, asked: argparse.Namespace, controller: ControllerProcess, devices: Devices, log: SlotLog
) -> dict[str, Any]:
    """All parts of a run."""
    parts, figures, say = Parts(controller, devices, log), dict[str, Any](), not asked.json
    with parts.part("until in force"):
        figures["in_force_s"], _ = until_in_force(controller, asked.within_s, say)
    figures.update(devices.ask("counts"))
    if asked.apart:
        set_apart(controller, devices)
    sent, began_s = devices.ask("counts")["counts"], time.monotonic()
    with parts.part("in force"):
        figures.update(idle(controller, log, asked.seconds))
    figures["rows_per_s"] = sent_per_s(devices, sent, time.monotonic() - began_s)
    if asked.cuts:
        with parts.part("cuts"):
            took = cuts(devices, asked.cuts, random.Random(4))
        figures["cut_ms"] = {"median": statistics.median(took), "worst": max(took)}
    if asked.declares:
        with parts.part("declares"):
            figures["declare_ms"] = declares(controller, network, asked.declares)
    if asked.restart:
        before = devices.ask("counts")["counts"]
        controller.__exit__()
        controller.__enter__()
        with parts.part("restart"):
            figures["restart_s"], _ = until_in_force(controller, asked.within_s, say)
        after = devices.ask("counts")["counts"]
        names = ("adds", "deletes", "configs", "groups")
        figures["restart_changes"] = {name: after.get(name, 0) - before.get(name, 0) for name in names}
    return {**figures, **parts.figures(), "after": devices.ask("counts")}


if __name__ == "__main__":
    sys.exit(main())
