"""Which interface of which client is where, and whose addresses are which (docs/explanation/clients.md).

Every transition takes a state and returns a :class:`Change`: the new state and what happened. Laws: an interface (a
MAC) is at no more than one place; nothing but the new place is left after a move; nobody takes the place, MAC or IP of
an interface that is active elsewhere unless it associates anew (or DHCP gives it the address); nor that of a silent one
before it was asked and did not answer (:class:`Question`), and then it has it back when it speaks again; nobody is at a
place under 802.1X (``Clients.closed``) that was not authenticated there; tables are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

from hyroads.controller.core.network import Place

from .client_tables import (
    Address,
    Change,
    Clients,
    Evidence,
    Happened,
    Interface,
    Notice,
    Question,
    checked_mac,
    is_active,
    is_forgettable,
    is_stranger,
    last,
    may_be,
    put,
    spoofed,
    with_interface,
    without,
)


def associated(
    state: Clients,
    mac: str,
    place: Place,
    now_s: float,
    *,
    signal_dbm: float | None = None,
    at_s: float | None = None,
    user: str | None = None,
    vlan: int | None = None,
) -> Change:
    """An interface associated at a place: it is there and nowhere else, at once.

    ``at_s`` is when that happened, if the event may be late: one older than what is known changes nothing. ``user`` is
    as whom it was authenticated, if that was by 802.1X: one that may not be at the place is refused, and loses it.
    """
    mac, when_s = checked_mac(mac), now_s if at_s is None else at_s
    if not may_be(state, mac, place):
        return spoofed(state, mac, place, state.bound[mac])
    old = state.interfaces.get(mac)
    if old is not None and old.evidence is Evidence.ASSOCIATION and when_s < old.since_s:
        return Change(state)
    users = state.closed.get(place)
    if users is not None and user not in users:
        gone = left(state, mac, place, now_s)
        notice = Notice(Happened.WRONG_USER, mac, place, user=user)
        return Change(gone.state, (*gone.notices, notice), allowed=False)
    again = old is not None and old.place == place and old.evidence is Evidence.ASSOCIATION
    since_s = old.since_s if old is not None and again else when_s
    client = old.client if old is not None else None
    new = Interface(mac, place, Evidence.ASSOCIATION, since_s, now_s, client, signal_dbm, user=user, vlan=vlan)
    change = put(state, new, now_s)
    if old is not None and old.place == place and (old.user, old.vlan) != (user, vlan):
        notice = Notice(Happened.AUTHENTICATED, mac, place, user=user)
        return replace(change, notices=(*change.notices, notice))
    return change


def left(state: Clients, mac: str, place: Place, now_s: float) -> Change:
    """An interface left a place; nothing happens if it is known to be elsewhere by now."""
    mac = checked_mac(mac)
    old = state.interfaces.get(mac)
    if old is None or old.place != place:
        return Change(state)
    # What it was known by is over: it may show up anywhere.
    gone = replace(
        old,
        place=None,
        evidence=Evidence.TRAFFIC,
        since_s=now_s,
        signal_dbm=None,
        user=None,
        vlan=None,
        until_s=None,
    )
    notice = Notice(Happened.LEFT, mac, None, place, user=old.user)
    return Change(replace(state, interfaces=last(state.interfaces, mac, gone)), (notice,))


def handed_over(state: Clients, mac: str, place: Place, now_s: float) -> Change:
    """Somebody who may says that an interface is at a place from now on: it counts as heard there. Where an association
    holds it, it stays (``allowed`` is false then).
    """
    mac = checked_mac(mac)
    old = state.interfaces.get(mac)
    if not may_be(state, mac, place) or is_stranger(state, mac, place):
        return Change(state, allowed=False)
    if old is not None and (old.place == place or old.is_held):
        return Change(state, allowed=old.place == place)
    client = old.client if old is not None else None
    return put(state, Interface(mac, place, Evidence.TRAFFIC, now_s, now_s, client), now_s)


def place_down(state: Clients, place: Place, now_s: float) -> Change:
    """A port went down, or its access point is gone: nobody is there any more."""
    notices: tuple[Notice, ...] = ()
    for interface in state.at(place):
        change = left(state, interface.mac, place, now_s)
        state, notices = change.state, notices + change.notices
    return Change(state, notices)


def untold(state: Clients, node: str, now_s: float) -> Clients:
    """A node's access point tells nothing any more: associations there hold no longer than what is heard, and at places
    under 802.1X no longer than ``prove_s``.
    """
    told_by = frozenset(place for place in state.told if place.node != node)
    interfaces = {
        mac: _unproven(state, i, now_s) if i.place is not None and i.place.node == node and i.is_held else i
        for mac, i in state.interfaces.items()
    }
    return replace(state, interfaces=interfaces, told=told_by)


def _unproven(state: Clients, interface: Interface, now_s: float) -> Interface:
    """One that no association holds any more."""
    until_s = now_s + state.limits.prove_s if interface.place in state.closed else None
    return replace(interface, evidence=Evidence.TRAFFIC, until_s=until_s)


def found(state: Clients, mac: str, place: Place, now_s: float) -> Change:
    """An earlier controller had let an interface in at a place. At one under 802.1X it has ``prove_s`` in which its
    access point may say that it is authenticated.
    """
    if place not in state.closed:
        return seen(state, mac, place, now_s)
    mac = checked_mac(mac)
    if not may_be(state, mac, place):
        return spoofed(state, mac, place, state.bound[mac])
    old = state.interfaces.get(mac)
    client = old.client if old is not None else None
    new = Interface(mac, place, Evidence.TRAFFIC, now_s, now_s, client, until_s=now_s + state.limits.prove_s)
    return put(state, new, now_s)


def tells(state: Clients, place: Place) -> Clients:
    """An access point tells who associates at a place: nobody is moved there by what it sends."""
    return state if place in state.told else replace(state, told=state.told | {place})


def binding(state: Clients, mac: str, place: Place | None) -> Change:
    """An interface may be at this place alone from now on; None: anywhere."""
    mac = checked_mac(mac)
    bound = {other: at for other, at in state.bound.items() if other != mac}
    if place is not None:
        bound[mac] = place
    state, old = replace(state, bound=bound), state.interfaces.get(mac)
    if old is None or old.place is None or may_be(state, mac, old.place):
        return Change(state)
    return left(state, mac, old.place, old.heard_s)


def signal(state: Clients, mac: str, place: Place, signal_dbm: float, now_s: float) -> Change:
    """A new signal reading; readings from elsewhere than its place don't count."""
    old = state.interfaces.get(checked_mac(mac))
    if old is None or old.place != place:
        return Change(state)
    return Change(with_interface(state, replace(old, signal_dbm=signal_dbm, heard_s=max(now_s, old.heard_s))))


