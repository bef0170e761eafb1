"""Slices from and to YAML or JSON documents (docs/reference/slicer.md).

Unknown keys are errors. All errors of a document are found in one pass; the :class:`ConfigError` raised is the first,
with the others in ``more``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from hyroads.controller.core.checking import Place, Problems, Section, describe, integer_of
from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError

from .change import check
from .errors import ConflictError, MatchError
from .fields import BY_NAME
from .match import ALL, TernaryMatch, alternatives
from .model import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    OPT_IN_LEVELS,
    PRODUCTION,
    Controller,
    FlowspaceRule,
    Limits,
    OptIn,
    Permission,
    Slice,
    SliceModel,
    Ssid,
)
from .notation import read, write

T = TypeVar("T")

MAX_MATCHES_OF_RULE = 1024
MAX_PORT = 0xFFFFFF00
MAX_QUEUE = 61_439
"""The last that Open vSwitch has at a port (linux-htb)."""
_LOCAL = 0xFFFFFFFE

_SLICE_KEYS = (
    "name", "parent", "owner_token_sha256", "controllers", "permissions", "flowspace", "limits", "ssids", "opt_in",
)  # fmt: skip
_RULE_KEYS = ("name", "switches", "ports", "priority", "match")
_LIMIT_KEYS = tuple(Limits.__dataclass_fields__)
_OPT_IN_KEYS = ("open", "users", "match", "priority", "switches", "ports", "most_users")
_SSID_KEYS = ("name", "security", "passphrase_file", "radius")
_ENTERPRISE = ("wpa2-enterprise", "wpa3-enterprise")
_SECURITY = ("open", "wpa2", "wpa3", *_ENTERPRISE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_HASH = re.compile(r"[0-9a-f]{64}")
_CONTROLLER = re.compile(r"(tcp|tls):(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9.-]{1,253})(?::([0-9]{1,5}))?")
_NOT_IN_FLOWSPACE = {
    "in_port": "use ports of the rule instead",
    "in_phy_port": "use ports of the rule instead",
    "metadata": "it is not part of a packet",
    "tunnel_id": "it is not part of a packet",
}
_MATCHABLE = tuple(name for name in BY_NAME if name not in _NOT_IN_FLOWSPACE)


def load_text(text: str, document_name: str) -> SliceModel:
    """Read slices from text (JSON if the name ends in ``.json``, else YAML); errors are :class:`ConfigError`."""
    return parse(load_document(text, document_name), document_name)


def parse(document: object, document_name: str) -> SliceModel:
    """Validate a document ``{slices: [...]}`` and build the model; conflicts between slices are errors too."""
    problems = Problems(document_name)
    top = Place(document, problems).section(("slices",), ("slices",))
    slices: dict[str, Slice] = {}
    for place in top["slices"].items() if "slices" in top else ():
        each = _slice(place)
        if each.name in slices:
            place.key("name", None).fail(f"duplicate slice {describe(each.name)}")
        slices[each.name] = each
    problems.raise_if_any()
    model = SliceModel(slices)
    try:
        check(model, model.slices)
    except ConflictError as error:
        raise ConfigError(document_name, "slices", str(error)) from error
    return model


def parse_slice(document: object, document_name: str) -> Slice:
    """Validate one slice, as REST takes it; errors are :class:`ConfigError`."""
    problems = Problems(document_name)
    each = _slice(Place(document, problems))
    problems.raise_if_any()
    return each


def document_of(model: SliceModel) -> dict[str, Any]:
    """The document that ``parse`` reads as this model."""
    return {"slices": [slice_document(each) for each in model.slices.values()]}


def slice_document(each: Slice) -> dict[str, Any]:
    """The document that ``parse_slice`` reads as this slice."""
    limits = {name: getattr(each.limits, name) for name in _LIMIT_KEYS}
    limits["airtime_share"] = dict(each.limits.airtime_share)
    document: dict[str, Any] = {
        "name": each.name,
        "controllers": [str(controller) for controller in each.controllers],
        "permissions": sorted(permission.value for permission in each.permissions),
        "flowspace": [_rule_document(rule) for rule in each.flowspace],
        "limits": {name: value for name, value in limits.items() if value is not None},
        "ssids": [
            {name: value for name in _SSID_KEYS if (value := getattr(ssid, name)) is not None} for ssid in each.ssids
        ],
    }
    if each.owner_token_sha256:
        document["owner_token_sha256"] = each.owner_token_sha256
    if each.opt_in is not None:
        document["opt_in"] = opt_in_document(each.opt_in)
    return {**document, "parent": each.parent} if each.parent else document


def opt_in_document(opt_in: OptIn) -> dict[str, Any]:
    """The document of what users may do, as it is in a slice's."""
    return {
        "open": opt_in.open,
        "users": "all" if opt_in.users is None else sorted(opt_in.users),
        **_place_documents(opt_in),
        "priority": opt_in.priority,
        "match": match_documents(opt_in.matches),
        "most_users": opt_in.most_users,
    }


def _rule_document(rule: FlowspaceRule) -> dict[str, Any]:
    document = {**_place_documents(rule), "priority": rule.priority, "match": match_documents(rule.matches)}
    return {"name": rule.name, **document} if rule.name else document


