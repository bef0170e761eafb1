"""The demos: emulated networks with real traffic whose outcome is checked against theory.

A demo is a module with ``run(stage)``, which runs the traffic and adds checks to the stage. Its network is the file of
its name, or of the name ``NETWORK``, or what its ``network(how)`` makes, with the flows that the demo declares when it
is their turn. ``SETTINGS`` are more of the controller's settings. The tables here need no import of a demo.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from hyroads.mininet.programs import EmulationError

DEMOS: dict[str, str] = {
    "triangle": "PLC + WiFi gateway, PLC + WiFi extender, WiFi laptop: one path at 10 Mb/s, the multipath at 16.67",
    "competing": "a hybrid flow leaves WiFi to a one-hop WiFi flow, and comes back when that has ended",
    "two-flows": "a second flow over the same media halves the first, which gets all back",
    "capacity-drop": "a power line loses capacity untold: HyMAB moves to a better multipath, the model does not",
    "external": "traffic that nobody controls is never starved, controlled flows take what is left",
    "handover": "a client goes from WiFi to power line to a cellular-like link, and nothing is lost on the way",
    "roaming-80211": "a station by 802.11v, and a client between two radios, on emulated 802.11 of the kernel",
    "session": "five devices talk to each other without a server, over trees that take every link once",
    "reservation": "a flow keeps what it was promised when a second starts, which may not reserve more than the rest",
    "mesh": "one TCP connection over the backlinks of three access points, on two channels and on one",
    "shares": "a slice keeps to its share of airtime while another wants it, and takes all that is idle",
    "office": "22 hybrid nodes, WiFi and two power lines, ten flows, by a controller that only measures",
    "ha": "the leading one of three controllers is killed, the next frozen, etcd stopped, and no packet is lost",
    "mar": "an upload over MPTCP outlives the wires behind two access points, and uses both while they are there",
    "mar-dynamic": "a walk past seven access points: two radios are placed anew while an upload over MPTCP runs",
    "download": "a laptop fetches a file over two foreign networks at once, one of which goes and comes back",
    "hercules": "one address over two to ten interfaces, which a running upload outlives, through a waypoint",
    "fair": "three flows share two interfaces by weight and preference, second by second",
    "mptcp": "one TCP over the labelled multipath beside the kernel's MPTCP over the same two paths",
    "offload": "a download over MPTCP stays off a mobile network while there is WiFi, which goes and comes back",
}

ALONE: frozenset[str] = frozenset({"download", "hercules", "fair", "offload"})
"""The demos without a controller: ``run_alone(how, name, say)`` makes the networks that they need."""

DEFAULTS: dict[str, dict[str, object]] = {
    "capacity-drop": {"radios": True, "busy_noise": 0.2},
    "external": {"measured": True},
    "roaming-80211": {"radio": True},
    "ha": {"controllers": 3},
    "offload": {"seconds": 30.0},
    "mar": {"seconds": 20.0},
    "mar-dynamic": {"seconds": 120.0, "measured": True},
    "office": {"measured": True, "discover": True, "noise": 0.1, "busy_noise": 0.02, "low_rate_bias": 0.3},
}
"""What options of ``hyroads demo`` are for a demo if they are not given."""

ONLY: dict[str, frozenset[str]] = {
    "faults": frozenset({"triangle"}),
    "seconds": frozenset(DEMOS) - {"office"},
    "long": frozenset(DEMOS) - {"office"},
    **dict.fromkeys(
        (
            "sliced",
            "no_realtime",
            "controllers",
            "etcd_members",
            "margin",
            "mode",
            "measured",
            "discover",
            "radios",
            "pair_tests",
        ),
        frozenset(DEMOS) - ALONE,
    ),
    **dict.fromkeys(("controllers", "etcd_members"), frozenset(DEMOS) - ALONE),
    **dict.fromkeys(("radio", "radio_medium"), frozenset({"roaming-80211"})),
    "minutes": frozenset({"office"}),
    "scale": frozenset({"office"}),
}
"""The demos that know an option; options that are not here are for all."""

LEAST_SECONDS: dict[str, int] = {
    "capacity-drop": 6,
    "external": 4,
    "shares": 4,
    "download": 3,
    "mar": 3,
    "mar-dynamic": 10,
}
"""The shortest phases in which there is something to judge; 2 s else."""


def check_name(name: str) -> None:
    """Raise an EmulationError if there is no demo of that name."""
    if name not in DEMOS:
        close = difflib.get_close_matches(name, DEMOS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise EmulationError(f"no demo {name[:40]!a}{hint}; there are: {', '.join(DEMOS)}")


def find_demo(name: str) -> Any:
    """The module of a demo."""
    check_name(name)
    return importlib.import_module(f"hyroads.mininet.demos.{name.replace('-', '_')}")