def _refused(state: Clients, mac: str, place: Place) -> Change | None:
    """What follows where a frame says nothing of where its sender is; None: it does."""
    if not may_be(state, mac, place):
        return spoofed(state, mac, place, state.bound[mac])
    return Change(state, allowed=False) if is_stranger(state, mac, place) else None


def seen(state: Clients, mac: str, place: Place, now_s: float) -> Change:
    """A frame with this source address came in at a place; ``allowed`` tells whether it may go on."""
    mac = checked_mac(mac)
    old = state.interfaces.get(mac)
    refused = _refused(state, mac, place)
    if refused is not None:
        return refused
    if old is None or old.place is None:
        client = old.client if old is not None else None
        return put(state, Interface(mac, place, Evidence.TRAFFIC, now_s, now_s, client), now_s)
    if old.place == place:
        return Change(with_interface(state, replace(old, heard_s=max(now_s, old.heard_s))))
    if old.former == place and not old.is_held and now_s - old.since_s < state.limits.forget_s:
        back = put(state, Interface(mac, place, Evidence.TRAFFIC, now_s, now_s, old.client), now_s)
        return replace(back, notices=(*back.notices, Notice(Happened.SPOOFED_MAC, mac, old.place, place)))
    if is_active(state.limits, old, now_s) or place in state.told:
        return spoofed(state, mac, place, old.place)
    return _asked(state, mac, old.place, claimed=place, by=mac, ip=None, now_s=now_s)


