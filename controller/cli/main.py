"""The command ``hyroads``: finds the subcommand, loads only its module, turns errors into one line and a status.

A command is a module, or an object in one (``module:NAME``), with ``HELP: str``, ``add_arguments(parser)`` and
``run(args) -> int``. Exit status: what ``run``
returns, 2 on bad input, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from hyroads.controller import version
from hyroads.controller.core.errors import HyroadsError

COMMANDS: dict[str, str] = {
    "plan": "hyroads.controller.cli.plan",
    "allocate": "hyroads.controller.cli.allocate",
    "study": "hyroads.controller.cli.study",
    "latency": "hyroads.controller.cli.latency",
    "fair": "hyroads.controller.cli.fair",
    "check-config": "hyroads.controller.cli.check_config",
    "demo": "hyroads.controller.cli.demo",
    "emulate": "hyroads.controller.cli.emulate",
    "controller": "hyroads.controller.cli.processes:CONTROLLER",
    "ap-agent": "hyroads.controller.cli.ap_agent",
    "topology": "hyroads.controller.cli.network:TOPOLOGY",
    "flows": "hyroads.controller.cli.network:FLOWS",
    "clients": "hyroads.controller.cli.network:CLIENTS",
    "handover": "hyroads.controller.cli.services:HANDOVER",
    "ncast": "hyroads.controller.cli.services:NCAST",
    "session": "hyroads.controller.cli.services:SESSION",
    "reservation": "hyroads.controller.cli.services:RESERVATION",
    "events": "hyroads.controller.cli.network:EVENTS",
    "plugins": "hyroads.controller.cli.network:PLUGINS",
    "slicer": "hyroads.controller.cli.processes:SLICER",
    "slices": "hyroads.controller.cli.slices",
    "flowvisor": "hyroads.controller.cli.flowvisor",
    "snmpvisor": "hyroads.controller.cli.processes:SNMPVISOR",
    "ssids": "hyroads.controller.cli.ssids",
}

# What ``hyroads --help`` shows without importing any command.
SUMMARIES: dict[str, str] = {
    "plan": "best path, multipath and arms between two nodes of a network file",
    "allocate": "rates of all flows of a network file",
    "study": "repeat a published experiment, with plots and a report",
    "latency": "best technology and best split of a load over two technologies",
    "fair": "fair rates of flows that accept some interfaces only",
    "check-config": "check a network file and summarise it",
    "demo": "run an emulated network with real traffic and compare with theory (root)",
    "emulate": "keep an emulated network running (root)",
    "controller": "start the controller",
    "ap-agent": "serve an access point's radios over SNMP",
    "topology": "show nodes, links, domains, paths and health of a running controller",
    "flows": "list, declare and remove flows of a running controller",
    "clients": "list clients and where they are",
    "handover": "move clients without loss",
    "ncast": "send live flows by several paths at once",
    "session": "multicast sessions: declare, join, leave",
    "reservation": "reserve least rates for flows and sessions",
    "events": "print what happens in the network",
    "plugins": "list, enable and disable plugins",
    "slicer": "let several controllers share the switches, a slice each",
    "slices": "list and change the slices of a running slicer",
    "flowvisor": "check and apply slices on a FlowVisor 1.4 (OpenFlow 1.0)",
    "snmpvisor": "let several slices share the SNMP agents of access points",
    "ssids": "wireless networks of slices on all access points",
}

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT


class Command(Protocol):
    """What a command offers."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit status."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, without the usage that ``--help`` shows."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message} (see --help)\n")


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
    module, _, attribute = COMMANDS[name].partition(":")
    found = importlib.import_module(module)
    return cast(Command, getattr(found, attribute) if attribute else found)


def _complaint(word: str | None) -> str:
    listed = f"commands are {', '.join(COMMANDS)} (see hyroads --help)"
    if word is None:
        return f"no command given; {listed}"
    close = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"unknown command {word[:40]!a}{hint}; {listed}"


def _usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {SUMMARIES.get(name, '')}".rstrip() for name in COMMANDS]
    head = ["usage: hyroads COMMAND [ARGUMENTS]", "       hyroads COMMAND --help | --help | --version", "", "commands:"]
    return "\n".join(head + lines)
