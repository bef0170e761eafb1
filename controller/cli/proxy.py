"""``hyroads proxy``: a forward proxy on this machine that uses several interfaces."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from types import FrameType

from hyroads.controller.core.checking import Place, Problems
from hyroads.controller.download.engine import SAID, Engine
from hyroads.controller.download.interfaces import (
    LOOPBACK,
    MOST_INTERFACES,
    InputError,
    default_interfaces,
    named_interfaces,
)
from hyroads.controller.download.proxy import LIMITS, Proxy
from hyroads.controller.download.proxy_policy import CONNECT_PORTS, Policy, Rule, print_record
from hyroads.controller.framework.admitted import AdmittedListener

from .fetch import DNS, METRICS, dns_of, serve_metrics_of
from .main import Command, argument

_STACK_BYTES = 512 * 1024
_DESCRIPTORS = 16384
_MOST_WEIGHT = 1000.0
_LEAST_TOKEN = 16


def _run(args: argparse.Namespace) -> int:
    names = named_interfaces(args.interfaces) if args.interfaces is not None else default_interfaces()
    if args.allow_local and LOOPBACK not in names and len(names) < MOST_INTERFACES:
        names.append(LOOPBACK)
    if not names:
        raise InputError("no interface has a default route (--interfaces names those to use)")
    rules: tuple[Rule, ...] = ()
    if args.flows is not None:
        # Only then: what reads YAML takes a while to import.
        from hyroads.controller.files.text import read_text

        rules = parse_flows(read_text(args.flows), args.flows, names)
    host, port = listening(args.listen)
    token = None if args.token_file is None else _token(Path(args.token_file))
    policy = Policy(rules, _ports(args.connect_ports), args.allow_local, token, _networks(args.allow))
    if not ipaddress.ip_address(host).is_loopback and token is None and not policy.clients:
        raise InputError(f"--listen {host}: others can reach this address; give --token-file or --allow")
    engine = Engine(names, say=_tell, dns=dns_of(args.dns, names))
    return _serve(host, port, engine, policy, as_json=args.json_log, metrics=args.metrics)


def _serve(host: str, port: int, engine: Engine, policy: Policy, *, as_json: bool, metrics: int | None) -> int:
    try:
        listener = AdmittedListener(host, port, LIMITS, lambda peer, why: None)
    except OSError as error:
        raise InputError(f"--listen {host}:{port}: {error.strerror}") from error
    threading.stack_size(_STACK_BYTES)
    # A tunnel needs six descriptors.
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= now < _DESCRIPTORS:
        wanted = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    proxy = Proxy(engine, policy, print_record if as_json else lambda *_: None)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if metrics is not None:
        _say(f"metrics at http://127.0.0.1:{serve_metrics_of('proxy', engine, proxy, metrics)}/metrics")
    engine.start()
    threading.Thread(target=proxy.serve, args=(listener,), daemon=True).start()
    shown = f"[{host}]" if ":" in host else host
    names = ", ".join(each.name for each in engine.interfaces)
    _say(f"listens on http://{shown}:{listener.getsockname()[1]}, over {names}")
    ended.wait()
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    engine.close()
    sys.stdout.flush()
    # Threads that serve somebody may wait for a server; there is nothing for them to put in order.
    os._exit(0)


def _tell(event: str, name: str) -> None:
    _say(f"{name}: {SAID[event]}")


def _say(text: str) -> None:
    print(f"hyroads proxy: {text}", file=sys.stderr, flush=True)


def listening(text: str) -> tuple[str, int]:
    """``ADDRESS:PORT`` (IPv6 addresses in brackets); raises InputError for anything else."""
    host, colon, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
        number = int(port) if port.isdecimal() and len(port) < 6 else -1
    except ValueError:
        number = -1
    if not colon or not 0 <= number < 65536:
        raise InputError(f"--listen {text[:60]!a}: expected ADDRESS:PORT like 127.0.0.1:3128")
    return host, number


def _ports(text: str | None) -> frozenset[int] | None:
    if text is None:
        return CONNECT_PORTS
    if text == "all":
        return None
    words = text.split(",")
    if not all(word.isdecimal() and len(word) < 6 and 0 < int(word) < 65536 for word in words):
        raise InputError(f"--connect-ports {text[:60]!a}: expected port numbers with commas between them, or all")
    return frozenset(map(int, words))


def _networks(texts: list[str]) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise InputError(f"--allow {text[:60]!a}: expected an address or a network like 192.0.2.0/24") from error
    return tuple(found)


def _token(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path}: others may read it (chmod 600)")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or 'expected printable ASCII'}") from error
    if len(token) < _LEAST_TOKEN or not token.isprintable():
        raise InputError(f"{path}: expected a token of at least {_LEAST_TOKEN} printable characters")
    return token


def parse_flows(text: str, document: str, names: list[str]) -> tuple[Rule, ...]:
    """``flows`` of a file: which requests may use which interfaces, with which weight; the first that matches counts.

    ConfigError names every wrong place.
    """
    from hyroads.controller.core.document import load_document

    problems = Problems(document)
    section = Place(load_document(text, document), problems).section(("flows",), ("flows",))
    rules = [_rule(place, names) for place in section["flows"].items()] if "flows" in section else []
    problems.raise_if_any()
    return tuple(rules)


def _rule(place: Place, names: list[str]) -> Rule:
    section = place.section(("name", "match", "interfaces", "weight"), ("name",))
    name = section["name"].identifier() if "name" in section else ""
    host, port, weight, interfaces = None, None, 1.0, list[str]()
    if "match" in section:
        match = section["match"].section(("host", "port"))
        host = match["host"].identifier().lower().rstrip(".") if "host" in match else None
        port = match["port"].integer(0, 1, 65535) if "port" in match else None
    if "interfaces" in section:
        interfaces = [item.reference(names, "interface") for item in section["interfaces"].items()]
        if section["interfaces"].value == []:
            section["interfaces"].expected("at least one interface")
    if "weight" in section:
        weight = section["weight"].number(1.0, 0.0, _MOST_WEIGHT, open_low=True, what="a weight above 0")
    return Rule(name, host, port, tuple(interfaces), weight)


COMMAND = Command(
    "A forward HTTP proxy for the programs of this machine. Large answers to http:// requests are fetched in parts "
    "over several interfaces; everything else, and each CONNECT tunnel (https), goes over the interface that is "
    "expected to serve it best. Use it with http_proxy=http://127.0.0.1:3128 and https_proxy=http://127.0.0.1:3128.",
    _run,
    argument(
        "--listen", default="127.0.0.1:3128", metavar="ADDRESS:PORT", help="where to listen (default %(default)s)"
    ),
    argument("--interfaces", metavar="IF,IF", help="interfaces to use (default: all with a default route)"),
    DNS,
    argument(
        "--flows", metavar="FILE", help="which requests may use which interfaces, with which weight (YAML or JSON)"
    ),
    argument("--connect-ports", metavar="P,P|all", help="ports that CONNECT may go to (default 80,443,8443)"),
    argument("--allow-local", action="store_true", help="also reach this machine itself and link-local addresses"),
    argument(
        "--allow", action="append", default=[], metavar="NETWORK", help="clients that may use it, besides this machine"
    ),
    argument("--token-file", metavar="FILE", help="clients must send this token (Proxy-Authorization)"),
    argument("--json-log", action="store_true", help="one JSON document per request on stdout"),
    METRICS,
)
