"""Who may do what: each operation of the OpenAPI document, for each role, on things of each owner.

An operation without a rule here fails. A request is let in if it reaches the part that would carry it out; parts are
stand-ins, so nothing is carried out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import pytest
from every_resource import Reached, application
from flask import Flask

from hyroads.controller.services.owners import Kind, OwnerService
from hyroads.rest.access import WRITES
from hyroads.rest.contract import IDENTITY, OPERATOR, PLUGIN, PREFIX, Token
from hyroads.rest.vocabulary import REQUESTS

METHODS = ("get", "head", "post", "put", "patch", "delete")


def token(name: str, role: str, **more: Any) -> Token:
    return Token(name, f"token-of-{name}-0123456789", role, **more)


APP, OTHER = token("video", "application"), token("backup", "application")
WITH_LEAVE = token("with-leave", "application", may_change=frozenset({"video"}))
NIGHT = token("night", "application", may_change=frozenset({OPERATOR}))
TOKENS = (APP, OTHER, WITH_LEAVE, NIGHT, *(token(f"a-{role}", role) for role in WRITES if role != "application"))
PLUGINS = (Token(f"{PLUGIN}one", "", "application"), Token(f"{PLUGIN}two", "", "viewer"))
NOT_SENT = Token("", "", "nobody")
"""Who sends no token."""
PRINCIPALS = (*TOKENS, *PLUGINS, NOT_SENT)
OWNERS = ("video", "backup", "a-admin", f"{PLUGIN}one", OPERATOR)


def id_of(owner: str) -> str:
    """The thing of each kind that an owner has."""
    return f"of-{owner}".replace(" ", "-")


IDS = {id_of(owner): owner for owner in OWNERS}
KINDS = ("flows", "sessions", "ncasts", "reservations", "handovers", "access_rules")


@dataclass(frozen=True)
class Rule:
    """Which roles may, and of what they need a right to: a thing that the address names (``of``), or that a member of
    the body names (``uses``: member -> kind). A body that names it is the example with ``instead``.
    """

    roles: frozenset[str]
    of: str | None = None
    uses: str | None = None
    without: tuple[str, ...] = ()


EVERYBODY = Rule(frozenset({*WRITES, NOT_SENT.role}))
READ = Rule(frozenset(WRITES))
ADMIN = Rule(frozenset({"admin"}))
MAKE = Rule(frozenset({"admin", "application"}))
SLICES = Rule(frozenset({"admin", "slice-owner"}))
OPT_INS = Rule(frozenset({"admin", "slice-owner", "user"}))


def change(kind: str) -> Rule:
    return Rule(MAKE.roles, of=kind)


def make_for(member: str, *without: str) -> Rule:
    return Rule(MAKE.roles, uses=member, without=without)


CHANGES: Mapping[str, tuple[Rule, ...]] = {
    "post /flows": (MAKE, make_for("group")),
    "delete /flows/{flow}": (change("flows"),),
    "post /sessions": (MAKE,),
    "patch /sessions/{session}": (change("sessions"),),
    "delete /sessions/{session}": (change("sessions"),),
    "post /sessions/{session}/participants": (change("sessions"),),
    "delete /sessions/{session}/participants/{participant}": (change("sessions"),),
    "post /ncasts": (make_for("flow"),),
    "delete /ncasts/{flow}": (change("ncasts"),),
    "post /reservations": (make_for("flow"), make_for("session", "flow")),
    "patch /reservations/{reservation}": (change("reservations"),),
    "delete /reservations/{reservation}": (change("reservations"),),
    "post /handovers": (MAKE, make_for("client")),
    "delete /handovers/{handover}": (change("handovers"),),
    "post /access-rules": (MAKE,),
    "patch /access-rules/{rule}": (change("access_rules"),),
    "delete /access-rules/{rule}": (change("access_rules"),),
    "post /boxes": (EVERYBODY,),
    "post /boxes/{box}/wait": (EVERYBODY,),
    "post /boxes/{box}/leave": (EVERYBODY,),
    "post /boxes/{box}/adopt": (ADMIN,),
    "delete /boxes/{box}": (ADMIN,),
    "post /box-codes": (ADMIN,),
    "patch /clients/{client}": (ADMIN,),
    "delete /clients/{client}": (ADMIN,),
    "post /clients/{client}/transition": (ADMIN,),
    "post /clients/{client}/migrations": (ADMIN,),
    "put /clients/{client}/policy": (ADMIN,),
    "patch /clients/{client}/policy": (ADMIN,),
    "post /ha/handover": (ADMIN,),
    "post /ha/drain": (ADMIN,),
    "post /ha/finish-upgrade": (ADMIN,),
    "post /plugins/{name}/enable": (ADMIN,),
    "post /plugins/{name}/disable": (ADMIN,),
    "post /reload": (ADMIN,),
    "post /stats/flow/{dpid}": (READ,),
    "post /stats/aggregateflow/{dpid}": (READ,),
    "put /slices": (SLICES,),
    "put /slices/{name}": (SLICES,),
    "patch /slices/{name}": (SLICES,),
    "delete /slices/{name}": (SLICES,),
    "put /slices/{name}/flowspace": (SLICES,),
    "post /slices/{name}/flowspace": (SLICES,),
    "delete /slices/{name}/flowspace/{rule}": (SLICES,),
    "put /opt-ins/{name}/{user}": (OPT_INS,),
    "delete /opt-ins/{name}/{user}": (OPT_INS,),
}
READ_PATHS = """
/access-rules /access-rules/{rule} /box-codes /boxes /boxes/{box} /clients /clients/{client}
/clients/{client}/connections /clients/{client}/interfaces /clients/{client}/migrations /clients/{client}/policy
/connections /connections/{connection} /events /flows /flows/{flow} /flowspace /ha /handovers /handovers/{handover}
/health /identity /interference-domains /links /links/{link} /live /measurements /measurements/links/{link} /metrics
/ncasts /ncasts/{flow} /nodes /nodes/{node} /operations /operations/{operation} /opt-ins /opt-ins/{name}/{user}
/pair-tests /paths /plugins /plugins/{name} /quotas /quotas/{token} /reservations /reservations/{reservation}
/sessions /sessions/{session} /slices /slices/{name} /slices/{name}/flowspace /switches /switches/{dpid} /topology
/stats/aggregateflow/{dpid} /stats/desc/{dpid} /stats/flow/{dpid} /stats/group/{dpid} /stats/group/{dpid}/{group_id}
/stats/groupdesc/{dpid} /stats/groupfeatures/{dpid} /stats/meter/{dpid} /stats/meter/{dpid}/{meter_id}
/stats/meterconfig/{dpid} /stats/meterconfig/{dpid}/{meter_id} /stats/meterfeatures/{dpid} /stats/port/{dpid}
/stats/port/{dpid}/{port} /stats/portdesc/{dpid} /stats/queue/{dpid} /stats/queue/{dpid}/{port}
/stats/queue/{dpid}/{port}/{queue_id} /stats/queueconfig/{dpid} /stats/queueconfig/{dpid}/{port} /stats/role/{dpid}
/stats/switches /stats/table/{dpid} /stats/tablefeatures/{dpid} /v1.0/topology/hosts /v1.0/topology/hosts/{dpid}
/v1.0/topology/links /v1.0/topology/links/{dpid} /v1.0/topology/switches /v1.0/topology/switches/{dpid}
"""
RULES: Mapping[str, tuple[Rule, ...]] = {**{f"get {path}": (READ,) for path in READ_PATHS.split()}, **CHANGES}
QUERIES = {"get /paths": "?from=a&to=c"}
PARTS = {"dpid": "00000000000000ff", "box": "b827eb-41c0a1", "port": "1", "group_id": "1", "meter_id": "1",
         "queue_id": "1"}  # fmt: skip


@cache
def app() -> Flask:
    def owner(name: str) -> str | None:
        return IDS.get(name)

    kinds = {kind: Kind(IDS.__contains__, owner) for kind in KINDS}
    sets = {"groups": lambda name: [("flows", name)], "clients": lambda name: [("handovers", name)]}
    return application(*TOKENS, owners=OwnerService(TOKENS, kinds, sets))


@cache
def operations() -> frozenset[str]:
    document = app().test_client().get(f"{PREFIX}/openapi.json").get_json()
    return frozenset(
        f"{method} {path.removeprefix(PREFIX)}"
        for path, found in document["paths"].items()
        for method in METHODS
        if method in found
    )


ADDRESSES = (f"192.0.{number >> 8}.{number & 255}" for number in count())
"""Requests without a token are counted by address."""


def is_let_in(operation: str, name: str, body: Any, who: Token) -> bool:
    """Whether a request reaches the part that would carry it out; AssertionError if it is answered otherwise than by
    that and by one clear refusal.
    """
    method, path = operation.split(" ")
    prefix = "" if path.startswith(("/stats", "/v1.0", "/metrics")) else PREFIX
    first = next(iter(re.findall(r"\{(\w+)\}", path)), None)
    parts = {**({first: name} if first is not None else {}), **PARTS}
    if path.startswith("/stats"):
        parts["dpid"] = "7"
    place = prefix + re.sub(r"\{(\w+)\}", lambda found: parts.get(found[1], "7"), path) + QUERIES.get(operation, "")
    headers = {"Authorization": f"Bearer {who.token}"} if who.token else {}
    environ: dict[str, Any] = {"REMOTE_ADDR": next(ADDRESSES), **({IDENTITY: who} if who in PLUGINS else {})}
    web = app().test_client()
    try:
        answer = web.open(place, method=method, json=body, headers=headers, environ_overrides=environ)
    except Reached:
        return True
    if answer.status_code in {200, 404}:
        return True
    problem = answer.get_json()
    assert answer.status_code == (401 if who is NOT_SENT else 403), (operation, who, answer.status, problem)
    if answer.status_code == 403:
        owner = IDS.get(name, "no owner")
        assert problem.keys() == {"type", "title", "status", "detail"} and f"token {who.name}" in problem["detail"]
        assert owner not in re.sub("'[^']*'", "", problem["detail"].removeprefix(f"token {who.name}")), problem
    return False


def cases(operation: str, rule: Rule) -> Iterator[tuple[str, str | None, Any]]:
    """Id for the address, owner of the named thing (None: there is no such thing), and the body."""
    body = REQUESTS.get(operation.replace(" ", f" {PREFIX}", 1), REQUESTS.get(operation))
    if rule.of is not None:
        yield from ((name, owner, body) for name, owner in IDS.items())
    elif rule.uses is not None:
        rest = {member: value for member, value in body.items() if member not in rule.without}
        yield from ((name, owner, {**rest, rule.uses: name}) for name, owner in IDS.items())
    yield "of-no-token", None, body


def expected(rule: Rule, owner: str | None, who: Token) -> bool:
    if rule is EVERYBODY and who in PLUGINS:
        # Boxes apply over the network, not from inside the controller.
        return False
    if who.role not in rule.roles:
        return False
    return owner is None or who.role == "admin" or owner == who.name or owner in who.may_change


def test_each_operation_of_the_document_has_a_rule() -> None:
    assert operations() - RULES.keys() == set(), "an operation without a rule: who may do it?"
    assert RULES.keys() - operations() == set()
    assert len(RULES) > 100


def test_each_changing_operation_below_an_owned_thing_needs_a_right_to_it() -> None:
    names = {kind.replace("_", "-"): kind for kind in KINDS}
    for operation, rules in CHANGES.items():
        kind = names.get(operation.split("/")[1])
        if kind is not None and "{" in operation:
            assert rules == (change(kind),), operation


@pytest.mark.parametrize("who", PRINCIPALS, ids=lambda who: who.name.replace(" ", "-") or "no-token")
def test_role_and_owner_decide(who: Token) -> None:
    wrong, made = [], 0
    for operation, rules in RULES.items():
        for rule in rules:
            for name, owner, body in cases(operation, rule):
                made += 1
                if is_let_in(operation, name, body, who) is not expected(rule, owner, who):
                    wrong.append((operation, rule.of or rule.uses, owner))
    assert wrong == [] and made > 190


def test_rules_tell_owners_apart() -> None:
    """Each owned operation is allowed to some and refused to some of the same role."""
    for operation, rules in CHANGES.items():
        for rule in rules:
            if rule.of is None and rule.uses is None:
                continue
            found = {expected(rule, owner, who) for owner in OWNERS for who in (APP, OTHER, WITH_LEAVE, NIGHT)}
            assert found == {True, False}, operation
