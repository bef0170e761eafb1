"""The slicing proxy's core: what a message costs, without sockets.

    python benchmarks/slicing_proxy.py [--slices 100] [--rules 10000] [--messages 20000] [--seed 1]

The switch has all slices with all their flowspace rules. One slice's controller is a learning switch: for every
packet-in it sends a rule (in_port, eth_src, eth_dst -> output). Target for the whole proxy, with its sockets: 80 us
added to a packet-in that is answered by a flow-mod, and 20 000 messages a second on one core.
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from hyroads.controller.ofp import guard, wire
from hyroads.controller.ofp import match as act
from hyroads.slices.core import classifier
from hyroads.slices.core.allocation import Allocation, allocate
from hyroads.slices.core.change import changed
from hyroads.slices.core.classifier import classifier_of
from hyroads.slices.core.match import completed, of_fields
from hyroads.slices.core.model import EMPTY, FlowspaceRule, Limits, Permission, Slice
from hyroads.slices.proxy.guest_view import GuestView, IdMap, NumberPool
from hyroads.slices.proxy.region import Regions
from hyroads.slices.proxy.session import SwitchSession, Tenant
from hyroads.slices.proxy.xids import EntryQuota, bucket_of

PORTS = frozenset(range(1, 49))
FEATURES = wire.message(struct.pack("!QIBB2xII", 1, 0, 254, 0, 0, 0), 1, 6)
Row = tuple[str, str, str]


class Rig(NamedTuple):
    """A session with all slices; guest 1 belongs to the slice ``name``."""

    session: SwitchSession
    allocation: Allocation
    name: str


def rig(count: int, rules: int) -> Rig:
    each = rules // count
    slices = [
        Slice(
            f"s{i}",
            tuple(FlowspaceRule(completed({"eth_src": (2 << 40) + i * each + k})) for k in range(each)),
            limits=Limits(tables=2),
        )
        for i in range(count)
    ]
    model, _ = changed(EMPTY, slices)
    allocation = allocate(model, (1,))
    regions = Regions(classifier_of(model, allocation, {}).of_switch(1))
    groups, meters = NumberPool(1, 1 << 20), NumberPool(1, 1 << 16)
    tenants = [
        Tenant(
            name,
            GuestView(block, PORTS, regions, IdMap(groups, 100), IdMap(meters, 100)),
            frozenset({Permission.READ, Permission.WRITE}),
            bucket_of(1e9),
            bucket_of(1e9),
            EntryQuota(1 << 30),
        )
        for name, block in allocation.blocks[1].items()
    ]
    session = SwitchSession(FEATURES, regions, tenants, b"k" * 32)
    name = f"s{count // 2}"
    session.join(1, allocation.numbers[name])
    return Rig(session, allocation, name)


def tcp(rng: random.Random) -> bytes:
    """A TCP packet over IPv4 from its type on, with 10 bytes."""
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 50, 1, 0, 64, 6, 0) + rng.randbytes(8)
    return b"\x08\x00" + ip + rng.randbytes(12) + b"\x50" + rng.randbytes(17)


def packet_in(rng: random.Random, table: int, number: int) -> bytes:
    fields = of_fields({"in_port": rng.randrange(1, 49), "metadata": number << 48})
    data = rng.randbytes(12) + tcp(rng)
    body = struct.pack("!IHBBQ", 0xFFFFFFFF, len(data), 1, table, 5) + wire.match_struct(classifier.encode(fields))
    return wire.message(body + b"\0\0" + data, 0, 10)


def flow_mod(rng: random.Random, actions: tuple[act.Action, ...]) -> bytes:
    macs = {name: rng.getrandbits(48) for name in ("eth_src", "eth_dst")}
    fields = classifier.encode(of_fields({"in_port": rng.randrange(1, 49), **macs}))
    body = wire.flow_mod_body(wire.ADD, 0, 5, fields, wire.instructions(actions, None))
    return wire.message(body, rng.getrandbits(32))


def packet_out(rng: random.Random, mac: int) -> bytes:
    actions = wire.actions((act.Output(rng.randrange(1, 49)),))
    data = rng.randbytes(6) + mac.to_bytes(6, "big") + tcp(rng)
    return wire.message(struct.pack("!IIH6x", 0xFFFFFFFF, 0xFFFFFFFD, len(actions)) + actions + data, 3, 13)


def cost(messages: list[bytes], handle: Callable[[bytes], object]) -> tuple[float, float]:
    """(median, 99th percentile) in microseconds; the first twentieth warms up."""
    times = []
    for message in messages:
        start = time.perf_counter_ns()
        handle(message)
        times.append((time.perf_counter_ns() - start) / 1e3)
    times = sorted(times[len(times) // 20 :])
    return statistics.median(times), times[int(len(times) * 0.99)]


def measure(args: argparse.Namespace) -> list[Row]:
    rng = random.Random(args.seed)
    session, allocation, name = rig(args.slices, args.rules)
    block = allocation.blocks[1][name]
    first = (2 << 40) + args.slices // 2 * (args.rules // args.slices)
    few = max(20, args.messages // 100)
    up = lambda message: session.from_switch(message, 0.0)  # noqa: E731
    down = lambda message: session.from_guest(1, message, 0.0)  # noqa: E731
    ins = [packet_in(rng, block.first, block.number) for _ in range(args.messages)]
    rules = [flow_mod(rng, (act.Output(rng.randrange(1, 49)),)) for _ in range(args.messages)]
    rewriting = [
        flow_mod(rng, (act.SetEthDst("02:00:00:00:00:09"), act.Output(rng.randrange(1, 49)))) for _ in range(few)
    ]
    outs = [packet_out(rng, first) for _ in range(few)]
    barriers = [wire.barrier_request(n) for n in range(args.messages)]
    results = {
        "packet-in to its guest": cost(ins, up),
        "  of it the check of its form": cost(ins, guard.check),
        "flow-mod of a learning switch": cost(rules, down),
        "barrier": cost(barriers, down),
        "flow-mod that rewrites": cost(rewriting, down),
        "packet-out with its frame": cost(outs, down),
    }
    passed = sum(bool(down(message).switch) for message in rules[:100] + outs[:20])
    passed += sum(bool(up(message).guests) for message in ins[:100])
    if passed != 200 + min(20, few):
        raise RuntimeError(f"only {passed} of the messages passed")
    rows = [(what, f"{median:.1f} us (99 %: {worst:.1f})", "") for what, (median, worst) in results.items()]
    pair = results["packet-in to its guest"][0] + results["flow-mod of a learning switch"][0]
    rows.append(("packet-in and flow-mod", f"{pair:.1f} us", "<= 80 us with sockets"))
    rows.append(("messages per second on one core", f"{2e6 / pair:,.0f}", ">= 20,000 with sockets"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("slices", 100), ("rules", 10_000), ("messages", 20_000), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    print(f"{args.slices} slices, {args.rules} flowspace rules")
    rows = [("what", "measured (median)", "target"), *measure(args)]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
