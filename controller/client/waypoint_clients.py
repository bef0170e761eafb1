"""The clients of a waypoint: each is known by its token and has a number and inner addresses that stay for ever."""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Mapping
from pathlib import Path

from hyroads.controller.core.checking import Problems, id_problem
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.files.state import Format, StateFile

from .json_lines import Document
from .session import VERSION, is_token

LOG = logging.getLogger("hyroads.waypoint")
NETWORK4 = ipaddress.IPv4Network("100.72.0.0/16")
NETWORK6 = ipaddress.IPv6Network("fd68:7972:6f61:7770::/64")
OWN_NUMBER, FIRST_NUMBER, LAST_NUMBER = 1, 2, 65_534
STATE = Format(1, {"clients": dict}, {}, 1)


class Stranger(HyroadsError):
    """Somebody who is not a client of this waypoint, or does not speak its protocol."""


def parse_tokens(text: str, name: str) -> Mapping[str, str]:
    """Client -> token, of lines ``CLIENT TOKEN``; empty lines and those that begin with ``#`` say nothing.
    :class:`ConfigError` names every wrong line, but no token.
    """
    problems = Problems(name)
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        place = f"line {number}"
        if len(words) != 2 or id_problem(words[0]) or not is_token(words[1]):
            problems.add(place, "expected a client's name and its token of 16 to 512 printable characters")
        elif words[0] in found:
            problems.add(place, f"expected each client once, got {words[0]!a} again")
        elif words[1] in found.values():
            problems.add(place, "expected a token that no other client has")
        else:
            found[words[0]] = words[1]
    problems.raise_if_any()
    if not found:
        raise ConfigError(name, "", "expected at least one line: a client's name and its token")
    return found


class Numbers:
    """Numbers of clients, which are the numbers of their sessions and the ends of their addresses; on disk."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, STATE)
        content = self._file.load()
        for broken in content.broken:
            LOG.warning("%s", broken)
        saved = {} if content.document is None else content.document["clients"]
        self._numbers: dict[str, int] = {}
        for client, number in saved.items():
            if isinstance(number, int) and FIRST_NUMBER <= number <= LAST_NUMBER and number not in self._taken():
                self._numbers[client] = number

    def of(self, client: str) -> int:
        """The client's number; a new one is on disk before it is used."""
        if client not in self._numbers:
            taken = self._taken()
            free = next((each for each in range(FIRST_NUMBER, LAST_NUMBER + 1) if each not in taken), None)
            if free is None:
                raise HyroadsError(f"no address left for client {client}")
            self._file.save({"clients": {**self._numbers, client: free}})
            self._numbers[client] = free
        return self._numbers[client]

    def _taken(self) -> set[int]:
        return set(self._numbers.values())


def inner_addresses(number: int) -> tuple[str, str]:
    """The IPv4 and IPv6 address of a client's number."""
    return str(NETWORK4[number]), str(NETWORK6[number])


def client_of(hello: Document | None, tokens: Mapping[str, str]) -> str:
    """Who says hello; raises Stranger, which says what is wrong, if it is no client with its token."""
    if hello is None:
        raise Stranger("closed without a word")
    client, token = hello.get("client"), hello.get("token")
    if hello.get("type") != "hello" or not isinstance(client, str) or not isinstance(token, str):
        raise Stranger("expected hello with client and token")
    if hello.get("version") != VERSION:
        raise Stranger(f"expected version {VERSION} of the protocol")
    # As long for unknown clients as for wrong tokens.
    wanted = tokens.get(client, "")
    same = hmac.compare_digest(token.encode("utf-8", "replace"), wanted.encode())
    if not same or not wanted:
        raise Stranger("unknown client or wrong token")
    return client
