"""``hyroads handover``, ``ncast``, ``session``, ``reservation``, ``access-rule``, ``connections``: the services of a
running controller, over REST.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hyroads.rest.client import Client, Document, address
from hyroads.rest.contract import QUOTAS as QUOTAS_OF

from .main import argument, either
from .remote import NO_WAIT, Cell, VerbCommand, changes, does, given, lists, named, path, place, shows


def _begin_handover(client: Client, args: argparse.Namespace) -> Any:
    more = {"flows": args.flow} if args.flow else {}
    return client.handover(args.client, args.to, wait=not args.no_wait, **given(args, "manager"), **more)


def _place(member: str) -> Cell:
    return lambda one: None if one[member] is None else f"{one[member]['node']}/{one[member]['technology']}"


HANDOVER = VerbCommand(
    "Move clients of a running controller, without loss; list and cancel handovers.",
    lists(
        "handovers on their way, then the latest",
        "handovers",
        "handover=id | owner | client | from | to | manager | phase | moved after, s=moved_after_s | why=reason",
        {"from": _place("from"), "to": _place("to")},
    ),
    does(
        "begin",
        "move a client; answered once its flows have moved",
        _begin_handover,
        named("client", "node id"),
        named("to", "without it, flows use all places again", type=place, nargs="?", metavar="NODE/TECHNOLOGY"),
        argument("--manager", help="hard, hoolock, bicast, vertical, vertical-bicast, or a plugin's"),
        argument("--flow", action="append", metavar="ID", help="only this flow; may repeat"),
        NO_WAIT,
    ),
    shows("one handover", "handovers", "handover"),
    changes(
        "cancel", "give a handover up before anything has moved", "DELETE", "handovers/handover", "id", waits=False
    ),
)


def _switch_on(client: Client, args: argparse.Namespace) -> Any:
    paths = {"paths": args.path, "copies": len(args.path)} if args.path else {}
    body = {"flow": args.flow, **paths, **given(args, "copies")}
    return client.change("POST", "/ncasts", body, wait=not args.no_wait)


NCAST = VerbCommand(
    "Send each packet of live flows by several paths, on and off without loss.",
    lists(
        "flows that are n-cast",
        "ncasts",
        "flow | owner | copies | phase | paths | expected loss=expected_loss | why=reason",
        {"paths": lambda ncast: ["+".join(links) for links in ncast["paths"]]},
    ),
    shows("one", "ncasts", "flow"),
    does(
        "on",
        "n-cast a flow; answered once copies are sent",
        _switch_on,
        named("flow"),
        NO_WAIT,
        argument("--copies", type=int, help="how many (default: 2, or as many as paths)"),
        argument("--path", type=path, action="append", metavar="LINK,LINK...", help="this path; may repeat"),
    ),
    changes("off", "back to one path", "DELETE", "ncasts/flow"),
)


def _add_session(client: Client, args: argparse.Namespace) -> Any:
    body = {"id": args.id, "group": args.group, "participants": args.participants, **given(args, "rate_mbps")}
    if args.source:
        body["sources"] = args.source
    if args.membership:
        body["membership"] = True
    return client.change("POST", "/sessions", body, wait=not args.no_wait)


def _join_session(client: Client, args: argparse.Namespace) -> Any:
    body = {"name": args.participant, "source": not args.listen_only}
    return client.change("POST", address("sessions", args.session, "participants"), body, wait=not args.no_wait)


def _leave_session(client: Client, args: argparse.Namespace) -> Any:
    where = address("sessions", args.session, "participants", args.participant)
    return client.change("DELETE", where, wait=not args.no_wait)


def _names(session: Document, *, lost: bool = False) -> list[str]:
    return [one["name"] for one in session["participants"] if not (lost and one["reached"])]


_WHO = "node id, MAC or IP address"
_PARTICIPANT = (named("session"), NO_WAIT, named("participant", _WHO))
SESSION = VerbCommand(
    "Declare multicast sessions, join and leave them.",
    lists(
        "all sessions",
        "sessions",
        "session=id | owner | group | state | participants | not reached | Mb/s=rate_mbps | pending",
        {"participants": _names, "not reached": lambda session: _names(session, lost=True)},
    ),
    shows("one", "sessions", "session"),
    does(
        "add",
        "declare a session; answered once its trees are in force",
        _add_session,
        named("id"),
        named("group", "multicast IP or group MAC address"),
        named("participants", _WHO, metavar="PARTICIPANT", nargs="*"),
        argument("--source", action="append", metavar="PARTICIPANT", help="may send (default: all); may repeat"),
        argument("--rate-mbps", type=float, help="what each source is counted with"),
        argument("--membership", action="store_true", help="hosts join and leave by IGMP and MLD, too"),
        NO_WAIT,
    ),
    does(
        "join",
        "one more participant",
        _join_session,
        *_PARTICIPANT,
        argument("--listen-only", action="store_true", help="does not send"),
    ),
    does("leave", "one participant less", _leave_session, *_PARTICIPANT),
    changes("remove", "end a session", "DELETE", "sessions/session"),
)


def _add_reservation(client: Client, args: argparse.Namespace) -> Any:
    return client.change("POST", "/reservations", given(args, "id", "rate_mbps", "flow", "session"))


def _change_reservation(client: Client, args: argparse.Namespace) -> Any:
    return client.change("PATCH", address("reservations", args.reservation), given(args, "rate_mbps"))


_SUBJECT = either(argument("--flow", metavar="ID"), argument("--session", metavar="ID"), required=True)
_MBPS = argument("rate_mbps", type=float, metavar="MBPS")
RESERVATION = VerbCommand(
    "Reserve least rates for flows and sessions; admitted only if the airtime exists.",
    lists(
        "all",
        "reservations",
        "reservation=id | owner | for | Mb/s=rate_mbps | kept=given_mbps | state",
        {"for": lambda one: f"flow {one['flow']}" if one["flow"] is not None else f"session {one['session']}"},
    ),
    shows("one", "reservations", "reservation"),
    does("add", "reserve a rate", _add_reservation, named("id"), _MBPS, _SUBJECT),
    does("change", "reserve more or less", _change_reservation, named("reservation"), _MBPS),
    changes("release", "give it up", "DELETE", "reservations/reservation", "id", waits=False),
)


def _quota(kind: str) -> Callable[[Document], str]:
    def cell(token: Document) -> str:
        one = next(each for each in token["quotas"] if each["quota"] == kind)
        used = "?" if one["used"] is None else f"{one['used']:.4g}"
        return used if one["limit"] is None else f"{used} of {one['limit']:.6g}"

    return cell


QUOTAS = VerbCommand(
    "List how much each token has made and reserved, and may.",
    lists("all", "quotas", "token=name | role", {kind: _quota(kind) for kind in QUOTAS_OF}),
    shows("one", "quotas", "token", "name"),
)


_RULE_OPTIONS = ("rate_mbps", "priority", "expires_in_s", "expires_s")


def _add_access_rule(client: Client, args: argparse.Namespace) -> Any:
    body = given(args, "id", "action", "client", "to", *_RULE_OPTIONS)
    if args.match:
        body["match"] = dict(args.match)
    return client.change("POST", "/access-rules", body, wait=not args.no_wait)


def _change_access_rule(client: Client, args: argparse.Namespace) -> Any:
    where = address("access-rules", args.rule)
    return client.change("PATCH", where, given(args, *_RULE_OPTIONS), wait=not args.no_wait)


def _field(text: str) -> tuple[str, int | str]:
    """One field of a match: NAME=VALUE, numbers decimal or hexadecimal (0x)."""
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise argparse.ArgumentTypeError(f"expected FIELD=VALUE, such as tcp_dst=25, got {text!r}")
    try:
        return name, int(value, 0)
    except ValueError:
        return name, value


_RULE = (
    argument("--rate-mbps", type=float, metavar="MBPS", help="of a limit: Mb/s of whole Ethernet frames"),
    argument("--priority", type=int, help="0 to 1999, the highest decides; above 999 for admins"),
    argument("--expires-in-s", type=float, metavar="S", help="ends after so many seconds"),
    argument("--expires-s", type=float, metavar="TIME", help="ends at this Unix time, in seconds"),
    NO_WAIT,
)
ACCESS_RULE = VerbCommand(
    "Allow, deny or limit frames where they enter the network.",
    lists(
        "all",
        "access-rules",
        "rule=id | action | client | to | match | Mb/s=rate_mbps | priority | owner | ends in, s=expires_in_s | state",
        {"match": lambda rule: [f"{name}={value}" for name, value in rule["match"].items()]},
    ),
    shows("one", "access-rules", "rule"),
    does(
        "add",
        "make a rule; answered once switches confirmed",
        _add_access_rule,
        named("id"),
        argument("action", choices=("deny", "limit", "allow")),
        argument("--client", metavar="HOST", help="who sends: node id or MAC address"),
        argument("--to", metavar="HOST", help="who gets: node id or MAC address"),
        argument("--match", type=_field, action="append", metavar="FIELD=VALUE", help="such as tcp_dst=25; may repeat"),
        *_RULE,
    ),
    does("change", "another rate, priority or end", _change_access_rule, named("rule"), *_RULE),
    changes("remove", "end a rule", "DELETE", "access-rules/rule", "id"),
)


def _subflows(connection: Document) -> list[str]:
    return [
        f"{one['client_ip']}:{one['client_port']}>{one['peer_ip']}:{one['peer_port']}" + " backup" * one["backup"]
        for one in connection["subflows"]
    ]


CONNECTIONS = VerbCommand(
    "MPTCP connections that a running controller has recognised, and their subflows.",
    lists(
        "all",
        "connections",
        "connection=id | client | peer | age, s=since_s | subflows",
        {"subflows": _subflows},
    ),
    shows("one", "connections", "connection"),
)
