"""Makes the rows of the verdict of ``three-boxes``: figures that a user of the boxes sees."""

from __future__ import annotations

import time
from collections.abc import Callable

from hyroads.mininet.programs import EmulationError, wait_until

from .three_boxes import ATTIC, HOSTS, LAPTOP, NAME, SERVER, Setup, iperf, iperf_server, udp_mbps
from .verdict import Row, Verdict, Wanted, answered, tcp_mbps

MARGIN = 0.05
"""Share of airtime that the controller leaves free by default (docs/explanation/rates.md)."""
_SECONDS = 8.0
_REBOOT_WITHIN_S = 60.0
INSTALLED = Wanted("from the first package to the multipath in force", "s", at_most=180.0)
PING = Wanted("ping -s 1472 -M do over the multipath, share answered or told the MTU", "", at_least=1.0)
TCP = Wanted("TCP over the multipath, share of margin x both segments", "", at_least=0.85)
UDP = Wanted("UDP over the multipath, share of margin x both segments", "", at_least=0.95)
SINGLE_PING = Wanted("ping -s 1472 -M do over the single path, share answered or told the MTU", "", at_least=1.0)
SINGLE_TCP = Wanted("TCP over the single path, share of the bare segment", "", at_least=0.85)
REBOOT = Wanted("reboot of the attic, back in force", "s", at_most=20.0)


class Measuring:
    """Measures on boxes that ``setup`` has set up. Each row is shown as soon as it is there."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.rows: list[Row] = []
        self._server, self._laptop = setup.box[SERVER], setup.box[LAPTOP]

    def run(self) -> Verdict:
        """All rows; a row that can't be measured is missed and says why, and the next one is measured."""
        typed = {name: len(box.typed) for name, box in self.setup.box.items()}
        bare, both = self.setup.bare.values(), 1.0 - MARGIN
        self._row(INSTALLED, self._installed)
        self._row(PING, self._ping)
        self._row(TCP, lambda: self._tcp() / (both * sum(each.tcp_mbps for each in bare)))
        self._row(UDP, lambda: self._udp(both * sum(each.udp_mbps for each in bare)))
        self._attempt(self.setup.remove)
        self._row(SINGLE_PING, self._ping)
        self._row(SINGLE_TCP, lambda: self._tcp() / max(each.tcp_mbps for each in bare))
        self._attempt(self.setup.declare)
        self._row(REBOOT, self._reboot)
        return Verdict(NAME, tuple(self.rows), typed)

    def _row(self, wanted: Wanted, measure: Callable[[], float]) -> None:
        self.setup.lab.say(f"measuring: {wanted.what}")
        try:
            row = Row(wanted, measure())
        except (EmulationError, ValueError, ZeroDivisionError) as error:
            row = Row(wanted, None, str(error))
        self.rows.append(row)
        self.setup.lab.say(row.line())

    def _attempt(self, step: Callable[[], None]) -> None:
        """A step between rows; the next row shows what comes of its failure."""
        try:
            step()
        except EmulationError as error:
            self.setup.lab.say(str(error))

    def _installed(self) -> float:
        if self.setup.installed_s is None:
            raise EmulationError(self.setup.failure)
        return self.setup.installed_s

    def _ping(self) -> float:
        target = HOSTS[LAPTOP][1]
        words = ("-c", "5", "-i", "0.3", "-W", "1", "-s", "1472", "-M", "do")
        done = self._server.run("ping", *words, target)
        # That a packet is too long comes from the network once; after that the kernel says so, on stderr.
        return answered(done.stdout + done.stderr)

    def _tcp(self) -> float:
        iperf_server(self._laptop)
        return tcp_mbps(iperf(self._server, HOSTS[LAPTOP][1], _SECONDS))

    def _udp(self, offered_mbps: float) -> float:
        iperf_server(self._laptop)
        return udp_mbps(self._server, self._laptop, HOSTS[LAPTOP][1], _SECONDS, offered_mbps) / offered_mbps

    def _reboot(self) -> float:
        attic, target = self.setup.box[ATTIC], HOSTS[LAPTOP][1]
        boots, began_s = attic.boots, time.monotonic()
        attic.type("systemctl reboot")

        def back() -> bool:
            return (
                attic.boots > boots
                and self.setup.in_force()
                and answered(self._server.run("ping", "-c", "1", "-W", "1", target).stdout) == 1.0
            )

        wait_until("the attic", back, _REBOOT_WITHIN_S, interval_s=0.2)
        return time.monotonic() - began_s
