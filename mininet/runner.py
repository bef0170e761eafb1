"""From a command to a running network: preconditions, sweep, claim, isolation, and removal of every trace."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.network import Network

from . import run_directory
from .emulation import PORTS_APART, REST_PORT, Emulation, EmulationOptions, Say, controller_ports
from .etcd import etcd_program
from .guest_network import gateway_of, namespaces
from .isolation import EXIT_INTERRUPTED, run_isolated
from .programs import (
    GUEST_TOOLS,
    HYROADS,
    RADIO_TOOLS,
    SNMP_TOOLS,
    STACK_TOOLS,
    TOOLS,
    EmulationError,
    Program,
    check_prerequisites,
    find_program,
    run,
    wait_until,
)
from .radios import check_radios
from .waypoints import gateways

Body = Callable[[Emulation], int]
DASHBOARD_PORT = 8090
DASHBOARD_READY_S = 60.0


@dataclass(frozen=True)
class RunOptions:
    """``publish`` is the host's port for the REST interface: None = 8080 if it is free, 0 = not at all.

    ``dashboard`` is that for the dashboard; None: there is none.
    """

    publish: int | None = None
    dashboard: int | None = None
    emulation: EmulationOptions = field(default_factory=EmulationOptions)


def run_network(  # noqa: PLR0917 - the last is for one caller
    network: Network, name: str, body: Body, options: RunOptions, say: Say, kind: type[Emulation] = Emulation
) -> int:
    """Runs ``body`` on the emulated network and returns its status; nothing of the network is left afterwards.

    ``kind`` says how the network is emulated.
    """
    snmp, radio = options.emulation.snmp, options.emulation.radio
    stack = STACK_TOOLS if gateways(network) else {}
    guests = GUEST_TOOLS if options.emulation.guest else {}
    check_prerequisites({**TOOLS, **(SNMP_TOOLS if snmp else {}), **(RADIO_TOOLS if radio else {}), **stack, **guests})
    if guests:
        gateway_of(network)
    if radio:
        check_radios()
    for program in ("hyroads-edge", "hyroads-medium", *(["hyroads-client"] if stack else [])):
        find_program(program)
    if options.emulation.etcd_members:
        etcd_program()
    Addressing.of(network)
    for swept in run_directory.sweep():
        say(f"swept what a dead {swept} left behind")
    directory = run_directory.claim(name)
    listeners: list[tuple[socket.socket, int]] = []
    pages = None
    try:
        listeners = _listeners(options, say)
        pages = _listen("--dashboard", options.dashboard) if options.dashboard is not None else None
        root = run_directory.namespace_name(name)
        numbers = range(1, len(network.nodes) + 1)
        nodes = [run_directory.namespace_name(name, node) for node in (*network.nodes, *(f"n{i}" for i in numbers))]
        directory.record([*nodes, root, *(namespaces(name) if options.emulation.guest else ())])
        run("ip", "netns", "add", root)
        run("ip", "-n", root, "link", "set", "lo", "up")

        def work() -> int:
            emulation = kind(network, name, directory.path, options.emulation)
            for listener, port in listeners:
                relay(listener, directory.path, port).start()
            emulation.start(say)
            if pages is not None:
                show_dashboard(pages, directory.path, say)
            return body(emulation)

        status = run_isolated(run_directory.NETNS_ROOT / root, work)
        if status == EXIT_INTERRUPTED:
            say(f"network {name} ended")
        return status
    finally:
        for each in (pages, *(listener for listener, _ in listeners)):
            if each is not None:
                each.close()
        directory.release()


def _listeners(options: RunOptions, say: Say) -> list[tuple[socket.socket, int]]:
    """The host's sockets for the REST interface of each controller, with its port inside; a port that was asked for
    must be free.
    """
    if options.publish == 0 or not options.emulation.controller:
        return []
    found: list[tuple[socket.socket, int]] = []
    try:
        for number in range(options.emulation.controllers if options.emulation.etcd_members else 1):
            inside = controller_ports(number)["rest"]
            port = (options.publish or REST_PORT) + PORTS_APART * number
            found.append((_listen("--publish", port), inside))
    except EmulationError:
        for listener, _ in found:
            listener.close()
        if options.publish:
            raise
        say(f"port {port} is in use: REST is not published (see --publish)")
        return []
    return found


def _listen(option: str, port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise EmulationError(f"{option} {port}: {error.strerror}") from error


def relay(listener: socket.socket, directory: Path, port: int = REST_PORT) -> Program:
    """The process behind a published port; ``port`` is that of loopback inside."""
    command = [sys.executable, "-m", "hyroads.mininet.relay", "--fd", str(listener.fileno()), "--port", str(port)]
    return Program("relay", command, directory / f"relay-{port}.log", pass_fds=(listener.fileno(),))


def show_dashboard(listener: socket.socket, directory: Path, say: Say) -> None:
    """Start the dashboard inside, published by a socket of the host, and print its address once it answers."""
    command = [*HYROADS, "dashboard", "--url", f"http://127.0.0.1:{REST_PORT}", "--port", str(DASHBOARD_PORT)]
    # The network's own processes come first.
    program = Program("dashboard", command, directory / "dashboard.log", niceness=10)
    program.start()

    def ready() -> bool:
        if not program.alive:
            raise EmulationError(program.failure())
        with suppress(OSError), socket.create_connection(("127.0.0.1", DASHBOARD_PORT), 1.0):
            return True
        return False

    say("starting the dashboard")
    wait_until("dashboard", ready, DASHBOARD_READY_S, interval_s=0.2)
    relay(listener, directory, DASHBOARD_PORT).start()
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/", flush=True)
