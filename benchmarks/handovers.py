"""Handovers packet by packet in simulation: what each mobility manager loses, doubles or delivers out of order.

    python benchmarks/handovers.py [--trips 10]

Every trip is 20 handovers between two WiFi, a power-line and a cellular-like place, with packets each 0.5 to 20 ms both
ways, one-way delays of 0.5 ms to 1.2 s, answers late by up to 0.2 s, and every other time 30 % of the markers lost.
"""

import argparse
import sys
from pathlib import Path

from hyroads.controller.core.network import Place
from hyroads.plugins.mobility import bicast, hard, hoolock, vertical

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from handover_sim import Settings, trip

PLACES = (Place("a", "wifi"), Place("b", "wifi"), Place("b", "plc"), Place("x", "lte"))
DELAYS_S = ((0.001, 0.03), (0.0005, 0.08), (0.004, 0.005), (0.05, 0.4))
HANDOVERS = 20


def lost_per_handover(manager, trips: int, one_radio: bool = False) -> tuple[int, int, int]:
    """Packets sent, packets missing, packets doubled or out of order."""
    sent = missing = wrong = 0
    for seed in range(100, 100 + trips):
        delays = {p: (lo, hi * (1 + seed % 3)) for p, (lo, hi) in zip(PLACES, DELAYS_S, strict=True)}
        marker_loss = 0.3 * (seed % 2)
        settings = Settings(seed, delays, control_s=(0.0005, 0.2), marker_loss=marker_loss, one_radio=one_radio)
        world, _ = trip(manager, settings, PLACES, HANDOVERS)
        for flow in world.flows.values():
            delivered = flow.receiver.delivered
            sent += flow.number
            missing += flow.number - len(set(delivered))
            wrong += delivered != sorted(set(delivered))
    return sent, missing, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", type=int, default=10, help="trips of 20 handovers per manager (default: 10)")
    trips = parser.parse_args().trips
    print(f"{'manager':<20}{'handovers':>10}{'packets':>10}{'lost':>7}{'per handover':>14}{'wrong flows':>13}  target")
    managers = [(m, False) for m in (hoolock.MANAGER, bicast.MANAGER, vertical.MANAGER, vertical.BICAST, hard.MANAGER)]
    for manager, one_radio in [*managers, (hard.MANAGER, True)]:
        sent, missing, wrong = lost_per_handover(manager, trips, one_radio)
        count, target = trips * HANDOVERS, "what is in flight" if manager is hard.MANAGER else "0 lost"
        name = manager.name + (" (one radio)" if one_radio else "")
        print(f"{name:<20}{count:>10}{sent:>10}{missing:>7}{missing / count:>14.3f}{wrong:>13}  {target}, 0 wrong")


if __name__ == "__main__":
    main()
