"""The command ``hyroads``: finds the subcommand, loads only its module, turns errors into one line and a status.

A command is a :class:`Command`. Exit status: what its ``run`` returns, 2 on bad input, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hyroads.controller import version
from hyroads.controller.core.errors import HyroadsError

# Module of this folder (and the command's name in it, else COMMAND), and what ``hyroads --help`` shows without it.
COMMANDS: dict[str, tuple[str, str]] = {
    "plan": ("plan", "best path, multipath and arms between two nodes of a network file"),
    "allocate": ("allocate", "rates of all flows of a network file"),
    "place": ("place", "which neighbour each radio of a client should attach to"),
    "regions": ("regions", "divide a network into regions with a controller each"),
    "study": ("study", "repeat a published experiment, with plots and a report"),
    "latency": ("latency", "best technology and best split of a load over two technologies"),
    "fair": ("fair", "fair rates of flows that accept some interfaces only"),
    "fetch": ("fetch", "fetch files over several interfaces at once"),
    "proxy": ("proxy", "an HTTP proxy for this machine that uses several interfaces at once"),
    "check-config": ("check_config", "check a network file and summarise it"),
    "schema": ("schema", "print the JSON Schema of a kind of file, for editors"),
    "demo": ("demo", "run an emulated network with real traffic and compare with theory (root)"),
    "emulate": ("emulate", "keep an emulated network running (root)"),
    "chaos": ("chaos", "break parts of an emulated network under traffic, and see that it heals (root)"),
    "lab": ("lab", "boot boxes that are whole systems, set them up from packages, and measure (root)"),
    "mininet-wifi": ("mininet_wifi", "keep a network of the installed Mininet-WiFi running (root)"),
    "controller": ("processes:CONTROLLER", "start the controller"),
    "audit": ("audit", "show what of an installation is weak: tokens, TLS, ports, files"),
    "identity": ("identity", "make tokens and certificates of devices and controllers"),
    "box": ("box", "make machines nodes: join and leave on a box, list and adopt at the controller"),
    "ap-agent": ("ap_agent", "serve an access point's radios over SNMP"),
    "client": ("client", "use all interfaces of this host by a policy (root)"),
    "guest-network": ("processes:GUEST_NETWORK", "a guest network on the gateway: DHCP, DNS, NAT (root)"),
    "topology": ("network:TOPOLOGY", "show nodes, links, domains, paths and health of a running controller"),
    "flows": ("network:FLOWS", "list, declare and remove flows of a running controller"),
    "clients": ("network:CLIENTS", "list clients and where they are"),
    "connections": ("services:CONNECTIONS", "list MPTCP connections that a running controller has recognised"),
    "handover": ("services:HANDOVER", "move clients without loss"),
    "ncast": ("services:NCAST", "send live flows by several paths at once"),
    "session": ("services:SESSION", "multicast sessions: declare, join, leave"),
    "reservation": ("services:RESERVATION", "reserve least rates for flows and sessions"),
    "quotas": ("services:QUOTAS", "list how much each token may have, and has"),
    "access-rule": ("services:ACCESS_RULE", "allow, deny or limit what enters the network"),
    "events": ("network:EVENTS", "print what happens in the network"),
    "plugins": ("network:PLUGINS", "list, enable and disable plugins"),
    "ha": ("ha", "controllers that stand by for each other: who leads, hand over, drain"),
    "dashboard": ("dashboard", "show a running network in a browser"),
    "slicer": ("processes:SLICER", "let several controllers share the switches, a slice each"),
    "slices": ("slices", "list and change the slices of a running slicer"),
    "flowvisor": ("flowvisor", "check and apply slices on a FlowVisor 1.4 (OpenFlow 1.0)"),
    "snmpvisor": ("processes:SNMPVISOR", "let several slices share the SNMP agents of access points"),
    "ssids": ("ssids", "wireless networks of slices on all access points"),
}

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT


Argument = Callable[[Any], object]
"""Adds itself to a parser, or to a group of one."""


def argument(*words: str, **options: Any) -> Argument:
    """An argument of a command, as ``add_argument`` takes it."""
    return lambda parser: parser.add_argument(*words, **options)


def either(*arguments: Argument, required: bool = False) -> Argument:
    """Arguments of which at most one may be given."""
    return lambda parser: add_all(parser.add_mutually_exclusive_group(required=required), arguments)


def add_all(parser: Any, arguments: Sequence[Argument]) -> None:
    """Add all arguments to a parser, or to a group of one."""
    for add in arguments:
        add(parser)


class Command:
    """A command: what its help says, what it does (the result is the exit status), and its arguments."""

    def __init__(self, about: str, run: Callable[[argparse.Namespace], int], *arguments: Argument) -> None:
        self.HELP, self.run, self.arguments = about, run, arguments

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        add_all(parser, self.arguments)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, without the usage that ``--help`` shows."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message} (see --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What a verb does not know is said by its own parser, whose ``--help`` shows what it knows."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: the process's arguments) and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except HyroadsError as error:
        print(f"hyroads: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # The reader (head, less) has gone. What is still buffered must not fail again at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _dispatch(arguments: list[str]) -> int:
    first = arguments[0] if arguments else None
    if first in ("-h", "--help"):
        print(_usage())
        return 0
    if first == "--version":
        print(f"hyroads {version()}")
        return 0
    if first not in COMMANDS:
        print(f"hyroads: {_complaint(first)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    command = load(first)
    parser = _Parser(prog=f"hyroads {first}", description=command.HELP)
    command.add_arguments(parser)
    return command.run(parser.parse_args(arguments[1:]))


def load(name: str) -> Command:
    """The command ``name`` of ``COMMANDS``; imports its module."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found: Command = getattr(importlib.import_module(f"{__package__}.{module}"), attribute or "COMMAND")
    return found


def _complaint(word: str | None) -> str:
    listed = f"commands are {', '.join(COMMANDS)} (see hyroads --help)"
    if word is None:
        return f"no command given; {listed}"
    close = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown command {word[:40]!a}{hint}; {listed}"


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    head = ["usage: hyroads COMMAND [ARGUMENTS]", "       hyroads COMMAND --help | --help | --version", "", "commands:"]
    return "\n".join(head + lines)
