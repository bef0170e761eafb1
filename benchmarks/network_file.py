"""What it costs to read a large network file and to derive what hangs on it: python benchmarks/network_file.py.

The network has 200 nodes, three technologies and about 25 000 directed links under the rule ``range``.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.netfile import load_text, to_document

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from hyroads.controller.study.networks import campus200

RUNS = 5


def measured_ms(work: Callable[[], object]) -> float:
    """Median of the time that the work takes."""
    times_ms = []
    for _ in range(RUNS):
        start_s = time.perf_counter()
        work()
        times_ms.append(1000 * (time.perf_counter() - start_s))
    return statistics.median(times_ms)


def main() -> None:
    network = campus200(random.Random(1))
    document = to_document(network)
    as_json, as_yaml = json.dumps(document), yaml.safe_dump(document, sort_keys=False, default_flow_style=None)
    addressing = Addressing.of(network)
    sample = range(0, len(network.links), len(network.links) // 100)
    rows: list[tuple[str, Callable[[], object], float]] = [
        (f"read YAML ({len(as_yaml) / 1e6:.1f} MB)", lambda: load_text(as_yaml, "net.yaml"), 2000),
        (f"read JSON ({len(as_json) / 1e6:.1f} MB)", lambda: load_text(as_json, "net.json"), 1000),
        ("addresses", lambda: Addressing.of(network), 100),
        ("labels", lambda: Labels.of(network, addressing), 500),
        (f"{len(sample)} interference domains", lambda: [network.interference.domain(link) for link in sample], 50),
        ("interference for native code", network.interference.compact, 10),
    ]
    print(f"{len(network.nodes)} nodes, {len(network.links)} links, median of {RUNS}")
    print(f"{'what':<34} {'ms':>9} {'target ms':>10}")
    for what, work, target_ms in rows:
        print(f"{what:<34} {measured_ms(work):>9.1f} {'<= ' + format(target_ms, '.0f'):>10}")


if __name__ == "__main__":
    main()
