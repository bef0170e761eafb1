"""Configurations of agents as data, and as the lines that tell them (docs/reference/dataplane.md, section 2). Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

from hyroads.controller.core.private_split import DEFAULT_N_CONS, PrivateSplit

BURST_BYTES = 125_000
_RATE = '"rate_mbps":'


@dataclass(frozen=True, slots=True)
class PathConfig:
    """A path of a flow at its ingress: label stack from the first hop to the agent label.

    ``trunk`` is written instead where copies branch on the way; nothing is sent on a path that is ``copied_from``
    another (its id).
    """

    id: int
    labels: tuple[int, ...]
    rate_mbps: float | None
    mtu: int
    trunk: tuple[int, ...] = ()
    copied_from: int | None = None

    @property
    def written(self) -> tuple[tuple[int, ...], int | None]:
        """Labels as they are written, and the path that it is copied from."""
        return self.trunk or self.labels, self.copied_from

    def document(self) -> dict[str, Any]:
        """As in the message ``config``."""
        fixed = {"interface": None, "dst_mac": None}
        copied = {"copied_from": self.copied_from} if self.copied_from is not None else {}
        labels, _ = self.written
        return {"id": self.id, "labels": list(labels), "rate_mbps": self.rate_mbps, "mtu": self.mtu, **fixed, **copied}


@dataclass(frozen=True, slots=True)
class BranchFlow:
    """What an agent on the way of a flow does: frames that come by path ``path`` go on by all of ``copies``. ``id`` is
    the flow's (not sent).
    """

    number: int
    id: str
    path: int
    copies: tuple[PathConfig, ...]
    sealers: tuple[str, ...] = ()
    """The nodes whose agents must be able to seal its frames: first edge, last edge, those where copies branch (not
    sent).
    """

    @property
    def key(self) -> tuple[str, int]:
        """No two branches of an agent have the same."""
        return self.id, self.path

    def document(self) -> dict[str, Any]:
        """As in the message ``config``."""
        copies = [{"id": path.id, "labels": list(path.labels), "mtu": path.mtu} for path in self.copies]
        return {"number": self.number, "path": self.path, "copies": copies}


@dataclass(frozen=True)
class IngressFlow:
    """What the first edge of a flow does; ``egress`` names the last edge, ``branches`` the agents on the way at which
    its copies branch, and what these have to do (both not sent).
    """

    number: int
    id: str
    egress: str
    queue_ms: int
    paths: tuple[PathConfig, ...]
    private: PrivateSplit | None = None
    """Split by HyWF over two networks instead of by rates, in this way."""
    copies: bool = False
    """Each frame goes on every path with a rate; comes before ``private``."""
    burst_ms: int = 0
    """After silence it may send so much at its greatest rates, and ``BURST_BYTES`` at most."""
    branches: tuple[tuple[str, BranchFlow], ...] = ()

    @property
    def sealers(self) -> tuple[str, ...]:
        """The other nodes whose agents must be able to seal its frames: last edge, those where copies branch."""
        return (self.egress, *(node for node, _ in self.branches))

    def unbranched(self) -> IngressFlow:
        """The same with each copy sent by a path of its own."""
        if not self.branches:
            return self
        return replace(self, paths=tuple(replace(p, trunk=(), copied_from=None) for p in self.paths), branches=())

    def is_like(self, other: IngressFlow) -> bool:
        """Whether nothing but rates differs."""
        if self is other or self == other:
            return True
        shaped = [[(path.id, path.rate_mbps is None) for path in flow.paths] for flow in (self, other)]
        return shaped[0] == shaped[1] and self == other.with_rates({path.id: path.rate_mbps for path in self.paths})

    def with_rates(self, rate_of: Mapping[int, float | None]) -> IngressFlow:
        """With these rates by path id."""
        made = replace(self, paths=tuple(replace(path, rate_mbps=rate_of[path.id]) for path in self.paths))
        known = self.__dict__
        if "_pieces" in known:
            made.__dict__["_pieces"] = self._pieces
        both = zip(self.paths, made.paths, strict=True)
        if "unrated_text" in known and all((was.rate_mbps is None) == (now.rate_mbps is None) for was, now in both):
            made.__dict__["unrated_text"] = self.unrated_text
        return made

    def is_rated_from(self, other: IngressFlow) -> bool:
        """Whether one was made of the other by :meth:`with_rates`, or both of a third; it may be so though this says
        no.
        """
        pieces = self.__dict__.get("_pieces")
        return pieces is not None and pieces is other.__dict__.get("_pieces")

    @cached_property
    def _pieces(self) -> tuple[str, ...]:
        """Its document as text, with sorted keys, cut where the rates of its paths are."""
        document = self.document()
        for path in document["paths"]:
            path["rate_mbps"] = None
        # No id contains this: quotes within texts have a backslash before them.
        return tuple(_text_of(document).split(f"{_RATE}null"))

    @cached_property
    def text(self) -> str:
        """Its document as text, with sorted keys."""
        return self._with_values(_number_text(path.rate_mbps) for path in self.paths)

    @cached_property
    def unrated_text(self) -> str:
        """The same; a rate is only whether there is one."""
        return self._with_values("false" if path.rate_mbps is None else "true" for path in self.paths)

    def _with_values(self, values: Iterable[str]) -> str:
        first, *others = self._pieces
        return first + "".join([f"{_RATE}{value}{piece}" for value, piece in zip(values, others, strict=True)])

    def document(self) -> dict[str, Any]:
        """As in the message ``config``."""
        paths = [path.document() for path in self.paths]
        head = {"number": self.number, "id": self.id, "default": False, "queue_ms": self.queue_ms}
        if self.copies:
            split: dict[str, Any] = {"split": {"kind": "copy"}}
        else:
            split = {} if self.private is None else {"split": _private_document(self.private)}
        burst = {"burst": {"bytes": BURST_BYTES, "ms": self.burst_ms}} if self.burst_ms else {}
        return {**head, **split, **burst, "paths": paths}


def _private_document(split: PrivateSplit) -> dict[str, Any]:
    """What differs from the agent's defaults: an agent pads with ``n_chp`` unless it is told that none may be sent."""
    document: dict[str, Any] = {"kind": "hywf"}
    document |= {"n_cons": split.n_cons} if split.n_cons != DEFAULT_N_CONS else {}
    document |= {"cost_share": split.cost_share} if split.cost_share is not None else {}
    document |= {"n_chp": split.n_chp} if split.n_chp is not None else {}
    if split.padding is not None:
        return {**document, "padding": asdict(split.padding)}
    return document if split.n_chp is None else {**document, "padding": {"max_per_s": 0}}


