"""Study ``privacy``: how well one of two networks tells which website is fetched, however packets are split over both.

The observer sees one network, knows how packets are split, and learns from accesses as they are and as they are split
(Henri, EPFL thesis 9056, 2018, chapter 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from hyroads.controller.core.privacy import fitted, networks, padded
from hyroads.controller.core.private_split import Padding, PrivateSplit

from .framework import Bars, Cell, Plot, Progress, Result, Settings, StudyError, Table, run_all
from .intervals import interval_of
from .traces import Accesses, FloatArray, Told, Trace, features, observer, recorded, synthetic
from .verdicts import Check, Kind, at_least, at_most, near

TITLE = "Websites told apart by one of two networks"
FIGURES = "thesis, Figures 6.2 to 6.8 and 6.12, Tables 6.1 to 6.6"
TIMES_S = (34.0, 700.0)

SITES, RUNS, QUICK_RUNS = 100, 90, 12
LEAST_RUNS = 3
LEARNED = 2 / 3
COPIES = 2
TREES, QUICK_TREES = 50, 20
ROUND_ROBIN = (1, 10, 100)
N_CONS = (1, 5, 15, 20, 30, 40, 100)
FLAT = (15, 20, 30, 40)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
COPIES_SWEEP = (1, 2, 3, 5, 7)
N_CHP = (10, 30, 100, 300, 1000)
AP_GAPS = {"tuned +": 0.5, "dataset": 1.0, "tuned -": 2.0, "default": 4.0}
"""How much longer the drawn gaps are than those of the fit."""
AP_N_CHP = 100.0

PLAIN = PrivateSplit()
ALONE, HYWF, AP, HYWF_AP, AP_AFTER = "one network", "HyWF", "AP", "HyWF-AP", "HyWF, then AP"


@dataclass(frozen=True, slots=True)
class Scheme:
    """What the observed network carries. ``kind``: alone, down, up, robin, fixed, hywf or client.

    ``run``: packets in a turn of round robin. ``split`` and ``gaps`` (how much longer the gaps of padding are than
    those of the fit; None: no padding) count for the kinds hywf, client and alone; ``padded_first``: before the split.
    """

    kind: str
    run: int = 1
    split: PrivateSplit = PLAIN
    gaps: float | None = None
    padded_first: bool = True

    @property
    def is_random(self) -> bool:
        """Whether two copies of an access differ."""
        return self.kind in ("fixed", "hywf", "client") or self.gaps is not None


@dataclass(frozen=True, slots=True)
class Source:
    """Where accesses come from: a folder of recorded ones, or so many synthetic ones of a seed."""

    seed: int
    sites: int
    accesses: int
    others: int
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One observer. ``copies``: how often he sees each access split while he learns; ``is_open``: with other sites."""

    name: str
    scheme: Scheme
    source: Source
    trees: int
    copies: int = COPIES
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the observer told, and how many dummies were sent per packet."""

    told: Told
    overhead: float

    @property
    def percent(self) -> float:
        """Mean share of the accesses that are told right, in percent."""
        return 100.0 * float(self.told.by_site.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval: sites are drawn."""
        low, high = interval_of(self.told.by_site)
        return 100.0 * low, 100.0 * high


def schemes() -> dict[str, Scheme]:
    """Everything that is observed in the closed world, by name."""
    found = {
        ALONE: Scheme("alone"),
        "by direction: down": Scheme("down"),
        "by direction: up": Scheme("up"),
        **{f"round robin, {run}": Scheme("robin", run) for run in ROUND_ROBIN},
        "p fixed": Scheme("fixed"),
        "p an access": Scheme("hywf", split=PrivateSplit(n_cons=1.0)),
        HYWF: Scheme("hywf"),
        "client only": Scheme("client"),
    }
    found |= {f"n_cons {n}": Scheme("hywf", split=PrivateSplit(n_cons=float(n))) for n in N_CONS if n not in (1, 20)}
    found |= {f"p_s {share:g}": Scheme("hywf", split=PrivateSplit(cost_share=share)) for share in SHARES if share < 0.5}
    redrawn = PrivateSplit(n_chp=AP_N_CHP)
    for name, gaps in AP_GAPS.items():
        found[f"{AP}, {name}"] = Scheme("alone", gaps=gaps)
        found[f"{HYWF_AP}, {name}"] = Scheme("hywf", split=redrawn, gaps=gaps)
    found[AP_AFTER] = Scheme("hywf", split=redrawn, gaps=1.0, padded_first=False)
    found["HyWF, n_chp 100"] = Scheme("hywf", split=redrawn)
    found |= {
        f"{HYWF_AP}, n_chp {n}": Scheme("hywf", split=PrivateSplit(n_chp=float(n)), gaps=1.0)
        for n in N_CHP
        if n != AP_N_CHP
    }
    return found


