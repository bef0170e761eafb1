"""How parts are broken and mended: signals to their processes, packets dropped, disks filled, clocks moved.

Each program has a disk of its own, a small tmpfs in the mount namespace of the run, with its log; a controller has
another with its state file. A disk is full when its size is set to what it holds. The time of day that a program sees
is moved by a small library before it (``clock.c``), for each program by a file of its own.
"""

from __future__ import annotations

import re
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.network import Network
from hyroads.mininet.control_sockets import EdgeClient
from hyroads.mininet.emulation import (
    AGENTS_PORT,
    OPENFLOW_PORT,
    PORTS_APART,
    SLICER_PORT,
    Emulation,
    EmulationOptions,
    controller_name,
)
from hyroads.mininet.programs import EmulationError, Program, run

from .plan import NATURES, OPENFLOW, Fault, Group, Kind, Part, Way, both_directions

CLOCK_SOURCE = Path(__file__).with_name("clock.c")
COMPILER = "cc"
LAG_S = 0.1
_DISK_BYTES, _ETCD_BYTES, _SWITCHES_BYTES = 16 << 20, 512 << 20, 64 << 20
_TRIES, _TRY_AGAIN_S = 20, 0.02
_TABLE = "chaos"
# Rates of a flow that no agent has.
_REFUSED = {"type": "rates", "rates": {"17": {"255": 1.0}}}
_OFFSET = struct.Struct("=q")


def left_out() -> dict[Way, str]:
    """What cannot be done on this machine, and why."""
    found: dict[Way, str] = {}
    if shutil.which(COMPILER) is None:
        found |= {way: "needs a C compiler (Debian's package gcc)" for way in NATURES if way[1] is Kind.JUMP}
    if shutil.which("nft") is None:
        found |= {way: "needs Debian's package nftables" for way in NATURES if way[0] is Group.CONTROL}
    return found


class ChaosEmulation(Emulation):
    """An emulated network whose programs have disks and clocks that can be broken."""

    def __init__(self, network: Network, name: str, directory: Path, options: EmulationOptions) -> None:
        self.disks: dict[str, Path] = {}
        """By program: where its log is."""
        self.state_disk = directory / "state"
        self._clocks = directory / "clocks"
        self._library = self._compiled()
        self._mount(self.state_disk, _DISK_BYTES)
        if not options.etcd_members:
            settings = {**options.settings, "state_file": str(self.state_disk / "controller-state.json")}
            options = replace(options, settings=settings)
        super().__init__(network, name, directory, options)
        for program in self.controllers:
            self._break_able(program)
        if self.slicer is not None:
            self._break_able(self.slicer)
        for member in self.etcd.programs if self.etcd is not None else ():
            self._own_disk(member, directory / "etcd" / member.name, _ETCD_BYTES, log=member.log)
        self._mount(self.switch.directory, _SWITCHES_BYTES)
        for program in self.switch.programs:
            self._own_disk(program, None, 0, log=program.log, folder=self.switch.directory)
            self._own_clock(program)

    def _prepare_radios(self) -> None:
        super()._prepare_radios()
        if self.radios is not None:
            self._break_able(self.radios.program)

    def _built(self) -> None:
        for agent in self.agents().values():
            self._break_able(agent)

    def _break_able(self, program: Program) -> None:
        folder = self.directory / "disks" / re.sub(r"[^A-Za-z0-9_.-]", "_", program.name)
        self._own_disk(program, folder, _DISK_BYTES, log=folder / program.log.name)
        self._own_clock(program)

    def _own_disk(
        self, program: Program, mounted: Path | None, size: int, *, log: Path, folder: Path | None = None
    ) -> None:
        if mounted is not None:
            self._mount(mounted, size)
        self.disks[program.name] = folder or mounted or log.parent
        program.log = log

    def _mount(self, folder: Path, size: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "hyroads-chaos", str(folder))

    def _compiled(self) -> Path | None:
        """The library that moves the time of day; None where nothing can compile it."""
        self._clocks.mkdir()
        if shutil.which(COMPILER) is None:
            return None
        library = self._clocks / "clock.so"
        run(COMPILER, "-shared", "-fPIC", "-O2", "-o", str(library), str(CLOCK_SOURCE))
        return library

    def _own_clock(self, program: Program) -> None:
        if self._library is not None:
            self.set_clock(program, 0)
            program.environment = {"LD_PRELOAD": str(self._library), "HYROADS_CHAOS_CLOCK": str(self._clock(program))}

    def set_clock(self, program: Program, offset_s: int) -> None:
        """From now on the time of day that a program sees is so much later than the machine's."""
        # The program has the file in its memory: it must stay the same file.
        with self._clock(program).open("r+b" if self._clock(program).exists() else "wb") as file:
            file.write(_OFFSET.pack(offset_s))

    def _clock(self, program: Program) -> Path:
        return self._clocks / re.sub(r"[^A-Za-z0-9_.-]", "_", program.name)

    def program(self, part: Part) -> Program:
        """The process of a part; EmulationError if there is none."""
        for each, program in self.programs():
            if each == part:
                return program
        raise EmulationError(f"{part} is no process of this network")

    def programs(self) -> Iterator[tuple[Part, Program]]:
        """All parts that are processes."""
        for number, program in enumerate(self.controllers):
            yield Part(Group.CONTROLLER, controller_name(number)), program
        for node, program in self.agents().items():
            yield Part(Group.AGENT, node), program
        yield Part(Group.SWITCHES), self.switch.daemon
        yield Part(Group.DATABASE), self.switch.database
        if self.radios is not None:
            yield Part(Group.RADIOS), self.radios.program
        for node, program in (self.snmp.programs if self.snmp is not None else {}).items():
            yield Part(Group.SNMPD, node), program
        if self.slicer is not None:
            yield Part(Group.SLICER), self.slicer
        for member in self.etcd.programs if self.etcd is not None else ():
            yield Part(Group.ETCD, member.name), member


