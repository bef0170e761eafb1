"""What plugins cost: starting one, calls, requests; and what one that loops for ever does to the controller's slots.

python benchmarks/plugins.py [--seconds 20] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from controller_process import ControllerProcess, eventually  # noqa: E402

from hyroads.controller.core import topologies  # noqa: E402
from hyroads.controller.core.netfile import to_document  # noqa: E402
from hyroads.controller.core.network import Place  # noqa: E402
from hyroads.controller.core.services.mobility import Confirmed, DesiredState, Handover, Phase, Request  # noqa: E402
from hyroads.controller.core.services.view import ClientView, NetworkView, Option  # noqa: E402
from hyroads.controller.framework import ryu_shim as shim  # noqa: E402
from hyroads.controller.services.plugins.process import PluginProcess  # noqa: E402
from hyroads.controller.study.networks import endpoints  # noqa: E402
from hyroads.plugins.codec import encode  # noqa: E402
from hyroads.plugins.kinds import DiscoveredPlugin, Kind  # noqa: E402
from hyroads.plugins.policies import load, signal  # noqa: E402

IDLE = """
from hyroads.plugins.api import App
class Idle(App):
    name = "idle"
    every_s = 0.1
    def start(self, network): self.network = network
    def tick(self, network): network.request("GET", "/flows/f1") if network.settings.get("asks") else None
APP = Idle
"""
SPINS = """
import threading
from hyroads.plugins.api import App
def spin():
    while True: pass
class Spins(App):
    name = "spins"
    every_s = 0.1
    def start(self, network):
        for _ in range(network.settings["threads"]): threading.Thread(target=spin, daemon=True).start()
        if not network.settings["threads"]: spin()
APP = Spins
"""
MANAGER = """
from hyroads.plugins.mobility.hoolock import MANAGER as ours
class Mine(type(ours)): pass
MANAGER = Mine("mine")
"""

POLICY = """
from hyroads.plugins.policies.signal import Signal
POLICY = Signal("theirs")
"""


def figures(seconds: list[float]) -> dict[str, float]:
    """Percentiles, ms."""
    ordered = sorted(second * 1e3 for second in seconds)
    return {
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[int(len(ordered) * 0.99)],
        "max_ms": ordered[-1],
    }


def timed(what: Callable[[], object], count: int) -> dict[str, float]:
    """How long it takes, again and again."""
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        what()
        times.append(time.perf_counter() - began_s)
    return figures(times)


def calls(folder: Path) -> dict[str, Any]:
    """One process, called directly."""
    result: dict[str, Any] = {}

    def process(name: str, code: str, kind: Kind, **settings: object) -> PluginProcess:
        (folder / f"{name}.py").write_text(code)
        found = DiscoveredPlugin(name, kind, "file", path=str(folder / f"{name}.py"), settings=settings)
        started = PluginProcess(found, lambda do, arguments: b'{"id":"f1"}', time.monotonic)
        started.load()
        return started

    began_s = time.perf_counter()
    idle = process("idle", IDLE, Kind.APP)
    result["start to loaded"] = figures([time.perf_counter() - began_s])
    idle.call("start", {})
    result["call that does nothing"] = timed(lambda: idle.call("tick", {}), 3000)
    asks = process("idle", IDLE, Kind.APP, asks=True)
    asks.call("start", {})
    result["call with one request (answered at once)"] = timed(lambda: asks.call("tick", {}), 100)
    mine = process("mine", MANAGER, Kind.MOBILITY)
    a, b = Place("a", "wifi"), Place("b", "wifi")
    handover = Handover(Request("h", "c", a, b, frozenset({"f"})), Phase.PREPARING, 0.0)
    step = {"handover": encode(handover), "event": encode(Confirmed(DesiredState((a, b), (a,)))), "now_s": 1.0}
    result["step of a handover"] = timed(lambda: mine.call("on", step), 2000)
    view = crowd(500)
    text = {"view": encode(view)}
    theirs = process(
        "theirs", "from hyroads.plugins.policies.signal import Signal\nPOLICY = Signal('theirs')", Kind.POLICY
    )
    result["foreign policy, 500 clients"] = timed(lambda: theirs.call("decide", text), 50)
    for policy in (signal.POLICY, load.POLICY):
        result[f"built-in {policy.name}, 500 clients"] = timed(lambda p=policy: p.decide(p.fresh(), view), 20)  # type: ignore[misc]
    for one in (idle, asks, mine, theirs):
        one.kill(RuntimeError("done"))  # type: ignore[arg-type]
    return result


def crowd(count: int) -> NetworkView:
    """Clients that each hear four access points."""
    clients = {}
    for number in range(count):
        heard = [(number + i) % 20 for i in range(4)]
        options = tuple(Option(Place(f"ap{ap}", "wifi"), f"ch{ap}", 20.0 + ap, -60.0 - ap) for ap in heard)
        clients[f"c{number}"] = ClientView(f"c{number}", options[number % 4].place, -100.0, options)
    return NetworkView(0.0, clients=clients)


def lateness(seconds: float, *, thread: bool) -> dict[str, float]:
    """How late a green thread wakes up that wants to each 20 ms; beside a thread that loops, or without one."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    if thread:
        threading.Thread(target=spin, daemon=True).start()
    late, due_s, until_s = [], time.monotonic() + 0.02, time.monotonic() + seconds
    while due_s < until_s:
        shim.sleep(max(0.0, due_s - time.monotonic()))
        sum(range(20_000))
        late.append(time.monotonic() - due_s)
        due_s += 0.02
    stop.set()
    return figures(late)


