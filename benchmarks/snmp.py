"""How much polling costs: 100 access points each second, and what the controller's event loop notices of it.

Access points are real snmpd processes with their pass_persist programs (``--snmpd N`` of them, each on a loopback
address of its own in a namespace of this benchmark's), all fed by one hyroads-medium. Where 100 of them are more than
the machine carries, fewer are started and each is polled under several names: what the collector does is the same, and
each snmpd answers several times as often. Lag is how much later than asked a green thread of an eventlet loop that
reads the collector's lines wakes from a sleep of 5 ms; the same loop without a collector is the comparison.

    python benchmarks/snmp.py [--targets 100] [--snmpd 25] [--seconds 12] [--v2c]      (root)
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMESPACE = "hr-snmp-bench"
NEIGHBOURS = 4
TECHNOLOGIES = ("wifi", "plc")
COMMUNITY, AUTH, PRIV = "bench-community", "bench-auth-pass", "bench-priv-pass"
TICK_S = 0.005


def inside(*command):
    return ["ip", "netns", "exec", NAMESPACE, *command]


def medium_document(count):
    """A ring of nodes on each technology: every node hears the two before and the two after it."""
    ports, links = [], []
    for k, technology in enumerate(TECHNOLOGIES):
        for i in range(count):
            mac = f"02:00:01:{k:02x}:00:{i:02x}"
            ports.append(
                {
                    "name": f"n{i}{technology}",
                    "netns": None,
                    "mac": mac,
                    "technology": technology,
                    "uplink": None,
                    "hears": [],
                }
            )
            for step in range(1, NEIGHBOURS // 2 + 1):
                for a, b in ((i, (i + step) % count), ((i + step) % count, i)):
                    links.append({"id": f"{technology}-{a}-{b}", "from": f"n{a}{technology}", "to": f"n{b}{technology}",
                                  "capacity_mbps": 10 + a, "delay_ms": 0, "loss": 0.0, "up": True})  # fmt: skip
    return {"ports": ports, "links": links, "conflicts": {"technology": True}}


def agent_document(i, count, socket):
    def peers(k, technology):
        others = [(i + step) % count for step in (-2, -1, 1, 2)]
        return [{"mac": f"02:00:01:{k:02x}:00:{o:02x}", "node": f"n{o}", "out_link": f"{technology}-{i}-{o}",
                 "in_link": f"{technology}-{o}-{i}"} for o in others]  # fmt: skip

    return {
        "node": f"n{i}", "listen": [f"127.161.0.{i + 1}:161"], "community": COMMUNITY,
        "users": [{"name": "bench", "auth_password": AUTH, "priv_password": PRIV}], "medium_socket": str(socket),
        "interfaces": [{"name": f"n{i}{t}", "technology": t, "backend": "emulated", "peers": peers(k, t)}
                       for k, t in enumerate(TECHNOLOGIES)],
    }  # fmt: skip


def start_access_points(count, directory):
    from hyroads.mininet.programs import find_program

    config, socket = directory / "medium.json", directory / "medium.sock"
    config.write_text(json.dumps(medium_document(count)))
    started = [
        subprocess.Popen(inside(find_program("hyroads-medium"), "--config", str(config), "--socket", str(socket)))
    ]
    while not socket.exists():
        time.sleep(0.05)
    for i in range(count):
        file = directory / f"agent-{i}.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(agent_document(i, count, socket)))
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(file)]
        command += ["--directory", str(directory / f"ap-{i}")]
        # Elsewhere these run on machines of their own: here they go last.
        started.append(subprocess.Popen(["nice", "-n", "15", *inside(*command)], stderr=subprocess.DEVNULL))
    time.sleep(1 + 0.1 * count)
    return started


def cpu_s(pid):
    """CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def measure(arguments):
    """The controller's side; runs inside the namespace. Prints one JSON document."""
    from hyroads.controller.framework import ryu_shim as shim
    from hyroads.controller.measure.samples import NodeSample
    from hyroads.controller.measure.targets import CollectorConfig, Credentials, Target
    from hyroads.controller.runtime.telemetry import CollectorEvents

    v3 = Credentials(user="bench", auth_password=AUTH, priv_password=PRIV)
    credentials = Credentials(community=COMMUNITY) if arguments.v2c else v3
    targets = tuple(
        Target(f"ap-{i}", f"127.161.0.{i % arguments.snmpd + 1}", 161, credentials) for i in range(arguments.targets)
    )
    lags, events = [], []

    def ticker():
        while True:
            began = time.perf_counter()
            shim.sleep(TICK_S)
            lags.append(time.perf_counter() - began - TICK_S)

    latest = {}

    def listen(event):
        # As the controller would: the latest sample of each access point, and counts.
        if isinstance(event, NodeSample):
            latest[event.target] = event
            rows = sum(len(interface.neighbours) for interface in event.interfaces)
            events.append((time.monotonic() - event.time_s, rows, event.flags))
        else:
            events.append((0.0, None, ()))

    shim.spawn(ticker)
    shim.sleep(arguments.seconds / 2)
    alone, lags[:] = list(lags), []
    feed = CollectorEvents(CollectorConfig(targets), listen)
    feed.start()
    shim.sleep(5)  # first polls read everything
    lags.clear()
    events.clear()
    own, theirs, began = time.process_time(), cpu_s(feed.pid), time.monotonic()
    shim.sleep(arguments.seconds)
    elapsed = time.monotonic() - began
    samples = [event for event in events if event[1] is not None]
    result = {
        "polls_per_s": len(samples) / elapsed,
        "failures": len(events) - len(samples),
        "flagged": sum(bool(flags) for _, _, flags in samples),
        "flags": sorted({flag for _, _, flags in samples for flag in flags}),
        "rows": sum(rows for _, rows, _ in samples) / max(1, len(samples)),
        "collector_cpu": (cpu_s(feed.pid) - theirs) / elapsed,
        "collector_mb": resident_mb(feed.pid),
        "controller_cpu": (time.process_time() - own) / elapsed,
        "delivery_ms": 1e3 * max((late_s for late_s, _, _ in samples), default=0.0),
        "lag_alone_ms": [1e3 * max(alone), 1e3 * sorted(alone)[int(0.99 * len(alone))]],
        "lag_ms": [1e3 * max(lags), 1e3 * sorted(lags)[int(0.99 * len(lags))]],
    }
    feed.stop()
    print(json.dumps(result))


