"""The users of the network, as the slicer's settings name them: their tokens and addresses (docs/reference/slicer.md).

A user's own traffic is what comes from or goes to one of these addresses. No two users have the same one.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hyroads.controller.core.checking import Place, Problems, Section
from hyroads.controller.core.document import load_document

from .classifier import is_discovery_mac
from .slicefile import read_hash

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_USERS = 10_000
MAX_ADDRESSES = 16
"""Of one user, MAC addresses and IP addresses each."""
ME = "me"
"""In a request: whoever asks. So no user has this name."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who may join slices with the traffic of these addresses."""

    name: str
    token_sha256: str
    addresses: tuple[Address, ...] = ()
    macs: tuple[int, ...] = ()


NOBODY: Mapping[str, User] = {}


def load_users(text: str, document_name: str) -> Mapping[str, User]:
    """The users of a file; errors are :class:`ConfigError`."""
    problems = Problems(document_name)
    found = users_of(Place(load_document(text, document_name), problems))
    problems.raise_if_any()
    return found


def user_of(users: Mapping[str, User], token_sha256: str) -> User | None:
    """The user whose token has this hash; each is compared in the same time."""
    found = [user for user in users.values() if hmac.compare_digest(user.token_sha256, token_sha256)]
    return found[0] if found else None


def users_of(place: Place) -> dict[str, User]:
    """Users by name: ``ann: {token_sha256: ..., addresses: [...], macs: [...]}``."""
    users: dict[str, User] = {}
    owners: dict[object, str] = {}
    for name, each in place.entries():
        if len(users) == MAX_USERS:
            place.fail(f"expected at most {MAX_USERS} users")
            break
        section = each.section(("token_sha256", "addresses", "macs"), ("token_sha256",))
        if name == ME:
            each.fail(f"expected another name: {ME} is whoever asks")
        token = read_hash(section["token_sha256"]) if "token_sha256" in section else ""
        user = User(name, token, _addresses(section), _macs(section))
        if not user.addresses and not user.macs:
            each.expected("addresses, or macs")
        for key in (user.token_sha256, *user.addresses, *user.macs):
            other = owners.setdefault(key, name)
            if key and other != name:
                what = "token" if key == user.token_sha256 else "address"
                each.fail(f"has the same {what} as user {other}")
        users[name] = user
    return users


def _items(section: Section, key: str) -> Iterator[Place]:
    items = list(section[key].items()) if key in section else []
    if len(items) > MAX_ADDRESSES:
        section[key].fail(f"expected at most {MAX_ADDRESSES} addresses")
    return iter(items[:MAX_ADDRESSES])


def _addresses(section: Section) -> tuple[Address, ...]:
    found = []
    for item in _items(section, "addresses"):
        try:
            address = ipaddress.ip_address(item.value if isinstance(item.value, str) else "")
        except ValueError:
            item.expected("an IPv4 or IPv6 address")
            continue
        if address.is_multicast or address.is_unspecified or address.is_loopback or address == _BROADCAST:
            item.fail("expected the address of one host")
        found.append(address)
    return tuple(found)


_BROADCAST = ipaddress.ip_address("255.255.255.255")


def _macs(section: Section) -> tuple[int, ...]:
    found = []
    for item in _items(section, "macs"):
        text = item.mac()
        if text is None:
            continue
        mac = int(text.replace(":", ""), 16)
        if is_discovery_mac(mac):
            item.fail("expected another address: the slicer marks its own frames with it")
        found.append(mac)
    return tuple(found)
