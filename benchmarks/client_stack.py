"""The client stack on real packets: what it costs, and what happens to running connections (root).

    python benchmarks/client_stack.py [WHAT ...] [--quick] [--rounds 5] [--moves 20] [--deaths 100] [--minutes 60]
                                      [--realtime]

WHAT (default: all but ``hour``):

*beside*   ten TCP connections (iperf3, cubic) over four interfaces of 100 Mb/s: straight over the interfaces, then
           through the stack, by turns; the round-trip time of 200 pings, likewise.
*single*   one TCP connection, nothing shaped: direct flow, and through the waypoint; memory with 1,000 flows.
*migrate*  an upload goes to and fro between 15 Mb/s with 40 ms and 20 Mb/s: to a server, and to the waypoint itself
           (a peer). Every byte is compared. *Order*: until the last packet leaves the old interface.
*die*      an interface of 5 Mb/s with 100 ms loses its carrier under an upload (cubic).
*urgent*   an urgent packet right behind 50 full ones at 10 Mb/s.
*mode*     a new configuration takes an upload's interface away from it, again and again.
*fair*     Figure 4.5 of Yap (2013), second by second.
*hour*     four interfaces of 100 Mb/s come and go at random every 5 s, by carrier or unknown to the client, under 200
           connections.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from hyroads.mininet.client_stack import SERVER4, ClientStack, Uplink
from hyroads.mininet.programs import check_prerequisites, wait_until
from hyroads.mininet.stack_scenes import (
    FIGURE_4_5_MBPS,
    PACKET_BITS,
    Departures,
    deaths,
    fair_periods,
    fair_rules,
    lost_at_death,
    migrations,
    urgent_delays_s,
    urgent_rules,
)
from hyroads.mininet.stack_traffic import Stream, Transfer, ping_ms, socket_of

RTT_S = 0.1
FLOWS = 200
FLOW_MBPS = 0.2
CHANGE_S = 5.0
WARM_S = 30.0


class Runner:
    """Makes stacks and prints rows."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder

    def stack(self, uplinks: Sequence[Uplink], *, waypoint: bool = True) -> ClientStack:
        """A client stack of its own."""
        options = {"waypoint": waypoint, "realtime": self.args.realtime}
        return ClientStack(f"bench-{os.getpid()}", self.folder, uplinks, **options)

    @staticmethod
    def row(what: str, measured: str, wanted: str, ok: bool) -> None:
        """A line of the table."""
        print(f"{'ok  ' if ok else 'FAIL'} {what:<58} {measured:>30}   wanted {wanted}", flush=True)


def ready(stack: ClientStack, rules: Sequence[dict[str, object]] | None = None, via: str | None = None) -> None:
    """Configures a stack and waits for the waypoint."""
    stack.configure(rules, via=via)
    if stack.has_waypoint:
        stack.wait_alive()


def rss_kib(stack: ClientStack) -> int:
    """Memory of hyroads-client."""
    pid = stack.programs["hyroads-client"].pid
    # The program is the child of nothing else: ``ip netns exec`` becomes it.
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def iperfs(stack: ClientStack, seconds: float, binds: Sequence[Sequence[str]], parallel: Sequence[int]) -> float:
    """Sum of what several clients of iperf3 deliver at the same time, Mb/s, without their first second."""
    servers, clients = [], []
    namespaces = [["ip", "netns", "exec", stack.namespace(role)] for role in ("client", "server")]
    for number in range(len(binds)):
        command = [*namespaces[1], "iperf3", "-s", "-1", "-p", str(5201 + number)]
        servers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    wait_until("iperf3", lambda: stack.run("server", "ss", "-ltn").count(":52") == len(binds), 5)
    for number, (bind, count) in enumerate(zip(binds, parallel, strict=True)):
        command = [*namespaces[0], "iperf3", "-c", SERVER4, "-p", str(5201 + number), "-P", str(count), "-J", *bind]
        command += ["-C", "cubic", "-O", "1", "-t", f"{seconds:g}"]
        clients.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    documents = [json.loads(client.communicate()[0]) for client in clients]
    for server in servers:
        server.wait(10)
    return sum(document["end"]["sum_received"]["bits_per_second"] for document in documents) / 1e6


