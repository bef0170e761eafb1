"""The snmpd.conf of an access point, as text, and its file.

Only what the controller polls can be read, by anyone; only the wireless configuration, the state of interfaces and
their descriptions can be set, by users who may, authenticated and encrypted: passphrases are among it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.radio.agentx import TIMEOUT_S
from hyroads.controller.radio.config import AgentConfig
from hyroads.controller.radio.mib import BASE
from hyroads.controller.radio.wireless_mib import WIRELESS

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
    lines += [f"agentAddress {','.join(f'udp:{address}' for address in config.listen)}"]
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