def decided(state: Clients, now_s: float, *, is_heard: Callable[[Place], bool] = lambda place: True) -> Change:
    """What follows from answers, and from those that did not come in time. ``is_heard`` tells of a place whether all
    that came from there was looked at: until then nobody is taken for silent there.
    """
    change = Change(state)
    for key, question in state.questions.items():
        old = change.state.interfaces.get(question.mac)
        if old is None or old.place != question.place or old.is_held:
            step = Change(change.state)
        elif old.heard_s > question.asked_s:
            step = spoofed(change.state, question.by, question.claimed, question.place, question.ip)
        elif now_s >= question.until_s and is_heard(question.place):
            step = _lost(change.state, question, old, now_s)
        else:
            continue
        questions = {other: one for other, one in step.state.questions.items() if other != key}
        change = Change(replace(step.state, questions=questions), change.notices + step.notices)
    return change


def _lost(state: Clients, question: Question, old: Interface, now_s: float) -> Change:
    """Who was asked did not answer."""
    if question.ip is None:
        moved = Interface(
            question.mac, question.claimed, Evidence.TRAFFIC, now_s, now_s, old.client, former=question.place
        )
        return put(state, moved, now_s)
    known, by = state.addresses.get(question.ip), state.interfaces.get(question.by)
    if known is None or known.mac != question.mac or by is None or by.place != question.claimed:
        return Change(state)
    return Change(_give(state, Address(question.ip, question.by, False, now_s, question.mac, now_s)))


def _asked(state: Clients, mac: str, place: Place, *, claimed: Place, by: str, ip: str | None, now_s: float) -> Change:
    """Ask who has an address, unless that is being done."""
    question = Question(mac, place, claimed, by, ip, now_s, now_s + state.limits.answer_s)
    if question.key in state.questions or len(state.questions) >= state.limits.questions:
        return Change(state, allowed=False)
    questions = {**state.questions, question.key: question}
    return Change(replace(state, questions=questions), allowed=False, asks=(question,))


def heard(state: Clients, place: Place, macs: Iterable[str], now_s: float) -> Clients:
    """Interfaces at a place that have sent something lately; others that are named don't count."""
    interfaces = dict(state.interfaces)
    for mac in macs:
        old = interfaces.get(mac)
        if old is not None and old.place == place:
            del interfaces[mac]
            interfaces[mac] = replace(old, heard_s=max(now_s, old.heard_s))
    return replace(state, interfaces=interfaces)


def forgotten(state: Clients, mac: str) -> Change:
    """As if an interface had never been here; it may come again at once."""
    old = state.interfaces.get(checked_mac(mac))
    if old is None:
        return Change(state)
    notices = (Notice(Happened.LEFT, mac, None, old.place, user=old.user),) if old.place is not None else ()
    return Change(without(state, (mac,)), notices)


def reported(state: Clients, client: str, places: Mapping[str, Place | None], now_s: float) -> Change:
    """A client's own (authenticated) agent tells all its interfaces and where they are (None: nowhere).

    Interfaces of other clients are not given away, and an association overrules what it says of the place.
    """
    notices: tuple[Notice, ...] = ()
    own = {checked_mac(mac): place for mac, place in places.items()}
    for interface in state.of(client):
        if interface.mac not in own:
            state = with_interface(state, replace(interface, client=None))
    for mac, place in own.items():
        old = state.interfaces.get(mac)
        if old is not None and old.client not in (None, client) and is_active(state.limits, old, now_s):
            notices += (Notice(Happened.SPOOFED_MAC, mac, place, old.place),)
            continue
        if old is not None and (old.is_held or old.place == place):
            state = with_interface(state, replace(old, client=client, heard_s=max(now_s, old.heard_s)))
            continue
        if place is not None and not may_be(state, mac, place):
            notices += (Notice(Happened.SPOOFED_MAC, mac, place, state.bound[mac]),)
            continue
        if place is not None and is_stranger(state, mac, place):
            # Only the access point can say that it was authenticated.
            place = None  # noqa: PLW2901
        change = put(state, Interface(mac, place, Evidence.AGENT, now_s, now_s, client), now_s)
        state, notices = change.state, notices + change.notices
    return Change(state, notices, allowed=not any(n.what is Happened.SPOOFED_MAC for n in notices))


