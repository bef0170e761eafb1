"""``hyroads ap-agent``: serves an access point's radios to net-snmp's ``snmpd``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hyroads.controller.core.errors import ConfigError

from .main import Command, argument, either

if TYPE_CHECKING:
    from hyroads.controller.access_point.agent import LiveObjects
    from hyroads.controller.access_point.channel import Address, Secured
    from hyroads.controller.access_point.config import AgentConfig

MAX_CONFIG_BYTES = 1 << 20
AGENTX = "agentx"


def _run(args: argparse.Namespace) -> int:
    from hyroads.controller.access_point.agent import LiveObjects, make_radios
    from hyroads.controller.access_point.backends import MAKERS
    from hyroads.controller.access_point.config import parse
    from hyroads.controller.access_point.snmpd import serve

    config = parse(_read(Path(args.config)), args.config)
    if args.channel is not None:
        return _run_channel(args, config)
    if args.wireless:
        return _run_wireless(args, config)
    if args.wired:
        return _run_wired(args, config)
    if not args.pass_persist and not args.print:
        return _run_snmpd(args)
    if args.pass_persist:
        _divert_stderr(args.log or os.devnull)
    objects = LiveObjects(config, make_radios(config, MAKERS))
    if args.pass_persist:
        serve(sys.stdin.buffer, sys.stdout.buffer, objects)
        return 0
    return _print(objects)


def _run_channel(args: argparse.Namespace, config: AgentConfig) -> int:
    """Speaks to the controller for ever."""
    from hyroads.controller.access_point.agent import Complaints, OwnReadings, make_radios
    from hyroads.controller.access_point.backends import MAKERS
    from hyroads.controller.access_point.channel import Channel, addresses_of
    from hyroads.controller.access_point.hostapd import HostapdFollower
    from hyroads.controller.access_point.ieee1905_ports import AlPorts
    from hyroads.controller.framework.service_manager import ServiceManager

    token = None if args.token_file is None else _read(Path(args.token_file)).strip()
    if not config.interfaces and not config.hostapd:
        raise ConfigError(args.config, "interfaces", "expected at least one interface to read, or hostapd to follow")
    complain = Complaints("hyroads ap-agent")
    readings = OwnReadings(config, make_radios(config, MAKERS), complain)
    followers = [HostapdFollower(entry.socket, entry.technology, complain) for entry in config.hostapd]
    addresses = addresses_of(args.channel)
    secured = _secured(args, addresses)
    channel = Channel(
        addresses,
        token,
        [config.node],
        readings,
        complain,
        followers=followers,
        devices=AlPorts.of(config, readings.link, complain),
        secured=secured,
    )
    manager = ServiceManager()
    manager.ready()
    channel.run(each_turn=manager.turned)
    return 0


def _secured(args: argparse.Namespace, addresses: list[Address]) -> Secured | None:
    """TLS, if an authority is named: a controller's certificate must have the name by which it is dialled."""
    if args.ca is None:
        if args.cert is not None or args.key is not None:
            raise ConfigError("command line", "--cert", "expected --ca, by which controllers are trusted")
        return None
    from hyroads.controller.framework.tls_client import ClientTls, client_context

    context = client_context(args.ca, args.cert, args.key)
    hosts = [each.rpartition(":")[0].strip().strip("[]") for each in args.channel.split(",")]
    names = dict(zip(addresses, hosts, strict=True))
    return lambda address: ClientTls(context, names[address])


def _run_wireless(args: argparse.Namespace, config: AgentConfig) -> int:
    """A part of snmpd, until this process or its parent is ended."""
    from hyroads.controller.access_point.agent import Complaints
    from hyroads.controller.access_point.backends import WIRELESS_MAKERS, run_command
    from hyroads.controller.access_point.radius import with_secrets
    from hyroads.controller.access_point.wireless_agent import WirelessObjects, interface_number, serve

    if config.wireless is None:
        raise ConfigError(args.config, "wireless", "expected the radios to configure")
    directory = Path(args.directory).resolve()
    complain = Complaints("hyroads ap-agent")
    groups = with_secrets(config.radius, Path(args.config).parent)
    wireless = replace(config.wireless, radius=groups)
    backend = WIRELESS_MAKERS[wireless.backend](wireless, directory / "wireless", run_command)
    state = directory / "wireless.json" if config.wireless.state is None else Path(config.wireless.state)
    objects = WirelessObjects(config.wireless.radios, backend, state, complain, interface_number)
    serve(objects, str(directory / AGENTX), complain, args.with_parent)
    return 0


