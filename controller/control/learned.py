"""What a bandit has learned, as the controller that leads tells it to those that stand by. Pure.

A learner changes only when a probe ends or when the network does, so what is told is told rarely. It is a document of
JSON of a few kilobytes: of each path the latest samples, and one that stands for all the older ones, as their mean is
all that matters of these. What is read comes from the network, and is checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from hyroads.controller.core.addressing import PathName
from hyroads.controller.core.bandit.policy import Arms, BanditState, FloatArray, mean_of
from hyroads.controller.core.bandit.policy import Policy as BanditPolicy
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.estimate.busy_time import Interface

from .arm_airtime import Arm, PathSample, mean_airtime

LATEST = 8
"""So many samples of a path are told one by one."""
MOST_PATHS, MOST_ARMS, MOST_SAMPLES = 64, 64, 4096
MOST_INTERFACES = 4096
MOST_FAILURES, MOST_COUNT = 32, 2**53


class LearnedError(HyroadsError):
    """What was told of a bandit makes no sense."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Whether a flow with the policy ``auto`` follows the ``model`` or what it measured; ``against``: probes in a row
    that said otherwise.

    The model is believed until two probes in a row say that it is wrong: the optimum that was measured of the model's
    own multipath differs from what the model says by more than 10 % and two standard errors, or another multipath
    measures 10 % better. It is believed again after three probes in a row that agree.
    """

    model: bool = True
    against: int = 0

    def after(
        self, measured_mbps: float, modelled_mbps: float, relative_error: float, best_mbps: float, own_mbps: float
    ) -> Trust:
        """After a probe. ``best_mbps`` and ``own_mbps`` are means of the best arm and of the model's."""
        allowed = TOLERANCE + ERRORS * relative_error
        differs = abs(measured_mbps - modelled_mbps) > allowed * max(modelled_mbps, 1e-9)
        worse = own_mbps > 0 and best_mbps > (1 + allowed) * own_mbps
        if (differs or worse) != self.model:
            return Trust(self.model, 0)
        against = self.against + 1
        if against >= (DOUBTS if self.model else AGREEMENTS):
            return Trust(not self.model, 0)
        return Trust(self.model, against)


TOLERANCE = 0.1
ERRORS = 2.0
DOUBTS = 2
AGREEMENTS = 3


@dataclass(frozen=True, eq=False)
class Learned:
    """What the bandit of one flow knows. ``governs``: it decides the rates of its flow now. ``failures``: so many
    probes in a row could not be read, ``problem`` says why. ``unread``: interfaces known to have no busy time.
    """

    policy: str
    arms: tuple[Arm, ...]
    state: BanditState
    samples: Mapping[PathName, Sequence[PathSample]]
    dead: frozenset[PathName]
    silent: Mapping[str, float]
    trust: Trust
    failures: int
    problem: str | None
    governs: bool
    unread: frozenset[Interface] = frozenset()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        paths = list(dict.fromkeys(path for arm in self.arms for path in arm))
        index = {path: number for number, path in enumerate(paths)}
        return {
            "policy": self.policy,
            "paths": [list(path) for path in paths],
            "arms": [[index[path] for path in arm] for arm in self.arms],
            "state": _state_document(self.state, self.arms),
            "samples": [[_sample_row(*one) for one in _few(self.samples.get(path, ()))] for path in paths],
            "dead": sorted(index[path] for path in self.dead if path in index),
            "silent": {link: _short(share) for link, share in self.silent.items()},
            "trust": [self.trust.model, self.trust.against],
            "failures": self.failures,
            "problem": self.problem,
            "governs": self.governs,
            "unread": [list(interface) for interface in sorted(self.unread)],
        }


def parse_learned(document: Mapping[str, Any], policies: Mapping[str, BanditPolicy[Any]]) -> Learned:
    """What :meth:`Learned.document` gave; ``policies`` by the name in it. LearnedError."""
    try:
        return _parsed(document, policies)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise LearnedError(
            f"what was told of a bandit makes no sense: {type(error).__name__}: {error}"[:200]
        ) from error


def _parsed(document: Mapping[str, Any], policies: Mapping[str, BanditPolicy[Any]]) -> Learned:
    paths = [tuple(str(link) for link in _list(path, MOST_PATHS)) for path in _list(document["paths"], MOST_PATHS)]
    arms = tuple(
        tuple(paths[_count(number, len(paths) - 1)] for number in _list(arm, MOST_PATHS))
        for arm in _list(document["arms"], MOST_ARMS)
    )
    if not arms or not all(arms):
        raise ValueError("expected arms with paths")
    told, policy = document["samples"], str(document["policy"])
    samples = {path: _samples(rows) for path, rows in zip(paths, _list(told, MOST_PATHS), strict=True)}
    model, against = document["trust"]
    problem = document["problem"]
    return Learned(
        policy=policy,
        arms=arms,
        state=_state_of(document["state"], policies[policy], arms),
        samples={path: found for path, found in samples.items() if found},
        dead=frozenset(paths[_count(number, len(paths) - 1)] for number in document["dead"]),
        silent={str(link): _number(share) for link, share in dict(document["silent"]).items()},
        trust=Trust(model is True, _count(against, MOST_FAILURES)),
        failures=_count(document["failures"], MOST_COUNT),
        problem=None if problem is None else str(problem)[:200],
        governs=document["governs"] is True,
        # Controllers up to 0.3.0 have no such list.
        unread=_interfaces(document.get("unread", [])),
    )


