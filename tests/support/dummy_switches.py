"""Open vSwitch on its dummy datapath: real ovs-vswitchd, bridges and rules, no packets, no namespaces, no root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"


def available() -> bool:
    return shutil.which("ovs-vswitchd") is not None and Path(SCHEMA).exists()


class DummySwitches:
    """Runs as a context. ``bridges``: name -> names of its ports; datapath ids count from 1."""

    def __init__(self, folder: Path, bridges: Mapping[str, Sequence[str]]) -> None:
        self.folder = folder
        self.bridges = bridges
        names = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        self._environment = {**os.environ, **{name: str(folder) for name in names}}

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def __enter__(self) -> DummySwitches:
        self.folder.mkdir(exist_ok=True)
        self.run("ovsdb-tool", "create", f"{self.folder}/conf.db", SCHEMA)
        quiet = ("--pidfile", "--detach", "--log-file", "-vconsole:off")
        self.run("ovsdb-server", f"{self.folder}/conf.db", f"--remote=punix:{self.folder}/db.sock", *quiet)
        try:
            self.run("ovs-vsctl", "--no-wait", "init")
            self.run("ovs-vswitchd", "--enable-dummy=override", *quiet)
            for number, (bridge, ports) in enumerate(self.bridges.items(), start=1):
                options = f"datapath_type=dummy fail_mode=secure other-config:datapath-id={number:016x}".split()
                self.run("ovs-vsctl", "add-br", bridge, "--", "set", "bridge", bridge, *options, "protocols=OpenFlow13")
                for port in ports:
                    self.run("ovs-vsctl", "add-port", bridge, port, "--", "set", "interface", port, "type=dummy")
        except BaseException:
            self.__exit__()
            raise
        return self

    def connect(self, *ports: int) -> None:
        """Dial the controllers at these ports of loopback."""
        for bridge in self.bridges:
            self.run("ovs-vsctl", "set-controller", bridge, *(f"tcp:127.0.0.1:{port}" for port in ports))
            for record in self.run("ovs-vsctl", "get", "bridge", bridge, "controller").strip("[]\n").split(", "):
                self.run("ovs-vsctl", "set", "controller", record, "max_backoff=1000")

    def __exit__(self, *_: object) -> None:
        for name in ("ovs-vswitchd", "ovsdb-server"):
            command = ["ovs-appctl", "-t", name, "exit"]
            subprocess.run(command, env=self._environment, capture_output=True, check=False, timeout=30)
