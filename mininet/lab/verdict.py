"""The rows of a lab's verdict: what was measured, what is wanted, and whether that is met. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hyroads.mininet.programs import EmulationError

EXIT_MISSED = 3
"""Status of a lab whose verdict has a row that is missed."""


@dataclass(frozen=True)
class Wanted:
    """A row of the verdict before it is measured: at most one of the two bounds, in ``unit``."""

    what: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    def text(self) -> str:
        """The bound with its unit, such as ``<= 180 s``."""
        sign, bound = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        return f"{sign} {bound:g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Row:
    """A row of the verdict; ``measured`` is None if it could not be measured, and ``why`` says the reason then."""

    wanted: Wanted
    measured: float | None
    why: str = ""
    values: tuple[float, ...] = ()
    """What ``measured`` is the median of."""

    @property
    def met(self) -> bool:
        """Whether the figure is within the bound; a figure that is missing is not."""
        if self.measured is None:
            return False
        above = self.wanted.at_least is None or self.measured >= self.wanted.at_least
        return above and (self.wanted.at_most is None or self.measured <= self.wanted.at_most)

    def document(self) -> dict[str, Any]:
        """The entry of the JSON document."""
        bounds = {"at_least": self.wanted.at_least, "at_most": self.wanted.at_most}
        return {
            "what": self.wanted.what,
            "measured": None if self.measured is None else round(self.measured, 3),
            "unit": self.wanted.unit,
            "wanted": {name: bound for name, bound in bounds.items() if bound is not None},
            "met": self.met,
            **({"why": self.why} if self.why else {}),
            **({"values": [round(value, 3) for value in self.values]} if len(self.values) > 1 else {}),
        }

    def line(self) -> str:
        """One line of the verdict."""
        figure = "not measured" if self.measured is None else f"{self.measured:.2f} {self.wanted.unit}".rstrip()
        why = f" ({self.why})" if self.why else ""
        return f"{'met   ' if self.met else 'MISSED'} {self.wanted.what:<58} {figure:>14}  {self.wanted.text()}{why}"


@dataclass(frozen=True)
class Verdict:
    """All rows of a run of the lab ``name``, and what a user typed in each box until all was set up.

    ``not_made``: row that this form of the lab does not measure -> the reason.
    """

    name: str
    rows: tuple[Row, ...]
    typed: Mapping[str, Sequence[str]]
    not_made: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there are rows and all are met."""
        return bool(self.rows) and all(row.met for row in self.rows)

    @property
    def status(self) -> int:
        """Exit status of the command: 0, or 3 if a row is missed."""
        return 0 if self.ok else EXIT_MISSED

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints (docs/reference/lab.md)."""
        rows = [row.document() for row in self.rows]
        typed = {box: list(lines) for box, lines in self.typed.items()}
        not_made = [{"what": what, "why": why} for what, why in self.not_made.items()]
        return {"lab": self.name, "rows": rows, "not_made": not_made, "typed": typed, "ok": self.ok}

    def text(self) -> str:
        """What is printed without ``--json``."""
        missed = sum(not row.met for row in self.rows)
        typed = ", ".join(f"{len(lines)} in {box}" for box, lines in self.typed.items() if lines)
        end = "all rows are met" if self.ok else f"{missed} of {len(self.rows)} rows are missed"
        left_out = [f"not made {what} ({why})" for what, why in self.not_made.items()]
        return "\n".join([*(row.line() for row in self.rows), *left_out, f"commands typed: {typed}", end])


def tcp_mbps(report: Mapping[str, Any]) -> float:
    """Mb/s that arrived, from the JSON report of an iperf3 client over TCP; EmulationError with its error."""
    return _bits_per_second(report, "sum_received") / 1e6


def datagrams(counters: str) -> int:
    """UDP datagrams that a machine has received, from the text of its /proc/net/snmp; EmulationError if not there."""
    rows = [line.split() for line in counters.splitlines() if line.startswith("Udp:")]
    try:
        names, values = rows
        return int(values[names.index("InDatagrams")])
    except (ValueError, IndexError) as error:
        raise EmulationError("no counter of UDP datagrams in /proc/net/snmp") from error


def answered(replies: str) -> float:
    """Share of pings that brought an answer: an echo reply, or the message that the packet is too long.

    ``replies`` is what ping prints. 0.0 if it sent nothing.
    """
    sent = next((int(line.split()[0]) for line in replies.splitlines() if "packets transmitted" in line), 0)
    good = sum(" bytes from " in line for line in replies.splitlines())
    too_long = sum("rag needed" in line or "essage too long" in line for line in replies.splitlines())
    return min(1.0, (good + too_long) / sent) if sent else 0.0


def _sums(report: Mapping[str, Any]) -> Mapping[str, Any]:
    if "error" in report:
        raise EmulationError(f"iperf3: {report['error']}")
    end = report.get("end")
    return end if isinstance(end, Mapping) else {}


def _bits_per_second(report: Mapping[str, Any], name: str) -> float:
    found = _sums(report).get(name, {}).get("bits_per_second")
    if not isinstance(found, int | float):
        raise EmulationError("iperf3 reported no rate")
    return float(found)
