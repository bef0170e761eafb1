"""A root directory of its own to install packages in: namespaces of mounts, processes and network with loopback.

What is installed there is gone with it. Below it is this machine's own root, seen through an overlay, or a fresh
Debian.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIBRARIES = Path(sysconfig.get_path("purelib"))
"""Where the Python packages of this environment are."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Everything that a program may want of a machine, and no more.
_PREPARE = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=0755 hr-packages "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" hr-packages "$1/root"
cd "$1/root"
mkdir -p proc dev run tmp
mount -t proc proc proc
mount --rbind /dev dev
# As udev has it; not every container and virtual machine runs that.
mknod -m 0666 "$1/tun" c 10 200
mount --bind "$1/tun" dev/net/tun
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
# The libraries of this environment stand for the package's, also where they are below /tmp.
[ -z "$4" ] || [ -d ".$4" ] || { mkdir -p ".$4"; mount --bind "$4" ".$4"; }
mount --bind "$3" mnt
ip link set lo up
echo ready
exec sleep infinity
"""


class PackageRoot:
    """Runs as a context. ``packages`` is seen as ``/mnt``."""

    def __init__(self, lower: Path, packages: Path) -> None:
        self._lower, self._packages = lower, packages

    def __enter__(self) -> PackageRoot:
        # Sockets below it have addresses of at most 107 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="hr-"))
        (self._folder / "in").mkdir()
        flags = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
        where = self._folder / "in", self._lower, self._packages, LIBRARIES if self._lower == Path("/") else ""
        words = ["unshare", *flags, "sh", "-c", _PREPARE, "sh", *where]
        self._process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "no namespaces, or no overlay"
        self._pid = child_of(self._process.pid)
        self.path = Path(f"/proc/{self._pid}/root{self._folder}/in/root")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)

    def command(self, *words: str | Path) -> list[str]:
        """A command line of this machine that starts one in there, waits, and takes its status."""
        enter = ["nsenter", "--target", self._pid, "--mount", "--pid", "--net", "--ipc", "--uts"]
        return [str(word) for word in (*enter, "chroot", f"{self._folder}/in/root", *words)]

    def run(self, *words: str | Path, check: bool = True, **environment: str) -> str:
        """What a command says there, with root's usual environment."""
        env = {"PATH": PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **environment}
        done = subprocess.run(
            self.command(*words), env=env, text=True, capture_output=True, timeout=300, stdin=subprocess.DEVNULL
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0 or not check, f"{words}: {done.returncode}\n{said}"
        return said

    def files(self) -> dict[str, tuple[int, int, int]]:
        """Mode, owner and group of all that differs from the root below, or is not there."""
        upper = self.path.parent / "upper"
        found = {}
        for folder, _, names in os.walk(upper):
            for name in names:
                path = Path(folder, name)
                status = path.lstat()
                found[str(path.relative_to(upper))] = (status.st_mode, status.st_uid, status.st_gid)
        return found

    def unit(self, name: str) -> dict[str, str]:
        """Keys of an installed unit; the last of several values counts."""
        text = (self.path / "usr/lib/systemd/system" / f"{name}.service").read_text()
        return dict(re.findall(r"(?m)^(\w+)=(.*)$", text))

    @contextmanager
    def service(self, name: str, *, instance: str = "") -> Iterator[Service]:
        """What systemd would start, as the unit's user, with its state directory and a notify socket."""
        unit = self.unit(name)
        state = unit.get("StateDirectory")
        if state:
            self.run("install", "-d", "-m", "0700", "-o", unit["User"], "-g", unit["User"], f"/var/lib/{state}")
        runtime = unit.get("RuntimeDirectory")
        if runtime:
            self.run("install", "-d", "-m", "0700", "-o", unit["User"], "-g", unit["User"], f"/run/{runtime}")
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        place = self.path / "run" / f"notify-{name}"
        place.unlink(missing_ok=True)
        notify.bind(str(place))
        place.chmod(0o777)
        capabilities = unit.get("CapabilityBoundingSet", "").lower().replace("cap_", "+").replace(" ", ",")
        user = ["--reuid", unit["User"], "--regid", unit["User"], "--init-groups", "--no-new-privs"]
        bound = ["--bounding-set", f"-all,{capabilities}".rstrip(",")]
        ambient = [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"] if capabilities else []
        environment = {"NOTIFY_SOCKET": f"/run/notify-{name}", "WATCHDOG_USEC": "30000000", "PATH": PATH}
        line = unit["ExecStart"].replace("%i", instance)
        for key, value in self._environment(unit, name).items():
            line = line.replace("${" + key + "}", value).replace("$" + key, value)
        no_writable_code = ["python3", "-c", _NO_WRITABLE_CODE] if "MemoryDenyWriteExecute" in unit else []
        command = self.command("setpriv", *user, *bound, *ambient, *no_writable_code, *shlex.split(line))
        log = self._folder / f"{name}.log"
        with log.open("w") as said:
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd="/")
        service = Service(process, notify, log)
        try:
            yield service
        finally:
            if process.poll() is None:
                try:
                    service.end()
                except subprocess.TimeoutExpired:
                    service.end(signal.SIGKILL)
            notify.close()

    def _environment(self, unit: dict[str, str], name: str) -> dict[str, str]:
        text = (self.path / "usr/lib/systemd/system" / f"{name}.service").read_text()
        values = dict(
            word.split("=", 1) for line in re.findall(r"(?m)^Environment=(.*)$", text) for word in line.split()
        )
        for file in re.findall(r"(?m)^EnvironmentFile=-?(\S+)$", text):
            path = self.path / file.lstrip("/")
            if path.exists():
                values |= dict(re.findall(r"(?m)^(\w+)=(.*)$", path.read_text()))
        return values


# prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN) does since Linux 6.3 what MemoryDenyWriteExecute does.
_NO_WRITABLE_CODE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)


