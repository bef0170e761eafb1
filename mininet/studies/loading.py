"""Live study ``loading``: how long pages take over two networks (EPFL thesis 9056, Figure 6.11).

A client has two networks to a server, of 20 Mb/s each and of different delays. It fetches synthetic pages as a browser
does, over six connections of TCP on the first network, on the second, of the kernel's MPTCP on both, and of TCP whose
packets HyWF splits in both directions. Each row is one pair of delays and one repetition of all pages.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network, Traffic
from hyroads.controller.study.framework import Bars, Cdf, Progress, Result, Settings, Table
from hyroads.controller.study.intervals import interval_of
from hyroads.controller.study.verdicts import Band, Check, Kind
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.mptcp_traffic import PORT, SECOND_PORT, SYSCTL, Hosts
from hyroads.mininet.programs import EmulationError

from .measuring import IPV4, declared, forget_metrics
from .rows import Measured, Row, Trial, measure_rows, not_made_notes

TITLE = "How long pages take over two networks, with real packets"
FIGURES = "thesis, Figure 6.11"
TIMES_S = (45.0, 9_000.0)

DELAYS_MS, QUICK_DELAYS_MS = ((50, 50), (50, 150), (50, 300)), ((50, 150),)
"""Round-trip times of both networks."""
PAGES, QUICK_PAGES = 40, 4
REPEATS, QUICK_REPEATS = 10, 1
MBPS = 20.0
ENDS = ("client", "server")
FIRST, SECOND, KERNELS, HYWF = "TCP, network 1", "TCP, network 2", "MPTCP", "HyWF"
SCHEMES = (FIRST, SECOND, KERNELS, HYWF)
MAX_HOLD_MS = 400
"""The last agent waits for packets of the slower network longer than networks differ."""
_LOAD_WITHIN_S = 30.0
_TCP = Traffic.TCP.value
_SHARE = 90.0


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study; ``runs`` is the number of repetitions."""
    if not SYSCTL.exists():
        raise EmulationError("live-loading: this kernel has no MPTCP")
    delays = QUICK_DELAYS_MS if settings.quick else DELAYS_MS
    repeats = settings.runs or (QUICK_REPEATS if settings.quick else REPEATS)
    pages = pages_of(settings.seed, QUICK_PAGES if settings.quick else PAGES)
    # More repetitions begin with the same rows.
    cases = [both for _ in range(repeats) for both in delays]
    trials = [_trial(number, both, pages) for number, both in enumerate(cases, start=1)]
    setting = f"seed {settings.seed}; {len(pages)} pages; {' '.join(f'{a}/{b} ms' for a, b in delays)}; {MBPS:g} Mb/s"
    rows = measure_rows("live-loading", setting, trials, settings, progress)
    found = seconds_of(rows)
    return Result(
        TITLE,
        f"{len(pages)} synthetic pages, {repeats} times each, over two networks of {MBPS:g} Mb/s; delays are "
        f"round-trip times of the networks; six connections, TCP cubic, MPTCP of the kernel. Seed {settings.seed}.",
        [_table(found)],
        _plots(found),
        checks(found),
        [
            "The published pages were real ones in a browser. Ours have a document of some 30 kB and some 25 objects "
            "of some 8 kB, drawn once; there is no encryption, no DNS, no script and no time of the server, so only "
            "order compares. Rates of the published networks are not known.",
            *not_made_notes(rows),
        ],
    )


def pages_of(seed: int, count: int) -> list[list[int]]:
    """Sizes in bytes of each page's document and objects; more pages begin with the same."""
    rng = random.Random(f"{seed}/pages")  # noqa: S311 - simulation

    def drawn(median: float, sigma: float, least: int, most: int) -> int:
        return min(most, max(least, round(median * math.exp(rng.gauss(0.0, sigma)))))

    return [
        [drawn(30_000, 0.8, 1_000, 300_000), *(drawn(8_000, 1.2, 200, 400_000) for _ in range(drawn(25, 0.6, 5, 80)))]
        for _ in range(count)
    ]


def network(delays_ms: tuple[float, float]) -> Network:
    """Client and server with two networks between them, whose directions do not share; delays are round-trip times."""
    links = [
        {
            "id": f"net-{k}",
            "from": ENDS[0],
            "to": ENDS[1],
            "technology": f"net-{k}",
            "capacity_mbps": MBPS,
            "delay_ms": delay_ms / 2,
            "both": True,
        }
        for k, delay_ms in enumerate(delays_ms, start=1)
    ]
    document: dict[str, Any] = {
        "nodes": {"server": {"role": "gateway"}, "client": {"role": "ap"}},
        "links": links,
        "technologies": {f"net-{k}": {"shared": False} for k in (1, 2)},
        "interference": {"rule": "technology"},
    }
    return parse(document, "live-loading")


def _trial(number: int, delays_ms: tuple[int, int], pages: Sequence[Sequence[int]]) -> Trial:
    options = EmulationOptions(settings={"max_hold_ms": MAX_HOLD_MS})
    return Trial(number, network(delays_ms), partial(measure, delays_ms=delays_ms, pages=pages), options)


def measure(emulation: Emulation, delays_ms: tuple[int, int], pages: Sequence[Sequence[int]]) -> Measured:
    """All pages by each scheme."""
    forget_metrics(emulation)
    hosts = Hosts(emulation, *ENDS)
    hosts.announce(SECOND_PORT)
    seconds: dict[str, list[float]] = {}
    with _server(emulation, PORT + 10, "tcp"), _server(emulation, PORT, "mptcp"):
        for scheme in SCHEMES:
            with _carried_by(emulation, scheme):
                seconds[scheme] = _load(emulation, pages, scheme)
    hosts.withdraw()
    figures = {"delays_ms": list(delays_ms), "seconds": seconds}
    return Measured(figures, "there is no theory that pages could be held against")


