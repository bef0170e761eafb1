"""Machines that join a real controller: namespaces with Open vSwitch, folders /etc and /var/lib of their own, and a
stand-in for systemctl that starts the real units' programs.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import small_systemctl
from controller_process import PROGRAM, eventually
from ovs_rig import Rig, run

from hyroads.controller.cli.main import main as hyroads

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "192.0.2.1"
URL = f"https://{ADDRESS}:8080"
TOKEN = "ops-" + "t" * 32
NETWORK = """
name: home
nodes:
  gw: {role: gateway, ports: {plc: eth1}}
  up: {role: ap, ports: {plc: eth1}}
links:
  - {id: gu, from: gw, to: up, technology: plc, capacity_mbps: 20, both: true}
interference: {rule: technology}
"""
NODES = ("gw", "up")
START_WITHIN_S = 180.0
"""On a busy machine a controller takes a minute to load its modules."""
_MOUNTED = 'mount --bind "$1" /etc && mount --bind "$2" /var/lib && eval "$3" && shift 3 && exec "$@"'


class _Rig(Rig):
    """Open vSwitch that sees the folders of its machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def inside(self, *words: str) -> str:
        return run(*self._machine.command(*words), env=self.env)


class Machine:
    """One machine: ``eth0`` leads to the controller, ``eth1`` to the other machine, ``eth2`` to a host."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.etc, self.var, self.programs, self.units = (folder / each for each in ("etc", "var", "bin", "units"))
        self.rig: Rig = _Rig(self)

    def unpack(self) -> None:
        for each in (self.var, self.programs, self.units):
            each.mkdir(parents=True)
        shutil.copytree("/etc", self.etc, symlinks=True, ignore_dangling_symlinks=True)
        (self.etc / "default").mkdir(exist_ok=True)
        (self.etc / "default" / "hyroads-ap").write_text("CONTROLLER=127.0.0.1:6654\n")
        (self.etc / "systemd" / "system").mkdir(parents=True, exist_ok=True)
        with (self.etc / "passwd").open("a") as users:
            users.write("hyroads-ap:x:4242:4242::/:/usr/sbin/nologin\n")
        (self.programs / "hyroads-edge").symlink_to(ROOT / "dataplane" / "target" / "release" / "hyroads-edge")
        self._program("hyroads-ap-agent", f'exec {sys.executable} -m hyroads.controller.cli ap-agent "$@"')
        places = f"{self.units} /etc/systemd/system {ROOT / 'deploy' / 'systemd'}"
        self._program("systemctl", f'exec {sys.executable} {small_systemctl.__file__} {places} -- "$@"')

    def _program(self, name: str, line: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (self.programs / name).chmod(0o755)

    def command(self, *words: str, mounts: str = "true") -> list[str]:
        """The command line that starts ``words`` on the machine; ``mounts`` is a shell command before."""
        inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _MOUNTED, "sh"]
        return ["ip", "netns", "exec", self.rig.namespace, *inside, str(self.etc), str(self.var), mounts, *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**self.rig.env, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def box(self, *words: str, mounts: str = "true") -> subprocess.CompletedProcess[str]:
        """``hyroads box`` on the machine."""
        command = self.command(sys.executable, "-m", "hyroads.controller.cli", "box", *words, mounts=mounts)
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)

    @contextmanager
    def joining(
        self, *words: str, mounts: str = "true", url: tuple[str, ...] = (URL,)
    ) -> Iterator[subprocess.Popen[str]]:
        """``hyroads box join`` on the machine, beside the test; inside it waits to be adopted. ``url`` may be empty."""
        command = self.command(
            sys.executable, "-m", "hyroads.controller.cli", "box", "join", *url, *words, mounts=mounts
        )
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, env=self.environment, text=True, **streams) as process:
            try:
                yield process
            finally:
                process.kill()

    def snapshot(self) -> dict[str, Any]:
        """All that a join could leave behind."""
        files = {}
        for top in (self.etc, self.var):
            for path in sorted(top.rglob("*")):
                state = path.lstat()
                is_file = path.is_file() and not path.is_symlink()
                digest = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
                files[str(path.relative_to(self.folder))] = (state.st_mode, state.st_uid, state.st_gid, digest)
        switch = [self.rig.vsctl("get", "Open_vSwitch", ".", column) for column in ("ssl", "bridges", "other_config")]
        links = json.loads(self.rig.inside("ip", "-json", "link"))
        shown = {each["ifname"]: (each["address"], "UP" in each["flags"]) for each in links}
        # User-space datapaths make this device once, and leave it.
        shown.pop("ovs-netdev", None)
        running = sorted(path.name for path in self.units.iterdir() if path.suffix in (".pid", ".enabled"))
        return {"files": files, "switch": switch, "links": shown, "running": running}

    def stop(self) -> None:
        units = small_systemctl.Units(self.units, [])
        for file in self.units.glob("*.pid"):
            units.stop(file.stem)


class Home:
    """Two machines and a controller that adopts boxes; runs as a context."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.identities = folder, folder / "identities"
        self.machines = {node: Machine(folder / node, number) for number, node in enumerate(NODES, 1)}
        self.namespace = f"hr-join-{self.machines['gw'].rig.tag}"
        self.hosts = {node: f"{self.namespace}-{node}" for node in NODES}
        self._stack = ExitStack()

    def __enter__(self) -> Home:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        for name in (self.namespace, *self.hosts.values()):
            run("ip", "netns", "add", name)
            self._stack.callback(run, "ip", "netns", "del", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", self.namespace, "link", "add", "lan", "type", "bridge")
        run("ip", "-n", self.namespace, "link", "set", "lan", "up")
        run("ip", "-n", self.namespace, "address", "add", f"{ADDRESS}/24", "dev", "lan")
        for node, machine in self.machines.items():
            machine.unpack()
            self._stack.enter_context(machine.rig)
            machine.rig.vsctl("remove", "Open_vSwitch", ".", "other_config", "vlan-limit")
            self._stack.callback(machine.stop)
            self._wire(node, machine)
        ends = [machine.rig.namespace for machine in self.machines.values()]
        run("ip", "link", "add", "eth1", "netns", ends[0], "type", "veth", "peer", "name", "eth1", "netns", ends[1])
        self._controller()

    def _wire(self, node: str, machine: Machine) -> None:
        at, host = machine.rig.namespace, self.hosts[node]
        run(
            "ip",
            "link",
            "add",
            "eth0",
            "netns",
            at,
            "type",
            "veth",
            "peer",
            "name",
            f"lan-{node}",
            "netns",
            self.namespace,
        )
        run("ip", "-n", self.namespace, "link", "set", f"lan-{node}", "master", "lan", "up")
        run("ip", "-n", at, "link", "set", "eth0", "up")
        run("ip", "-n", at, "address", "add", f"192.0.2.1{machine.number}/24", "dev", "eth0")
        run("ip", "link", "add", "eth2", "netns", at, "type", "veth", "peer", "name", "eth0", "netns", host)
        run("ip", "-n", host, "link", "set", "eth0", "address", f"02:00:00:00:00:0{machine.number}", "up")
        run("ip", "-n", host, "address", "add", f"10.0.0.{machine.number}/16", "dev", "eth0")
        run("ip", "netns", "exec", host, "ethtool", "-K", "eth0", "tx", "off")

    def _controller(self) -> None:
        where = ("--folder", str(self.identities))
        assert hyroads(["identity", "authority", *where]) == 0
        assert hyroads(["identity", "server", ADDRESS, *where]) == 0
        (self.folder / "network.yaml").write_text(NETWORK)
        server = {"key": f"identities/{ADDRESS}.key", "certificate": f"identities/{ADDRESS}.pem"}
        trusted = {**server, "ca": "identities/ca.pem"}
        settings = {
            "network": "network.yaml", "state_file": "state.json", "timings": {"grace_s": 0.5},
            "listen": {name: {"host": ADDRESS} for name in ("openflow", "agents", "rest")},
            "tls": trusted, "agents_tls": trusted, "rest_tls": server,
            "boxes": {"authority": "identities", "announce": [ADDRESS]},
            "api_tokens": {"ops": {"token": TOKEN}},
        }  # fmt: skip
        path = self.folder / "hyroads.json"
        path.write_text(json.dumps(settings))
        path.chmod(0o600)
        command = ["ip", "netns", "exec", self.namespace, sys.executable, "-c", PROGRAM]
        with (self.folder / "controller.log").open("ab") as log:
            started = subprocess.Popen(command, env={**os.environ, "HYROADS_CONFIG": str(path)}, stdout=log, stderr=log)
        self._stack.callback(started.wait)
        self._stack.callback(started.terminate)
        eventually(lambda: self.at_controller("box", "list").returncode == 0, START_WITHIN_S)

    def at_controller(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``hyroads`` where the controller runs."""
        known = {"HYROADS_URL": URL, "HYROADS_CA": str(self.identities / "ca.pem"), "HYROADS_TOKEN": TOKEN}
        command = ["ip", "netns", "exec", self.namespace, sys.executable, "-m", "hyroads.controller.cli", *words]
        return subprocess.run(command, env={**os.environ, **known}, capture_output=True, text=True, timeout=90)

    def boxes(self) -> dict[str, dict[str, Any]]:
        """By id, as the controller lists them."""
        words = ("curl", "-s", "--cacert", str(self.identities / "ca.pem"), "-H", f"Authorization: Bearer {TOKEN}")
        answer = run("ip", "netns", "exec", self.namespace, *words, f"{URL}/api/v1/boxes")
        return {box["id"]: box for box in json.loads(answer)["boxes"]}
