"""Live study ``mptcp``: TCP over a learned multipath beside the kernel's MPTCP (EPFL thesis 9056, Figures 4.9, 5.11).

For each pair one network. A flow with HyMAB learns under a connection of TCP, and is measured. Then the kernel's MPTCP
is given the best of the flow's multipaths, a subflow on each path, and last one connection of TCP the best path. These
two are without control: the controller is gone, and only TCP's own congestion control limits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyroads.controller.core.network import Traffic
from hyroads.controller.study.framework import Cdf, Cell, Progress, Result, Settings
from hyroads.controller.study.intervals import interval_of
from hyroads.controller.study.verdicts import Band, Check, Kind, above
from hyroads.mininet.emulation import Emulation
from hyroads.mininet.mptcp_traffic import PORT, SECOND_PORT, SYSCTL, Hosts, MptcpUpload
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.stack_traffic import Transfer

from .floor import SCALE, Floor, Pair, hybrid_multipath
from .learning import PLANNER_NOISE, Arm, Truth, arms_of, learning_trial, optimum_mbps, set_medium
from .measuring import FLOW, IPV4, Times, declare, declared, forget_metrics, pause, times_of, without_control
from .rows import Measured, Trial, measure_pairs, not_made_notes, rows_table, shortfalls
from .tcp import PAYLOAD_SHARE

TITLE = "TCP over a learned multipath beside MPTCP on the best one, with real packets"
FIGURES = "thesis, Figures 4.9 and 5.11"
TIMES_S = (50.0, 1_800.0)

PAIRS, QUICK_PAIRS = 10, 1
WHOLE, QUICK = Times(30.0, 60.0), Times(6.0, 12.0)
STARTING_S = 3.0
"""Until connections without control have found their rates."""
SINGLE_PORT = 5303
HYMAB, KERNELS, ONE = "TCP over HyMAB", "MPTCP", "TCP, best path"
TCP = Traffic.TCP.value
_LEAST = 0.7
"""Of theory: TCP does not fill all paths."""


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study."""
    if not SYSCTL.exists():
        raise EmulationError("live-mptcp: this kernel has no MPTCP")
    times = times_of(settings, WHOLE, QUICK)
    setting = f"{times}; noise {PLANNER_NOISE:g}"
    trial_of, counts = partial(_trial, times=times), (PAIRS, QUICK_PAIRS)
    found = measure_pairs("live-mptcp", setting, counts, trial_of, settings, progress, wanted=hybrid_multipath)
    made = found.made
    return Result(
        TITLE,
        f"{len(found.pairs)} pairs of office22_panels whose plan has several paths, capacities x {SCALE:g}, ideal "
        f"media; TCP cubic, MPTCP of the kernel (cubic on each subflow); {HYMAB}: {times} of learning, as in "
        f"live-bandit; the others: {times.measure_s:g} s after {STARTING_S:g} s, without control. Goodput. "
        f"Seed {settings.seed}.",
        [rows_table(found.rows, _heads(), "Goodput, Mb/s")],
        _plots(made),
        checks(made),
        [
            "The published MPTCP coupled its subflows' congestion control; the kernel's does not. Nothing else uses "
            "the media here, so that matters little.",
            "Of Figure 5.11 only the ratio of goodputs is repeated.",
            *not_made_notes(found.rows),
        ],
    )


def _trial(floor: Floor, number: int, pair: Pair, *, times: Times) -> Trial:
    network, truth, options = learning_trial(floor, pair)
    return Trial(number, network, partial(measure, pair=pair, truth=truth, times=times), options)


def measure(emulation: Emulation, pair: Pair, truth: Truth, times: Times) -> Measured:
    """HyMAB, MPTCP, one path."""
    set_medium(emulation, truth)
    forget_metrics(emulation)
    with declared(emulation, pair, (), traffic=TCP, policy="hymab"):
        arms = arms_of(emulation)
        learned = _goodput(emulation, pair, SINGLE_PORT, times.settle_s, times.measure_s)
    network = emulation.network
    best = max(arms, key=lambda arm: optimum_mbps(network, arm, truth))
    path = max((path for arm in arms for path in arm), key=lambda path: optimum_mbps(network, (path,), truth))
    _without_control(emulation, pair, best, path)
    carried = {HYMAB: learned, KERNELS: _mptcp(emulation, pair, best, times.measure_s)}
    carried[ONE] = _goodput(emulation, pair, SINGLE_PORT, STARTING_S, times.measure_s)
    best_mbps, one_mbps = (optimum_mbps(network, arm, truth) * PAYLOAD_SHARE for arm in (best, (path,)))
    theory = {HYMAB: best_mbps, KERNELS: best_mbps, ONE: one_mbps}
    figures = {
        "pair": "-".join(pair),
        "mbps": carried,
        "theory_mbps": theory,
        "paths": ["+".join(links) for links in best],
    }
    return Measured(figures, shortfalls({name: (carried[name], theory[name]) for name in carried}, _LEAST))


