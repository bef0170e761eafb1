"""The edge agent: throughput, added delay, processor time, and TCP over unequal paths (root).

    python benchmarks/agent.py [speed] [paced] [delays] [copies] [seals]

`speed` compares a pair of agents over two unshaped veth pairs with a direct veth pair in the same run; the direct is
given with and without segmentation offload, because the agent sees every frame. `paced` and `delays` run TCP over the
shared-medium emulator; what is possible is the paced rate times TCP payload per L2 payload (1448 of 1526 bytes).
`copies` is the cost of sending each frame on both paths, at both ends, beside that of sharing them. `seals` compares a
pair whose frames are sealed with itself without, in turn.
"""

from __future__ import annotations

import os
import secrets
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from edge_pair import EdgePair, EmulatedPath

DIRECT, OURS = "10.9.0.2", "10.8.0.2"
PAYLOAD_SHARE = 1448 / 1526
TURNS = 7
Row = tuple[str, float, str, str]


def pair(paths: Sequence[EmulatedPath] = (), options: Sequence[str] = ()) -> EdgePair:
    folder = Path(tempfile.mkdtemp(prefix="hyroads-edge-"))
    return EdgePair(f"hr-edge-bench-{os.getpid()}", folder, paths=paths, options=options)


def speed() -> Iterator[Row]:
    for name, options in (("plain", []), ("realtime", ["--realtime"])):
        with pair(options=options) as bench:
            bench.iperf_server()
            direct_ms = statistics.median(bench.ping_ms(DIRECT, 200, 0.005))
            ours_ms = statistics.median(bench.ping_ms(OURS, 200, 0.005))
            yield f"{name}: RTT, direct", direct_ms, "ms", ""
            yield f"{name}: RTT, added", ours_ms - direct_ms, "ms", "< 0.4"
            direct_mbps = bench.tcp_mbps(DIRECT, 2)
            yield f"{name}: TCP cubic, direct veth", direct_mbps, "Mb/s", ""
            for side in ("a", "b"):
                bench.run(side, "ethtool", "-K", "direct", "tso", "off", "gso", "off", "gro", "off")
            direct_mbps = bench.tcp_mbps(DIRECT, 2)
            yield f"{name}: TCP cubic, direct veth, frames of 1500", direct_mbps, "Mb/s", ""
            for algorithm in ("cubic", "bbr"):
                for side in ("a", "b"):
                    with bench.client(side) as client:
                        client.reset_counters()
                with bench.client("b") as client:
                    before_s = client.stats()["cpu_s"]
                    mbps = bench.tcp_mbps(OURS, 3, algorithm)
                    report = client.stats()
                frames = report["egress"][0]["delivered_frames"] + report["ingress"][0]["sent"]
                yield f"{name}: TCP {algorithm}, agents", mbps, "Mb/s", ">= 1000"
                yield f"{name}: TCP {algorithm}, agents / direct of 1500", mbps / direct_mbps, "", ""
                cpu_us = 1e6 * (report["cpu_s"] - before_s) / frames
                yield f"{name}: receiving agent, CPU per frame", cpu_us, "us", "2..4"


def possible(rates: Sequence[float]) -> float:
    return sum(rates) * PAYLOAD_SHARE


def paced() -> Iterator[Row]:
    rates = (10.0, 6.67)
    with pair([EmulatedPath(12, 1), EmulatedPath(8, 2)], ["--realtime"]) as bench:
        bench.iperf_server()
        for side in ("a", "b"):
            bench.configure(side, rates)
        for algorithm in ("cubic", "bbr"):
            mbps = bench.tcp_mbps(OURS, 8, algorithm)
            yield f"10 + 6.67 Mb/s: TCP {algorithm}", mbps, "Mb/s", ""
            yield f"10 + 6.67 Mb/s: TCP {algorithm} / possible", mbps / possible(rates), "", ">= 0.95"