def tasks_of(source: Source, trees: int) -> list[Task]:
    """One task for each row."""
    closed = replace(source, others=0)
    named = schemes()
    tasks = [Task(name, scheme, closed, trees) for name, scheme in named.items()]
    tasks += [Task(f"{HYWF}, {n} copies", named[HYWF], closed, trees, n) for n in COPIES_SWEEP if n != COPIES]
    if source.others:
        opened = (ALONE, HYWF, f"{HYWF_AP}, dataset")
        tasks += [Task(f"open: {name}", named[name], source, trees, is_open=True) for name in opened]
    return tasks


def run(settings: Settings, progress: Progress) -> Result:
    """Carry out the study; ``runs`` is the number of accesses of each site."""
    runs = settings.runs or (QUICK_RUNS if settings.quick else RUNS)
    if runs < LEAST_RUNS:
        raise StudyError(f"--runs must be at least {LEAST_RUNS} for privacy (accesses of each site), got {runs}")
    source = Source(settings.seed, SITES, runs, SITES * runs, settings.traces)
    if settings.traces is not None:
        found = recorded(settings.traces)
        source = replace(source, sites=len(found.monitored), others=len(found.others))
    tasks = tasks_of(source, QUICK_TREES if settings.quick else TREES)
    # The longest first, so that no worker is left with one at the end.
    order = sorted(range(len(tasks)), key=lambda i: -_weight(tasks[i]))
    told = run_all(carry_out, [tasks[i] for i in order], settings, progress)
    outcomes = {tasks[i].name: outcome for i, outcome in zip(order, told, strict=True)}
    return Result(
        TITLE,
        _setting(source, tasks[0].trees),
        _tables(outcomes),
        _plots(outcomes),
        checks(outcomes, source),
        _notes(source),
    )


def _weight(task: Task) -> float:
    return (1 + task.copies) * (3.0 if task.is_open else 1.0) * (2.0 if task.scheme.gaps is not None else 1.0)


def carry_out(task: Task) -> Outcome:
    """Split all accesses, let the observer learn two thirds of them, and ask him for the others."""
    found, plain = _accesses(task.source)
    laws = _laws(task.source)
    rng = np.random.default_rng([task.source.seed, *task.name.encode()])
    sent = _Sent(task.scheme, laws, rng)
    sets, labels = _folds(found)
    learned = [plain[index] for index, _, is_learned in sets if is_learned]
    of_learned = [label for (_, _, is_learned), label in zip(sets, labels, strict=True) if is_learned]
    rows, of = [*learned], [*of_learned]
    for _ in range(_copies(task)):
        rows += [features(sent.seen(trace)) for _, trace, is_learned in sets if is_learned]
        of += of_learned
    asked = [features(sent.seen(trace)) for _, trace, is_learned in sets if not is_learned]
    of_asked = [label for (_, _, is_learned), label in zip(sets, labels, strict=True) if not is_learned]
    told = observer(
        np.array(rows), np.array(of), np.array(asked), np.array(of_asked), trees=task.trees, seed=task.source.seed
    )
    return Outcome(told, sent.overhead)


def _copies(task: Task) -> int:
    if task.scheme == Scheme("alone"):
        return 0
    return task.copies if task.scheme.is_random else 1