def beside(run: Runner) -> None:
    """The stack beside no stack at all, by turns."""
    with run.stack([Uplink(100)] * 4, waypoint=False) as stack:
        ready(stack)
        # Without the stack a connection is bound by its address, with a table of routes for each.
        for k in range(4):
            table = str(100 + k)
            stack.ip("client", "route", "add", "default", "via", f"10.{k + 1}.0.1", "dev", f"if{k}", "table", table)
            stack.ip("client", "rule", "add", "from", f"10.{k + 1}.0.2", "lookup", table)
        binds = [["-B", f"10.{k + 1}.0.2"] for k in range(4)]
        parallel, seconds = (3, 3, 2, 2), 3.0 if run.args.quick else 6.0
        direct, through = [], []
        for _ in range(run.args.rounds):
            direct.append(iperfs(stack, seconds, binds, parallel))
            through.append(iperfs(stack, seconds, [[]] * 4, parallel))
        ratio = statistics.median(through) / statistics.median(direct)
        figures = f"{statistics.median(through):.1f} of {statistics.median(direct):.1f} Mb/s = {ratio:.4f}"
        run.row("beside: ten iperf3, 4 x 100 Mb/s, direct flows", figures, ">= 0.99", ratio >= 0.99)
        rtts = []
        for _ in range(run.args.rounds):
            plain = stack.run("client", "ping", "-n", "-i", "0.005", "-c", "200", "-I", "10.1.0.2", SERVER4)
            plain_ms = [float(line.split("time=")[1].split()[0]) for line in plain.splitlines() if "time=" in line]
            rtts.append((statistics.median(plain_ms), statistics.median(ping_ms(stack, SERVER4, 200, 0.005))))
        more_ms = statistics.median(there - plain for plain, there in rtts)
        run.row("beside: round-trip time more than direct", f"{more_ms:+.3f} ms", "<= 0.1 ms", more_ms <= 0.1)


def single(run: Runner) -> None:
    """One connection as fast as the machine."""
    for via in ("direct", "waypoint"):
        with run.stack([Uplink(), Uplink()]) as stack:
            ready(stack, via=via)
            found = [iperfs(stack, 3.0, [[]], [1]) for _ in range(run.args.rounds)]
            mbps = statistics.median(found)
            run.row(f"single: one TCP connection, {via}", f"{mbps / 1e3:.2f} Gb/s", ">= 2 Gb/s", mbps >= 2000)
            with socket_of(stack, "client", 4, 2) as client:
                for port in range(20_000, 21_000):
                    client.sendto(b"x" * 100, (SERVER4, port))
                    time.sleep(0.0005)
            flows, mib = len(stack.request("status")["flows"]), rss_kib(stack) / 1024
            words = f"single: memory with {flows} flows, {via}, after that"
            run.row(words, f"{mib:.1f} MiB", "<= 32 MiB, >= 1000 flows", mib <= 32 and flows >= 1000)


def migrate(run: Runner) -> None:
    """Migrations by waypoint and by peer."""
    for to, words in (("server", "by waypoint"), ("waypoint", "by peer")):
        with run.stack([Uplink(15, delay_ms=20), Uplink(20)]) as stack:
            ready(stack)
            found = migrations(stack, to, run.args.moves, 2.0)
        gaps_ms, later_ms, orders_ms = (
            [1e3 * getattr(m, name) for m in found.moves] for name in ("gap_s", "gap_in_second_s", "order_s")
        )
        head = f"migrate {words}, {len(gaps_ms)} times: "
        run.row(f"{head}bytes lost or wrong", f"{abs(found.missing_bytes) + (not found.exact)}", "0", found.exact)
        figures = f"{statistics.median(gaps_ms):.1f}, {max(gaps_ms):.1f} ms"
        run.row(f"{head}pause, median and longest", figures, "<= 60 ms", max(gaps_ms) <= 60)
        figures = f"{statistics.median(later_ms):.1f}, {max(later_ms):.1f} ms"
        run.row(f"{head}pause, in a second", figures, "<= 60 ms (with CoDel)", max(later_ms) <= 60)
        figures = f"{statistics.median(orders_ms):.2f}, {max(orders_ms):.2f} ms"
        run.row(f"{head}order, median and longest", figures, "<= 5 ms", max(orders_ms) <= 5)
        run.row(f"{head}goodput", f"{found.goodput_ratio:.4f}", ">= 0.98", found.goodput_ratio >= 0.98)


