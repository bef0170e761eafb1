"""How an access point's snmpd is told what we serve: its snmpd.conf, and its ``pass_persist`` protocol on pipes.

The protocol (man snmpd.conf) is lines on stdin, answers on stdout, and survives any input. By the file only what the
controller polls can be read, by anyone; only the wireless configuration, the state of interfaces and their descriptions
can be set, by users who may, authenticated and encrypted: passphrases are among it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import BinaryIO

from hyroads.controller.core.errors import ConfigError

from .agentx import TIMEOUT_S
from .config import AgentConfig
from .mib import BASE, Objects, Oid, Value
from .wireless_mib import WIRELESS

MAX_LINE_BYTES = 4096
MAX_OID_LENGTH = 128
NONE = b"NONE\n"


def parse_oid(line: bytes) -> Oid | None:
    """``.1.3.6`` -> (1, 3, 6); None for anything else."""
    parts = line.strip().lstrip(b".").split(b".")
    if len(parts) > MAX_OID_LENGTH or not all(part.isdigit() and len(part) <= 10 for part in parts):
        return None
    return tuple(map(int, parts))


def encode(oid: Oid, value: Value) -> bytes:
    """The three lines of an answer; octets in hexadecimal, so that no byte can end the line."""
    words = value.value.hex(" ") if isinstance(value.value, bytes) else str(value.value)
    return f".{'.'.join(map(str, oid))}\n{value.kind}\n{words}\n".encode()


def serve(requests: BinaryIO, answers: BinaryIO, objects: Objects) -> None:
    """Answers until the input ends."""
    while line := _line(requests):
        command = line.strip().lower()
        if command == b"ping":
            answer = b"PONG\n"
        elif command in (b"get", b"getnext"):
            answer = _answer(command, _line(requests), objects)
        elif command == b"set":
            _line(requests)
            _line(requests)
            answer = b"not-writable\n"
        elif command:
            answer = NONE
        else:
            continue
        answers.write(answer)
        answers.flush()


def _line(requests: BinaryIO) -> bytes:
    """The next line; of one that is too long only the start, the rest is skipped."""
    line = requests.readline(MAX_LINE_BYTES)
    rest = line
    while rest and not rest.endswith(b"\n"):
        rest = requests.readline(MAX_LINE_BYTES)
    return line


def _answer(command: bytes, line: bytes, objects: Objects) -> bytes:
    oid = parse_oid(line)
    if oid is not None and command == b"getnext":
        # snmpd asks for what follows a request that may lie before our subtree.
        oid = objects.following(oid if oid >= BASE else BASE)
    value = None if oid is None else objects.get(oid)
    return NONE if oid is None or value is None else encode(oid, value)


# system, interfaces, ifXTable, ours
_SUBTREES = (".1.3.6.1.2.1.1", ".1.3.6.1.2.1.2", ".1.3.6.1.2.1.31", "." + ".".join(map(str, BASE)))
# ifAdminStatus, ifAlias, the wireless configuration
_WRITABLE = (".1.3.6.1.2.1.2.2.1.7", ".1.3.6.1.2.1.31.1.1.1.18", "." + ".".join(map(str, WIRELESS)))


def snmpd_conf(config: AgentConfig, command: Sequence[str], place: str, agentx: str | None = None) -> str:
    """The text; ``command`` is what snmpd runs for our subtree, ``agentx`` the socket for its wireless part.

    :class:`ConfigError` if nobody could read anything.
    """
    if config.community is None and not config.users:
        raise ConfigError(place, "users", "expected a community or at least one user")
    if any(set(word) & set(" \t\n\"'#\\") for word in command):
        raise ConfigError(place, "", f"snmpd cannot run a path with blanks or quotes: {shlex.join(command)}")
    lines = ["# Written by hyroads ap-agent; holds secrets, hence mode 0600."]
    lines.append(f"agentAddress {','.join(f'udp:{address}' for address in config.listen)}")
    lines += [f"view hyroads included {subtree}" for subtree in _SUBTREES]
    if config.community is not None:
        lines.append(f"rocommunity {config.community} default -V hyroads")
    for user in config.users:
        lines.append(f"createUser {user.name} SHA-256 {user.auth_password} AES {user.priv_password}")
        if user.write:
            lines.append(f"group hyroads-writers usm {user.name}")
        else:
            lines.append(f"rouser -s usm {user.name} authpriv -V hyroads")
    if any(user.write for user in config.users):
        lines += [f"view hyroads-writable included {subtree}" for subtree in _WRITABLE]
        lines.append('access hyroads-writers "" usm priv exact hyroads hyroads-writable none')
    if agentx is not None:
        lines += ["master agentx", f"agentXSocket {agentx}", f"agentXTimeout {TIMEOUT_S}", "agentXRetries 0"]
    lines += ["dontLogTCPWrappersConnects yes", f"pass_persist {_SUBTREES[-1]} {' '.join(command)}"]
    return "\n".join(lines) + "\n"