@lru_cache(maxsize=2)
def _accesses(source: Source) -> tuple[Accesses, list[FloatArray]]:
    """All accesses, and what an observer makes of them as they are: those of monitored sites first."""
    if source.folder is not None:
        found = recorded(source.folder)
        found = found if source.others else replace(found, others=())
    else:
        found = synthetic(source.sites, source.accesses, source.others, source.seed)
    return found, [features(trace) for site in (*found.monitored, found.others) for trace in site]


@lru_cache(maxsize=2)
def _laws(source: Source) -> tuple[Padding, Padding]:
    """The padding of both directions: fitted to the gaps of all traces of monitored sites."""
    found, _ = _accesses(source)
    return tuple(fitted(trace[way] for site in found.monitored for trace in site) for way in (0, 1))  # type: ignore[return-value]


def _folds(found: Accesses) -> tuple[list[tuple[int, Trace, bool]], list[int]]:
    """Each access with its number and whether it is learned, and beside it its site, -1 for others."""
    sets: list[tuple[int, Trace, bool]] = []
    labels: list[int] = []
    groups = (*enumerate(found.monitored), (-1, found.others))
    for label, group in groups:
        learned = round(LEARNED * len(group))
        for number, trace in enumerate(group):
            sets.append((len(sets), trace, number < learned))
            labels.append(label)
    return sets, labels


