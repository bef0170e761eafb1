"""What happens when a part fails: how soon it is noticed, what traffic loses, how soon all is as before.

Real parts on an emulated network whose controller is told of nodes and technologies only: everything else it measures.
A UDP stream of 4.8 Mb/s (1200 bytes each 2 ms, every packet accounted for) runs all the time.

    python benchmarks/failures.py [--only WORDS ...] [--runs 5] [--list] [--table FILE]      (root)

noticed  from the failure to the first answer of the REST interface that shows it
outage   from the failure to the last packet that was lost before the part came back (0: none)
lost     packets of 2 ms before the part came back, and from then on
back     from the part's return to all as before: paths, 90 % of the rate, packets on every path, nothing missing
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from failure_lab import DIAMOND, FAILURES, PACKET_BYTES, Failure, Lab
from live import on_network, shipped

from hyroads.controller.core.netfile import parse
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.probe import StreamReport
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.traffic import Traffic
from hyroads.rest.client import ClientError

INTERVAL_S = 0.002
TIMEOUT_S = 20.0
SETTLE_S = 1.5
NOTICE_S = 5.0
KEEP_LOG = "HYROADS_KEEP_LOG"
"""A file that the controller's log is copied to, if this variable names one."""


def until(condition, within_s=TIMEOUT_S):
    """When an answer met the condition (seconds of the monotonic clock); None if none did."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        with suppress(EmulationError, ClientError):
            if condition():
                return time.monotonic()
        time.sleep(0.01)
    return None


def one_failure(lab: Lab, failure: Failure) -> dict:
    """Breaks and mends once; when what happened."""
    lab.before = lab.usual()
    times = {"broken": time.monotonic()}
    failure.broken(lab)
    times["noticed"] = until(lambda: failure.noticed(lab), max(failure.hold_s, NOTICE_S))
    time.sleep(max(0.0, times["broken"] + failure.hold_s - time.monotonic()))
    lab.carried = lab.bytes()
    times["mended"] = time.monotonic()
    failure.mended(lab)
    times["back"] = until(lambda: lab.is_usual() and failure.also(lab))
    return times


def of_stream(times: dict, report: StreamReport, until_s: float) -> dict:
    """What a stream lost because of one failure, until the next."""
    broken, mended, back = times["broken"], times["mended"], times["back"]
    sent = [s for s in map(report.sent_at_s, report.lost) if broken - INTERVAL_S <= s < until_s]
    return {
        "noticed_s": times["noticed"] - broken if times["noticed"] else None,
        "outage_s": report.last_loss_after_s(broken, mended),
        "lost": sum(s < mended for s in sent),
        "lost_back": sum(s >= mended for s in sent),
        "outage_back_s": report.last_loss_after_s(mended, until_s),
        "back_s": back - mended if back else None,
    }


def usual_again(lab: Lab) -> bool:
    """Whether nothing is missing, so that the next run has a fair start."""
    return lab.get("health")["ok"] and lab.usual()["state"] == "multipath" and lab.via("radio")


def sequence(emulation: Emulation, names: list[str], seconds: float) -> int:
    """One failure after the other under one stream, while there is time; prints a line of JSON for each."""
    lab, events = Lab(emulation), []
    time.sleep(2.0)

    def during() -> None:
        began_s = time.monotonic()
        for name in names:
            if time.monotonic() - began_s > seconds - FAILURES[name].hold_s - FAILURES[name].tail_s:
                break
            time.sleep(SETTLE_S)
            if until(lambda: usual_again(lab)) is None:
                break
            events.append((name, one_failure(lab, FAILURES[name])))

    traffic = Traffic(emulation, lab.flow.source, lab.flow.target, lambda: None)
    report = traffic.stream(seconds, INTERVAL_S, PACKET_BYTES, during)
    ends = [*(times["broken"] - 0.5 for _, times in events[1:]), report.sent_at_s(report.sent)]
    usual = until(lambda: usual_again(lab)) is not None
    if KEEP_LOG in os.environ:
        shutil.copy(emulation.directory / "controller.log", os.environ[KEEP_LOG])
    health = lab.get("health")
    after = {
        "usual_at_the_end": usual,
        "defects": health["counters"]["exceptions"],
        "errors": health["last_errors"][-2:],
    }
    for (name, times), end_s in zip(events, ends, strict=True):
        print(json.dumps({"name": name, **of_stream(times, report, end_s), **after}), flush=True)
    return 0 if usual else 1


def figures(rows: list[dict], key: str, form: str) -> str:
    """Median and worst."""
    known = [row[key] for row in rows if row[key] is not None]
    if len(known) < len(rows):
        return f"never {len(rows) - len(known)}x"
    return f"{statistics.median(known):{form}} ({max(known):{form}})"


COLUMNS = (
    ("noticed, s", "noticed_s", ".2f"), ("outage, s", "outage_s", ".2f"), ("lost", "lost", ".0f"),
    ("back, s", "back_s", ".2f"), ("lost then", "lost_back", ".0f"), ("defects", "defects", ".0f"),
)  # fmt: skip


def table(results: list[dict]) -> None:
    """A line per failure: median and worst."""
    print(f"{'what fails; median (worst)':<58}{'runs':>5}" + "".join(f"{title:>15}" for title, _, _ in COLUMNS))
    for name in FAILURES:
        rows = [row for row in results if row["name"] == name]
        if rows:
            print(f"{name:<58}{len(rows):>5}" + "".join(f"{figures(rows, k, form):>15}" for _, k, form in COLUMNS))


def measure(network: str, arguments: argparse.Namespace) -> list[dict]:
    """The results of runs on one network, in a process of their own that enters the namespaces."""
    command = [sys.executable, __file__, "--inside", network, "--runs", str(arguments.runs)]
    command += ["--seconds", str(arguments.seconds), "--only", *arguments.only]
    # In a session of its own a terminal's Ctrl-C reaches it as `kill -INT` does: through this process, once.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        results = []
        try:
            for line in process.stdout:
                results.append(json.loads(line))
                print(line, end="", file=sys.stderr, flush=True)
        except (KeyboardInterrupt, SystemExit):
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
    return results


def start(network: str, names: list[str], seconds: float) -> int:
    """The network, until all runs are over."""
    found = parse(DIAMOND, "diamond") if network == "diamond" else shipped(network)
    options = {"measured": True, "discover": True, "snmp": True, "errors": {"noise": 0.1, "hold_s": 0.1}}
    return on_network(found, "bench-failures", lambda emulation: sequence(emulation, names, seconds), **options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="failures whose names contain one")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, per network (default %(default)g)")
    parser.add_argument("--list", action="store_true", help="names of all failures")
    parser.add_argument("--table", metavar="FILE", help="only the table of results (lines of JSON) of earlier runs")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = [name for name in FAILURES if any(words in name for words in arguments.only)]
    if arguments.inside:
        mine = [name for name in names if FAILURES[name].network == arguments.inside]
        return start(arguments.inside, mine * arguments.runs, arguments.seconds)
    if arguments.list:
        print("\n".join(names))
    elif arguments.table:
        table([json.loads(line) for line in Path(arguments.table).read_text().splitlines()])
    else:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        networks = dict.fromkeys(FAILURES[name].network for name in names)
        table([result for network in networks for result in measure(network, arguments)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