def delays() -> Iterator[Row]:
    rates = (18.0, 27.0)
    targets = {15: ">= 0.99", 50: ">= 0.97"}
    for delay_ms in (15, 50):
        with pair([EmulatedPath(20, 5), EmulatedPath(30, delay_ms)], ["--realtime"]) as bench:
            bench.iperf_server()
            for reorder, equalise in ((False, False), (True, False), (True, True)):
                for side in ("a", "b"):
                    bench.configure(side, rates, reorder=reorder, equalise=equalise)
                for algorithm in ("cubic", "bbr") if reorder else ("cubic",):
                    share = bench.tcp_mbps(OURS, 4, algorithm) / possible(rates)
                    how = f"{'reorder' if reorder else 'as it comes'}{' + equalise' if equalise else ''}"
                    target = targets[delay_ms] if equalise else ""
                    yield f"18 + 27 Mb/s, 5 and {delay_ms} ms, {how}: {algorithm} / possible", share, "", target


def copies() -> Iterator[Row]:
    with pair() as bench, bench.client("a") as sender, bench.client("b") as receiver:
        bench.iperf_server()
        for kind in ("proportional", "copy", "proportional", "copy"):
            config = bench.config("a")
            config["ingress"][0]["split"] = {"kind": kind}
            sender.configure(config)
            ends = (sender, receiver)
            for end in ends:
                end.reset_counters()
            before = [end.stats()["cpu_s"] for end in ends]
            mbps = bench.tcp_mbps(OURS, 3)
            reports = [end.stats() for end in ends]
            frames = reports[0]["ingress"][0]["sent"] + reports[0]["egress"][0]["delivered_frames"]
            yield f"{kind}: TCP cubic", mbps, "Mb/s", ""
            for name, begin_s, report in zip(("sending", "receiving"), before, reports, strict=True):
                yield f"{kind}: {name} agent, CPU per frame", 1e6 * (report["cpu_s"] - begin_s) / frames, "us", ""


def seals() -> Iterator[Row]:
    with pair() as bench, bench.client("a") as sender, bench.client("b") as receiver:
        bench.iperf_server()
        ends = {"a": sender, "b": receiver}
        found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
        for turn in range(TURNS):
            for sealed in (turn % 2 == 0, turn % 2 == 1):
                keys = {number: secrets.token_hex(16) for number in (16, 17)}
                for side in ("b", "a"):
                    config = bench.config(side)
                    for flow in (*config["ingress"], *config["egress"]) if sealed else ():
                        flow["key"] = keys[flow["number"]]
                    ends[side].configure(config)
                for end in ends.values():
                    end.reset_counters()
                before = [end.stats()["cpu_s"] for end in ends.values()]
                mbps = bench.tcp_mbps(OURS, 2)
                reports = [end.stats() for end in ends.values()]
                frames = reports[0]["ingress"][0]["sent"] + reports[0]["egress"][0]["delivered_frames"]
                costs = (1e6 * (r["cpu_s"] - b) / frames for r, b in zip(reports, before, strict=True))
                found[sealed].append((mbps, *costs))
        bare, sealed_ = ([statistics.median(each) for each in zip(*found[key], strict=True)] for key in (False, True))
        yield "TCP cubic, without seals", bare[0], "Mb/s", ""
        yield "TCP cubic, sealed", sealed_[0], "Mb/s", ""
        pairs = zip(found[True], found[False], strict=True)
        yield (
            "TCP cubic, sealed / without, median of pairs",
            statistics.median(s[0] / b[0] for s, b in pairs),
            "",
            ">= 0.95",
        )
        for name, at in (("sending", 1), ("receiving", 2)):
            yield f"{name} agent, CPU per frame, added by seals", sealed_[at] - bare[at], "us", "<= 0.3"


SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {"speed": speed, "paced": paced, "delays": delays, "copies": copies}
SECTIONS["seals"] = seals


def main() -> int:
    wanted = sys.argv[1:] or list(SECTIONS)
    if unknown := set(wanted) - set(SECTIONS):
        print(f"unknown section {', '.join(sorted(unknown))}: expected {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    print(f"{'what':<70} {'measured':>10} {'unit':<5} {'target':>8}")
    for section in wanted:
        for what, value, unit, target in SECTIONS[section]():
            print(f"{what:<70} {value:>10.3f} {unit:<5} {target:>8}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
