"""Reads devolo's power-line adapters over their HTTP interface, by the library ``devolo-plc-api`` (extra ``devolo``).

They give the PHY rates of all pairs of the network, G.hn adapters too, and no busy time. What they answer is checked
here: the library only decodes it.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .model import RadioError
from .plc import AV2, AV_500, GHN, UNKNOWN_FAMILY, Family, PlcStation, PlcView
from .plc_busy import BusyView

if TYPE_CHECKING:
    import asyncio

READ_EVERY_S = 2.0
"""Adapters take a while for an answer, and change their rates each few seconds."""
WITHIN_S = 8.0
MAX_STATIONS = 256
LOCAL = 1
FAMILIES: Mapping[int, Family] = {3: AV_500, 4: AV2, 7: GHN}
"""By the number of the technology in an answer. 3 is HomePlug AV too, whose line is the same."""
_MAC = re.compile(r"[0-9A-Fa-f]{12}")


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter in an answer; ``bridged`` are the addresses of devices at its Ethernet ports."""

    mac: str
    local: bool
    technology: int = 0
    bridged: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PairRate:
    """PHY rates in Mb/s between two adapters, as ``source`` knows them."""

    source: str
    target: str
    tx_mbps: float
    rx_mbps: float


Ask = Callable[[], tuple[Sequence[Adapter], Sequence[PairRate]]]


def view_of(adapters: Sequence[Adapter], rates: Sequence[PairRate]) -> PlcView:
    """What the own adapter reports of the other adapters; :class:`RadioError` if that makes no sense."""
    if len(adapters) > MAX_STATIONS:
        raise RadioError(f"the adapter names {len(adapters)} adapters: expected {MAX_STATIONS} at most")
    own = [_mac(each.mac) for each in adapters if each.local]
    if len(own) != 1:
        raise RadioError(f"the adapter names {len(own)} adapters as the local one: expected one")
    known: dict[str, tuple[float, float]] = {}
    for rate in rates:
        source, target = _mac(rate.source), _mac(rate.target)
        if source == own[0]:
            known[target] = (rate.tx_mbps, rate.rx_mbps)
        elif target == own[0]:
            # The own adapter's figures count, where it has some.
            known.setdefault(source, (rate.rx_mbps, rate.tx_mbps))
    stations = [_station(each, *known.get(_mac(each.mac), (0.0, 0.0))) for each in adapters if not each.local]
    technology = next(each.technology for each in adapters if each.local)
    return PlcView(own[0], None, tuple(stations), BusyView(), family=FAMILIES.get(technology, UNKNOWN_FAMILY))


def _station(adapter: Adapter, tx_mbps: float, rx_mbps: float) -> PlcStation:
    bridged = [_mac(each) for each in adapter.bridged[:2]]
    # Of several it is not known which one is the access point.
    behind = bridged[0] if len(bridged) == 1 else ""
    return PlcStation(_mac(adapter.mac), behind, _whole(tx_mbps), _whole(rx_mbps))


def _whole(mbps: float) -> int:
    if not math.isfinite(mbps) or mbps < 0:
        raise RadioError(f"the adapter reports a rate of {mbps} Mb/s")
    return round(min(mbps, 1e6))


def _mac(text: str) -> str:
    if not _MAC.fullmatch(text):
        raise RadioError(f"the adapter names the address {text[:32]!a}: expected 12 hexadecimal digits")
    return bytes.fromhex(text).hex(":")


class DevoloReader:
    """A :class:`~.plc.PlcReader` of the adapter with an IP address; it is read at most each :data:`READ_EVERY_S`."""

    def __init__(self, address: str, password: str = "", ask: Ask | None = None) -> None:
        self._ask = ask or _Library(address, password).ask
        self._view: PlcView | None = None
        self._next_s = -math.inf

    def view(self, now_s: float) -> PlcView:
        """The adapter's last report; raises :class:`RadioError`, and the next call queries again."""
        if self._view is None or now_s >= self._next_s:
            self._view = None
            self._view = view_of(*self._ask())
            self._next_s = now_s + READ_EVERY_S
        return self._view


class _Library:
    """The device by ``devolo_plc_api``: it is found once, and again after an error. For one thread."""

    def __init__(self, address: str, password: str) -> None:
        self._address, self._password = address, password
        self._runner: asyncio.Runner | None = None
        self._device: Any = None

    def ask(self) -> tuple[list[Adapter], list[PairRate]]:
        """An overview of the network; :class:`RadioError`."""
        # OpenWrt has asyncio in a package of its own, which access points without such an adapter do not need.
        import asyncio

        try:
            # Not every access point has it, and none imports it that has no such adapter.
            library = importlib.import_module("devolo_plc_api")
            errors = importlib.import_module("devolo_plc_api.exceptions")
        except ImportError as error:
            raise RadioError(f"needs devolo-plc-api: pip install 'hyroads[devolo]' ({error})") from error
        self._runner = self._runner or asyncio.Runner()
        try:
            network = self._runner.run(asyncio.wait_for(self._overview(library), WITHIN_S))
        except errors.DevicePasswordProtected as error:
            self._close()
            raise RadioError(f"adapter {self._address} wants another password") from error
        except Exception as error:
            self._close()
            reason = str(error) or type(error).__name__
            raise RadioError(f"adapter {self._address}: {reason}"[:200]) from error
        devices = [
            Adapter(each.mac_address, each.topology == LOCAL, each.technology, list(each.bridged_devices))
            for each in network.devices
        ]
        rates = [PairRate(e.mac_address_from, e.mac_address_to, e.tx_rate, e.rx_rate) for e in network.data_rates]
        return devices, rates

    async def _overview(self, library: Any) -> Any:
        if self._device is None:
            device = library.Device(self._address)
            device.password = self._password
            await device.async_connect()
            self._device = device
        if self._device.plcnet is None:
            raise RadioError("it does not offer its interface for power lines (_dvl-plcnetapi._tcp)")
        return await self._device.plcnet.async_get_network_overview()

    def _close(self) -> None:
        device, self._device = self._device, None
        if device is not None and self._runner is not None:
            self._runner.run(device.async_disconnect())
