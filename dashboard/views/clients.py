"""What is shown of one client: where it is, how well it is heard, where it was, where it could go."""

from __future__ import annotations

from typing import Any

from ..state import NetworkState


def is_client(state: NetworkState, node: str) -> bool:
    """Whether a node is a client, by its role or because it is known as one."""
    of = state.topology.nodes.get(node) if state.topology is not None else None
    return node in state.live["clients"] or (of is not None and of.role == "client")


def place_rows(state: NetworkState, client: str) -> list[dict[str, str]]:
    """Its interfaces, where they are, and the signal at which the access point hears them."""
    at: dict[str, Any] = state.live["clients"].get(client, {})
    return [
        {
            "interface": mac,
            "place": "/".join(place) if place else "nowhere",
            "signal": signal_text(signal_dbm(state, client, mac, place)) if place else "",
        }
        for mac, place in sorted(at.items())
    ]


def signal_text(value_dbm: float | None) -> str:
    """For people."""
    return "not measured" if value_dbm is None else f"{value_dbm:g} dBm"


def signal_dbm(state: NetworkState, client: str, mac: str, place: list[str]) -> float | None:
    """How the radio of its place hears it, from ``/measurements``."""
    for radio in state.documents.get("/measurements", {}).get("radios", []):
        if radio.get("node") != place[0]:
            continue
        for interface in radio.get("interfaces", []):
            if interface.get("technology") != place[1]:
                continue
            for heard in interface.get("neighbours", []):
                if heard.get("node") == client or heard.get("mac") == mac:
                    signal = heard.get("signal_dbm")
                    return float(signal) if isinstance(signal, int | float) else None
    return None


def history_rows(state: NetworkState, client: str, now_s: float) -> list[dict[str, str]]:
    """Where its interfaces were, the latest first."""
    known = state.places.get(client, ())
    return [{"age": age(now_s - since_s), "interface": mac, "place": place} for since_s, mac, place in reversed(known)]


def age(seconds: float) -> str:
    """How long ago."""
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def targets(state: NetworkState, client: str) -> list[str]:
    """NODE/TECHNOLOGY that it has a link to and is not at."""
    if state.topology is None:
        return []
    here = {"/".join(place) for place in state.live["clients"].get(client, {}).values() if place}
    ends = {
        f"{link.target}/{link.technology}"
        for link in state.topology.links.values()
        if link.source == client and state.figure("links", link.id, "up") != 0
    }
    return sorted(ends - here)