def _without_control(emulation: Emulation, pair: Pair, best: Arm, path: Sequence[str]) -> None:
    """A flow for each path of the best multipath, and one for the best path, told apart by ports and not limited."""
    wanted = {SECOND_PORT: best[-1], PORT: best[0], SINGLE_PORT: tuple(path)}
    for port, links in wanted.items():
        declare(emulation, pair, (links,), f"{FLOW}-{port}", TCP, match={"eth_type": IPV4, "tcp_dst": port})
    without_control(emulation, [f"{FLOW}-{port}" for port in wanted])


def _goodput(emulation: Emulation, pair: Pair, port: int, settle_s: float, seconds: float) -> float:
    """One connection of TCP: what arrives after a time, Mb/s."""
    with Transfer(Hosts(emulation, *pair), port=port) as transfer:
        return _after(emulation, transfer, settle_s, seconds)


def _mptcp(emulation: Emulation, pair: Pair, best: Arm, seconds: float) -> float:
    """One connection of MPTCP with a subflow for each path: what arrives after a time, Mb/s."""
    if len(best) == 1:
        return _goodput(emulation, pair, PORT, STARTING_S, seconds)
    with MptcpUpload(emulation, *pair) as transfer:
        return _after(emulation, transfer, STARTING_S, seconds)


def _after(emulation: Emulation, transfer: Transfer, settle_s: float, seconds: float) -> float:
    pause(emulation, settle_s)
    from_s = transfer.began_s + settle_s
    pause(emulation, seconds)
    if transfer.failure is not None:
        raise EmulationError(f"the connection ended: {transfer.failure}")
    return transfer.mbps(from_s, from_s + seconds)


def _heads() -> dict[str, Callable[[Mapping[str, Any]], Cell]]:
    def of(name: str, figures: Mapping[str, Any]) -> Cell:
        return float(figures["mbps"][name])

    return {
        "ends": lambda figures: figures["pair"],
        "possible": lambda figures: figures["theory_mbps"][KERNELS],
        **{name: partial(of, name) for name in (HYMAB, KERNELS, ONE)},
    }


def ratios(made: Sequence[Mapping[str, Any]], one: str, other: str) -> NDArray[np.float64]:
    """What ``one`` carries over what the ``other`` does, for each pair, float64[n]."""
    return np.array([each["mbps"][one] / max(each["mbps"][other], 1e-9) for each in made], dtype=np.float64)


def _plots(made: Sequence[Mapping[str, Any]]) -> list[Cdf]:
    samples = {f"{HYMAB} / {KERNELS}": ratios(made, HYMAB, KERNELS), f"{KERNELS} / {ONE}": ratios(made, KERNELS, ONE)}
    return [Cdf("ratios", "Goodput over that of another (Figure 4.9)", "ratio", samples, marks=((1.0, "equal"),))]


def checks(made: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Whether both are even on average, and both beat the best path."""
    even = ratios(made, HYMAB, KERNELS)
    mean = float(even.mean())
    band, why = Band(0.9, 1.1, "0.9 to 1.1"), "" if 0.9 <= mean <= 1.1 else _why(made)
    found = [Check(f"{HYMAB} / {KERNELS}, mean", band, mean, interval_of(even), Kind.PUBLISHED, "1.0", why)]
    for name in (HYMAB, KERNELS):
        over = ratios(made, name, ONE)
        median = float(np.median(over))
        interval = interval_of(over, lambda drawn: float(np.median(drawn)))
        found.append(Check(f"{name} / {ONE}, median", above(1.0), median, interval))
    return found


def _why(made: Sequence[Mapping[str, Any]]) -> str:
    def share(name: str) -> float:
        return float(np.mean([each["mbps"][name] / each["theory_mbps"][name] for each in made]))

    return (
        f"of what the best multipath can carry HyMAB's flow carries {share(HYMAB):.2f}, MPTCP {share(KERNELS):.2f}: "
        "the flow with HyMAB leaves the margin free and is held to a third of its rate while it probes; nobody holds "
        "back MPTCP, and nothing is lost on ideal media"
    )