@dataclass(frozen=True)
class EgressFlow:
    """What the last edge of a flow does."""

    number: int
    id: str
    paths: tuple[int, ...]
    max_hold_ms: int
    ordered: bool = True
    """Frames leave in the order in which they came in, delays of paths made equal."""
    held: tuple[int, ...] = ()
    """Paths that are waited for even if they are silent until their pause came, ``hold_ms`` at most."""
    hold_ms: int = 0
    watched: tuple[int, ...] = ()
    """Paths of which the agent tells at once what they have passed."""
    drop_late: bool = False
    """What comes after it was given up is dropped, so that nothing is ever out of order."""
    sealers: tuple[str, ...] = ()
    """As of :class:`BranchFlow`; none if it comes from another region."""

    def document(self) -> dict[str, Any]:
        """As in the message ``config``."""
        treatment = {"reorder": self.ordered, "equalise": self.ordered, "max_hold_ms": self.max_hold_ms}
        hold = {"hold": {"paths": list(self.held), "ms": self.hold_ms}} if self.held else {}
        watch = {"watch": list(self.watched)} if self.watched else {}
        late = {"late": "drop"} if self.drop_late else {}
        return {"number": self.number, "id": self.id, "paths": list(self.paths), **treatment, **hold, **watch, **late}

    @cached_property
    def text(self) -> str:
        """Its document as text, with sorted keys."""
        return _text_of(self.document())


@dataclass(frozen=True)
class HelloConfig:
    """Which hello frames an agent sends (technology, label) and expects (link, sender's MAC)."""

    interval_ms: int
    dead_ms: int
    send: tuple[tuple[str, int], ...]
    expect: tuple[tuple[str, str], ...]

    def document(self) -> dict[str, Any]:
        """As in the message ``config``."""
        return {
            "interval_ms": self.interval_ms,
            "dead_ms": self.dead_ms,
            "send": [{"technology": technology, "label": label} for technology, label in self.send],
            "expect": [{"link": link, "mac": mac} for link, mac in self.expect],
        }

    @cached_property
    def text(self) -> str:
        """Its document as text, with sorted keys."""
        return _text_of(self.document())


@dataclass(frozen=True)
class MediaConfig:
    """Which ports of its node an agent reads, by name, and the payload of the smallest link in bytes."""

    ports: tuple[str, ...]
    mtu: int

    def document(self) -> dict[str, Any]:
        """As in the message ``config``."""
        return {"ports": list(self.ports), "mtu": self.mtu}


