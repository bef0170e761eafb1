"""What contention costs on the media of an emulated network (docs/reference/emulation.md)."""

from __future__ import annotations

from dataclasses import replace

from hyroads.controller.core.network import Contention, Network
from hyroads.mininet.errors import EmulationError

FROM_FILE, IDEAL, CSMA = "file", "ideal", "csma"
_POWER_LINE = "plc"


def with_contention(network: Network, wanted: str) -> Network:
    """The network with the contention of its file, with ideal media, or with CSMA/CA on all that are shared."""
    if wanted == FROM_FILE:
        return network
    if wanted == IDEAL:
        return replace(network, contention={})
    if wanted == CSMA:
        shared = (k for k in network.technologies if k not in network.unshared)
        return replace(network, contention={k: _standard(k) for k in shared})
    raise EmulationError(f"contention {wanted!a}: expected {FROM_FILE}, {IDEAL} or {CSMA}")


def _standard(technology: str) -> Contention:
    """Whose CSMA/CA: power line by its name, else WiFi."""
    return Contention.CSMA_1901 if technology.startswith(_POWER_LINE) else Contention.CSMA_802_11