@contextmanager
def _server(emulation: Emulation, port: int, protocol: str) -> Iterator[None]:
    words = ["serve", "--port", str(port), "--protocol", protocol]
    process = _start(emulation, ENDS[1], words)
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def _start(emulation: Emulation, node: str, words: Sequence[str]) -> subprocess.Popen[str]:
    command = [*emulation.inside(node), sys.executable, "-m", "hyroads.mininet.tcp_download", *words]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@contextmanager
def _carried_by(emulation: Emulation, scheme: str) -> Iterator[None]:
    """While this is entered, packets take the network or networks of the scheme in both directions."""
    ways = ((ENDS, "net-{}", "tcp_dst"), (ENDS[::-1], "net-{}~", "tcp_src"))
    with ExitStack() as flows:
        for number, (ends, link, field) in enumerate(ways):
            links = [link.format(k) for k in (1, 2)]
            if scheme == HYWF:
                both = tuple((each,) for each in links)
                flows.enter_context(declared(emulation, ends, both, f"w{number}", _TCP, policy="private"))
            elif scheme == KERNELS:
                for port, each in zip((PORT, SECOND_PORT), links, strict=True):
                    match = {"eth_type": IPV4, field: port}
                    flow = f"m{number}-{port}"
                    flows.enter_context(declared(emulation, ends, ((each,),), flow, _TCP, match=match))
            else:
                only = links[SCHEMES.index(scheme)]
                flows.enter_context(declared(emulation, ends, ((only,),), f"t{number}", _TCP))
        yield


def _load(emulation: Emulation, pages: Sequence[Sequence[int]], scheme: str) -> list[float]:
    """Seconds of each page."""
    protocol, port = ("mptcp", PORT) if scheme == KERNELS else ("tcp", PORT + 10)
    words = ["load", "--from", emulation.addressing.host_ip[ENDS[1]], "--port", str(port), "--protocol", protocol]
    process = _start(emulation, ENDS[0], [*words, "--pages", json.dumps(pages), "--pause", "0.1"])
    try:
        said, error = process.communicate(timeout=_LOAD_WITHIN_S * len(pages))
    except subprocess.TimeoutExpired as late:
        raise EmulationError(f"{scheme}: pages did not end") from late
    finally:
        process.kill()
        process.communicate()
    if process.returncode != 0:
        raise EmulationError(f"{scheme}: {error.strip().splitlines()[-1] if error.strip() else 'no pages'}")
    return [float(line) for line in said.split()]


Seconds = Mapping[tuple[int, int], Mapping[str, NDArray[np.float64]]]


def seconds_of(rows: Sequence[Row]) -> Seconds:
    """By delays and scheme, of the rows that were made: seconds of each load, float64[n]."""
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for row in rows:
        if row.made:
            first_ms, second_ms = row.figures["delays_ms"]
            case = found.setdefault((first_ms, second_ms), {scheme: [] for scheme in SCHEMES})
            for scheme in SCHEMES:
                case[scheme] += row.figures["seconds"][scheme]
    return {both: {scheme: np.array(values) for scheme, values in case.items()} for both, case in found.items()}


def _name(delays_ms: tuple[int, int]) -> str:
    return f"{delays_ms[0]}/{delays_ms[1]} ms"


def slowest(values: NDArray[np.float64]) -> float:
    """The 90th percentile."""
    return float(np.percentile(values, _SHARE))


def _table(found: Seconds) -> Table:
    cells = []
    for both, case in found.items():
        for scheme, values in case.items():
            cells.append((_name(both), scheme, len(values), float(np.median(values)), slowest(values)))
    return Table("loads", "Seconds of a page", ("delays", "by", "loads", "median", "90th percentile"), tuple(cells))


def _plots(found: Seconds) -> list[Bars | Cdf]:
    heights = {scheme: np.array([slowest(case[scheme]) for case in found.values()]) for scheme in SCHEMES}
    intervals = {
        scheme: np.array([interval_of(case[scheme], slowest) for case in found.values()]).T for scheme in SCHEMES
    }
    title = "90th percentile of the time of a page (Figure 6.11)"
    plots: list[Bars | Cdf] = [Bars("slowest", title, "delays", "s", tuple(map(_name, found)), heights, intervals)]
    for both, case in found.items():
        plots.append(Cdf(f"times-{both[0]}-{both[1]}", f"Time of a page, {_name(both)}", "s", dict(case)))
    return plots


def checks(found: Seconds) -> list[Check]:
    """Order only: where HyWF lies between the two networks."""
    made = []
    for both, case in found.items():
        ends = sorted((slowest(case[FIRST]), slowest(case[SECOND])))
        ours = slowest(case[HYWF])
        ok = ours <= ends[1] and (both[0] == both[1] or ours >= ends[0])
        wanted = f"{ends[0]:.2f} to {ends[1]:.2f}" if both[0] != both[1] else f"at most {ends[1]:.2f}"
        why = "" if ok else _why(case)
        what = f"{_name(both)}: 90th percentile with HyWF, s; between both TCPs"
        band = Band(ends[0] if both[0] != both[1] else 0.0, ends[1], wanted)
        interval = interval_of(case[HYWF], slowest)
        made.append(Check(what, band, ours, interval, Kind.PUBLISHED, "between both TCPs", why))
    return made


def _why(case: Mapping[str, NDArray[np.float64]]) -> str:
    return (
        "packets that take the faster network wait for those before them on the slower one, so that nearly every round "
        f"trip is a slow one, and each network carries only what HyWF's draw of p gives it (medians: HyWF "
        f"{np.median(case[HYWF]):.2f} s, MPTCP {np.median(case[KERNELS]):.2f} s)"
    )
