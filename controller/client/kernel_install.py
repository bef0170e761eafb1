"""Installing a plan of the kernel plane, whole or not at all, and remembering it for a daemon that starts again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.kernel.netlink import NetlinkError

from .kernel_items import Item, Plan
from .kernel_rules import script
from .nfnetlink import Change, NetfilterSocket

_COMMAND_TIMEOUT_S = 20.0


class KernelPlaneError(HyroadsError):
    """The kernel plane could not be installed or changed; what was there before is still there."""


@dataclass
class _State:
    """What is installed, kept in a file so that a daemon that starts again knows it."""

    items: list[Item] = field(default_factory=list)
    ruleset: str = ""
    sysctls: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Footprint:
    """All that a plane may ever install: its nftables table, routing tables, preferences of rules, and devices."""

    table: str
    routes: range
    preferences: frozenset[int]
    devices: tuple[str, ...]
    """How the names of the plane's own devices begin."""


class Installer:
    """Brings the kernel from what is installed to what a plan wants. ``state`` names the file that remembers it."""

    def __init__(self, footprint: Footprint, state: Path) -> None:
        self._footprint = footprint
        self.table = footprint.table
        self._path = state
        self.state = _read_state(state)
        self._elements: dict[str, dict[bytes, bytes]] | None = None

    def apply(self, plan: Plan, sysctls: Mapping[str, str]) -> None:
        """Install a plan. If a part is refused, all is put back as it was and KernelPlaneError raised."""
        before, wanted = self._present(), set(plan.items)
        known = set(before)
        new = [item for item in plan.items if item not in known]
        self.state.items = before + new
        self._save()
        try:
            self._set_sysctls(sysctls)
            _ip([item.remove for item in reversed(before) if item not in wanted and item.remove], force=True)
            _ip([item.add for item in plan.items if item.again or item not in known])
            for name in tunnels_of(plan):
                _write_sysctl(f"net/ipv4/conf/{name}/rp_filter", "2")
            self._load(plan)
        except (KernelPlaneError, NetlinkError) as error:
            _ip([item.remove for item in reversed(new) if item.remove], force=True)
            _ip([item.add for item in before], force=True)
            self.state.items = before
            self._save()
            raise KernelPlaneError(str(error)) from error
        self.state.items = list(plan.items)
        self._save()

    def set_elements(self, elements: Mapping[str, Mapping[bytes, bytes]]) -> bool:
        """Bring all sets and maps to these elements in one batch; whether anything changed."""
        with NetfilterSocket() as netfilter:
            if self._elements is None:
                self._elements = {name: netfilter.elements(self.table, name) for name in elements}
            changes = [change_of(self.table, name, self._elements[name], each) for name, each in elements.items()]
            changes = [each for each in changes if each.remove or each.add]
            try:
                netfilter.change(changes)
            except NetlinkError:
                self._elements = None
                raise
        self._elements = {name: dict(each) for name, each in elements.items()}
        return bool(changes)

    def elements(self, name: str) -> Mapping[bytes, bytes]:
        """The elements of a set or map, as they were installed last."""
        return (self._elements or {}).get(name, {})

    def remove(self) -> None:
        """Take away all that this plane ever installs, whether the state file still names it or not."""
        self._sweep()
        for name, value in self.state.sysctls.items():
            _write_sysctl(name, value)
        self.state, self._elements = _State(), None
        self._path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        run(["nft", "-f", "-"], f"table inet {self.table}\ndelete table inet {self.table}\n")
        own, commands = self._footprint, [f"link del {name}" for name in self._devices()]
        for version in (4, 6):
            found = [rule["priority"] for rule in ip_json(f"-{version}", "rule", "show")]
            commands += [f"-{version} rule del pref {number}" for number in found if number in own.preferences]
            commands += [f"-{version} route flush table {table}" for table in own.routes]
        _ip(commands, force=True)

    def _devices(self) -> set[str]:
        """The plane's own devices that there are."""
        return {
            each["ifname"] for each in ip_json("link", "show") if each["ifname"].startswith(self._footprint.devices)
        }

    def _present(self) -> list[Item]:
        """The installed items, but for devices that have gone; what the kernel belies counts for nothing."""
        if not self.state.items or not self._table_exists():
            self._sweep()
            return []
        devices = self._devices()
        return [item for item in self.state.items if not item.device or item.device in devices]

    def _load(self, plan: Plan) -> None:
        """The table is loaded by ``nft`` if its text has changed or it is gone, else only elements change."""
        if plan.ruleset != self.state.ruleset or not self._table_exists():
            marks = {name: each for name, each in plan.elements.items() if all(len(key) == 4 for key in each)}
            run(["nft", "-f", "-"], script(self.table, replace(plan, elements=marks)))
            self.state.ruleset = plan.ruleset
            self._elements = None
        self.set_elements(plan.elements)

    def _table_exists(self) -> bool:
        with NetfilterSocket() as netfilter:
            try:
                netfilter.elements(self.table, "route")
            except NetlinkError:
                return False
        return True

    def _set_sysctls(self, sysctls: Mapping[str, str]) -> None:
        for name, value in sysctls.items():
            now = read_sysctl(name)
            if now is not None and now != value:
                self.state.sysctls.setdefault(name, now)
                self._save()
                _write_sysctl(name, value)

    def _save(self) -> None:
        """Write the file as a whole: a reader sees the old or the new one."""
        document = {
            "items": [[item.add, item.remove, item.again, item.index] for item in self.state.items],
            "ruleset": self.state.ruleset,
            "sysctls": self.state.sysctls,
            "numbers": self.state.numbers,
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_name(self._path.name + ".new")
            beside.touch(mode=0o600)
            beside.write_text(json.dumps(document), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            raise KernelPlaneError(f"{self._path}: {error.strerror}") from error


def change_of(table: str, name: str, now: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> Change:
    """The difference between two states of a set or map."""
    add = {key: value for key, value in wanted.items() if now.get(key) != value}
    return Change(table, name, tuple(key for key in now if key not in wanted or key in add), add)


def tunnels_of(plan: Plan) -> list[str]:
    """Names of the tunnels' devices. Their reverse path filter is loose: answers come by the one that suits now."""
    return [item.device for item in plan.items if item.device.startswith("hrk")]


def read_sysctl(name: str) -> str | None:
    """A setting by its path below /proc/sys; None if there is none."""
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _write_sysctl(name: str, value: str) -> None:
    try:
        Path("/proc/sys", name).write_text(value, encoding="ascii")
    except FileNotFoundError:
        pass  # The interface has gone, and its setting with it.
    except OSError as error:
        raise KernelPlaneError(f"/proc/sys/{name}: {error.strerror}") from error


def _ip(commands: Sequence[str], *, force: bool = False) -> None:
    """Run commands of ``ip``: devices, IPv4, IPv6, a process each; with ``force`` what fails is passed over."""
    for family in ("", "-4 ", "-6 "):
        lines = [line.removeprefix(family) for line in commands if line[:3] == family or not (family or line[0] == "-")]
        if lines:
            options = [*family.split(), *(["-force"] if force else []), "-batch", "-"]
            run(["ip", *options], "\n".join(lines) + "\n", may_fail=force)


def ip_json(*words: str) -> list[dict[str, Any]]:
    """What ``ip`` lists; nothing if it fails, as for a device that has just gone."""
    text = run(["ip", "-json", *words], may_fail=True)
    try:
        found: list[dict[str, Any]] = json.loads(text or "[]")
    except ValueError as error:
        raise KernelPlaneError(f"ip {' '.join(words)}: no JSON in the answer") from error
    return [each for each in found if each]


def run(command: Sequence[str], text: str = "", *, may_fail: bool = False) -> str:
    """What a command prints, given a text; raises KernelPlaneError with its first words if it fails."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=_COMMAND_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelPlaneError(f"{command[0]}: {getattr(error, 'strerror', None) or 'no answer'}") from error
    if done.returncode and not may_fail:
        words = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise KernelPlaneError(f"{' '.join(command[:2])}: {words[0] if words else f'exit status {done.returncode}'}")
    return done.stdout


def _read_state(path: Path) -> _State:
    """What was installed; a file that is missing or broken counts as empty, ``remove`` finds all the same."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _State(
            [Item(str(add), str(remove), bool(again), int(index)) for add, remove, again, index in document["items"]],
            str(document["ruleset"]),
            {str(name): str(value) for name, value in document["sysctls"].items()},
            {str(name): int(number) for name, number in document["numbers"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return _State()
