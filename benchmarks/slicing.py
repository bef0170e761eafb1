"""Slicing: how fast a change of 100 slices with 10 000 flowspace rules becomes messages, and what the tables cost.

python benchmarks/slicing.py [--slices 100] [--rules 10000] [--switches 10] [--repeat 20] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from hyroads.slices.core.allocation import OPEN_VSWITCH, Allocation, allocate
from hyroads.slices.core.change import ModelChange, changed
from hyroads.slices.core.classifier import NO_CLASSIFIER, Classifier, ClassifierChange, classifier_of, switch_difference
from hyroads.slices.core.match import completed
from hyroads.slices.core.model import EMPTY, FlowspaceRule, Limits, Slice, SliceModel
from hyroads.slices.proxy.maintenance import DesiredState, change_stages

NOTHING_ELSE = DesiredState((), (), {}, OPEN_VSWITCH)
Row = tuple[str, str, str]


def rule(rng: random.Random, number: int) -> FlowspaceRule:
    """One of the usual kinds: a host, a subnet and port, a VLAN at ports, a prefix of MAC addresses."""
    kind = number % 4
    if kind == 0:
        matches = completed({"eth_src": 0x020000000000 | number})
    elif kind == 1:
        matches = completed({"ipv4_dst": (0x0A000000 | number << 8, 0xFFFFFF00), "tcp_dst": rng.randrange(1, 1024)})
    elif kind == 2:
        matches = completed({"ipv4_src": 0x0B000000 | number, "udp_dst": (rng.randrange(256) << 8, 0xFF00)})
    else:
        matches = completed({"ipv6_dst": (0x2001_0DB8 << 96 | number << 64, ((1 << 64) - 1) << 64)})
    return FlowspaceRule(matches, 100 + kind)


def tenants(rng: random.Random, count: int, rules: int) -> list[Slice]:
    """Slices with the same number of rules each."""
    each = rules // count
    return [
        Slice(f"s{i}", tuple(rule(rng, i * each + k) for k in range(each)), limits=Limits(tables=2))
        for i in range(count)
    ]


class Timed:
    """One state after the other, with the time of each step of a change."""

    def __init__(self, switches: int, count: int) -> None:
        self.dpids = tuple(range(1, switches + 1))
        self.model: SliceModel = EMPTY
        self.allocation = Allocation()
        self.classifier: Classifier = NO_CLASSIFIER
        self.ports: Mapping[int, Mapping[str, int]] = {}
        self.times: dict[str, list[float]] = {}
        self.size = self.messages = 0
        self.count = count

    def step(self, name: str, work: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = work()
        self.times.setdefault(name, []).append((time.perf_counter() - start) * 1e3)
        return result

    def change(self, put: list[Slice], remove: list[str]) -> None:
        start = time.perf_counter()
        model, what = self.step("conflict check", lambda: changed(self.model, put, remove))  # type: ignore[misc]
        assert isinstance(what, ModelChange)
        names = what.names if self.classifier is not NO_CLASSIFIER else None
        allocation = self.step("allocation", lambda: allocate(model, self.dpids, self.allocation, names))
        new = self.step("rules", lambda: classifier_of(model, allocation, self.ports, self.classifier, names))  # type: ignore[arg-type]
        assert isinstance(new, Classifier)
        changes = self.step("difference", lambda: self.difference(new))
        stages = self.step("bytes", lambda: [s for c in changes for s in change_stages(c, NOTHING_ELSE, NOTHING_ELSE)])  # type: ignore[attr-defined]
        self.times.setdefault("whole change", []).append((time.perf_counter() - start) * 1e3)
        self.model, self.allocation, self.classifier = model, allocation, new  # type: ignore[assignment]
        # Each stage ends with a barrier.
        self.messages = sum(len(stage) + 1 for stage in stages)  # type: ignore[attr-defined]
        self.size = sum(len(message) for stage in stages for message in (*stage, bytes(8)))  # type: ignore[attr-defined]

    def difference(self, new: Classifier) -> list[ClassifierChange]:
        found = [switch_difference(self.classifier.entries.get(dpid, {}), after) for dpid, after in new.entries.items()]
        return [change for change in found if change]


def changes(args: argparse.Namespace) -> list[Row]:
    """A first installation, then changes of one slice: new rules, a slice removed and added."""
    rng = random.Random(args.seed)
    timed = Timed(args.switches, args.slices)
    timed.change(tenants(rng, args.slices, args.rules), [])
    first = timed.times.pop("whole change")[0]
    rows = [
        ("flowspace rules x switches", f"{args.rules} x {args.switches}", ""),
        ("everything, from nothing", f"{first:.0f} ms, {timed.messages} messages", ""),
    ]
    for title, put in (("one slice: one rule more", one_more), ("one slice: all rules new", all_new)):
        timed.times.clear()
        for i in range(args.repeat):
            timed.change([put(rng, timed.model.slices[f"s{i % args.slices}"], args, i)], [])
        rows.append((title, f"{timed.messages} messages", ""))
        for name, values in timed.times.items():
            target = "<= 100 ms" if name == "whole change" else ""
            rows.append((f"  {name}", f"{statistics.median(values):.1f} ms (worst {max(values):.1f})", target))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append(("memory, peak of this process", f"{peak:.0f} MB", "< 500 MB"))
    return rows


def one_more(rng: random.Random, each: Slice, args: argparse.Namespace, i: int) -> Slice:
    return replace(each, flowspace=(*each.flowspace, rule(rng, args.rules + i)))


def all_new(rng: random.Random, each: Slice, args: argparse.Namespace, i: int) -> Slice:
    size = args.rules // args.slices
    first = 2 * args.rules + i * size
    return replace(each, flowspace=tuple(rule(rng, first + k) for k in range(size)))


def show(rows: list[Row]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("slices", 100), ("rules", 10_000), ("switches", 10), ("repeat", 20), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    show([("what", "measured", "target"), *changes(parser.parse_args())])


if __name__ == "__main__":
    main()
