"""A stand-in for systemctl where no systemd runs: starts units as they are written, and waits until they are ready.

    small_systemctl.py STATE UNITS... -- enable --now NAME...

STATE is a folder for what runs. Unit files are in the folders UNITS, the first that has one counts.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

READY_WITHIN_S = 30.0


def entries(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found[key].append(value)
    return found


def environment_of(unit: dict[str, list[str]], instance: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in unit["Environment"]:
        found |= dict(word.split("=", 1) for word in shlex.split(line))
    for name in unit["EnvironmentFile"]:
        with suppress(FileNotFoundError):
            for line in Path(name.removeprefix("-").replace("%i", instance)).read_text().splitlines():
                key, equals, value = line.partition("=")
                if equals and not line.startswith("#"):
                    found[key] = " ".join(shlex.split(value))
    return found


def words_of(line: str, instance: str, known: dict[str, str]) -> list[str]:
    found: list[str] = []
    for word in shlex.split(line.replace("%i", instance)):
        if re.fullmatch(r"\$\w+", word):
            found += known.get(word[1:], "").split()
        else:
            found.append(re.sub(r"\$\{(\w+)\}", lambda name: known.get(name[1], ""), word))
    return [Path(found[0]).name, *found[1:]]


class Units:
    def __init__(self, state: Path, folders: list[Path]) -> None:
        self.state, self.folders = state, folders

    def start(self, name: str) -> None:
        base, at, instance = name.removesuffix(".service").partition("@")
        file = next(path for folder in self.folders if (path := folder / f"{base}{at}.service").exists())
        unit = entries(file.read_text())
        environment = environment_of(unit, instance)
        if unit["Type"] == ["oneshot"]:
            for line in unit["ExecStart"]:
                subprocess.run(words_of(line.removeprefix("-"), instance, environment), check=not line.startswith("-"))
        else:
            self.run(name, words_of(unit["ExecStart"][0], instance, environment), environment)
        (self.state / f"{name}.enabled").touch()

    def run(self, name: str, words: list[str], environment: dict[str, str]) -> None:
        at = self.state / f"{name}.socket"
        at.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, (self.state / f"{name}.log").open("ab") as log:
            ready.bind(str(at))
            ready.settimeout(READY_WITHIN_S)
            known = {**os.environ, **environment, "NOTIFY_SOCKET": str(at)}
            started = subprocess.Popen(
                words, env=known, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            (self.state / f"{name}.pid").write_text(str(started.pid))
            while b"READY=1" not in ready.recv(4096):
                pass

    def stop(self, name: str) -> None:
        (self.state / f"{name}.enabled").unlink(missing_ok=True)
        file = self.state / f"{name}.pid"
        if not file.exists():
            return
        pid, until_s = int(file.read_text()), time.monotonic() + 10
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            while time.monotonic() < until_s:
                os.kill(pid, 0)
                if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                    break
                time.sleep(0.02)
        file.unlink()


def main() -> int:
    at = sys.argv.index("--")
    units = Units(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:at]])
    verb, *names = [word for word in sys.argv[at + 1 :] if word != "--now"]
    for name in names if verb in ("enable", "disable") else ():
        (units.start if verb == "enable" else units.stop)(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
