"""From a command to a running network: preconditions, sweep, claim, isolation, and removal of every trace."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network

from . import run_directory
from .emulation import REST_PORT, Emulation, EmulationOptions, Say
from .isolation import EXIT_INTERRUPTED, run_isolated
from .programs import RADIO_TOOLS, SNMP_TOOLS, TOOLS, EmulationError, Program, check_prerequisites, find_program, run
from .radios import check_radios

Body = Callable[[Emulation], int]


@dataclass(frozen=True)
class RunOptions:
    """``publish`` is the host's port for the REST interface: None = 8080 if it is free, 0 = not at all."""

    publish: int | None = None
    emulation: EmulationOptions = field(default_factory=EmulationOptions)


def run_network(  # noqa: PLR0917 - the last is for one caller
    network: Network, name: str, body: Body, options: RunOptions, say: Say, kind: type[Emulation] = Emulation
) -> int:
    """Runs ``body`` on the emulated network and returns its status; nothing of the network is left afterwards.

    ``kind`` says how the network is emulated.
    """
    snmp, radio = options.emulation.snmp, options.emulation.radio
    check_prerequisites({**TOOLS, **(SNMP_TOOLS if snmp else {}), **(RADIO_TOOLS if radio else {})})
    if radio:
        check_radios()
    for program in ("hyroads-edge", "hyroads-medium"):
        find_program(program)
    Addressing.of(network)
    for swept in run_directory.sweep():
        say(f"swept what a dead {swept} left behind")
    directory = run_directory.claim(name)
    listener = None
    try:
        listener = _listener(options, say)
        root = run_directory.namespace_name(name)
        numbers = range(1, len(network.nodes) + 1)
        nodes = [run_directory.namespace_name(name, node) for node in (*network.nodes, *(f"n{i}" for i in numbers))]
        directory.record([*nodes, root])
        run("ip", "netns", "add", root)
        run("ip", "-n", root, "link", "set", "lo", "up")

        def work() -> int:
            emulation = kind(network, name, directory.path, options.emulation)
            if listener is not None:
                relay(listener, directory.path).start()
            emulation.start(say)
            return body(emulation)

        status = run_isolated(run_directory.NETNS_ROOT / root, work)
        if status == EXIT_INTERRUPTED:
            say(f"network {name} ended")
        return status
    finally:
        if listener is not None:
            listener.close()
        directory.release()


def _listener(options: RunOptions, say: Say) -> socket.socket | None:
    """The host's socket for the REST interface; a port that was asked for must be free."""
    if options.publish == 0 or not options.emulation.controller:
        return None
    port = options.publish or REST_PORT
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        if options.publish:
            raise EmulationError(f"--publish {port}: {error.strerror}") from error
        say(f"port {port} is in use: REST is not published (see --publish)")
        return None


def relay(listener: socket.socket, directory: Path) -> Program:
    """The process behind the published port."""
    command = [sys.executable, "-m", "hyroads.mininet.relay", "--fd", str(listener.fileno()), "--port", str(REST_PORT)]
    return Program("relay", command, directory / "relay.log", pass_fds=(listener.fileno(),))