def address_seen(state: Clients, mac: str, ip: str, now_s: float, *, by_dhcp: bool = False) -> Change:
    """An interface says by ARP or neighbour discovery that it has an address, or DHCP gave it one."""
    mac = checked_mac(mac)
    owner, claim = state.addresses.get(ip), state.interfaces.get(mac)
    if claim is None or claim.place is None:
        return Change(state, allowed=False)
    if owner is None or owner.mac == mac or by_dhcp:
        mine = owner if owner is not None and owner.mac == mac else Address(ip, mac, by_dhcp, now_s, since_s=now_s)
        return Change(_give(state, replace(mine, by_dhcp=by_dhcp or mine.by_dhcp, heard_s=now_s)))
    other = state.interfaces.get(owner.mac)
    if other is None or other.place is None:
        return Change(_give(state, Address(ip, mac, False, now_s, since_s=now_s)))
    if owner.former == mac and now_s - owner.since_s < state.limits.forget_s:
        notice = Notice(Happened.SPOOFED_IP, owner.mac, other.place, claim.place, ip)
        return Change(_give(state, Address(ip, mac, False, now_s, since_s=now_s)), (notice,))
    if is_active(state.limits, other, now_s):
        return spoofed(state, mac, claim.place, other.place, ip)
    return _asked(state, owner.mac, other.place, claimed=claim.place, by=mac, ip=ip, now_s=now_s)


def _give(state: Clients, address: Address) -> Clients:
    """Who has an address from now on; the oldest ones of those who have too many go."""
    addresses = last(state.addresses, address.ip, address)
    own = [each.ip for each in addresses.values() if each.mac == address.mac]
    for surplus in own[: max(0, len(own) - state.limits.addresses_per_mac)]:
        del addresses[surplus]
    return replace(state, addresses=addresses)


def expired(state: Clients, now_s: float) -> Change:
    """Forget what was silent for long and no association holds; who was not authenticated in time loses its place."""
    over = [i for i in state.interfaces.values() if i.until_s is not None and i.until_s <= now_s]
    notices: tuple[Notice, ...] = ()
    for interface in over:
        if interface.place is not None:
            change = left(state, interface.mac, interface.place, now_s)
            state, notices = change.state, notices + change.notices
    old = [i for i in state.interfaces.values() if is_forgettable(i, now_s - state.limits.forget_s)]
    notices += tuple(Notice(Happened.LEFT, i.mac, None, i.place, user=i.user) for i in old if i.place is not None)
    return Change(without(state, (i.mac for i in old)), notices) if over or old else Change(state)


def cleared(state: Clients, place: Place, since_s: float) -> Change:
    """Who was learned at a place since then, by a single frame, is forgotten."""
    new = [
        i for i in state.at(place) if i.evidence is Evidence.TRAFFIC and i.since_s >= since_s and i.heard_s <= i.since_s
    ]
    notices = tuple(Notice(Happened.LEFT, i.mac, None, i.place) for i in new)
    return Change(without(state, (i.mac for i in new)), notices) if new else Change(state)


def expiring(state: Clients, now_s: float, within_s: float) -> list[Interface]:
    """Who will be forgotten within this time unless it is heard again: may be asked whether it is still there."""
    before_s = now_s - state.limits.forget_s + within_s
    return [i for i in state.interfaces.values() if i.place is not None and is_forgettable(i, before_s)]


def are_all_told(switches: Iterable[str], read: Container[str], age_s: float, grace_s: float) -> bool:
    """Whether a controller of this age knows all hosts that an earlier one had let in: their switches tell of them when
    they are read, and those that have not come back within the grace time are not waited for.
    """
    return age_s > grace_s or all(node in read for node in switches)
