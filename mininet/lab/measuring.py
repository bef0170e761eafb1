"""Makes the rows of the verdict of ``three-boxes``: figures that a user of the boxes sees."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hyroads.mininet.programs import EmulationError, wait_until

from . import guest
from .box_state import differences
from .doctor_rows import healthy_row, planted_row
from .line_rows import foreign_rows, learning_rows
from .three_boxes import (
    ATTIC,
    CONTROLLER,
    HOSTS,
    LAPTOP,
    LEAVE,
    MEDIA_PORTS,
    NAME,
    NODES,
    PURGE,
    SERVER,
    UPSTAIRS,
    Setup,
    iperf,
    iperf_server,
    udp_mbps,
)
from .verdict import Row, Verdict, Wanted, answered, tcp_mbps

MARGIN = 0.05
"""Share of airtime that the controller leaves free by default (docs/explanation/rates.md)."""
_SECONDS = 8.0
_REBOOT_WITHIN_S = 120.0
INSTALLED = Wanted("from the first package to the multipath in force", "s", at_most=180.0)
PING = Wanted("ping -s 1472 -M do over the multipath, share answered or told the MTU", "", at_least=1.0)
TCP = Wanted("TCP over the multipath, share of margin x both segments", "", at_least=0.85)
UDP = Wanted("UDP over the multipath, share of margin x both segments", "", at_least=0.95)
SINGLE_PING = Wanted("ping -s 1472 -M do over the single path, share answered or told the MTU", "", at_least=1.0)
SINGLE_TCP = Wanted("TCP over the single path, share of the bare segment", "", at_least=0.85)
PROTOCOLS = Wanted("hosts' protocols unchanged over the multipath, share", "", at_least=1.0)
SINGLE_PROTOCOLS = Wanted("hosts' protocols unchanged over the single path, share", "", at_least=1.0)
REBOOT = Wanted("reboot of the attic, back in force", "s", at_most=20.0)
REBOOT_ALL = Wanted("reboot of the controller and all boxes, back in force", "s", at_most=60.0)
ON_BOX = Wanted("commands typed on a box", "", at_most=2.0)
AT_CONTROLLER = Wanted("commands typed at the controller for a box", "", at_most=1.0)
PURGED = Wanted("differences that are left on a box after a purge", "", at_most=0.0)
LONG_IN_A_GUEST = "a guest has one processor and takes minutes for it; the lab without --kernel makes it"
NO_DURATION = "a clock that stands still while a processor works does not show how long it takes"
_PROGRAM = "/root/host_protocols.py"
_PROTOCOLS_WITHIN_S = 180.0


@dataclass(frozen=True)
class Sizes:
    """MTUs of ports of boxes by node and port, other ports have 1500; ``name`` is added to names of rows."""

    name: str
    mtus: Mapping[tuple[str, str], int]

    def row(self, wanted: Wanted) -> Wanted:
        """A row with these sizes."""
        return replace(wanted, what=f"{wanted.what}; {self.name}") if self.name else wanted


ORDINARY = Sizes("", {})
MORE_SIZES = (
    Sizes("power line 1500, WiFi 2304", {(node, MEDIA_PORTS["wifi"]): 2304 for node in NODES}),
    Sizes("one port 1400", {(ATTIC, MEDIA_PORTS["plc"]): 1400}),
)


class Measuring:
    """Measures on boxes that ``setup`` has set up. Each row is shown as soon as it is there.

    Rows that a running lab can repeat are the medians of ``repeat`` tries. With ``long`` there are rows for
    ``MORE_SIZES`` and of planted faults, with ``learning`` rows of what HyMAB learns, which take five minutes.
    """

    def __init__(self, setup: Setup, repeat: int = 1, *, long: bool = False, learning: bool = False) -> None:
        self.setup = setup
        self.repeat, self.long, self._learning = repeat, long, learning
        self.rows: list[Row] = []
        self._server, self._laptop = setup.box[SERVER], setup.box[LAPTOP]
        self._failures: list[str] = []
        """What failed since the row began: protocols, faults of boxes, differences that are left."""
        self._answers = False
        """Whether the laptop answers all protocols."""

    def run(self) -> Verdict:
        """All rows; a row that can't be measured is missed and says why, and the next one is measured.

        In a guest kernel these are ping and TCP.
        """
        if not guest.has_virtual_time():
            self._row(INSTALLED, self._installed, repeat=1)
        self._row(ON_BOX, lambda: max(len(self._typed(node)) for node in NODES), repeat=1)
        self._row(AT_CONTROLLER, lambda: self._adopting() / len(NODES), repeat=1)
        self._row(*healthy_row(self.setup, self._failures), repeat=1)
        self._sized(ORDINARY)
        if self.setup.radios:
            return self._verdict()
        for wanted, measure in foreign_rows(self.setup):
            self._row(wanted, measure, repeat=1)
        for wanted, measure in learning_rows(self.setup) if self._learning else ():
            self._row(wanted, measure, repeat=1)
        for sizes in MORE_SIZES if self.long else ():
            self._attempt(lambda mtus=sizes.mtus: self.setup.resize(mtus))  # type: ignore[misc]
            self._sized(sizes)
        if self.long:
            self._attempt(lambda: self.setup.resize({}))
            self._row(*planted_row(self.setup, self._failures), repeat=1)
        self._row(REBOOT, lambda: self._reboot(ATTIC))
        self._row(REBOOT_ALL, lambda: self._reboot(CONTROLLER, *NODES))
        self._row(PURGED, self._purge, repeat=1)
        return self._verdict()

    def _verdict(self) -> Verdict:
        return Verdict(NAME, tuple(self.rows), self.setup.typed, self._left_out())

    def _left_out(self) -> dict[str, str]:
        """Rows that are not made here, with the reason."""
        foreign = [wanted for wanted, _ in foreign_rows(self.setup)]
        long = [UDP, PROTOCOLS, SINGLE_PROTOCOLS, *foreign, REBOOT, REBOOT_ALL, PURGED] if self.setup.radios else []
        without_clock = {INSTALLED.what: NO_DURATION} if guest.has_virtual_time() else {}
        return {**without_clock, **{wanted.what: LONG_IN_A_GUEST for wanted in long}}

    def _sized(self, sizes: Sizes) -> None:
        """Rows of the multipath, then of the single path; the flow is declared before and afterwards."""
        bare, both = self.setup.bare.values(), 1.0 - MARGIN
        all_protocols = sizes is ORDINARY and not self.setup.radios
        self._attempt(self._forget_mtus)
        self._row(sizes.row(PING), self._ping)
        self._row(sizes.row(TCP), lambda: self._tcp() / (both * sum(each.tcp_mbps for each in bare)))
        if not self.setup.radios:
            self._row(sizes.row(UDP), lambda: self._udp(both * sum(each.udp_mbps for each in bare)))
        if all_protocols:
            self._row(PROTOCOLS, self._protocols)
        self._attempt(self.setup.remove)
        self._row(sizes.row(SINGLE_PING), self._ping)
        self._row(sizes.row(SINGLE_TCP), lambda: self._tcp() / max(each.tcp_mbps for each in bare))
        if all_protocols:
            self._row(SINGLE_PROTOCOLS, self._protocols)
        self._attempt(self.setup.declare)

    def _row(self, wanted: Wanted, measure: Callable[[], float], repeat: int | None = None) -> None:
        self.setup.lab.say(f"measuring: {wanted.what}")
        self._failures.clear()
        try:
            values = tuple(measure() for _ in range(repeat or self.repeat))
            row = Row(wanted, statistics.median(values), "; ".join(dict.fromkeys(self._failures)), values)
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

    def _forget_mtus(self) -> None:
        """Let both computers forget the MTU of the single path, which they keep for ten minutes."""
        for box in (self._server, self._laptop):
            # For IPv4 `ip route flush cache` ends with status 0 even if it can't write this file.
            box.type("echo 1 > /proc/sys/net/ipv4/route/flush && ip -6 route flush cache")

    def _installed(self) -> float:
        if self.setup.installed_s is None:
            raise EmulationError(self.setup.failure)
        return self.setup.installed_s

    def _typed(self, node: str) -> Sequence[str]:
        self._installed()
        return self.setup.typed[node]

    def _adopting(self) -> int:
        self._installed()
        return len(self.setup.adopting)

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

    def _protocols(self) -> float:
        """Share of what the server sends the laptop that comes back unchanged."""
        if not self._answers:
            self._prepare_protocols()
        done = self._server.run("python3", _PROGRAM, "try", within_s=_PROTOCOLS_WITHIN_S)
        if done.returncode:
            raise EmulationError((done.stderr.strip() or "no answer").splitlines()[-1])
        found: dict[str, str] = json.loads(done.stdout)
        self._failures += [f"{name}: {why}" for name, why in found.items() if why]
        return sum(not why for why in found.values()) / len(found)

    def _prepare_protocols(self) -> None:
        text = Path(__file__).with_name("host_protocols.py").read_text(encoding="utf-8")
        for box, last in ((self._server, 1), (self._laptop, 3)):
            box.write(_PROGRAM, text)
            box.type(f"ip address replace fd00::{last}/64 dev eth0 nodad")
        self._laptop.type(f"systemd-run --quiet --unit=protocols python3 {_PROGRAM} answer")
        wait_until("protocols", lambda: ":7007" in self._laptop.run("ss", "-ltnH").stdout, 10.0, interval_s=0.1)
        self._answers = True

    def _reboot(self, *names: str) -> float:
        """Seconds from the command, typed in boxes one after the other, to a flow in force and a ping that arrives."""
        boxes, target = [self.setup.box[name] for name in names], HOSTS[LAPTOP][1]
        boots, began_s = {box.name: box.boots for box in boxes}, time.monotonic()
        for box in boxes:
            box.type("systemctl reboot")

        def back() -> bool:
            with suppress(EmulationError):  # nothing can be typed in a box that is off
                return (
                    all(box.boots > boots[box.name] for box in boxes)
                    and self.setup.in_force()
                    and answered(self._server.run("ping", "-c", "1", "-W", "1", target).stdout) == 1.0
                )
            return False

        wait_until("the network", back, _REBOOT_WITHIN_S, interval_s=0.2)
        return time.monotonic() - began_s

    def _purge(self) -> float:
        """One box leaves by itself, of another one the packages are removed."""
        for node, lines in ((ATTIC, (LEAVE, PURGE)), (UPSTAIRS, (PURGE,))):
            for line in lines:
                self.setup.box[node].type(line)
            found = differences(self.setup.before[node], self.setup.state_of(node))
            self._failures += [f"{node}: {difference}" for difference in found]
        return len(self._failures)