class _Lag:
    """Stops a process for half of the time until it is left."""

    def __init__(self, program: Program) -> None:
        self._program, self._over = program, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._program.kill(signal.SIGSTOP)
            self._over.wait(LAG_S)
            self._program.kill(signal.SIGCONT)
            self._over.wait(LAG_S)

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        self._program.kill(signal.SIGCONT)


class Faults:
    """Does and undoes faults of a running network."""

    def __init__(self, emulation: ChaosEmulation) -> None:
        self.emulation = emulation
        self._undo: dict[Fault, Callable[[], None]] = {}
        self._links = {link.id: link for link in emulation.network.links}

    def do(self, fault: Fault) -> None:
        """Breaks a part."""
        self._undo[fault] = self._done(fault)

    def undo(self, fault: Fault) -> None:
        """Mends what is broken; nothing happens if it is not."""
        if (undo := self._undo.pop(fault, None)) is not None:
            undo()

    def undo_all(self) -> None:
        """Mends all that is broken."""
        for fault in list(self._undo):
            with suppress(EmulationError):
                self.undo(fault)

    @property
    def broken(self) -> Mapping[Part, Kind]:
        """The parts that are broken now."""
        return {fault.part: fault.kind for fault in self._undo}

    def _done(self, fault: Fault) -> Callable[[], None]:
        """Breaks it; what mends it."""
        part = fault.part
        if part.group is Group.LINK:
            return self._link(fault)
        if part.group is Group.CONTROL:
            return self._control(fault)
        ways: dict[Kind, Callable[[Program], Callable[[], None]]] = {
            Kind.KILL: _killed,
            Kind.STOP: _stopped,
            Kind.LAG: lambda program: _Lag(program).end,
            Kind.JUMP: partial(self._jump, fault.amount),
            Kind.FULL: self._full,
            Kind.READ_ONLY: self._read_only,
        }
        return ways[fault.kind](self.emulation.program(part))

    def _jump(self, offset_s: float, program: Program) -> Callable[[], None]:
        self.emulation.set_clock(program, round(offset_s))
        return partial(self.emulation.set_clock, program, 0)

    def _full(self, program: Program) -> Callable[[], None]:
        folders = [self.emulation.disks[program.name]]
        if program in self.emulation.controllers and self.emulation.etcd is None:
            folders.append(self.emulation.state_disk)
        undo = [_filled(folder) for folder in folders]
        self._make_talk(program)

        def mend() -> None:
            for each in undo:
                each()

        return mend

    def _make_talk(self, program: Program) -> None:
        """Has an agent write a line into its log; others have something to write anyway."""
        for node, agent in self.emulation.agents().items():
            if agent is program:
                with suppress(HyroadsError), EdgeClient(self.emulation.directory / f"edge-{node}.sock", 2.0) as client:
                    client.request(_REFUSED)

    def _read_only(self, _program: Program) -> Callable[[], None]:
        folder = self.emulation.state_disk
        # While a file is open for writing the kernel refuses.
        for attempt in range(_TRIES):
            try:
                _remount(folder, "ro")
                break
            except EmulationError:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(_TRY_AGAIN_S)
        return partial(_remount, folder, "rw")

    def _link(self, fault: Fault) -> Callable[[], None]:
        changes: dict[Kind, tuple[dict[str, Any], Callable[[Any], dict[str, Any]]]] = {
            Kind.CUT: ({"up": False}, lambda _: {"up": True}),
            Kind.DELAY: ({"delay_ms": fault.amount}, lambda link: {"delay_ms": link.delay_ms}),
            Kind.LOSE: ({"loss": fault.amount}, lambda link: {"loss": link.loss}),
        }
        broken, usual = changes[fault.kind]
        links = both_directions(self.emulation.network, fault.part.name)

        def change(what: Callable[[str], dict[str, Any]]) -> None:
            for link in links:
                self.emulation.shared.set_link(link, **what(link))

        change(lambda _: broken)
        return partial(change, lambda link: usual(self._links[link]))

    def _control(self, fault: Fault) -> Callable[[], None]:
        first = OPENFLOW_PORT if fault.part.name == OPENFLOW else AGENTS_PORT
        ports = [first + PORTS_APART * number for number in range(len(self.emulation.controllers))]
        if fault.part.name == OPENFLOW and self.emulation.slicer is not None:
            ports.append(SLICER_PORT)
        chosen = "{ " + ", ".join(map(str, ports)) + " }"
        table = f"{_TABLE}-{first}"
        # Where packets come in: one that is dropped where it goes out is told to its sender.
        some = "" if fault.kind is Kind.CUT else f"numgen random mod 1000 < {round(1000 * fault.amount)} "
        lines = [f"add table inet {table}", f"add chain inet {table} in {{ type filter hook input priority 0; }}"]
        lines += [f"add rule inet {table} in tcp {end} {chosen} {some}drop" for end in ("sport", "dport")]
        done = subprocess.run(["nft", "-f", "-"], input="\n".join(lines), text=True, check=False, capture_output=True)
        if done.returncode:
            raise EmulationError(f"{fault}: {done.stderr.strip()}")
        return lambda: void(run("nft", "delete", "table", "inet", table))


def _killed(program: Program) -> Callable[[], None]:
    program.kill(signal.SIGKILL)
    program.stop()
    return program.start


def _stopped(program: Program) -> Callable[[], None]:
    program.kill(signal.SIGSTOP)
    return partial(program.kill, signal.SIGCONT)


def void(_result: object) -> None:
    """Ignores what a call returned."""


def _filled(folder: Path) -> Callable[[], None]:
    """Makes a tmpfs as large as what it holds."""
    usual = next(each for each in _options(folder) if each.startswith("size="))
    # What is written in between makes it larger than asked for.
    for _ in range(_TRIES):
        used = shutil.disk_usage(folder).used
        try:
            _remount(folder, f"size={max(used, 4096)}")
        except EmulationError:
            continue
        return partial(_remount, folder, usual)
    raise EmulationError(f"{folder} could not be filled")


def _options(folder: Path) -> list[str]:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, _, options = line.split()[:4]
        if where == str(folder):
            return options.split(",")
    raise EmulationError(f"{folder} is no disk of its own")


def _remount(folder: Path, options: str) -> None:
    run("mount", "-o", f"remount,{options}", str(folder))