def _place_documents(at: FlowspaceRule | OptIn) -> dict[str, Any]:
    return {
        "switches": "all" if at.switches is None else sorted(at.switches),
        "ports": "all" if at.ports is None else sorted(at.ports, key=lambda port: (isinstance(port, str), port)),
    }


def match_documents(matches: Iterable[TernaryMatch]) -> list[dict[str, Any]]:
    """Matches as ``match`` of a rule has them; a whole number of fields each."""
    return [{f.name: write(f, v, m) for f, v, m in match.fields()} for match in matches]


def parse_matches(document: object, document_name: str) -> tuple[TernaryMatch, ...]:
    """Validate a ``match``; errors are :class:`ConfigError`."""
    problems = Problems(document_name)
    found = _matches(Place(document, problems, "match"))
    problems.raise_if_any()
    return found


# -- one slice --------------------------------------------------------------------------------------------------------


def _slice(place: Place) -> Slice:
    section = place.section(_SLICE_KEYS, ("name",))
    name = _name(section)
    flowspace = tuple(map(_rule, section["flowspace"].items())) if "flowspace" in section else ()
    for key in ("flowspace", "opt_in") if name == PRODUCTION else ():
        if section.values.get(key):
            section[key].fail(f"expected none: {PRODUCTION} owns what no other slice does")
    return Slice(
        name,
        flowspace,
        tuple(map(_controller, section["controllers"].items())) if "controllers" in section else (),
        read_hash(section["owner_token_sha256"]) if "owner_token_sha256" in section else "",
        _permissions(section["permissions"]) if "permissions" in section else Slice("").permissions,
        _limits(section["limits"]) if "limits" in section else Limits(),
        tuple(map(_ssid, section["ssids"].items())) if "ssids" in section else (),
        _name(section, "parent"),
        _opt_in(section["opt_in"]) if "opt_in" in section else None,
    )


def _name(section: Section, key: str = "name") -> str:
    if key not in section:
        return ""
    place = section[key]
    if not isinstance(place.value, str) or not _NAME.fullmatch(place.value):
        place.expected("a name of 1 to 32 letters, digits, dots, dashes and underscores")
        return ""
    return place.value


def read_hash(place: Place) -> str:
    """The hash of a token; empty if it is wrong."""
    if not isinstance(place.value, str) or not _HASH.fullmatch(place.value):
        # The value is not shown: somebody may have written the token itself here.
        place.fail("expected 64 hexadecimal digits in lower case, the SHA-256 of a token")
        return ""
    return place.value


def _controller(place: Place) -> Controller:
    found = _CONTROLLER.fullmatch(place.value) if isinstance(place.value, str) else None
    port = int(found[3] or 6653) if found else 0
    if found is None or not 0 < port < 65536:
        place.expected("a controller like tcp:192.0.2.1:6653 or tls:controller.example:6653")
        return Controller("")
    return Controller(found[2].strip("[]"), port, found[1] == "tls")


def _permissions(place: Place) -> frozenset[Permission]:
    words = [permission.value for permission in Permission]
    return frozenset(Permission(item.choice(words, "read")) for item in place.items())


def _limits(place: Place) -> Limits:
    section = place.section(_LIMIT_KEYS)
    values: dict[str, Any] = {}
    for name in ("rate_in_mbps", "rate_out_mbps", "rate_out_least_mbps"):
        if name in section:
            values[name] = section[name].number(1.0, 0.0, 1e6, open_low=True, what="a rate above 0")
    for name, low in (("packet_ins_per_s", 0.0), ("flow_mods_per_s", 1.0)):
        if name in section:
            values[name] = section[name].number(1.0, low, 1e6, what=f"a number of at least {low:g}")
    for name, high in (("tables", 253), ("flow_entries", 1_000_000), ("groups", 1_000_000), ("meters", 60_000)):
        if name in section:
            values[name] = section[name].integer(1, 1 if name == "tables" else 0, high)
    for name, low, high in (("dscp", 0, 63), ("queue", 1, MAX_QUEUE)):
        if name in section:
            values[name] = section[name].integer(low, low, high)
    _check_queue(section, values)
    if "airtime_share" in section:
        shares = {t: share.number(0.5, 0.0, 1.0) for t, share in section["airtime_share"].entries()}
        values["airtime_share"] = MappingProxyType(shares)
    return Limits(**values)


def _check_queue(section: Section, values: Mapping[str, Any]) -> None:
    """What queues do needs one; a queue of no slice's own would be everybody's."""
    for name in ("rate_out_mbps", "rate_out_least_mbps", "dscp"):
        if name in section and "queue" not in section:
            section[name].fail(f"needs queue: the number of the slice's queue, from 1 to {MAX_QUEUE}")
    if values.get("rate_out_least_mbps", 0.0) > values.get("rate_out_mbps", float("inf")):
        section["rate_out_least_mbps"].fail("expected at most rate_out_mbps")