def child_of(pid: int) -> int:
    """The only child of a process, as soon as it has one."""
    until_s = time.monotonic() + 10.0
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < until_s, f"process {pid} has started nothing"
        time.sleep(0.01)
    return int(children[0])


class Service:
    """A process that a unit describes."""

    def __init__(self, process: subprocess.Popen[Any], notify: socket.socket, log: Path) -> None:
        self.process, self._notify, self.log = process, notify, log
        self._pid = child_of(process.pid)

    def ready(self, within_s: float = 30.0) -> None:
        """Waits for it to say so."""
        self._notify.settimeout(0.2)
        until_s = time.monotonic() + within_s
        while True:
            assert self.process.poll() is None and time.monotonic() < until_s, self.log.read_text()
            try:
                if b"READY=1" in self._notify.recv(1000):
                    return
            except TimeoutError:
                continue

    def resident_bytes(self) -> int:
        """Memory that it has now."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self._pid}/status").read_text())
        assert found
        return int(found[1]) * 1024

    def cpu_s(self) -> float:
        """Processor time that it has used, seconds."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit status after a signal."""
        os.kill(self._pid, number)
        return self.process.wait(15)


def fresh_debian(cache: Path) -> Path:
    """A Debian 12 with Python and systemd, of this machine's package source; made once, then taken from the cache."""
    root = cache / "bookworm"
    if not (root / "usr/bin/python3").exists():
        assert shutil.which("mmdebstrap"), "mmdebstrap is not installed"
        new = cache / "bookworm.new"
        shutil.rmtree(new, ignore_errors=True)
        packages = "--include=python3,systemd,passwd,iproute2"
        command = [
            "mmdebstrap",
            "--variant=minbase",
            packages,
            '--aptopt=Acquire::Languages "none"',
            "bookworm",
            str(new),
        ]
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=True, capture_output=True, timeout=1200)
        new.rename(root)
    return root
