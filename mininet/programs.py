"""Finding and running the programs that an emulated network consists of, and watching them in a thread."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.files.programs import program_path


class EmulationError(HyroadsError):
    """The emulated network could not be set up or broke while it ran."""


HYROADS = (sys.executable, "-m", "hyroads.controller.cli")
"""The command ``hyroads`` of this installation, whatever $PATH says."""
_LOG_TAIL_BYTES = 2000
# What each system tool comes with on Debian, so that the error can say what to install.
TOOLS = {
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "mnexec": "mininet",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
}
# Needed only by networks whose nodes answer SNMP, by those on 802.11 radios, with a client stack, with guests, with
# several controllers; by a lab of boxes.
SNMP_TOOLS = {"snmpd": "snmpd"}
RADIO_TOOLS = {"hostapd": "hostapd", "wpa_supplicant": "wpasupplicant"}
STACK_TOOLS = {"tc": "iproute2", "nft": "nftables"}
ETCD_TOOLS = {"etcd": "etcd-server"}
LAB_TOOLS = {
    **{"systemd-nspawn": "systemd-container", "mmdebstrap": "mmdebstrap", "nsenter": "util-linux"},
    **{"ip": "iproute2", "tc": "iproute2", "ethtool": "ethtool"},
}
GUEST_TOOLS = {"nft": "nftables", "dnsmasq": "dnsmasq-base", "udhcpc": "udhcpc"}
# The state of a listening socket in /proc/net/tcp.
_LISTEN = "0A"


def find_program(name: str) -> str:
    """Path of one of our compiled programs (``files.programs``); EmulationError if it is nowhere."""
    found = program_path(name)
    if found is None:
        raise EmulationError(f"program {name} not found (build it with 'make setup', or set HYROADS_BIN)")
    return found


def check_prerequisites(tools: Iterable[str] = TOOLS) -> None:
    """Raises one EmulationError naming what is missing: root, a tool, the TUN device."""
    if os.geteuid() != 0:
        raise EmulationError("an emulated network needs root (try: sudo hyroads ...)")
    # System tools live in sbin, which a plain user's PATH may lack even under sudo.
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    packages = {**TOOLS, **SNMP_TOOLS, **RADIO_TOOLS, **STACK_TOOLS, **GUEST_TOOLS, **LAB_TOOLS}
    missing = sorted({packages[tool] for tool in tools if shutil.which(tool) is None})
    if missing:
        raise EmulationError(f"missing system packages: {' '.join(missing)} (apt-get install {' '.join(missing)})")
    if not Path("/dev/net/tun").exists():
        raise EmulationError("/dev/net/tun does not exist: the kernel has no TUN/TAP support")


def run(*command: str, timeout_s: float = 20.0) -> str:
    """Output of a short command; raises EmulationError with the command's own words when it fails."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise EmulationError(f"{command[0]}: no answer within {timeout_s:g} s: {' '.join(command)}") from error
    except OSError as error:
        raise EmulationError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise EmulationError(f"{' '.join(command)}: {words[-1] if words else f'exit status {done.returncode}'}")
    return done.stdout


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float, interval_s: float = 0.02) -> None:
    """Polls until ``condition``; raises EmulationError naming ``what`` after ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_s:
            raise EmulationError(f"{what} not ready within {timeout_s:g} s")
        time.sleep(interval_s)


class Scope:
    """Builds what ``_build`` makes when it is entered, and undoes it when it is left or if only a part could be built.

    ``_build`` puts on ``_stack``, one by one, how each thing is undone.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _build(self) -> None:
        raise NotImplementedError

    def _run_until_left(self, program: Program, socket: Path, timeout_s: float) -> None:
        """Starts a program, waits for its control socket, and ends it when this is left."""
        program.start()
        self._stack.callback(program.stop)
        program.wait_for(socket, timeout_s)


class Watch:
    """A thread that runs ``_watch`` while this is entered; an error of it is raised when it is left."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._defect: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join(10.0)
        self._ended()
        if self._defect is not None and kind is None:
            raise EmulationError(f"the {self._name} ended early: {self._defect!r}") from self._defect

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - a thread's defect must not pass for a quiet run: see __exit__
            self._defect = error

    def _watch(self) -> None:
        """What to do until ``_stop`` is set."""
        raise NotImplementedError

    def _ended(self) -> None:
        """Called when the thread has ended."""


def listens(port: int, process: int | str = "self") -> bool:
    """Whether something in the network namespace of a process accepts connections at a TCP port."""
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{process}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state = row.split()[:4]
            if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                return True
    return False


@dataclass
class Program:
    """A long-running program with its log; its own session, so that a terminal's Ctrl-C does not reach it."""

    name: str
    command: Sequence[str]
    log: Path
    # Die with the process that started it; needed where no process namespace does that for us.
    bound_to_parent: bool = False
    pass_fds: tuple[int, ...] = ()
    # Less is more urgent, as for nice(1).
    niceness: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables than this process has."""
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it (again); output is appended to the log."""
        if self.alive:
            return
        prefix = ["nice", "-n", str(self.niceness)] if self.niceness else []
        prefix += ["setpriv", "--pdeathsig", "KILL", "--"] if self.bound_to_parent else []
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*prefix, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=self.pass_fds,
                env={**os.environ, **self.environment},
            )

    def wait_for(self, socket: Path, timeout_s: float) -> None:
        """Waits until it has made its control socket; EmulationError, with its last words, if it ends instead."""
        wait_until(self.name, lambda: socket.exists() or not self.alive, timeout_s)
        if not self.alive:
            raise EmulationError(self.failure())

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id, if it runs."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def status(self) -> int | None:
        """Its exit status; None if it has not ended."""
        return self._process.poll() if self._process is not None else None

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal to it (to it alone)."""
        if self._process is not None and self.alive:
            self._process.send_signal(number)

    def stop(self, timeout_s: float = 3.0) -> None:
        """Asks it to end, insists after ``timeout_s``, and waits."""
        if self._process is None:
            return
        self.kill(signal.SIGTERM)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def failure(self) -> str:
        """One line on how it ended, with the last line of its log."""
        status = self._process.poll() if self._process is not None else None
        ended = f"{self.name} ended" + (f" with status {status}" if status is not None else "")
        last = self.last_log_line()
        return f"{ended}: {last}" if last else ended

    def last_log_line(self) -> str:
        """The last non-empty line it wrote."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
                lines = log.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].strip() if lines else ""