def die(run: Runner) -> None:
    """An interface dies."""
    with run.stack([Uplink(5, delay_ms=50), Uplink(20)]) as stack:
        ready(stack)
        found = deaths(stack, run.args.deaths)
        lost = [death.lost for death in found]
        gaps_ms = [1e3 * death.gap_s for death in found]
        head = f"die: {len(found)} times, 5 Mb/s 100 ms, cubic: "
        dropped = sum(death.queue_dropped for death in found)
        figures = f"{sum(lost)} in all (CoDel {dropped})"
        run.row(f"{head}segments lost", figures, "0", not any(lost))
        figures = f"{statistics.median(gaps_ms):.0f}, {max(gaps_ms):.0f} ms"
        run.row(f"{head}pause", figures, f"<= {1e3 * RTT_S:.0f} ms", max(gaps_ms) <= 1e3 * RTT_S)
        streams = [lost_at_death(stack, 4.5) for _ in range(max(2, run.args.deaths // 10))]
        run.row(f"die: {len(streams)} times: packets lost of 4.5 Mb/s UDP", f"{sum(streams)}", "0", not any(streams))


def urgent(run: Runner) -> None:
    """An urgent packet behind a burst."""
    with run.stack([Uplink(10), Uplink(20)]) as stack:
        ready(stack, urgent_rules("if0"))
        delays_ms = [1e3 * delay_s for delay_s in urgent_delays_s(stack, 10 if run.args.quick else 50)]
    packet_ms = PACKET_BITS / 10 / 1e3
    figures = f"{statistics.median(delays_ms):.2f}, {max(delays_ms):.2f} ms"
    wanted = f"<= {3 * packet_ms:.2f} ms (3 packets)"
    run.row("urgent: wait, median and longest", figures, wanted, statistics.median(delays_ms) <= 3 * packet_ms)


def mode(run: Runner) -> None:
    """A new configuration under load."""
    moved_ms, gaps_ms = [], []
    with run.stack([Uplink(15), Uplink(20)]) as stack:
        ready(stack)
        with Transfer(stack) as transfer:
            for number in range(6 if run.args.quick else 20):
                old, new = f"if{number % 2}", f"if{1 - number % 2}"
                stack.configure([{"name": "rest", "interfaces": [old], "via": "waypoint"}])
                time.sleep(1.5)
                with Departures(stack, old) as departures:
                    at_s, ordered_s = time.monotonic(), time.time()
                    stack.configure([{"name": "rest", "interfaces": [new], "backup": [old], "via": "waypoint"}])
                    time.sleep(0.7)
                moved_ms.append(1e3 * max(0.0, departures.last_s - ordered_s))
                gaps_ms.append(1e3 * transfer.longest_gap_s(at_s, at_s + 0.6))
            exact = transfer.finish().exact
    figures = f"{statistics.median(moved_ms):.1f}, {max(moved_ms):.1f} ms"
    run.row("mode: moved, median and longest", figures, "<= 200 ms", max(moved_ms) <= 200)
    figures = f"{statistics.median(gaps_ms):.1f}, {max(gaps_ms):.1f} ms"
    run.row("mode: pause, median and longest", figures, "<= 50 ms, every byte right", max(gaps_ms) <= 50 and exact)


def fair(run: Runner) -> None:
    """Figure 4.5."""
    for words, factor in (("", None), (", paced at 0.99 of the rates", 0.99)):
        with run.stack([Uplink(mbps) for mbps in FIGURE_4_5_MBPS.values()]) as stack:
            rates = [{"name": n, "rate_mbps": factor and factor * mbps} for n, mbps in FIGURE_4_5_MBPS.items()]
            stack.configure(fair_rules(), rates)
            stack.wait_alive()
            periods = fair_periods(stack, 4 if run.args.quick else 10)
        for period in periods:
            worst = max(period.worst_error(flow) for flow in period.flows)
            means = " ".join(f"{statistics.mean(period.seconds_mbps[flow]):.2f}" for flow in period.flows)
            wanted = " ".join(f"{period.fair_mbps[flow]:.2f}" for flow in period.flows)
            head = f"fair: {'+'.join(period.flows)}{words}: mean Mb/s; worst second"
            run.row(head, f"{means}; {worst:.1%}", f"{wanted}; <= 5 %", worst <= 0.05)


def hour(run: Runner) -> None:
    """Interfaces come and go under many connections."""
    chance, minutes = random.Random(1), run.args.minutes
    with ExitStack() as opened:
        stack = opened.enter_context(run.stack([Uplink(100)] * 4))
        ready(stack)
        flows = [
            opened.enter_context(
                Transfer(stack, upload=bool(k % 2), version=6 if k % 5 == 0 else 4, limit_mbps=FLOW_MBPS)
            )
            for k in range(FLOWS - 10)
        ]
        streams = [opened.enter_context(Stream(stack, interval_s=0.05, echo=True)) for _ in range(10)]
        began_s, memory, changes = time.monotonic(), [], 0
        ways: list[Callable[[int, bool], None]] = [
            lambda k, up: stack.set_carrier(k, up=up),
            lambda k, up: stack.drop(k, 0 if up else 100),
        ]
        away: dict[int, Callable[[int, bool], None]] = {}
        while time.monotonic() - began_s < 60 * minutes:
            time.sleep(CHANGE_S)
            number = chance.randrange(4)
            if number in away:
                away.pop(number)(number, True)
            elif len(away) < 3:
                away[number] = chance.choice(ways)
                away[number](number, False)
            changes += 1
            if time.monotonic() - began_s > min(WARM_S, 15 * minutes):
                memory.append(rss_kib(stack))
        for number, back in away.items():
            back(number, True)
        stack.wait_alive()
        time.sleep(3.0)
        wrong = unfinished = 0
        stopping = [threading.Thread(target=_finish, args=(flow,)) for flow in flows]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join(30)
        for flow in flows:
            wrong += flow.wrong_at is not None
            unfinished += not flow.exact
        wrong += sum(stream.wrong + stream.doubled for stream in streams)
        status = stack.request("status")
        held, made = status["buffers"], status["buffers_made"]
    head = f"hour: {minutes:g} min, {changes} changes, {FLOWS} flows: "
    run.row(f"{head}wrong bytes; not complete", f"{wrong}; {unfinished}", "0; 0", wrong == 0 and unfinished == 0)
    growth = memory[-1] / memory[0] - 1
    # Memory that no longer grows in the second half is a high-water mark of buffers, not a leak.
    print(f"     KiB over time: {' '.join(map(str, memory[:: max(1, len(memory) // 12)]))}")
    run.row(f"{head}memory", f"{memory[0]} to {memory[-1]} KiB {growth:+.1%}", "<= 5 %", growth <= 0.05)
    run.row(f"{head}buffers held at the end", f"{held} of {made}", "<= 100", held <= 100)


def _finish(flow: Transfer) -> None:
    """What went wrong shows in what arrived."""
    try:
        flow.finish()
    except OSError as error:
        print(f"    a connection ended: {error}", file=sys.stderr)


CASES: dict[str, Callable[[Runner], None]] = {
    case.__name__: case for case in (beside, single, migrate, die, urgent, mode, fair, hour)
}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="WHAT", choices=[*CASES, []])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements")
    parser.add_argument("--realtime", action="store_true", help="hyroads-client at real-time priority")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--moves", type=int)
    parser.add_argument("--deaths", type=int)
    parser.add_argument("--minutes", type=float, default=60.0)
    args = parser.parse_args()
    quick = args.quick
    args.rounds = args.rounds or (3 if quick else 5)
    args.moves = args.moves or (6 if quick else 20)
    args.deaths = args.deaths or (8 if quick else 100)
    check_prerequisites(("ip", "tc", "nft", "ping", "iperf3"))
    print(f"python benchmarks/client_stack.py {' '.join(sys.argv[1:])}")
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} processors, Linux {platform.release()}, load {load:.1f} when it began", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for what in args.what or [name for name in CASES if name != "hour"]:
            CASES[what](Runner(args, Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