def _opt_in(place: Place) -> OptIn:
    section = place.section(_OPT_IN_KEYS)
    default, most = OptIn(), HIGHEST_PRIORITY - OPT_IN_LEVELS + 1
    if "users" not in section or section["users"].says("all"):
        users = None
    else:
        users = frozenset(item.identifier() for item in section["users"].items())
    return OptIn(
        section["open"].boolean(default.open) if "open" in section else default.open,
        users,
        _matches(section["match"]) if "match" in section else default.matches,
        integer_of(section, "priority", default.priority, LOWEST_PRIORITY, most),
        _all_or(section["switches"], _dpid, "datapath ids") if "switches" in section else None,
        _all_or(section["ports"], _port, "port numbers and names") if "ports" in section else None,
        integer_of(section, "most_users", default.most_users, 0, 10_000),
    )


def _ssid(place: Place) -> Ssid:
    section = place.section(_SSID_KEYS, ("name",))
    name = section["name"].value if "name" in section else ""
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name.encode()) <= 32:
        section.place.key("name", name).expected("an SSID of 1 to 32 bytes")
        name = ""
    security = section["security"].choice(_SECURITY, "open") if "security" in section else "open"
    file = section["passphrase_file"].value if "passphrase_file" in section else None
    if (security in {"wpa2", "wpa3"}) != (file is not None) or not (file is None or isinstance(file, str)):
        place.key("passphrase_file", file).expected("a file name with wpa2 and wpa3, none with others")
        file = None
    radius = section["radius"].value if "radius" in section else None
    if (security in _ENTERPRISE) != (radius is not None) or not (radius is None or _is_group(radius)):
        what = "the access points' name of a group of RADIUS servers with wpa2-enterprise and wpa3-enterprise"
        place.key("radius", radius).expected(f"{what}, none with others")
        radius = None
    return Ssid(name, security, file, radius)


def _is_group(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


# -- flowspace --------------------------------------------------------------------------------------------------------


def _rule(place: Place) -> FlowspaceRule:
    section = place.section(_RULE_KEYS)
    return FlowspaceRule(
        _matches(section["match"]) if "match" in section else (ALL,),
        section["priority"].integer(100, LOWEST_PRIORITY, HIGHEST_PRIORITY) if "priority" in section else 100,
        _all_or(section["switches"], _dpid, "datapath ids") if "switches" in section else None,
        _all_or(section["ports"], _port, "port numbers and names") if "ports" in section else None,
        section["name"].identifier() if "name" in section else "",
    )


def _all_or(place: Place, read: Callable[[Place], T], what: str) -> frozenset[T] | None:
    if place.says("all"):
        return None
    found = frozenset(map(read, place.items()))
    if not found:
        place.expected(f"all, or a list of {what}")
    return found


def _dpid(place: Place) -> int:
    return place.integer(1, 0, (1 << 64) - 1)


def _port(place: Place) -> int | str:
    value = place.value
    if value == "LOCAL":
        return _LOCAL
    if isinstance(value, int) and not isinstance(value, bool) and (0 < value <= MAX_PORT or value == _LOCAL):
        return value
    if isinstance(value, str) and 0 < len(value) <= 15 and value.isprintable():
        return value
    place.expected(f"a port number from 1 to {MAX_PORT}, LOCAL, or the name of a port")
    return 1


def _matches(place: Place) -> tuple[TernaryMatch, ...]:
    """One mapping of fields, or a list of them; each value one or a list of values."""
    wanted: Iterable[Place] = (place,) if isinstance(place.value, Mapping) else place.items()
    found = dict.fromkeys(match for one in wanted for match in _one_match(one))
    if not found:
        place.expected("a mapping of match fields")
    if len(found) > MAX_MATCHES_OF_RULE:
        place.fail(f"expected at most {MAX_MATCHES_OF_RULE} matches, got {len(found)}")
    return tuple(found)


def _one_match(place: Place) -> tuple[TernaryMatch, ...]:
    if not isinstance(place.value, Mapping):
        place.expected("a mapping of match fields")
        return ()
    fields: dict[str, list[tuple[int, int]]] = {}
    for name, value in place.value.items():
        if name in _NOT_IN_FLOWSPACE:
            place.key(name, value).fail(f"{name} is not for flowspace: {_NOT_IN_FLOWSPACE[name]}")
        elif name not in _MATCHABLE:
            at = place.key(name, value)
            at.fail("unknown match field" + at.hint(name, _MATCHABLE))
        else:
            fields[name] = _values(place.key(name, value), name)
    if len(fields) < len(place.value):
        return (ALL,)
    try:
        return alternatives(fields, MAX_MATCHES_OF_RULE)
    except MatchError as error:
        place.fail(error.problem)
        return (ALL,)


def _values(place: Place, name: str) -> list[tuple[int, int]]:
    items = list(place.items()) if isinstance(place.value, list) else [place]
    found: list[tuple[int, int]] = []
    for item in items[:MAX_MATCHES_OF_RULE]:
        try:
            found += read(BY_NAME[name], item.value)
        except MatchError as error:
            item.fail(error.problem)
            found.append((0, BY_NAME[name].ones))
    if not found:
        place.expected("a value, or a list of values")
        found.append((0, BY_NAME[name].ones))
    return list(dict.fromkeys(found))
