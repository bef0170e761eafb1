"""Every socket on which a part of HyRoads listens: who may speak there, what it may, and what bounds it.

The table of docs/security.md is made of this list when the site is built. A test holds it equal to the code: a place
in the source that listens, and that no entry names, fails it (``tests/unit/test_sockets.py``). Figures are not written
here but named, as ``{module:NAME}``, so that they are always those of the code; :func:`with_figures` puts them in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

LOOPBACK_ONLY = "any program of this machine"
OWNER = "the owner of the process: the socket has mode 0600"


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """One socket, or several of one kind. ``code`` are the functions that open it, as ``FILE:FUNCTION``."""

    part: str
    name: str
    default: str
    """Where it is unless something else is said; "off" if it is only there when asked for."""
    who: str
    """Who may speak, and how that is checked."""
    may: str
    limits: str
    code: tuple[str, ...]


_SETTINGS = "hyroads.controller.settings.controller"
_APPLICATION = "controller/app/__init__.py:_listen"
_AGENTS, _SWITCHES = "hyroads.controller.agents", "hyroads.controller.switches.server"
_SFNET, _SLICER = "hyroads.controller.services.plugins.sfnet", "hyroads.slices.server"
_PEERS, _REGION = "hyroads.controller.ha.peers", "hyroads.controller.app.region_links"
_EVENTS = "hyroads.slices.flowvisor.events"
_ADMITTED = "controller/framework/admitted.py:AdmittedListener.__init__"
_CONTROL_LIMITS = "{hyroads.controller.client.json_lines:MAX_CONNECTIONS} connections"

SOCKETS: tuple[ListeningSocket, ...] = (
    ListeningSocket(
        "controller",
        "`listen.openflow`",
        f"TCP 127.0.0.1:{{{_SETTINGS}:Settings.openflow.port}}",
        "switches whose datapath id is in the network file; with `tls.ca` only with a certificate of that authority "
        "with the role `node` that names the datapath id or the node, or of a slicer in `any_switch`. "
        "A second session of a living switch is refused. "
        "Beyond loopback needs `tls`, or `allow_plaintext: true`",
        "be a switch: send frames of hosts, answer what it is asked",
        f"as strangers, and again as switches of ours, twice the switches and {{{_SWITCHES}:SPARE_CONNECTIONS}} "
        f"connections, the oldest stranger ends first; handshake within {{{_SWITCHES}:HANDSHAKE_WITHIN_S}} s; "
        "messages are checked before they are parsed",
        (_APPLICATION, "controller/framework/ryu_shim.py:listen"),
    ),
    ListeningSocket(
        "controller",
        "`listen.agents`",
        f"TCP 127.0.0.1:{{{_SETTINGS}:Settings.agents.port}}",
        "agents and access points, each with the token of its node and role (`identities`; `agent_token` is that of "
        "nodes without), clients with their own of `clients`; with `agents_tls` over TLS, with its `ca` only with a "
        "certificate with the role `node` or `client` that names the node. A second session of a living node is "
        "refused. Beyond loopback needs tokens or certificates",
        "be the agent, the radios or the client of a node: get its configuration, report rates, stations, policies",
        "as strangers, and again as agents of ours, twice the nodes and clients and "
        f"{{{_AGENTS}.server:SPARE_CONNECTIONS}} connections, the oldest stranger ends first; hello within "
        f"{{{_AGENTS}.server:HELLO_WITHIN_S}} s (TLS: {{{_AGENTS}.server:TLS_WITHIN_S}} s more); "
        f"a line has {{{_AGENTS}.protocol:MAX_LINE}} bytes at most",
        (_APPLICATION, "controller/framework/ryu_shim.py:listen"),
    ),
    ListeningSocket(
        "controller",
        "`listen.rest`",
        f"TCP 127.0.0.1:{{{_SETTINGS}:Settings.rest.port}}, HTTP; with `rest_tls` HTTPS",
        "without `api_tokens` " + LOOPBACK_ONLY + "; with them who has a token. Beyond loopback needs `api_tokens`. "
        "With `boxes` a box may apply without one, and wait and leave with a secret of its own",
        "what the role of its token may: viewer, application, slice-owner, admin; without tokens everything; a box "
        "waits for an admin to adopt it",
        "{hyroads.controller.app:REST_LIMITS.strangers} strangers, the oldest ends first, and "
        "{hyroads.controller.app:REST_LIMITS.known} with a token; "
        "{hyroads.controller.app:REST_LIMITS.within_s} s for a request; "
        "bodies of {hyroads.rest.api:MAX_BODY} bytes; requests per token as "
        "`api_limits` says, {hyroads.rest.access:STRANGERS.per_s} a second from strangers",
        (_APPLICATION, "controller/framework/ryu_shim.py:listen"),
    ),
    ListeningSocket(
        "controller",
        "`listen.peer`, `region.listen`",
        f"off; with `ha` or `region` TCP 127.0.0.1:{{{_SETTINGS}:Settings.peer.port}}",
        "other controllers that etcd knows by the name in their certificate (role `controller`), and those of regions "
        "(role `region`), or by a token on one machine. "
        "Beyond loopback needs `ha.tls` or `region.tls`",
        "be a standby or the controller of a neighbouring region: tell heartbeats, rates, segments of flows",
        f"{{{_PEERS}:MAX_CONNECTIONS}} strangers and {{{_PEERS}:MAX_OF_INSTANCE}} connections of a controller "
        f"({{{_REGION}:MAX_CONNECTIONS}} and {{{_REGION}:MAX_OF_REGION}} between regions); "
        f"hello within {{{_PEERS}:HELLO_WITHIN_S}} s",
        (
            "controller/ha/peer_links.py:listen",
            "controller/app/standby.py:_listener",
            "controller/app/regions.py:Regions._listener",
        ),
    ),
    ListeningSocket(
        "controller",
        "`sfnet`",
        "off; TCP 127.0.0.1:{hyroads.plugins.sfnet.messages:PORT}",
        "without `api_tokens` " + LOOPBACK_ONLY + "; with them who has a token. Beyond loopback needs `api_tokens`. "
        "Not encrypted",
        "what the REST API allows its role",
        f"{{{_SFNET}:LIMITS.strangers}} strangers and {{{_SFNET}:LIMITS.known}} with a token, "
        f"{{{_SFNET}:MAX_AT_ONCE}} requests at once and "
        f"{{{_SFNET}:REQUESTS_PER_S}} a second of each; hello within {{{_SFNET}:HELLO_S}} s",
        ("controller/services/plugins/sfnet.py:SfnetService.__post_init__", "controller/framework/ryu_shim.py:listen"),
    ),
    ListeningSocket(
        "controller",
        "`sfnet`, discovery",
        "off; UDP {hyroads.plugins.sfnet.messages:GROUP}:{hyroads.plugins.sfnet.messages:PORT} on `lo`",
        "anybody on the interfaces that `sfnet.interfaces` names",
        "ask where SFNet is",
        f"{{{_SFNET}:ANSWERS_PER_S}} answers a second, none longer than its request; no state of senders",
        ("controller/services/plugins/sfnet.py:_group_socket",),
    ),
    ListeningSocket(
        "controller",
        "`boxes.announce`",
        "off; UDP 5353",
        "any machine that reaches this port; not authenticated",
        "learn where the controller is: the addresses of the setting and the port of REST. Boxes trust the certificate "
        "that they find there, not the answer",
        "a process of its own, which reads nothing else of the controller (the library zeroconf)",
        ("controller/framework/multicast_dns.py:main",),
    ),
    ListeningSocket(
        "access point",
        "backend `devolo`",
        "off; UDP 5353 on the network of the adapter",
        "any machine that reaches this port; not authenticated",
        "answer where the adapter's HTTP interface is",
        "what the library devolo-plc-api bounds",
        ("controller/access_point/plc_devolo.py:_Library._overview",),
    ),
    ListeningSocket(
        "box join",
        "answers by multicast DNS",
        "a free UDP port, for {hyroads.controller.box.discovery:WITHIN_S} s, without an address of a controller",
        "any machine that reaches this port; not authenticated",
        "name a controller, whose certificate decides",
        "{hyroads.controller.box.discovery:MOST_ANSWERS} messages of "
        "{hyroads.controller.box.discovery:MOST_BYTES} bytes, "
        "{hyroads.controller.box.discovery:MOST_FOUND} controllers",
        ("controller/box/discovery.py:_by_link",),
    ),
    ListeningSocket(
        "slicer",
        "`listen.openflow`",
        f"TCP 127.0.0.1:{{{_SLICER}.settings:OPENFLOW_PORT}}",
        "switches; with `tls.ca` only with a certificate of that authority with the role `node` that names the "
        "datapath id, or of a slicer in `any_switch`. A second session of a living switch is refused. "
        "Beyond loopback needs `tls`, or `allow_plaintext: true`",
        "be a switch of the slices that have flowspace there",
        f"as strangers `most_switches` and {{{_SLICER}.switch_port:SPARE_CONNECTIONS}} connections, the oldest ends "
        f"first, and `most_switches` switches; TLS within {{{_SLICER}.switch_port:TLS_WITHIN_S}} s, handshake within "
        f"{{{_SLICER}.switch_link:HANDSHAKE_WITHIN_S}} s; silent for `patience_s` at most",
        ("slices/server/switch_port.py:SwitchPort.listen", "slices/server/run.py:Server._listen"),
    ),
    ListeningSocket(
        "slicer",
        "`listen.rest`",
        f"off; TCP 127.0.0.1:{{{_SLICER}.settings:REST_PORT}}, HTTP",
        "who has a token of `api_tokens`, an owner's or a user's. Beyond loopback needs `api_tokens` and `rest_tls`",
        "operators everything, owners what is theirs, users to join what is open for them",
        f"{{{_SLICER}.web:REST_LIMITS.strangers}} strangers, the oldest of the address with most ends first, "
        f"{{{_SLICER}.web:REST_LIMITS.known}} at addresses that are known and {{{_SLICER}.web:REST_LIMITS.each}} with "
        "a token; a request "
        f"within {{{_SLICER}.http:REQUEST_WITHIN_S}} s; bodies of {{{_SLICER}.web:MOST_BODY_OF_OTHERS}} bytes",
        ("slices/server/web.py:Web._listen_at_port", _ADMITTED),
    ),
    ListeningSocket(
        "slicer",
        "`listen.control`",
        "off; a Unix socket",
        OWNER,
        "everything, as the operator",
        f"{{{_SLICER}.http:MOST_CONNECTIONS}} connections; bodies of {{{_SLICER}.web:MOST_BODY}} bytes",
        ("slices/server/web.py:Web._listen_at_socket",),
    ),
    ListeningSocket(
        "SNMPVisor",
        "`listen`",
        "UDP 127.0.0.1:1161",
        "managers of slices, by a user (SNMPv3) or a community; communities only on loopback",
        "read and set the interfaces of its own slice",
        "{hyroads.slices.snmpvisor.proxy:MOST_OF_A_SLICE} requests of a slice under way; to senders that have not "
        "proved who they are only reports of SNMPv3, {hyroads.slices.snmpvisor.proxy:REPORTS.per_s} a second to an "
        "address; "
        "datagrams of {hyroads.slices.snmpvisor.frontend:MAX_DATAGRAM} bytes",
        ("slices/snmpvisor/server.py:_bind",),
    ),
    ListeningSocket(
        "SNMPVisor",
        "`traps`",
        "off; UDP",
        "the addresses of its devices; not authenticated",
        "send traps, which go on to the slices whose interface they name",
        "{hyroads.slices.snmpvisor.proxy:TRAPS.per_s} traps of a device a second, none answered; "
        "datagrams of {hyroads.slices.snmpvisor.frontend:MAX_DATAGRAM} bytes",
        ("slices/snmpvisor/server.py:_bind",),
    ),
    ListeningSocket(
        "SNMPVisor",
        "`metrics`",
        "off; TCP, HTTP, loopback only",
        LOOPBACK_ONLY,
        "read metrics",
        "{hyroads.slices.snmpvisor.metrics:LIMITS.strangers} connections of "
        "{hyroads.slices.snmpvisor.metrics:WITHIN_S} s",
        ("slices/snmpvisor/metrics.py:listen", "slices/snmpvisor/server.py:Server._show", _ADMITTED),
    ),
    ListeningSocket(
        "edge agent",
        "interfaces of media and hosts",
        "packet sockets and TAP devices that the command line names",
        "whoever can send on that medium: neither frames nor hellos are authenticated",
        "send frames with labels, shims and hellos",
        "buffers of fixed size; what is malformed is counted and dropped",
        ("dataplane/src/sys/packet.rs:bind",),
    ),
    ListeningSocket(
        "edge agent",
        "`--control`",
        "off; a Unix socket",
        OWNER,
        "read counters and state, change the configuration",
        "16 connections",
        ("dataplane/src/edge/control.rs:new", "dataplane/src/sys/unix.rs:listen"),
    ),
    ListeningSocket(
        "ap-agent",
        "`--snmpd` (net-snmp)",
        "off; UDP {hyroads.controller.access_point.config:DEFAULT_LISTEN}",
        "users of SNMPv3 (SHA-256, AES) of its file, or a community, which may only read",
        "read the MIB; users with `write` switch interfaces and networks on and off",
        "those of net-snmp; who is no user and does not know the community gets reports of SNMPv3 alone",
        ("controller/access_point/snmpd.py:snmpd_conf",),
    ),
    ListeningSocket(
        "ap-agent",
        "answers of hostapd",
        "a Unix datagram socket in the temporary folder, connected to that of hostapd",
        "hostapd alone: the kernel refuses others at a connected socket",
        "answer, and tell of stations",
        "one datagram at a time",
        ("controller/access_point/hostapd.py:Control.__init__",),
    ),
    ListeningSocket(
        "ap-agent",
        "management messages of power lines (0x88e1)",
        "a packet socket on each interface with `backend: plc`",
        "whoever can send on that interface: HomePlug AV does not authenticate",
        "answer as the adapter: rates, counters and busy time of the power line",
        "lengths are checked, fragments bounded; an adapter that contradicts itself is left out",
        ("controller/access_point/packet_socket.py:packet_socket",),
    ),
    ListeningSocket(
        "ap-agent",
        "IEEE 1905.1 (0x893a)",
        "a packet socket on each interface that is not emulated; off with `ieee1905: false`",
        "whoever can send on that interface: IEEE 1905.1 does not authenticate",
        "be a neighbour: ask for interfaces and links, describe its own, which are shown and not planned with",
        "{hyroads.controller.access_point.ieee1905_entity:MAX_PEERS} neighbours with "
        "{hyroads.controller.access_point.ieee1905_entity:MAX_LINKS_OF_PEER} links; "
        "{hyroads.controller.access_point.ieee1905_entity:ANSWERS_PER_S} answers a second; "
        "{hyroads.controller.access_point.ieee1905:MAX_WAITING} messages wait for fragments, "
        "{hyroads.controller.access_point.ieee1905:MAX_WAIT_S} s at most",
        ("controller/access_point/packet_socket.py:packet_socket",),
    ),
    ListeningSocket(
        "client",
        "control",
        "a Unix socket in the run directory",
        OWNER,
        "ask for state, change modes",
        _CONTROL_LIMITS,
        ("controller/client/json_lines.py:ControlServer.start",),
    ),
    ListeningSocket(
        "client",
        "control of `hyroads-client`",
        "a Unix socket in the run directory",
        OWNER,
        "configure sessions, with their keys",
        "16 connections",
        (
            "dataplane/src/client/control.rs:listen",
            "dataplane/src/client/shell.rs:run",
            "dataplane/src/sys/unix.rs:listen",
        ),
    ),
    ListeningSocket(
        "client",
        "tunnels",
        "a UDP port of the kernel's choice on each interface",
        "the waypoint: each packet has a tag (SipHash) of the session's key",
        "send packets of the client's flows",
        "what has a wrong tag is counted and dropped: no answer, no state of senders",
        ("dataplane/src/client/devices.rs:open", "dataplane/src/sys/socket.rs:bind", "dataplane/src/sys/udp.rs:open"),
    ),
    ListeningSocket(
        "client",
        "packets of the host",
        "a packet socket on each interface of its flows",
        "whoever can send on that link, as to the host itself",
        "send packets of connections that the client has placed there",
        "what belongs to no flow is left to the host",
        ("dataplane/src/sys/ip_tap.rs:open",),
    ),
    ListeningSocket(
        "waypoint",
        "`--listen`, sessions",
        "TCP 0.0.0.0:{hyroads.controller.client.policy:WAYPOINT_PORT}, always TLS",
        "clients with a token of their own",
        "get an address and the key of a session",
        "{hyroads.controller.client.waypoint:LIMITS.strangers} strangers, the oldest of the address with most ends "
        "first, {hyroads.controller.client.waypoint:LIMITS.known} at addresses that are known and "
        "{hyroads.controller.client.waypoint:LIMITS.each} with a client's token; TLS within "
        "{hyroads.controller.client.waypoint:HANDSHAKE_WITHIN_S} s, hello within "
        "{hyroads.controller.client.waypoint:HELLO_WITHIN_S} s",
        ("controller/client/waypoint.py:Waypoint.main", _ADMITTED),
    ),
    ListeningSocket(
        "waypoint",
        "`--listen`, packets",
        "UDP 0.0.0.0:{hyroads.controller.client.policy:WAYPOINT_PORT}",
        "clients with a session: each packet has a tag (SipHash) of its key. With the kernel's plane (VXLAN, one port "
        "above) the sender's address alone is compared",
        "send packets from its own address to the Internet",
        "what has a wrong tag is counted and dropped: no answer, no state of senders",
        (
            "dataplane/src/client/waypoint.rs:run",
            "dataplane/src/sys/socket.rs:bind",
            "dataplane/src/sys/udp.rs:open",
            "controller/client/kernel_items.py:tunnel_items",
        ),
    ),
    ListeningSocket(
        "waypoint",
        "control",
        "Unix sockets in the run directory",
        OWNER,
        "ask for sessions; configure `hyroads-client`",
        _CONTROL_LIMITS,
        (
            "controller/client/json_lines.py:ControlServer.start",
            "dataplane/src/client/control.rs:listen",
            "dataplane/src/client/waypoint.rs:run",
            "dataplane/src/sys/unix.rs:listen",
        ),
    ),
    ListeningSocket(
        "guest-network",
        "dnsmasq",
        "UDP 67, UDP and TCP 53 on the guests' interface alone",
        "guests",
        "get a lease, resolve public names",
        "`leases` leases; 150 questions under way (dnsmasq); rates as `rate_mbps` says",
        ("controller/guest/rules.py:dnsmasq_options",),
    ),
    ListeningSocket(
        "dashboard",
        "`--listen`",
        "TCP 127.0.0.1:{hyroads.controller.cli.dashboard:DEFAULT_PORT}, HTTP",
        LOOPBACK_ONLY + "; with `--token-file` who logs in with a token of the API. Beyond loopback needs `--cert`, "
        "`--key` and `--token-file`",
        "look; with the role admin or application also move clients",
        "{hyroads.dashboard.server:LIMITS.strangers} strangers for {hyroads.dashboard.server:LIMITS.within_s} s, the "
        "oldest of the address with most ends first, {hyroads.dashboard.server:LIMITS.known} at addresses that are "
        "known and {hyroads.dashboard.server:LIMITS.each} of a session; "
        "{hyroads.dashboard.access:ATTEMPTS.per_s} attempts a second to log in from an address; "
        "{hyroads.dashboard.access:MAX_SESSIONS} sessions of {hyroads.dashboard.access:LONGEST_S} s at most",
        ("dashboard/server.py:_run", "dashboard/server.py:_listen", _ADMITTED),
    ),
    ListeningSocket(
        "proxy",
        "`--listen`",
        "TCP 127.0.0.1:3128, HTTP",
        LOOPBACK_ONLY + "; networks of `--allow`, or who has the token. Beyond loopback needs one of them",
        "fetch from other hosts, not from this machine's own networks without `--allow-local`",
        "{hyroads.controller.download.proxy:LIMITS.strangers} connections that carried nothing to or from a server, "
        "the oldest of the address with most ends first, for {hyroads.controller.download.proxy:LIMITS.within_s} s; "
        "{hyroads.controller.download.proxy:LIMITS.each} more of an address, the longest silent tunnel ends first",
        ("controller/cli/proxy.py:_serve", _ADMITTED),
    ),
    ListeningSocket(
        "proxy, fetch",
        "`--metrics`",
        "off; TCP 127.0.0.1, HTTP",
        LOOPBACK_ONLY,
        "read metrics",
        "{hyroads.controller.download.metrics:LIMITS.strangers} connections of "
        "{hyroads.controller.download.metrics:_WITHIN_S} s",
        (
            "controller/download/metrics.py:_Server",
            "controller/framework/admitted_http.py:AdmittedHttpServer",
            _ADMITTED,
        ),
    ),
    ListeningSocket(
        "flowvisor watch",
        "`--listen`",
        "TCP 127.0.0.1 at a port of the kernel's choice, HTTP",
        "the FlowVisor, by a secret in the path that it was given",
        "tell events",
        f"{{{_EVENTS}:LIMITS.strangers}} connections; {{{_EVENTS}:MAX_BODY}} bytes "
        f"within {{{_EVENTS}:POSTED_WITHIN_S}} s",
        ("slices/flowvisor/events.py:Events.__post_init__", _ADMITTED),
    ),
    ListeningSocket(
        "emulation",
        "`--publish`, `--dashboard`",
        "TCP 127.0.0.1:8080; everything else is in namespaces of its own",
        LOOPBACK_ONLY,
        "use the emulated network's REST API and pages",
        "those of the controller inside",
        ("mininet/runner.py:_listen", "mininet/relay.py:serve"),
    ),
    ListeningSocket(
        "emulation",
        "medium",
        "a Unix socket in the run directory",
        OWNER,
        "change links, read counters",
        "64 connections",
        ("dataplane/src/medium/shell.rs:open", "dataplane/src/sys/unix.rs:listen"),
    ),
)

_FIGURE = re.compile(r"\{([\w.]+):([\w.]+)\}")


def with_figures(text: str, value: Callable[[str, str], object]) -> str:
    """``text`` with each ``{module:NAME}`` replaced by ``value(module, NAME)``."""
    return _FIGURE.sub(lambda found: _shown(value(found[1], found[2])), text)


def table(value: Callable[[str, str], object]) -> str:
    """All sockets as a table in Markdown; ``value`` looks up the figures."""
    head = ("part", "socket", "unless said otherwise", "who may speak", "what it may", "limits")
    rows = [(each.part, each.name, each.default, each.who, each.may, each.limits) for each in SOCKETS]
    lines = [head, ("---",) * len(head), *rows]
    return with_figures("\n".join(f"| {' | '.join(line)} |" for line in lines), value)


def _shown(figure: object) -> str:
    return f"{figure:g}" if isinstance(figure, float) else str(figure)