def report(result, arguments, started):
    version = "v2c" if arguments.v2c else "v3 authPriv"
    print(f"{arguments.targets} targets on {arguments.snmpd} snmpd, {version}, {result['rows']:.0f} neighbours each\n")
    rows = [
        ("polls answered", result["polls_per_s"], "1/s", f">= {0.98 * arguments.targets:.0f}"),
        ("polls without answer", result["failures"], "", "0"),
        (f"samples with a doubt {' '.join(result['flags'])}", result["flagged"], "", "0"),
        ("collector: CPU", 100 * result["collector_cpu"], "% of a core", "< 100"),
        ("collector: memory", result["collector_mb"], "MB", ""),
        ("controller: CPU of reading samples", 100 * result["controller_cpu"], "% of a core", "< 10"),
        ("poll answered to sample heard, worst", result["delivery_ms"], "ms", ""),
        ("controller: worst lag, polling", result["lag_ms"][0], "ms", "< 20 more"),
        ("controller: worst lag, alone", result["lag_alone_ms"][0], "ms", ""),
        ("controller: 99 % lag, polling", result["lag_ms"][1], "ms", ""),
        ("controller: 99 % lag, alone", result["lag_alone_ms"][1], "ms", ""),
        ("access point: CPU of snmpd and radio", started, "% of a core per poll/s", ""),
    ]
    print(f"{'what':<40}{'measured':>10}  {'unit':<24}target")
    for what, value, unit, target in rows:
        print(f"{what:<40}{value:>10.2f}  {unit:<24}{target}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=100)
    parser.add_argument("--snmpd", type=int, default=25, help="real snmpd processes (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--v2c", action="store_true")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return measure(arguments)
    started = []
    with tempfile.TemporaryDirectory(prefix="hyroads-bench-") as name:
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        try:
            subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
            started = start_access_points(arguments.snmpd, Path(name))
            pids = subprocess.run(["ip", "netns", "pids", NAMESPACE], capture_output=True, text=True).stdout.split()
            serving = [int(pid) for pid in pids if int(pid) != started[0].pid]
            before = sum(map(cpu_s, serving))
            command = inside(sys.executable, __file__, "--inside", *sys.argv[1:])
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            pids = subprocess.run(["ip", "netns", "pids", NAMESPACE], capture_output=True, text=True).stdout.split()
            spent = sum(cpu_s(int(pid)) for pid in pids if int(pid) != started[0].pid) - before
            result = json.loads(done.stdout.splitlines()[-1])
            polls = result["polls_per_s"] * (arguments.seconds + 5)
            report(result, arguments, 100 * spent / polls)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()
            subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)
    return None


if __name__ == "__main__":
    main()
