"""Keys with which agents seal their frames (docs/reference/dataplane.md, "Seals"), and configurations with them.

All keys come from one secret of the network, and from what agents said when they joined: each start of an agent has a
name of its own (``boot``), and no key outlives it. So another controller with the same secret gives the same keys, and
a takeover or a restart of the controller changes none.

An agent that cannot seal gets no keys, and neither do those at the other ends of its flows and links for these.

The first agent of a sealed flow may also cut frames in pieces, if all agents that get them can join them.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.interface_addresses import InterfaceAddresses
from hyroads.controller.core.joined import joined

from .configs import AgentConfig, list_text
from .protocol import Hello

PERIOD_S = 86_400.0
"""How long a generation of keys is in force; those before and after it count, too."""
SECRET_BYTES = 32
_KEY_BYTES = 16
MOST_KNOWN = 1 << 17
"""So many derived keys are remembered."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """What of a configuration is sealed: by the place in its document, the key."""

    generation: int
    own: str | None
    expect: tuple[str | None, ...]
    ingress: Mapping[str, str]
    egress: Mapping[str, str]
    branch: Mapping[tuple[str, int], str]
    pieces: frozenset[str] = frozenset()
    """Flows that begin here whose frames may be cut in pieces."""

    @property
    def is_empty(self) -> bool:
        return self.own is None and not any(self.expect) and not (self.ingress or self.egress or self.branch)


_NO_KEYS = _Keys(0, None, (), {}, {}, {})


class FrameKeys:
    """The keys of all agents that this controller commands. ``interface_mac`` names each interface by node and
    technology, as configurations do; :meth:`use_addresses` gives the addresses of those that have another one.
    ``wall_s`` tells the time of day, which controllers share.

    Without a secret there are none (:meth:`use`). With ``seals_links`` agents also seal what their switches send to
    each other, with the keys of hello frames, and send and take no frame of a flow without a seal.
    """

    def __init__(
        self,
        interface_mac: Mapping[tuple[str, str], str] | None = None,
        wall_s: Callable[[], float] = time.time,
        period_s: float = PERIOD_S,
        *,
        seals_links: bool = False,
    ) -> None:
        self._seals_links = seals_links
        self._mac_of = interface_mac or {}
        self._node_of_mac = {mac: node for (node, _), mac in self._mac_of.items()}
        self._reported: Mapping[tuple[str, str], str] = {}
        self._address_of: dict[str, str] = {}
        """Name of an interface -> its address, where these differ."""
        self._wall_s, self._period_s = wall_s, period_s
        self._secret: bytes | None = None
        self._known: dict[tuple[str, ...], str] = {}
        """Keys that were derived, by what from."""
        self._boots: dict[str, str] = {}
        """By node: the start of its agent, of those that can seal."""
        self._joining: set[str] = set()
        """Nodes whose agents can seal, and join pieces of frames."""
        self._used_by: dict[str, set[str]] = {}
        """By node: whose configurations were made with what is known of it."""
        self._generations: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self.changed_nodes: set[str] = set()
        """Nodes whose :meth:`version` became another one; whoever asks it removes them."""

    # -- what is known

    @property
    def secret(self) -> str | None:
        """The secret of the network, in hexadecimal digits."""
        return None if self._secret is None else self._secret.hex()

    def use(self, secret: str) -> None:
        """Derive keys from a secret of the network; ValueError if it is none."""
        if not is_secret(secret):
            raise ValueError(f"expected {2 * SECRET_BYTES} hexadecimal digits")
        found = bytes.fromhex(secret)
        if found != self._secret:
            self._secret = found
            self._known.clear()
            self._changed(set(self._boots))

    def seals(self, nodes: Iterable[str]) -> bool:
        """Whether agents of all these nodes joined that can seal, and there are keys."""
        return self._secret is not None and self._boots.keys() >= set(nodes)

    def heard(self, hello: Hello) -> None:
        """An agent joined."""
        boot = hello.boot if hello.seals else None
        if boot == self._boots.get(hello.node):
            return
        self._joining.discard(hello.node)
        if boot is None:
            del self._boots[hello.node]
        else:
            self._boots[hello.node] = boot
            self._joining |= {hello.node} if hello.pieces else set()
        self._changed({hello.node, *self._used_by.get(hello.node, ())})

    def tick(self) -> bool:
        """Look at the clock; whether somebody's keys are of another generation now."""
        changed = {node for node, known in self._generations.items() if self._generation_now(node) != known}
        for node in changed:
            self._generations[node] = self._generation_now(node)
        self._changed(changed & self._boots.keys())
        return bool(changed and self._secret)

    def use_addresses(self, addresses: InterfaceAddresses, nodes: Iterable[str]) -> None:
        """Interfaces have these addresses; ``nodes`` are those whose configurations may contain another one."""
        self._reported = addresses.reported
        self._address_of = {self._mac_of[i]: mac for i, mac in self._reported.items() if self._mac_of.get(i) != mac}
        self._mark(set(nodes))

    def _changed(self, nodes: set[str]) -> None:
        if self._secret is not None:
            self._mark(nodes)

    def _mark(self, nodes: set[str]) -> None:
        self.changed_nodes |= nodes
        for node in nodes:
            self._versions[node] = self._versions.get(node, 0) + 1

    def _generation_now(self, node: str) -> int:
        """Agents change at different times of the day, so that not all of them are told at once."""
        offset_s = zlib.crc32(node.encode()) % max(1, int(self._period_s))
        return int((self._wall_s() + offset_s) // self._period_s) % (1 << 32)

    # -- configurations

    def version(self, node: str) -> int:
        """Another number whenever a node's configuration may have other keys than before."""
        return self._versions.get(node, 0)

    def revision(self, node: str, config: AgentConfig) -> int:
        """The revision of a configuration with its keys."""
        return self._revision(node, config, self._keys(node, config))

    def message(self, node: str, config: AgentConfig) -> str:
        """The message ``config`` with its keys and its revision, as JSON, without ``seq``."""
        keys = self._keys(node, config)
        head = {"type": "config", "revision": self._revision(node, config, keys)}
        if keys is not _NO_KEYS:
            head["generation"] = keys.generation
        parts = {key: json.dumps(value) for key, value in head.items()}
        is_plain = keys is _NO_KEYS and not self._moved(config)
        parts["hello"] = config.hello.text if is_plain else json.dumps(self._hello(node, config, keys))
        begin, end = sorted(config.ingress.items()), sorted(config.egress.items())
        parts["ingress"] = list_text(
            [_keyed(flow.text, keys.ingress.get(name), pieces=name in keys.pieces) for name, flow in begin]
        )
        parts["egress"] = list_text([_keyed(flow.text, keys.egress.get(name)) for name, flow in end])
        if config.branch:
            texts = ((json.dumps(flow.document()), keys.branch.get(key)) for key, flow in sorted(config.branch.items()))
            parts["branch"] = list_text(_keyed(text, key) for text, key in texts)
        if config.media is not None:
            parts["media"] = json.dumps(config.media.document())
        if self._seals_links:
            parts["seal_links"] = "true"
        return f"{{{','.join(f'{json.dumps(key)}:{text}' for key, text in parts.items())}}}"

    def _hello(self, node: str, config: AgentConfig, keys: _Keys) -> dict[str, Any]:
        hello = config.hello.document()
        if keys.own is not None:
            hello["key"] = keys.own
            for send in hello["send"]:
                send["mac"] = self._address(node, send["technology"])
        for entry in hello["expect"]:
            entry["mac"] = self._address_of.get(entry["mac"], entry["mac"])
        for entry, key in zip(hello["expect"], keys.expect, strict=False):
            if key is not None:
                entry["key"] = key
        return hello

    def _address(self, node: str, technology: str) -> str:
        return self._reported.get((node, technology)) or self._mac_of[node, technology]

    def _moved(self, config: AgentConfig) -> list[str]:
        """The addresses of senders of hello frames that differ from the names in a configuration."""
        if not self._address_of:
            return []
        return [f"{name} {self._address_of[name]}" for _, name in config.hello.expect if name in self._address_of]

    def _revision(self, node: str, config: AgentConfig, keys: _Keys) -> int:
        """That of the configuration itself if it has no keys, and all addresses are those that it names."""
        moved = self._moved(config)
        if keys is _NO_KEYS and not moved and not self._seals_links:
            return config.revision
        parts = [str(config.revision), str(keys.generation), keys.own or "", *(key or "" for key in keys.expect)]
        parts += moved
        if keys.own is not None:
            parts += [self._address(node, k) for k, _ in config.hello.send if (node, k) in self._reported]
        for known in (keys.ingress, keys.egress, keys.branch):
            parts += known.values()
        parts += sorted(keys.pieces)
        parts += ["seal_links"] if self._seals_links else []
        return 1 + int.from_bytes(hashlib.blake2b(joined(parts), digest_size=8).digest(), "big") % (2**31 - 1)

    def _keys(self, node: str, config: AgentConfig) -> _Keys:
        """``_NO_KEYS`` if there are none."""
        self._use(node, node)
        if self._secret is None or node not in self._boots:
            return _NO_KEYS
        generation = self._generations.setdefault(node, self._generation_now(node))
        begin = ((flow.id, flow.id, flow.number, (node, *flow.sealers)) for flow in config.ingress.values())
        end = ((flow.id, flow.id, flow.number, flow.sealers) for flow in config.egress.values())
        between = ((flow.key, flow.id, flow.number, flow.sealers) for flow in config.branch.values())
        ingress, egress, branch = (dict(sorted(self._flow_keys(node, side))) for side in (begin, end, between))
        keys = _Keys(
            generation,
            self._hello_key(node) if config.hello.send else None,
            tuple(self._hello_key(self._use(node, self._node_of_mac.get(mac, ""))) for _, mac in config.hello.expect),
            ingress,
            egress,
            branch,
            frozenset(name for name, flow in config.ingress.items() if self._joining.issuperset(flow.sealers)),
        )
        return _NO_KEYS if keys.is_empty else keys

    def _use(self, node: str, other: str) -> str:
        """What is known of another node goes into a node's configuration."""
        self._used_by.setdefault(other, set()).add(node)
        return other

    def _hello_key(self, sender: str) -> str | None:
        boot = self._boots.get(sender)
        return None if boot is None else self._derived("hello", sender, boot)

    def _flow_keys(
        self, node: str, flows: Iterator[tuple[Any, str, int, tuple[str, ...]]]
    ) -> Iterator[tuple[Any, str]]:
        """Of those flows whose frames all concerned can seal: first edge, last edge, and those between."""
        for name, flow, number, nodes in flows:
            boots = [self._boots.get(self._use(node, each)) for each in nodes]
            if len(boots) >= 2 and None not in boots:
                ends = (part for pair in zip(nodes[:2], boots[:2], strict=True) for part in pair)
                yield name, self._derived("flow", flow, str(number), *(str(part) for part in ends))

    def _derived(self, *parts: str) -> str:
        """The same again and again for nearly all flows of a configuration."""
        known = self._known.get(parts)
        if known is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            key, person = self._secret or b"", b"hyroads-seal"
            digest = hashlib.blake2b(joined(parts), key=key, digest_size=_KEY_BYTES, person=person)
            known = self._known[parts] = digest.hexdigest()
        return known


def _keyed(text: str, key: str | None, *, pieces: bool = False) -> str:
    """An object in JSON with its key; ``pieces``: its frames may be cut."""
    if key is None:
        return text
    more = ',"pieces":true' if pieces else ""
    return f'{text[:-1]},"key":"{key}"{more}}}'


def is_secret(text: str) -> bool:
    """Whether a text is a secret of a network."""
    return len(text) == 2 * SECRET_BYTES and all(digit in "0123456789abcdef" for digit in text)


def new_secret() -> str:
    """A secret of a network that has none yet."""
    return secrets.token_hex(SECRET_BYTES)