def _run_wired(args: argparse.Namespace, config: AgentConfig) -> int:
    """Becomes hostapd, in the foreground; logs go to stdout."""
    from hyroads.controller.access_point.radius import wired_text, with_secrets
    from hyroads.controller.files.private import write_atomically

    if config.wired is None:
        raise ConfigError(args.config, "wired", "expected the bridge's own interface and a group of RADIUS servers")
    program = shutil.which("hostapd", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin")
    if program is None:
        raise ConfigError(args.config, "", "hostapd not found (apt-get install hostapd)")
    group = with_secrets(config.radius, Path(args.config).parent)[config.wired.radius]
    directory = Path(args.directory).resolve() / "wired"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(directory / "hostapd.conf", wired_text(config.wired, group, str(directory)))
    except OSError as error:
        raise ConfigError(str(directory), "", str(error.strerror)) from error
    os.execv(program, [program, str(directory / "hostapd.conf")])  # noqa: S606


def _read(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            if os.fstat(handle.fileno()).st_mode & 0o077:
                raise ConfigError(str(path), "", "expected mode 0600: the file holds secrets")
            return handle.read(MAX_CONFIG_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), "", str(getattr(error, "strerror", None) or error)) from error


def _divert_stderr(path: str) -> None:
    """snmpd gives its programs one pipe for stdout and stderr: a complaint would be taken for an answer."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(log, 2)
    os.close(log)


def _run_snmpd(args: argparse.Namespace) -> int:
    """Becomes snmpd, in the foreground; logs go to stderr."""
    from hyroads.controller.access_point.config import parse
    from hyroads.controller.access_point.snmpd import snmpd_conf
    from hyroads.controller.files.private import write_atomically

    path = Path(args.config).resolve()
    config = parse(_read(path), args.config)
    program = shutil.which("snmpd", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin")
    if program is None:
        raise ConfigError(args.config, "", "snmpd not found (apt-get install snmpd)")
    directory = Path(args.directory).resolve()
    command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(path)]
    agentx = None if config.wireless is None else str(directory / AGENTX)
    pass_persist = [*command, "--pass-persist", "--log", str(directory / "radio.log")]
    text = snmpd_conf(config, pass_persist, args.config, agentx)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(directory / "snmpd.conf", text)
    except OSError as error:
        raise ConfigError(str(directory), "", str(error.strerror)) from error
    if agentx is not None:
        # Beside snmpd, which this process becomes; it ends with it.
        command += ["--directory", str(directory), "--wireless", "--with-parent", str(os.getpid())]
        subprocess.Popen(command, stdin=subprocess.DEVNULL)
    # No module is needed to answer by numbers; without this snmpd parses all it finds.
    environment = {**os.environ, "SNMP_PERSISTENT_DIR": str(directory / "state"), "MIBS": ""}
    # In the foreground, with our configuration alone; without the SMUX module, which opens a port of its own.
    options = ["-f", "-Le", "-I", "-smux", "-C", "-c", str(directory / "snmpd.conf")]
    os.execve(program, [program, *options], environment)  # noqa: S606


def _print(objects: LiveObjects) -> int:
    from hyroads.controller.access_point.mib import BASE

    oid = objects.following(BASE)
    while oid is not None:
        value = objects.get(oid)
        if value is not None:
            shown = value.value.decode("ascii", "replace") if isinstance(value.value, bytes) else value.value
            print(f".{'.'.join(map(str, oid))} {value.kind} {shown!r}")
        oid = objects.following(oid)
    return 0


COMMAND = Command(
    "Serve an access point's radios: over SNMP (writes a configuration for snmpd and runs it), or over the "
    "controller's own channel (docs/reference/measurement.md).",
    _run,
    argument("--config", required=True, metavar="FILE", help="the agent's file (JSON, mode 0600)"),
    argument(
        "--directory",
        default="/run/hyroads-ap-agent",
        help="where snmpd.conf and snmpd's state go (default %(default)s)",
    ),
    argument("--log", metavar="FILE", help="where --pass-persist writes complaints (default: nowhere)"),
    argument("--with-parent", type=int, metavar="PID", help="with --wireless: end when this parent ends"),
    argument("--token-file", metavar="FILE", help="with --channel: what the controller knows this node by"),
    argument("--ca", metavar="FILE", help="with --channel: TLS, and trust controllers that this authority knows (PEM)"),
    argument("--cert", metavar="FILE", help="with --ca: the certificate of this node (PEM)"),
    argument("--key", metavar="FILE", help="with --cert: its key (mode 0600)"),
    either(
        argument("--channel", metavar="HOST:PORT,...", help="no SNMP: tell each controller what is read"),
        argument("--pass-persist", action="store_true", help="what snmpd runs: serve on stdin and stdout"),
        argument(
            "--wireless",
            action="store_true",
            help="serve and carry out the wireless configuration; the first form starts it",
        ),
        argument("--wired", action="store_true", help="run hostapd for 802.1X at the access port"),
        argument("--print", action="store_true", help="print what is served now, then end"),
    ),
)
