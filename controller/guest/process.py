"""``hyroads guest-network``: sets a guest network up, keeps its dnsmasq running, and takes everything back at the end.

What is changed of the host: an address of the guests' interface, forwarding on two interfaces, the table of nftables
``hyroads_guest``. A successor of a process that was killed takes all of it over. Until then the table stays, so nobody
is let in because a process is gone.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from hyroads.controller.client.host import HostError, Sysctls, run
from hyroads.controller.client.process import check_prerequisites
from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.files.private import write_atomically
from hyroads.controller.files.text import read_text
from hyroads.controller.framework.service_manager import ServiceManager

from .rules import TABLE, dnsmasq_options, nft_rules
from .settings import GuestSettings, parse

LOG = logging.getLogger("hyroads.guest")

TOOLS = {"ip": "iproute2", "nft": "nftables", "dnsmasq": "dnsmasq-base"}
_ADDED = "address"
WATCH_S, RESTART_AFTER_S, END_WITHIN_S = 0.2, 1.0, 3.0


def load(path: str) -> GuestSettings:
    """The settings of a file; errors are :class:`ConfigError`."""
    return parse(load_document(read_text(path), path), path)


def serve(settings: GuestSettings) -> int:
    """Run until SIGINT or SIGTERM."""
    check_prerequisites("hyroads guest-network", TOOLS, tun=False)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    manager = ServiceManager()
    with _set_up(settings) as folder:
        _keep_dnsmasq(folder, ended, manager)
    manager.stopping()
    return 0


@contextlib.contextmanager
def _set_up(settings: GuestSettings) -> Iterator[Path]:
    """The host as guests need it, and as it was afterwards, also if only a part could be set up."""
    for name in (settings.interface, settings.uplink):
        run("ip", "link", "show", "dev", name)
    folder = Path(settings.state_directory)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "dnsmasq.conf", dnsmasq_options(settings, folder))
    except OSError as error:
        raise HyroadsError(f"{folder}: {error.strerror}") from error
    with contextlib.ExitStack() as stack:
        # First, so that nothing is forwarded without it; last to go.
        stack.callback(_quietly, "nft", "delete", "table", "inet", TABLE)
        run("nft", "-f", "-", text=nft_rules(settings))
        stack.callback(_take_address, folder, settings)
        _give_address(folder, settings)
        run("ip", "link", "set", settings.interface, "up")
        sysctls = Sysctls(folder / "sysctls.json")
        stack.callback(sysctls.restore)
        for name in (settings.interface, settings.uplink):
            sysctls.set(f"ipv4/conf/{name}/forwarding", "1")
        yield folder


def _give_address(folder: Path, settings: GuestSettings) -> None:
    """The gateway's address among guests, unless it is there; a file says that it is ours, also for a successor."""
    if not _has_address(settings.interface, settings.gateway):
        write_atomically(folder / _ADDED, f"{settings.interface} {settings.gateway}\n")
        run("ip", "addr", "add", f"{settings.gateway}/{settings.network.prefixlen}", "dev", settings.interface)


def _take_address(folder: Path, settings: GuestSettings) -> None:
    added = folder / _ADDED
    with contextlib.suppress(OSError):
        if added.read_text(encoding="ascii").split() == [settings.interface, str(settings.gateway)]:
            address = f"{settings.gateway}/{settings.network.prefixlen}"
            _quietly("ip", "addr", "del", address, "dev", settings.interface)
        added.unlink()


def _has_address(interface: str, address: ipaddress.IPv4Address) -> bool:
    [found] = json.loads(run("ip", "-j", "addr", "show", "dev", interface))
    return str(address) in {each.get("local") for each in found["addr_info"]}


def _quietly(*command: str) -> None:
    """A step back that may not be possible any more: an interface may be gone."""
    with contextlib.suppress(HostError):
        run(*command)


def _keep_dnsmasq(folder: Path, ended: threading.Event, manager: ServiceManager) -> None:
    """Start dnsmasq, and again a second after it ended. That it can't start at all is an error."""
    program = _start(folder)
    try:
        if ended.wait(WATCH_S) or program.poll() is not None:
            _check_running(program, ended)
        LOG.info("ready")
        manager.ready("DHCP, DNS and translation of addresses for guests")
        while not ended.wait(WATCH_S):
            manager.turned()
            if program.poll() is not None:
                LOG.warning("dnsmasq ended with status %d; starting it again", program.returncode)
                ended.wait(RESTART_AFTER_S)
                program = _start(folder)
    finally:
        program.terminate()
        try:
            program.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def _check_running(program: subprocess.Popen[bytes], ended: threading.Event) -> None:
    if not ended.is_set():
        raise HyroadsError(f"dnsmasq ended with status {program.returncode}: its own words are above")


def _start(folder: Path) -> subprocess.Popen[bytes]:
    """dnsmasq in the foreground; it ends with this process, however that ends."""
    options = ["--keep-in-foreground", f"--conf-file={folder / 'dnsmasq.conf'}", "--log-facility=-", "--pid-file="]
    return subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "--", "dnsmasq", *options], stdin=subprocess.DEVNULL)
