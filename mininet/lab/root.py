"""The Debian root that all boxes of a lab share: made by mmdebstrap once, then taken from the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hyroads.mininet.programs import EmulationError

SUITES = ("bookworm", "trixie")
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "iproute2", "iputils-ping", "ethtool", "procps", "less"),
    *("openvswitch-switch", "iw", "wpasupplicant", "openssl", "ca-certificates", "python3", "python3-venv", "iperf3"),
)
"""What is installed in every box before HyRoads comes: Debian's minimum, what the how-to page installs from Debian, and
the tools with which a user tries the network."""
_FORMAT = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
_LAYOUT = 1
"""Goes up when roots of the same packages are made differently."""
_MAKE_WITHIN_S = 1200.0
_WORDS_OF_ERROR = 3


@dataclass(frozen=True)
class RootRecipe:
    """What a root contains; ``sources`` are lines of a sources.list and only say where that comes from."""

    suite: str
    architecture: str
    packages: tuple[str, ...] = PACKAGES
    sources: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of the root in the cache: 16 hexadecimal digits that depend on the contents alone."""
        contents = json.dumps([_LAYOUT, self.suite, self.architecture, sorted(self.packages)])
        return hashlib.sha256(contents.encode()).hexdigest()[:16]

    def command(self, target: Path) -> list[str]:
        """The call of mmdebstrap that makes the root in ``target``, in mount and process namespaces of its own.

        With these namespaces a kill of the command also ends what it started and removes what it mounted.
        """
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"),
            *("mmdebstrap", "--quiet", "--format=directory", "--variant=minbase"),
            f"--include={','.join(self.packages)}",
            '--aptopt=Acquire::Languages "none"',
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            '--customize-hook=chroot "$1" systemctl enable systemd-networkd',
            *(self.suite, str(target), *self.sources),
        ]


def sources_of(targets: str, suite: str) -> tuple[str, ...]:
    """Lines of a sources.list for ``suite``, from this machine's own mirrors.

    ``targets`` is the output of apt-get indextargets in the form ``URI SUITE COMPONENT``, a line each. The mirror of
    the suite itself also gives its updates and security updates, if the machine has them. A machine with another suite
    of Debian gives its mirror. Raises EmulationError if no mirror of Debian is configured.
    """
    rows = [tuple(line.split()) for line in targets.splitlines() if len(line.split()) == 3]
    found: dict[tuple[str, str], list[str]] = {}
    for uri, release, component in rows:
        if release in (suite, f"{suite}-updates", f"{suite}-security"):
            components = found.setdefault((uri, release), [])
            if component not in components:
                components.append(component)
    if not any(release == suite for _, release in found):
        # A mirror of Debian has every suite that is supported.
        debian = next((uri for uri, *_ in rows if uri.rstrip("/").endswith("/debian")), None)
        if debian is None:
            raise EmulationError(f"no mirror of Debian {suite} in this machine's apt sources (or use --mirror URL)")
        found = {(debian, suite): ["main"], **found}
    ordered = sorted(found.items(), key=lambda item: item[0][1] != suite)
    return tuple(f"deb {uri} {release} {' '.join(components)}" for (uri, release), components in ordered)


def recipe(suite: str, mirror: str | None) -> RootRecipe:
    """What the root of ``suite`` contains on this machine; ``mirror`` (a URL) replaces the apt sources' mirror."""
    architecture = _said("dpkg", "--print-architecture").strip()
    if mirror is not None:
        return RootRecipe(suite, architecture, sources=(f"deb {mirror} {suite} main",))
    targets = _said("apt-get", "indextargets", "--format", _FORMAT, "Created-By: Packages")
    return RootRecipe(suite, architecture, sources=sources_of(targets, suite))


def cache_folder() -> Path:
    """Where the roots are: ``hyroads/lab`` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hyroads" / "lab"


def ready_root(wanted: RootRecipe, cache: Path, say: Callable[[str], None]) -> Path:
    """The root of the recipe from the cache; it is made first if it is not there.

    Raises EmulationError with mmdebstrap's last lines if it can't be made.
    """
    cache.mkdir(parents=True, exist_ok=True)
    root, new = cache / wanted.key, cache / f"{wanted.key}.new"
    with (cache / f"{wanted.key}.lock").open("w") as lock:
        # Two labs that start at once share the root that the first of them makes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.is_dir():
            say(f"Debian {wanted.suite} root {wanted.key}: from the cache")
            return root
        say(f"Debian {wanted.suite} root {wanted.key}: mmdebstrap makes it, once; this takes a minute or two")
        shutil.rmtree(new, ignore_errors=True)
        try:
            _make(wanted, new)
            new.rename(root)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    return root


def _make(wanted: RootRecipe, target: Path) -> None:
    # The maker must not outlive the lab: setpriv ends unshare with it, and unshare its namespaces.
    command = ["setpriv", "--pdeathsig", "KILL", "--", *wanted.command(target)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=_MAKE_WITHIN_S)
    except subprocess.TimeoutExpired as error:
        raise EmulationError(f"mmdebstrap: no root within {_MAKE_WITHIN_S:g} s") from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
    if process.returncode:
        raise EmulationError(f"mmdebstrap could not make the root: {last_words(output.splitlines())}")


def last_words(lines: Iterable[str]) -> str:
    """The last lines that are not empty, in one."""
    said = [line.strip() for line in lines if line.strip()]
    return "; ".join(said[-_WORDS_OF_ERROR:]) or "it printed nothing"


def _said(*command: str) -> str:
    """Standard output of a short command; EmulationError if it is missing or fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EmulationError(f"{command[0]}: {error}") from error
