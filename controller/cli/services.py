"""``hyroads handover``, ``ncast``, ``session``, ``reservation``: the services of a running controller, over REST."""

from __future__ import annotations

import argparse
from typing import Any

from hyroads.rest.client import Client, address

from .remote import Column, Verb, VerbCommand, add_no_wait, given, one, place


def _begin_handover(client: Client, args: argparse.Namespace) -> Any:
    more = {"flows": args.flow} if args.flow else {}
    return client.handover(args.client, args.to, wait=not args.no_wait, **given(args, "manager"), **more)


def _arguments_of_new_handover(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", help="node id")
    parser.add_argument(
        "to", type=place, nargs="?", metavar="NODE/TECHNOLOGY", help="without it, flows use all places again"
    )
    parser.add_argument("--manager", help="hard, hoolock, bicast, vertical, vertical-bicast, or a plugin's")
    parser.add_argument("--flow", action="append", metavar="ID", help="only this flow; may repeat")
    add_no_wait(parser)


def _place_handover(value: Any) -> str | None:
    return None if value is None else f"{value['node']}/{value['technology']}"


_HANDOVER_COLUMNS: tuple[Column, ...] = (
    ("handover", lambda one: one["id"]),
    ("client", lambda one: one["client"]),
    ("from", lambda one: _place_handover(one["from"])),
    ("to", lambda one: _place_handover(one["to"])),
    ("manager", lambda one: one["manager"]),
    ("phase", lambda one: one["phase"]),
    ("moved after, s", lambda one: one["moved_after_s"]),
    ("why", lambda one: one["reason"]),
)
HANDOVER = VerbCommand(
    "Move clients of a running controller, without loss; list and cancel handovers.",
    (
        Verb(
            "list",
            "handovers on their way, then the latest",
            lambda client, _: list(client.listed("/handovers", "handovers")),
            columns=_HANDOVER_COLUMNS,
        ),
        Verb("begin", "move a client; answered once its flows have moved", _begin_handover, _arguments_of_new_handover),
        Verb(
            "show",
            "one handover",
            lambda client, args: client.get(address("handovers", args.handover)),
            one("handover", "id"),
        ),
        Verb(
            "cancel",
            "give a handover up before anything has moved",
            lambda client, args: client.change("DELETE", address("handovers", args.handover)),
            one("handover", "id"),
        ),
    ),
)


def _switch_on(client: Client, args: argparse.Namespace) -> Any:
    body: dict[str, Any] = {"flow": args.flow}
    if args.path:
        body["paths"] = [path.split(",") for path in args.path]
        body["copies"] = len(args.path)
    if args.copies is not None:
        body["copies"] = args.copies
    return client.change("POST", "/ncasts", body, wait=not args.no_wait)


def _switch_off(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("ncasts", args.flow), wait=not args.no_wait)


def _arguments_of_flow_ncast(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flow", metavar="FLOW")
    add_no_wait(parser)


def _arguments_of_new_ncast(parser: argparse.ArgumentParser) -> None:
    _arguments_of_flow_ncast(parser)
    parser.add_argument("--copies", type=int, help="how many (default: 2, or as many as paths)")
    parser.add_argument("--path", action="append", metavar="LINK,LINK...", help="this path; may repeat")


_NCAST_COLUMNS: tuple[Column, ...] = (
    ("flow", lambda ncast: ncast["flow"]),
    ("copies", lambda ncast: ncast["copies"]),
    ("phase", lambda ncast: ncast["phase"]),
    ("paths", lambda ncast: ["+".join(path) for path in ncast["paths"]]),
    ("expected loss", lambda ncast: ncast["expected_loss"]),
    ("why", lambda ncast: ncast["reason"]),
)
NCAST = VerbCommand(
    "Send each packet of live flows by several paths, on and off without loss.",
    (
        Verb(
            "list",
            "flows that are n-cast",
            lambda client, _: list(client.listed("/ncasts", "ncasts")),
            columns=_NCAST_COLUMNS,
        ),
        Verb("show", "one", lambda client, args: client.get(address("ncasts", args.flow)), one("flow", "id")),
        Verb("on", "n-cast a flow; answered once copies are sent", _switch_on, _arguments_of_new_ncast),
        Verb("off", "back to one path", _switch_off, _arguments_of_flow_ncast),
    ),
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
    path = address("sessions", args.session, "participants", args.participant)
    return client.change("DELETE", path, wait=not args.no_wait)


def _remove_session(client: Client, args: argparse.Namespace) -> Any:
    return client.change("DELETE", address("sessions", args.session), wait=not args.no_wait)


def _arguments_of_new_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("group", metavar="GROUP", help="multicast IP or group MAC address")
    parser.add_argument("participants", metavar="PARTICIPANT", nargs="*", help="node id, MAC or IP address")
    parser.add_argument("--source", action="append", metavar="PARTICIPANT", help="may send (default: all); may repeat")
    parser.add_argument("--rate-mbps", type=float, help="what each source is counted with")
    parser.add_argument("--membership", action="store_true", help="hosts join and leave by IGMP and MLD, too")
    add_no_wait(parser)


def _arguments_of_removal_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="SESSION")
    add_no_wait(parser)


def _arguments_of_leave_session(parser: argparse.ArgumentParser) -> None:
    _arguments_of_removal_session(parser)
    parser.add_argument("participant", metavar="PARTICIPANT", help="node id, MAC or IP address")


def _arguments_of_join_session(parser: argparse.ArgumentParser) -> None:
    _arguments_of_leave_session(parser)
    parser.add_argument("--listen-only", action="store_true", help="does not send")


_SESSION_COLUMNS: tuple[Column, ...] = (
    ("session", lambda session: session["id"]),
    ("group", lambda session: session["group"]),
    ("state", lambda session: session["state"]),
    ("participants", lambda session: [one["name"] for one in session["participants"]]),
    ("not reached", lambda session: [one["name"] for one in session["participants"] if not one["reached"]]),
    ("Mb/s", lambda session: session["rate_mbps"]),
    ("pending", lambda session: session["pending"]),
)
SESSION = VerbCommand(
    "Declare multicast sessions, join and leave them.",
    (
        Verb(
            "list",
            "all sessions",
            lambda client, _: list(client.listed("/sessions", "sessions")),
            columns=_SESSION_COLUMNS,
        ),
        Verb("show", "one", lambda client, args: client.get(address("sessions", args.session)), one("session", "id")),
        Verb("add", "declare a session; answered once its trees are in force", _add_session, _arguments_of_new_session),
        Verb("join", "one more participant", _join_session, _arguments_of_join_session),
        Verb("leave", "one participant less", _leave_session, _arguments_of_leave_session),
        Verb("remove", "end a session", _remove_session, _arguments_of_removal_session),
    ),
)


def _add_reservation(client: Client, args: argparse.Namespace) -> Any:
    what = {"flow": args.flow} if args.flow is not None else {"session": args.session}
    return client.change("POST", "/reservations", {"id": args.id, "rate_mbps": args.rate_mbps, **what})


def _change_reservation(client: Client, args: argparse.Namespace) -> Any:
    return client.change("PATCH", address("reservations", args.reservation), {"rate_mbps": args.rate_mbps})


def _arguments_of_new_reservation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("rate_mbps", type=float, metavar="MBPS")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--flow", metavar="ID")
    what.add_argument("--session", metavar="ID")


def _arguments_of_change_reservation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reservation", metavar="RESERVATION")
    parser.add_argument("rate_mbps", type=float, metavar="MBPS")


_RESERVATION_COLUMNS: tuple[Column, ...] = (
    ("reservation", lambda one: one["id"]),
    ("for", lambda one: f"flow {one['flow']}" if one["flow"] is not None else f"session {one['session']}"),
    ("Mb/s", lambda one: one["rate_mbps"]),
    ("kept", lambda one: one["given_mbps"]),
    ("state", lambda one: one["state"]),
)
RESERVATION = VerbCommand(
    "Reserve least rates for flows and sessions; admitted only if the airtime exists.",
    (
        Verb(
            "list",
            "all",
            lambda client, _: list(client.listed("/reservations", "reservations")),
            columns=_RESERVATION_COLUMNS,
        ),
        Verb("show", "one", lambda c, args: c.get(address("reservations", args.reservation)), one("reservation", "id")),
        Verb("add", "reserve a rate", _add_reservation, _arguments_of_new_reservation),
        Verb("change", "reserve more or less", _change_reservation, _arguments_of_change_reservation),
        Verb(
            "release",
            "give it up",
            lambda client, args: client.change("DELETE", address("reservations", args.reservation)),
            one("reservation", "id"),
        ),
    ),
)