class _Sent:
    """Sends accesses by a scheme; counts packets and dummies."""

    def __init__(self, scheme: Scheme, laws: tuple[Padding, Padding], rng: np.random.Generator) -> None:
        self._scheme, self._rng = scheme, rng
        gaps = scheme.gaps or 1.0
        self._laws = [Padding(law.gap_ms * gaps, law.deviation_ms * gaps) for law in laws]
        self._packets = self._dummies = 0

    @property
    def overhead(self) -> float:
        """Dummies per packet."""
        return self._dummies / max(self._packets, 1)

    def seen(self, trace: Trace) -> Trace:
        """What the observed network carries of an access."""
        scheme, rng = self._scheme, self._rng
        if scheme.kind in ("down", "up"):
            nothing = np.empty(0)
            return (trace[0], nothing) if scheme.kind == "down" else (nothing, trace[1])
        if scheme.kind == "robin":
            first = int(rng.integers(0, 2 * scheme.run))
            return self._both(trace, lambda times: times[(np.arange(len(times)) + first) // scheme.run % 2 == 0])
        if scheme.kind == "fixed":
            return self._both(trace, lambda times: times[rng.random(len(times)) < 0.5])
        if scheme.kind == "client":
            return trace[0], self._split(trace[1], 1)
        return self._split(trace[0], 0), self._split(trace[1], 1)

    def _both(self, trace: Trace, way: Callable[[FloatArray], FloatArray]) -> Trace:
        return way(trace[0]), way(trace[1])

    def _split(self, times: FloatArray, direction: int) -> FloatArray:
        scheme, rng, law = self._scheme, self._rng, self._laws[direction]
        self._packets += len(times)
        dummies = np.zeros(len(times), dtype=np.bool_)
        if scheme.gaps is not None and scheme.padded_first:
            times, dummies = padded(times, law, rng)
            self._dummies += int(dummies.sum())
        if scheme.kind == "alone":
            return times
        went = networks(times, scheme.split, rng, dummies=dummies)
        if scheme.gaps is None or scheme.padded_first:
            return np.asarray(times[went == 1])
        parts = [padded(times[went == network], law, rng) for network in (1, 2)]
        self._dummies += sum(int(part[1].sum()) for part in parts)
        return parts[0][0]


def _setting(source: Source, trees: int) -> str:
    of = f"Recorded traces of {source.sites} sites" if source.folder else f"{source.sites} synthetic sites"
    number = (
        ""
        if source.folder
        else f", {source.accesses} accesses each (noise of 0.3 s on the starts of bursts, 0.3 on sizes)"
    )
    return (
        f"{of}{number}. The observer sees network 1, learns two thirds of the accesses, as they are and {COPIES} times "
        f"split, and is asked for the others: a random forest of {trees} trees on 50 features. Open world: "
        f"{source.others} other sites with an access each, two thirds of them learned. Intervals: sites are drawn. "
        f"Seed {source.seed}."
    )


def _sweep(outcomes: Mapping[str, Outcome], names: Mapping[float, str]) -> tuple[FloatArray, FloatArray]:
    return np.array([*names], dtype=np.float64), np.array([outcomes[name].percent for name in names.values()])


def _of_sites(outcomes: Mapping[str, Outcome], names: Mapping[float, str]) -> tuple[FloatArray, FloatArray]:
    """The values of a sweep, and of each site the share that is told, float64[sites, values]."""
    told = np.array([outcomes[name].told.by_site for name in names.values()])
    return np.array([*names], dtype=np.float64), told.T


def sweeps() -> dict[str, dict[float, str]]:
    """For each sweep of a parameter its values and the rows that belong to them."""
    usual = f"{HYWF}"
    return {
        "robin": {float(run): f"round robin, {run}" for run in ROUND_ROBIN},
        "n_cons": {float(n): {1: "p an access", 20: usual}.get(n, f"n_cons {n}") for n in N_CONS},
        "p_s": {share: usual if share == 0.5 else f"p_s {share:g}" for share in SHARES},
        "copies": {float(n): usual if n == COPIES else f"{HYWF}, {n} copies" for n in COPIES_SWEEP},
        "n_chp": {float(n): f"{HYWF_AP}, " + ("dataset" if n == AP_N_CHP else f"n_chp {n}") for n in N_CHP},
    }


PUBLISHED: Mapping[str, str] = {
    ALONE: "91",
    "by direction: down": "67",
    "by direction: up": "55",
    "round robin, 1": "85",
    "p fixed": "80",
    "p an access": "37.9 to 45.8",
    HYWF: "36.3",
    "client only": "72",
    "AP, dataset": "39.6 (overhead 65)",
    "AP, tuned +": "34.0 (105)",
    "AP, tuned -": "47.9 (37)",
    "AP, default": "63.8 (28)",
    "HyWF-AP, dataset": "15.7",
    "HyWF-AP, tuned +": "12.7",
    "HyWF-AP, tuned -": "18.4",
    "HyWF-AP, default": "23.4",
    AP_AFTER: "18.3",
    "open: HyWF": "14.7",
    "open: HyWF-AP, dataset": "1.9",
}


def _tables(outcomes: Mapping[str, Outcome]) -> list[Table]:
    rows: list[tuple[Cell, ...]] = []
    for name in sorted(outcomes, key=_order):
        outcome = outcomes[name]
        false = None if outcome.told.false is None else 100.0 * outcome.told.false
        low, high = outcome.interval
        rows.append((name, outcome.percent, low, high, PUBLISHED.get(name), false, 100.0 * outcome.overhead))
    heads = ("split", "TPR, %", "from", "to", "published", "FPR, %", "overhead, %")
    return [
        Table(
            "summary",
            "Accesses told right (TPR), with the 95 % interval, and the dummies per packet",
            heads,
            tuple(rows),
        )
    ]


def _order(name: str) -> tuple[int, str]:
    known = [*schemes()]
    return (known.index(name), "") if name in known else (len(known), name)


def _plots(outcomes: Mapping[str, Outcome]) -> list[Plot | Bars]:
    names = (
        ALONE,
        "by direction: down",
        "by direction: up",
        "round robin, 1",
        "p fixed",
        "client only",
        "p an access",
        HYWF,
    )
    variants = tuple(AP_GAPS)
    before = {f"{kind}": np.array([outcomes[f"{kind}, {name}"].percent for name in variants]) for kind in (AP, HYWF_AP)}
    ends = {kind: np.array([outcomes[f"{kind}, {name}"].interval for name in variants]).T for kind in (AP, HYWF_AP)}
    plots: list[Plot | Bars] = [
        Bars(
            "splits",
            "Accesses told right by one of two networks",
            "split",
            "TPR, %",
            tuple(name.removeprefix("by direction: ") for name in names),
            {"observer": np.array([outcomes[name].percent for name in names])},
            {"observer": np.array([outcomes[name].interval for name in names]).T},
        ),
        Bars("padding", "Adaptive padding, alone and before the split", "gaps", "TPR, %", variants, before, ends),
    ]
    labels = {
        "robin": "packets in a turn of round robin",
        "n_cons": "n_cons, packets",
        "p_s": "p_s, share of the costly network",
        "copies": "split copies of each access that the observer learns",
        "n_chp": "n_chp, packets",
    }
    for sweep, names_of in sweeps().items():
        x, y = _sweep(outcomes, names_of)
        band = np.array([outcomes[name].interval for name in names_of.values()]).T
        is_log = sweep in ("robin", "n_cons", "n_chp")
        plots.append(
            Plot(
                f"by-{sweep.replace('_', '-')}",
                TITLE,
                labels[sweep],
                "TPR, %",
                x,
                {"observer": y},
                is_log,
                bands={"observer": band},
            )
        )
    work = {n: outcomes[name].told.work / 1e6 for n, name in sweeps()["copies"].items()}
    plots.append(
        Plot(
            "learning",
            "Work of learning",
            labels["copies"],
            "million rows through nodes",
            np.array([*work]),
            {"forest": np.array([*work.values()])},
        )
    )
    return plots


def checks(outcomes: Mapping[str, Outcome], source: Source) -> list[Check]:
    """What the published figures say, as order and as shape; values where the traces are those of the reference."""
    # With fewer accesses the observer knows less of each site.
    found = [] if source.folder or source.accesses < RUNS else [_unprotected(outcomes[ALONE])]
    alone, hywf = outcomes[ALONE], outcomes[HYWF]
    weak = ("by direction: down", "round robin, 1", "p fixed", "client only")
    found += [_above(name, outcomes[name], alone, "half of one network's", factor=0.5) for name in weak]
    found.append(_below(HYWF, hywf, outcomes["p fixed"], "half of p fixed's", factor=0.5))
    found.append(_below("p an access", outcomes["p an access"], outcomes["p fixed"], "p fixed's", why=_WHY_P))
    found.append(_flat(outcomes))
    found.append(_linear("p_s: TPR linear in it, R^2", *_of_sites(outcomes, sweeps()["p_s"]), _WHY_P_S))
    work = np.array([outcomes[name].told.work for name in sweeps()["copies"].values()])
    found.append(
        _linear("work of learning: linear in copies, R^2", np.array([1.0 + n for n in COPIES_SWEEP]), work[None])
    )
    for name in AP_GAPS:
        both, split = outcomes[f"{HYWF_AP}, {name}"], outcomes[HYWF]
        found.append(_below(f"{HYWF_AP}, {name}", both, split, "HyWF's"))
    found.append(_padding_order(outcomes))
    padded_alone = outcomes[f"{AP}, dataset"]
    found.append(_below(f"{AP}, dataset", padded_alone, alone, "one network's", why=_WHY_AP))
    after, before = outcomes[AP_AFTER], outcomes[f"{HYWF_AP}, dataset"]
    found.append(_above(AP_AFTER, after, before, "padding before the split"))
    if (opened := outcomes.get("open: HyWF")) is not None:
        found.append(_below("open: HyWF", opened, hywf, "closed HyWF's"))
        found.append(_below("open: HyWF-AP", outcomes[f"open: {HYWF_AP}, dataset"], opened, "open HyWF's"))
    return found


_WHY_AP = (
    "Synthetic sites differ in the sizes of few bursts, which padding of gaps hides little of; real ones differ in the "
    "fine structure of gaps as well. What fits their gaps adds some 25 dummies per 100 packets; 65 were published."
)
_WHY_P_S = (
    "An observer who sees a small share of few hundred packets sees next to nothing: the fewer packets an access has, "
    "the more the curve bends. Recorded accesses have more."
)
_WHY_P = (
    "Bursts of synthetic sites keep their proportions under any p that is the same for a whole access, and an observer "
    "who learned split copies knows them."
)


def _unprotected(outcome: Outcome) -> Check:
    band = near(91.0, 3.0, "91 within 3 points")
    return Check(f"{ALONE}: TPR, %", band, outcome.percent, outcome.interval, Kind.PUBLISHED, "91")


def _below(name: str, outcome: Outcome, other: Outcome, of: str, *, why: str = "", factor: float = 1.0) -> Check:
    return _against(name, outcome, other, of, why=why, factor=factor, is_below=True)


def _above(name: str, outcome: Outcome, other: Outcome, of: str, *, factor: float = 1.0) -> Check:
    return _against(name, outcome, other, of, why="", factor=factor, is_below=False)


def _against(name: str, outcome: Outcome, other: Outcome, of: str, *, why: str, factor: float, is_below: bool) -> Check:
    """The share of one split against that of another, site by site: both meet the same accesses."""
    by_site = 100.0 * (outcome.told.by_site - factor * other.told.by_site)
    published = f"TPR {PUBLISHED[name]}" if name in PUBLISHED else ""
    what = f"{name}: TPR less {of}, points"
    band = at_most(0.0) if is_below else at_least(0.0)
    return Check(what, band, float(by_site.mean()), interval_of(by_site), Kind.PUBLISHED, published, why)


def _flat(outcomes: Mapping[str, Outcome]) -> Check:
    named = sweeps()["n_cons"]
    rows = 100.0 * np.array([outcomes[named[float(n)]].told.by_site for n in FLAT])

    def spread(by_site: FloatArray) -> float:
        means = by_site.mean(axis=0)
        return float(means.max() - means.min())

    band = at_most(3.0)
    return Check(
        "n_cons 15 to 40: TPR differs by, points",
        band,
        spread(rows.T),
        interval_of(rows.T, spread),
        Kind.PUBLISHED,
        "flat",
    )


def _linear(what: str, x: FloatArray, by_site: FloatArray, why: str = "") -> Check:
    """How straight a mean over sites is, ``by_site`` float64[sites, points]."""

    def fit(rows: FloatArray) -> float:
        y = rows.mean(axis=0)
        return float(np.corrcoef(x, y)[0, 1] ** 2) if y.std() > 0 else math.nan

    measured = fit(by_site)
    # One row is an exact count.
    interval = None if len(by_site) == 1 else interval_of(by_site, fit)
    return Check(what, at_least(0.9), measured, interval, Kind.PUBLISHED, "linear", why)


def _padding_order(outcomes: Mapping[str, Outcome]) -> Check:
    rows = 100.0 * np.array([outcomes[f"{HYWF_AP}, {name}"].told.by_site for name in AP_GAPS])

    def most(by_site: FloatArray) -> float:
        means = by_site.mean(axis=0)
        return float((means[:-1] - means[1:]).max())

    what = "HyWF-AP: more padding tells more by, points"
    return Check(what, at_most(1.0), most(rows.T), interval_of(rows.T, most), Kind.PUBLISHED, "less")


def _notes(source: Source) -> list[str]:
    down, up = _laws(replace(source, others=0))
    return [
        f"Gaps of all traces: down {down.gap_ms:.1f} ms on average, deviation {down.deviation_ms:.1f} ms; up "
        f"{up.gap_ms:.1f} and {up.deviation_ms:.1f} ms. A flow is padded so with `padding: {{gap_ms, deviation_ms}}`. "
        "Draws that are not above 0 are drawn again.",
        "The thesis does not give the parameters of its paddings *tuned +*, *tuned -* and *default* (section 6.8.1; "
        "*default* comes with the code of Juarez et al.): here their gaps are "
        + ", ".join(f"{factor:g} ({name})" for name, factor in AP_GAPS.items())
        + " times those of the fit.",
        "*Overhead* is dummies per packet of both directions and both networks. Padding goes on for a second after the "
        "last packet, for a sender does not know that it was the last.",
        "Learning is counted in rows that go through nodes of trees, which its time is proportional to: a time "
        "would be another one in each run.",
        "The published figures are of recorded traces, ours of synthetic ones unless `--traces` is given: rows can be "
        "compared, values only in so far as the sites are alike.",
    ]
