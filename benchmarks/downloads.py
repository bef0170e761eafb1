"""Downloads with and without congestion control, beside the published ones (root).

    python benchmarks/downloads.py [--pairs 1,2,3,4] [--what tiny,...] [--modes control,none] [--contention csma,ideal]
                                   [--radios] [--rows FILE]
    python benchmarks/downloads.py --table FILE        prints the tables of the rows that earlier runs appended

Real TCP (cubic) through real agents, switches and controller; the media are emulated. The network is the office floor
of the studies, the model of the published testbed: random pairs (fixed seed) whose multipath has several paths of
several hops, and of the floor the nodes on these paths. *None* is the same multipath without control: no rates and no
margin, the controller away, frames split in proportion to what each path alone could carry. Reordering and delay
equalisation at the last agent stay as they are. Media are those of a testbed, with collisions (``csma``), or ideal
ones (docs/reference/emulation.md); with ``--radios`` the controller hears how busy they are, as from real access
points. *+ rival*: the next pair's flow downloads a small file again and again meanwhile. 2 GB are 200 MB here (50 MB
beside the rival), and 25 MB are 2.5 MB: long enough to be steady, and the ratio does not depend on it. Which stations
and what other traffic the published rows had is not known (its 5 MB came at 4 Mb/s, its 2 GB at 48), so only ratios
compare.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from live import on_network  # isort: split

from hyroads.controller.core.interference import RangeInterference
from hyroads.controller.core.network import FlowSpec, Network, Traffic
from hyroads.controller.core.planner import Planner
from hyroads.controller.study import networks as study_networks
from hyroads.mininet.emulation import CSMA, Emulation, EmulationOptions
from hyroads.mininet.studies.downloads import COMPETING, CONTROL, DOWNLOADS, HYBRID, NONE, OTHER, RIVAL, Bench

SEED = 1


Sample = tuple[str, str, str, int, float]
"""Contention, what, mode, pair, seconds."""


def pairs(office: Network, count: int) -> list[tuple[str, str, frozenset[str]]]:
    """Random (source, target, nodes of the paths) whose multipath has several paths, each with relays."""
    rng, planner = random.Random(SEED), Planner(office, clients_relay=False)
    found: dict[tuple[str, str], frozenset[str]] = {}
    while len(found) < count:
        source, target = study_networks.endpoints(office, rng)
        paths = [path.links for path in planner.plan(source, target).multipath.paths]
        if len(paths) > 1 and all(len(path) > 1 for path in paths):
            used = [office.links[link] for path in paths for link in path]
            found[source, target] = frozenset(end for link in used for end in (link.source, link.target))
    return [(*ends, nodes) for ends, nodes in found.items()]


def network_of(pair: int) -> Network:
    """The part of the office where the flow of this pair (from 1) and its rival, the next one's, are at home."""
    office = study_networks.office22(random.Random(SEED))
    *_, hybrid, rival = pairs(office, pair + 1)
    nodes = {name: node for name, node in office.nodes.items() if name in hybrid[2] | rival[2]}
    links = tuple(link for link in office.links if link.source in nodes and link.target in nodes)
    ranges_m = {medium.technology: medium.range_m for medium in (study_networks.WIFI, study_networks.PLC)}
    flows = tuple(
        FlowSpec(name, source, target, traffic=Traffic.TCP)
        for name, (source, target, _) in ((HYBRID, hybrid), (COMPETING, rival))
    )
    return Network(nodes, links, RangeInterference(nodes, links, ranges_m), flows=flows, name="downloads")


def print_tables(samples: Sequence[Sample]) -> None:
    """A table for each kind of media."""
    for contention in dict.fromkeys(sample[0] for sample in samples):
        print(f"media: {contention}")
        print_table([sample for sample in samples if sample[0] == contention])


def print_table(samples: Sequence[Sample]) -> None:
    """A row per size: seconds of each pair's median, our ratios, the published one."""
    seconds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for _, what, mode, pair, value in samples:
        seconds[what, mode, pair].append(value)
    numbers = sorted({sample[3] for sample in samples})
    print(
        f"{'download':>12} {'size MB':>7} {'pair':>4} {'control s':>24} {'none s':>24} {'ratio':>6} {'published':>10}"
    )
    for what, download in {**DOWNLOADS, OTHER: RIVAL}.items():
        published = download.published_s[1] / download.published_s[0]
        ratios = []
        for pair in numbers:
            control, none = (seconds.get((what, mode, pair), []) for mode in (CONTROL, NONE))
            if control and none:
                ratios.append(statistics.median(none) / statistics.median(control))
            shown = f"{ratios[-1]:6.2f}" if control and none else f"{'-':>6}"
            print(
                f"{what:>12} {download.bytes / 1e6:7.1f} {pair:>4} {_spread(control):>24} {_spread(none):>24} {shown}"
            )
        if ratios:
            words = f"median of {len(ratios)} pairs, {min(ratios):.2f} to {max(ratios):.2f}; target > 1"
            print(f"{what:>12} {words:>68} {statistics.median(ratios):6.2f} {published:10.2f}")


def _spread(values: Sequence[float]) -> str:
    """Median (least..most, how many)."""
    if not values:
        return "-"
    return f"{statistics.median(values):.3g} ({min(values):.3g}..{max(values):.3g}, {len(values)})"


def measure(pair: int, kinds: Sequence[str], modes: Sequence[str], how: EmulationOptions) -> list[Sample]:
    """All downloads of a pair, on a network of its own."""

    def body(emulation: Emulation) -> int:
        bench = Bench(emulation)
        for mode in modes:
            if mode == NONE:
                bench.without_control()
            for what in kinds:
                for name, seconds in bench.run(what):
                    print(json.dumps((how.contention, name, mode, pair, seconds)), file=file, flush=True)
        return 0

    # ``body`` runs in the network's own process.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples"
        with path.open("w", encoding="utf-8") as file:
            status = on_network(network_of(pair), "downloads", body, **vars(how))
        if status:
            raise SystemExit(status)
        return read_samples(path)


def read_samples(path: Path) -> list[Sample]:
    """What runs have written."""
    return [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", default="1,2,3,4")
    parser.add_argument("--what", default=",".join(DOWNLOADS))
    parser.add_argument("--modes", default=f"{CONTROL},{NONE}")
    parser.add_argument("--contention", default=CSMA, help="csma (default), ideal, or both with a comma between them")
    parser.add_argument("--radios", action="store_true", help="emulated radios tell busy times")
    parser.add_argument("--medium", type=json.loads, default={}, help='its options, as JSON: {"queue_frames": 1000}')
    parser.add_argument("--settings", type=json.loads, default={}, help='the controller\'s, as JSON: {"burst_ms": 0}')
    parser.add_argument("--rows", type=Path, help="appends what was measured")
    parser.add_argument("--table", type=Path, help="only prints the table of these rows")
    args = parser.parse_args()
    if args.table:
        print_tables(read_samples(args.table))
        return 0
    if os.geteuid() != 0:
        print("this needs root", file=sys.stderr)
        return 2
    samples: list[Sample] = []
    for contention in args.contention.split(","):
        how = EmulationOptions(settings=args.settings, medium=args.medium, contention=contention, radios=args.radios)
        for pair in args.pairs.split(","):
            samples += measure(int(pair), args.what.split(","), args.modes.split(","), how)
    if args.rows:
        with args.rows.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(sample) + "\n" for sample in samples)
    print_tables(samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
