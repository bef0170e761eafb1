"""What hostapd says of 802.1X: as whom a station was authenticated, and how RADIUS servers answer. Pure.

Formats: hostapd 2.10, the answers to ``STA`` and ``MIB`` of its control interface. A user name is what a stranger has
chosen, and hostapd writes it as it is, also with line breaks: so it is cut out before the rest is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

AUTHENTICATED, REJECTED = "authenticated", "rejected"
SILENT, BAD_SECRET, BACK = "silent", "bad-secret", "back"
MAX_USER_BYTES, MAX_VLAN = 253, 4095
"""Of an attribute of RADIUS (RFC 2865, section 5); the last VLAN is reserved."""
_NAME = "\ndot1xAuthSessionUserName="
_BEHIND = "\nlast_eap_type_as="
_MULTI_SESSION = re.compile(r"\nauthMultiSessionId=[0-9A-F]{16}\Z")
_NOBODY = "N/A"
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}")


def without_user(answer: str) -> tuple[str, str | None]:
    """The answer without the user name, and that; None if there is none, or it is not printable text of at most 253
    bytes.

    Nothing in front of the name, and nothing behind hostapd's own next line, is chosen by a station: the name ends at
    the last line that could be that.
    """
    start = answer.find(_NAME)
    if start < 0:
        return answer, None
    end = answer.rfind(_BEHIND)
    if end < start:
        return answer[:start], None
    user = _MULTI_SESSION.sub("", answer[start + len(_NAME) : end])
    sound = 0 < len(user.encode()) <= MAX_USER_BYTES and user.isprintable() and "\N{REPLACEMENT CHARACTER}" not in user
    return answer[:start] + answer[end:], user if sound and user != _NOBODY else None


class _Counters(NamedTuple):
    """Of a RADIUS server: its answers, those with a wrong authenticator, and how often none came."""

    answers: int
    bad: int
    timeouts: int


class RadiusWatch:
    """Compares hostapd's counters of its authentication servers; ``mib`` is its first answer to ``MIB``."""

    def __init__(self, mib: str = "") -> None:
        self._before = dict(_servers(mib))
        self._trouble: dict[str, str] = {}

    @property
    def is_used(self) -> bool:
        """Whether hostapd asks a RADIUS server at all."""
        return bool(self._before)

    def news(self, mib: str) -> list[tuple[str, str]]:
        """What has changed: ``silent``, ``bad-secret`` or ``back``, and which server (``ADDRESS#PORT``). Each is told
        once, until it is over.
        """
        news = []
        for server, now in _servers(mib):
            before = self._before.get(server, _Counters(0, 0, 0))
            self._before[server] = now
            event = _judged(before, now)
            if event == BACK and self._trouble.pop(server, None) is not None:
                news.append((event, server))
            elif event in {SILENT, BAD_SECRET} and self._trouble.get(server) != event:
                self._trouble[server] = event
                news.append((event, server))
        return news


def _judged(before: _Counters, now: _Counters) -> str:
    """What a server did since the last time; empty: nothing that tells."""
    if now.answers > before.answers:
        return BACK
    if now.bad > before.bad:
        return BAD_SECRET
    return SILENT if now.timeouts > before.timeouts else ""


def _servers(mib: str) -> Iterator[tuple[str, _Counters]]:
    for part in mib.split("radiusAuthServerIndex=")[1:]:
        fields = dict(line.partition("=")[::2] for line in part.split("radiusAccServerIndex=")[0].splitlines())
        address, port = fields.get("radiusAuthServerAddress", ""), fields.get("radiusAuthClientServerPortNumber", "")
        if _ADDRESS.fullmatch(address) and port.isascii() and port.isdecimal() and len(port) <= 5:
            answers = ("Accepts", "Rejects", "Challenges")
            yield (
                f"{address}#{port}",
                _Counters(
                    sum(_count(fields, f"radiusAuthClientAccess{each}") for each in answers),
                    _count(fields, "radiusAuthClientBadAuthenticators"),
                    _count(fields, "radiusAuthClientTimeouts"),
                ),
            )


def _count(fields: Mapping[str, str], key: str) -> int:
    text = fields.get(key, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else 0