# -- samples


def _few(samples: Sequence[PathSample]) -> list[tuple[PathSample, int]]:
    """The latest ones, each once, and before them one that has the mean of the others, so many times."""
    older, latest = samples[:-LATEST], samples[-LATEST:]
    return ([(_mean(older), len(older))] if older else []) + [(sample, 1) for sample in latest]


def _mean(samples: Sequence[PathSample]) -> PathSample:
    """One that costs the mean airtime of several."""
    rate_mbps = float(np.mean([sample.rate_mbps for sample in samples]))
    busy, unmeasured = dict[Interface, float](), set[Interface]()
    for interface in dict.fromkeys(each for sample in samples for each in sample.busy):
        found = mean_airtime(samples, (interface,))
        if found is not None:
            busy[interface] = found[0] * rate_mbps
            unmeasured |= set() if found[1] else {interface}
    return PathSample(rate_mbps, busy, frozenset(unmeasured))


def _sample_row(sample: PathSample, count: int) -> list[Any]:
    busy = [[node, technology, _short(share)] for (node, technology), share in sample.busy.items()]
    # Without unmeasured interfaces a row is as it was up to 0.3.0, so that older controllers can read it.
    unmeasured = [[list(interface) for interface in sorted(sample.unmeasured)]] if sample.unmeasured else []
    return [count, _short(sample.rate_mbps), busy, *unmeasured]


def _samples(rows: Any) -> list[PathSample]:
    found: list[PathSample] = []
    for count, rate_mbps, busy, *more in _list(rows, MOST_SAMPLES):
        shares = {(str(node), str(technology)): _number(share) for node, technology, share in busy}
        if not _number(rate_mbps) > 0:
            raise ValueError("expected a rate above 0")
        (unmeasured,) = more or ([],)
        sample = PathSample(float(rate_mbps), shares, _interfaces(unmeasured))
        found += [sample] * _count(count, MOST_SAMPLES - len(found))
    return found


def _interfaces(rows: Any) -> frozenset[Interface]:
    return frozenset((str(node), str(technology)) for node, technology in _list(rows, MOST_INTERFACES))


# -- the bandit's own state


def _state_document(state: BanditState, arms: Sequence[Arm]) -> dict[str, Any]:
    known = state.arms
    recent = [
        [[_short(rate) for rate in row[: len(arm)]] for row in known.recent_mbps[0, i, : known.counted[0, i]].tolist()]
        for i, arm in enumerate(arms)
    ]
    own = {name: [_short(each) for each in getattr(state, name)[0:1].ravel().tolist()] for name in _own(state)}
    return {"probes": known.probes[0].tolist(), "recent_mbps": recent, **own}


def _own(state: BanditState) -> list[str]:
    """What a policy keeps beside measurements, by flow or by arm."""
    return [each.name for each in fields(state) if each.name not in ("arms", "changed")]


def _state_of(document: Mapping[str, Any], policy: BanditPolicy[Any], arms: Sequence[Arm]) -> BanditState:
    fresh: BanditState = policy.start(1, len(arms), max(map(len, arms)))
    recent, counted = np.zeros_like(fresh.arms.recent_mbps), np.zeros_like(fresh.arms.counted)
    for i, (arm, rows) in enumerate(zip(arms, document["recent_mbps"], strict=True)):
        for at, row in enumerate(_list(rows, recent.shape[2])):
            recent[0, i, at, : len(arm)] = [_number(rate) for rate in _list(row, len(arm))]
        counted[0, i] = len(rows)
    probes = np.array([[_count(each, MOST_COUNT) for each in _list(document["probes"], len(arms))]], dtype=np.int64)
    if probes.shape != counted.shape or (probes < counted).any():
        raise ValueError("expected as many probes of each arm as rates at least")
    mean: FloatArray = mean_of(recent[0], counted[0])[None]
    own: dict[str, Any] = {}
    for name in _own(fresh):
        like = getattr(fresh, name)
        values = np.array([_number(each) for each in _list(document[name], like.size)])
        own[name] = values.astype(like.dtype).reshape(like.shape)
    found = Arms(recent, counted, probes, mean, mean.sum(axis=2))
    return replace(fresh, arms=found, **own)


# -- values


def _short(value: float) -> float:
    """With as many digits as matter."""
    return float(f"{value:.7g}")


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"expected a list of at most {most}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError("expected a number, at least 0")
    return float(value)


def _count(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"expected 0 to {most}")
    return value
