"""A box: a Debian system that systemd-nspawn boots, with an overlay of its own over the root that all boxes share."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hyroads.mininet import cgroups
from hyroads.mininet.programs import EmulationError, Program, run, wait_until
from hyroads.mininet.run_directory import namespace_name

from .wires import BoxPlan, Segment, connect

MEDIA = "/media/packages"
"""Where a box finds the packages, as on a medium that its user has plugged in."""
BOOT_WITHIN_S = 180.0
EXIT_REBOOT = 133
"""With this status systemd-nspawn says that the system inside has ended to be started again."""
_ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    *("HOME=/root", "USER=root", "LC_ALL=C.UTF-8", "TERM=dumb", "DEBIAN_FRONTEND=noninteractive"),
)
# A program that moves itself into control groups, and becomes another.
_IN_GROUPS = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit; shift; done; shift; exec "$@"'
_BOOTED = ("running", "degraded")


@dataclass(frozen=True)
class Place:
    """Where a lab keeps what belongs to its boxes: its name, its root, its folder, its control groups, packages."""

    lab: str
    root: Path
    folder: Path
    groups: tuple[Path, ...]
    packages: Path
    segments: Sequence[Segment]


@dataclass(frozen=True)
class Typed:
    """A command line that runs in a box while its user types elsewhere."""

    program: Program

    def said(self, pattern: re.Pattern[str], within_s: float) -> re.Match[str]:
        """Where ``pattern`` is in what it has printed; EmulationError if it ends, or takes longer, without that."""
        found: list[re.Match[str]] = []

        def printed() -> bool:
            ended = not self.program.alive
            match = pattern.search(self.text)
            if match is None and ended:
                raise EmulationError(self.program.failure())
            found.extend([match] if match is not None else [])
            return match is not None

        wait_until(self.program.name, printed, within_s, interval_s=0.05)
        return found[0]

    def finish(self, within_s: float) -> str:
        """All that it printed, once it has ended; EmulationError with its last line if it fails or takes longer."""
        wait_until(self.program.name, lambda: not self.program.alive, within_s, interval_s=0.05)
        if self.program.status:
            raise EmulationError(self.program.failure())
        return self.text

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.program.log.read_text(encoding="utf-8", errors="replace")


@dataclass(eq=False)
class Box:
    """A box of a lab. ``boot`` starts it; what a user types in it is ``type``."""

    plan: BoxPlan
    place: Place
    typed: list[str] = field(default_factory=list)
    """All commands that were typed in it."""
    exports: dict[str, str] = field(default_factory=dict)
    """Variables that its user's shell has."""
    boots: int = 0
    _nspawn: Program | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        """Its host name."""
        return self.plan.name

    @property
    def _folder(self) -> Path:
        return self.place.folder / self.name

    def unpack(self, files: dict[str, str]) -> None:
        """Make its disk: the root below, and what its installer wrote (path without the first slash -> text)."""
        upper, work, system = (self._folder / name for name in ("disk", "work", "system"))
        for folder in (upper, work, system):
            folder.mkdir(parents=True)
        for path, text in {"etc/hostname": f"{self.name}\n", **files}.items():
            file = upper / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        layers = f"lowerdir={self.place.root},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", "-o", layers, "hr-lab", str(system))

    def boot(self) -> None:
        """Switch it on, and wait until its systemd has started everything; EmulationError if that takes too long."""
        with self._lock:
            namespace = namespace_name(self.place.lab, self.name)
            with suppress(EmulationError):
                run("ip", "netns", "del", namespace)
            run("ip", "netns", "add", namespace)
            connect(self.plan, namespace, self.place.segments)
            groups = cgroups.make(self.place.groups, self.name)
            words = ["sh", "-c", _IN_GROUPS, "sh", *map(str, groups), "--", *self._command(namespace)]
            self._nspawn = Program(f"box {self.name}", words, self._folder / "console.log")
            self._nspawn.start()
            self.boots += 1
            wait_until(f"box {self.name}", self._has_booted, BOOT_WITHIN_S, interval_s=0.1)

    def revive(self) -> bool:
        """Switch it on again if its system has ended for a reboot; whether that was so."""
        with self._lock:
            ended = self._nspawn is not None and not self._nspawn.alive
            if not ended or self._nspawn is None or self._nspawn.status != EXIT_REBOOT:
                return False
            self.boot()
            return True

    @property
    def alive(self) -> bool:
        """Whether it is switched on."""
        return self._nspawn is not None and self._nspawn.alive

    def type(self, line: str, within_s: float = 60.0) -> str:
        """What its shell prints for a command line of its user; EmulationError with the last line if it fails."""
        self.typed.append(line)
        done = self._run(self.shell(line), within_s)
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise EmulationError(f"{self.name}# {line}: {said[-1] if said else f'status {done.returncode}'}")
        return done.stdout

    def begin(self, line: str) -> Typed:
        """Type a command line, and leave it running."""
        self.typed.append(line)
        log = self._folder / f"typed-{len(self.typed)}.log"
        program = Program(f"{self.name}# {line}", self.shell(line), log)
        program.start()
        return Typed(program)

    def export(self, variables: Mapping[str, str]) -> None:
        """Give variables to all commands that are typed from now on."""
        self.typed.append(" ".join(["export", *(f"{name}={value}" for name, value in variables.items())]))
        self.exports.update(variables)

    def run(self, *words: str, within_s: float = 60.0, text: str = "") -> subprocess.CompletedProcess[str]:
        """A command in it, with ``text`` on standard input; the status counts nothing here."""
        return self._run(self.command(*words), within_s, text)

    def shell(self, line: str) -> list[str]:
        """The command line of this machine for a line that is typed in the box, where the packages are."""
        return self.command("bash", "-c", f"cd {MEDIA} && {{ {line}\n}}")

    def command(self, *words: str) -> list[str]:
        """The command line of this machine that starts ``words`` in the box, as root."""
        variables = [*_ENVIRONMENT, *(f"{name}={value}" for name, value in self.exports.items())]
        return ["nsenter", "--target", str(self._leader()), "--all", "--wdns=/", "env", "-i", *variables, *words]

    def _run(self, command: Sequence[str], within_s: float, text: str = "") -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(command, input=text, capture_output=True, text=True, timeout=within_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise EmulationError(f"{self.name}# {command[-1]}: not done within {within_s:g} s") from error

    def write(self, path: str, text: str, mode: str = "0644", owner: str = "root") -> None:
        """A file that the user wrote with an editor, or copied from another machine."""
        done = self.run("install", "-D", "-m", mode, "-o", owner, "/dev/stdin", path, text=text)
        if done.returncode:
            raise EmulationError(f"{self.name}: {path}: {done.stderr.strip()}")

    def read(self, path: str) -> str:
        """Text of a file in it."""
        done = self.run("cat", path)
        if done.returncode:
            raise EmulationError(f"{self.name}: {done.stderr.strip()}")
        return done.stdout

    def _command(self, namespace: str) -> list[str]:
        return [
            # systemd-nspawn mounts /sys before it enters the network namespace: it has to be there from its start.
            *("nsenter", f"--net=/run/netns/{namespace}"),
            # Settings of the network can be written, as on any computer. They are those of the box's own namespace.
            *("env", "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network"),
            *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", f"--machine={self.name}"),
            *(f"--directory={self._folder / 'system'}", f"--network-namespace-path=/run/netns/{namespace}"),
            # Debian's Open vSwitch locks its memory and raises its limits; a network needs its devices.
            *("--bind=/dev/net/tun", "--capability=CAP_NET_ADMIN,CAP_IPC_LOCK,CAP_SYS_NICE,CAP_SYS_RESOURCE"),
            *("--console=pipe", "--link-journal=no", "--resolv-conf=off", "--timezone=off"),
            f"--bind-ro={self.place.packages}:{MEDIA}",
        ]

    def _leader(self) -> int:
        """Process 1 of the box, as this machine numbers it; EmulationError while there is none."""
        if self._nspawn is not None:
            # systemd-nspawn has one child that stays. Not every kernel lists children in /proc.
            found = subprocess.run(
                ["pgrep", "--parent", str(self._nspawn.pid)], capture_output=True, text=True, check=False
            ).stdout.split()
            if found:
                return int(found[-1])
        raise EmulationError(f"box {self.name} is switched off")

    def _has_booted(self) -> bool:
        if not self.alive and self._nspawn is not None:
            raise EmulationError(self._nspawn.failure())
        try:
            return self.run("systemctl", "is-system-running", within_s=10.0).stdout.strip() in _BOOTED
        except EmulationError:
            return False
