"""Generic netlink: requests to a part of the kernel that is known by a name, such as ``ovs_datapath``.

The kernel gives every such *family* a number while it runs, so a name is looked up first.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .netlink import (
    ACKNOWLEDGE,
    DUMP,
    NetlinkError,
    NetlinkSocket,
    attribute_map,
    attributes,
    text_attribute,
)

_NETLINK_GENERIC = 16
_CONTROL_FAMILY, _CONTROL_VERSION = 16, 2
_GET_FAMILY, _FAMILY_ID, _FAMILY_NAME, _FAMILY_GROUPS = 3, 1, 2, 7
_GROUP_NAME, _GROUP_ID = 1, 2
_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP = 270, 1
_SO_RCVBUFFORCE, _EVENT_BUFFER_BYTES = 33, 4 << 20

DATAPATH_FAMILY = "ovs_datapath"
"""The family of Open vSwitch's datapath, whether that is a module or built in."""

GENERIC_HEADER = struct.Struct("=BBH")
"""Of every message: command, version, reserved."""


@dataclass(frozen=True)
class Family:
    """A family of the running kernel: its number, and the numbers of the groups that it tells events to."""

    number: int
    groups: Mapping[str, int]


def find_family(name: str) -> Family | None:
    """The family ``name`` of the running kernel; None if it has no such family.

    A family whose module can be loaded on demand is loaded by this request where the caller may load modules.
    Raises NetlinkError where the kernel does not answer.
    """
    with _FamilySocket(_CONTROL_FAMILY, _CONTROL_VERSION) as control:
        try:
            (answer,) = control.get(_GET_FAMILY, text_attribute(_FAMILY_NAME, name))
        except NetlinkError as error:
            if error.number == errno.ENOENT:
                return None
            raise
        except ValueError as error:
            raise NetlinkError(f"netlink answer about the family {name} is not one message") from error
    found = attribute_map(answer)
    number = found.get(_FAMILY_ID, b"")
    if len(number) != 2:
        raise NetlinkError(f"netlink answer about the family {name} has no number")
    return Family(int(struct.unpack("=H", number)[0]), dict(_groups(found.get(_FAMILY_GROUPS, b""))))


def _groups(data: bytes) -> Iterator[tuple[str, int]]:
    for _, item in attributes(data):
        group = attribute_map(item)
        if len(group.get(_GROUP_ID, b"")) == 4:
            name = group.get(_GROUP_NAME, b"").rstrip(b"\0").decode(errors="replace")
            yield name, int(struct.unpack("=I", group[_GROUP_ID])[0])


def family_id(name: str) -> int | None:
    """The number that the running kernel gave to the family ``name``; errors as of :func:`find_family`."""
    family = find_family(name)
    return None if family is None else family.number


class _FamilySocket(NetlinkSocket):
    """Requests to the family of a number."""

    def __init__(self, family: int, version: int) -> None:
        super().__init__(_NETLINK_GENERIC, "generic netlink")
        self._family, self._version = family, version

    def command(self, kind: int, body: bytes = b"") -> int:
        """Send one request and wait until it is acknowledged; NetlinkError if the kernel refuses it.

        Returns the number in the acknowledgement: 0, or what the family says with it (mac80211_hwsim: the new radio's
        number).
        """
        self._ask(kind, ACKNOWLEDGE, body)
        return self.acknowledged()

    def get(self, kind: int, body: bytes = b"") -> list[bytes]:
        """The attributes of each message that one request is answered with."""
        self._ask(kind, ACKNOWLEDGE, body)
        return self._attributes()

    def dump(self, kind: int, body: bytes = b"") -> list[bytes]:
        """The attributes of each entry that the kernel lists."""
        self._ask(kind, DUMP, body)
        return self._attributes()

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        self.request(self._family, flags, GENERIC_HEADER.pack(kind, self._version, 0) + body)

    def _attributes(self) -> list[bytes]:
        return [payload[GENERIC_HEADER.size :] for payload in self.answers(GENERIC_HEADER.size)]


class GenericNetlink(_FamilySocket):
    """Requests to one family, from the network namespace in which the object was made; use as a context manager.

    Raises NetlinkError, with ``number`` ENOENT, where the kernel has no family of that name. Where the socket is
    closed, the kernel ends what lives as long as it (radios made with DESTROY_ON_CLOSE).
    """

    def __init__(self, family: str, *, version: int = 1) -> None:
        found = family_id(family)
        if found is None:
            raise NetlinkError(f"this kernel has no generic netlink family {family}", errno.ENOENT)
        super().__init__(found, version)


class GenericEvents(NetlinkSocket):
    """What a family tells a group of listeners, such as ``mptcp_pm_events``, in the network namespace of this object.

    Raises NetlinkError, with ``number`` ENOENT, where the kernel has no such family or group. Messages wait in a
    buffer of the kernel; ``receive`` raises NetlinkError with ``number`` ENOBUFS once if it has overflowed.
    """

    def __init__(self, family: str, group: str) -> None:
        found = find_family(family)
        if found is None or group not in found.groups:
            raise NetlinkError(f"this kernel has no generic netlink events {group}", errno.ENOENT)
        super().__init__(_NETLINK_GENERIC, "generic netlink")
        self.family = found.number
        self.set_option(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _EVENT_BUFFER_BYTES)
        self.set_option(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, found.groups[group])