@dataclass(frozen=True)
class AgentConfig:
    """The whole wanted state of one agent; flows by id, branches by flow and path."""

    hello: HelloConfig
    ingress: Mapping[str, IngressFlow] = field(default_factory=dict)
    egress: Mapping[str, EgressFlow] = field(default_factory=dict)
    branch: Mapping[tuple[str, int], BranchFlow] = field(default_factory=dict)
    media: MediaConfig | None = None
    """None: the agent's node has no ports at links."""

    def document(self) -> dict[str, Any]:
        """The message ``config`` without ``seq`` and ``revision``."""
        branch = {"branch": [flow.document() for _, flow in sorted(self.branch.items())]} if self.branch else {}
        return {
            "type": "config",
            "hello": self.hello.document(),
            "ingress": [flow.document() for _, flow in sorted(self.ingress.items())],
            "egress": [flow.document() for _, flow in sorted(self.egress.items())],
            **branch,
            **({"media": self.media.document()} if self.media is not None else {}),
        }

    @cached_property
    def revision(self) -> int:
        """A hash of all but the rates, 1 to 2^31 - 1: after a restart an equal configuration has an equal revision."""
        # The document with sorted keys. Of one flow more or less all others' texts are known, and so is that of hello
        # frames, which hardly ever change.
        parts = {
            "type": _text_of("config"),
            "hello": self.hello.text,
            "ingress": list_text([flow.unrated_text for _, flow in sorted(self.ingress.items())]),
            "egress": list_text([flow.text for _, flow in sorted(self.egress.items())]),
        }
        if self.branch:
            parts["branch"] = _text_of([flow.document() for _, flow in sorted(self.branch.items())])
        if self.media is not None:
            parts["media"] = _text_of(self.media.document())
        text = "{" + ",".join(f'"{key}":{parts[key]}' for key in sorted(parts)) + "}"
        return 1 + int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % (2**31 - 1)

    def with_ingress(self, flows: Mapping[str, IngressFlow]) -> AgentConfig:
        """With some of its ingress flows replaced by the same ones at other rates: the revision stays, unlike a hash
        of everything it costs nothing.
        """
        same = AgentConfig(self.hello, {**self.ingress, **flows}, self.egress, self.branch, self.media)
        same.__dict__["revision"] = self.revision
        return same

    def differs_in_rates_alone(self, before: AgentConfig) -> bool:
        """Whether it was made from another one by :meth:`with_ingress`; it may be so though this says no."""
        same = self.hello is before.hello and self.egress is before.egress and self.branch is before.branch
        same &= self.media is before.media
        mine, other = (config.__dict__.get("revision") for config in (self, before))
        return same and mine is not None and mine == other

    @property
    def _without_ingress(self) -> tuple[object, ...]:
        return self.hello, self.egress, self.branch, self.media

    def like(self, before: AgentConfig | None) -> AgentConfig:
        """The same, without working out again what is the same in ``before``."""
        if before is None or self._without_ingress != before._without_ingress:
            return self
        if self.ingress == before.ingress:
            return before
        if self.ingress.keys() != before.ingress.keys():
            return self
        rates_only = all(flow.is_like(before.ingress[name]) for name, flow in self.ingress.items())
        return before.with_ingress(self.ingress) if rates_only else self

    @cached_property
    def rates(self) -> Mapping[tuple[int, int], float]:
        """(flow number, path id) -> Mb/s."""
        return {
            (flow.number, path.id): path.rate_mbps
            for flow in self.ingress.values()
            for path in flow.paths
            if path.rate_mbps is not None
        }


def _text_of(document: Any) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def list_text(texts: Iterable[str]) -> str:
    """A list in JSON of these values in JSON."""
    return f"[{','.join(texts)}]"


def _number_text(number: float | None) -> str:
    if number is None:
        return "null"
    if not isfinite(number):
        raise ValueError("JSON has no such number")
    return repr(number)


def rates_document(
    rates: Mapping[tuple[int, int], float], fill: Mapping[tuple[int, int], float] | None = None
) -> dict[str, Any]:
    """The message ``rates`` without ``seq``; both in Mb/s by (flow number, path id).

    ``fill`` is what a path sends at least. A flow that is named in ``rates`` but not in ``fill`` has none from now on.
    """
    document: dict[str, Any] = {"type": "rates", "rates": _by_flow(rates)}
    return {**document, "fill": _by_flow(fill)} if fill else document


def _by_flow(values: Mapping[tuple[int, int], float]) -> dict[str, dict[str, float]]:
    by_flow: dict[str, dict[str, float]] = {}
    for (number, path), value in sorted(values.items()):
        by_flow.setdefault(str(number), {})[str(path)] = value
    return by_flow