def slots(folder: Path, seconds: float, settings: dict[str, Any] | None) -> dict[str, Any]:
    """Slots of the real controller beside a plugin that loops (None: without)."""
    folder.mkdir()
    (folder / "spins.py").write_text(SPINS)
    plugins = [{"name": "spins", "path": "spins.py", "settings": settings}] if settings else []
    office = topologies.office22_panels(random.Random(7))
    ends = [endpoints(office, random.Random(seed)) for seed in range(10)]
    flows = [{"id": f"f{number}", "from": source, "to": target} for number, (source, target) in enumerate(ends)]
    (folder / "office.json").write_text(json.dumps({**to_document(office), "flows": flows}))
    document = {"plugins": plugins, "network": "office.json"}
    with ControllerProcess(folder, document) as controller:
        eventually(lambda: not controller.rest("GET", "/health")[1]["settling"])
        time.sleep(2.0)
        before = controller.rest("GET", "/health")[1]["slots"]
        time.sleep(seconds)
        health = controller.rest("GET", "/health")[1]["slots"]
        told = controller.rest("GET", "/plugins/spins")[1] if plugins else {}
        return {
            "slots": health["count"] - before["count"],
            "missed": health["missed"] - before["missed"],
            **{name: health[name] for name in ("p50_ms", "p99_ms", "max_ms")},
            **({"cpu_s": (told.get("process") or {}).get("cpu_s"), "state": told["state"]} if told else {}),
        }


HOME = {
    "nodes": {"a": {"role": "gateway"}, "tv": {"role": "client"}, "b": {"role": "ap"}},
    "links": [
        {"id": "wifi", "from": "a", "to": "tv", "technology": "wifi", "capacity_mbps": 20, "both": True},
        {"id": "plc", "from": "a", "to": "tv", "technology": "plc", "capacity_mbps": 12, "both": True},
        {"id": "eth", "from": "a", "to": "b", "technology": "eth", "capacity_mbps": 50, "both": True},
    ],
    "interference": {"rule": "technology"},
    "flows": [{"id": "video", "from": "a", "to": "tv"}],
}


def emulated(folder: Path, seconds: float) -> int:
    """Slots with real packets and measured capacities, first without the plugin that loops, then beside it."""
    from live import on_network, slots_of

    from hyroads.controller.core.netfile import parse
    from hyroads.mininet.emulation import Emulation

    (folder / "spins.py").write_text(SPINS)

    def body(emulation: Emulation) -> int:
        rest, video = emulation.rest, [sys.executable, "-m", "hyroads.plugins.examples.video"]
        eventually(lambda: rest.flow("video")["state"] == "multipath")
        host = emulation.addressing.host_ip["tv"]
        what = ["send", host, "5004", "--mbps", "10", "--seconds", str(2 * seconds + 3)]
        with subprocess.Popen([*emulation.inside("a"), *video, *what]) as sender:
            for verb in ("disable", "enable"):
                rest.request("POST", f"/plugins/spins/{verb}")
                time.sleep(1.0)
                before = slots_of(emulation)
                time.sleep(seconds)
                after = slots_of(emulation)
                counted = {name: after[name] - before[name] for name in ("count", "missed")}
                print(f"{verb}d", counted, {name: round(after[name], 1) for name in ("p50_ms", "p99_ms", "max_ms")})
            sender.wait()
        return 0

    plugin = {"name": "spins", "path": str(folder / "spins.py"), "settings": {"threads": 2}}
    settings = {"plugins": [plugin]}
    return on_network(parse(HOME, "home"), "plugins-slots", body, print, settings=settings, measured=True)


def main() -> int:
    """Everything, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--emulated", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.emulated:
            return emulated(folder, options.seconds)
        result: dict[str, Any] = calls(folder)
        result["green thread late, alone"] = lateness(5.0, thread=False)
        result["green thread late, beside a thread that loops"] = lateness(5.0, thread=True)
        result["slots without a plugin"] = slots(folder / "1", options.seconds, None)
        result["slots, plugin with two threads that loop"] = slots(folder / "2", options.seconds, {"threads": 2})
        result["slots, plugin that loops in start, killed after 5 s"] = slots(
            folder / "3", options.seconds, {"threads": 0}
        )
    if options.json:
        print(json.dumps(result))
    else:
        for what, values in result.items():
            rounded = {key: round(value, 2) if isinstance(value, float) else value for key, value in values.items()}
            print(f"{what:50} {'  '.join(f'{key} {value}' for key, value in rounded.items())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
