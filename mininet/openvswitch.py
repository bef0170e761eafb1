"""An Open vSwitch of our own: database and daemon with private sockets, in the network namespace of the caller."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hyroads.mininet.programs import Program, run, wait_until

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_TIMEOUT_S = 15.0
KERNEL_MODULE = Path("/sys/module/openvswitch")


def datapath_type() -> str:
    """``system`` (the kernel's datapath) where the machine has it, else ``netdev`` (in user space)."""
    if not KERNEL_MODULE.exists():
        # A kernel with the module but without any switch so far; silent where there is none.
        subprocess.run(["modprobe", "-q", "openvswitch"], check=False, stderr=subprocess.DEVNULL)
    return "system" if KERNEL_MODULE.exists() else "netdev"


class OpenVSwitch:
    """ovsdb-server and ovs-vswitchd whose files all lie in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        database = directory / "conf.db"
        socket = directory / "db.sock"
        quiet = ["--pidfile", "--log-file", "-vconsole:off"]
        self.database = Program(
            "ovsdb-server",
            ["ovsdb-server", str(database), f"--remote=punix:{socket}", *quiet],
            directory / "ovsdb-server.out",
        )
        self.daemon = Program(
            "ovs-vswitchd", ["ovs-vswitchd", f"unix:{socket}", *quiet], directory / "ovs-vswitchd.out"
        )

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs to watch."""
        return (self.database, self.daemon)

    def start(self) -> None:
        """Starts both; from then on every ovs-* tool of this process and its children talks to them."""
        self.directory.mkdir(parents=True)
        for variable in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"):
            os.environ[variable] = str(self.directory)
        run("ovsdb-tool", "create", str(self.directory / "conf.db"), str(SCHEMA))
        self.database.start()
        wait_until("ovsdb-server", (self.directory / "db.sock").exists, START_TIMEOUT_S)
        # Whole frames with any number of VLAN tags must match as they are (limit 0 = look at all of them).
        run("ovs-vsctl", "--no-wait", "--timeout=10", "init")
        run("ovs-vsctl", "--no-wait", "--timeout=10", "set", "Open_vSwitch", ".", "other_config:vlan-limit=0")
        self.daemon.start()
        wait_until("ovs-vswitchd", lambda: any(self.directory.glob("ovs-vswitchd.*.ctl")), START_TIMEOUT_S)

    def stop(self) -> None:
        """Ends both; bridges go with them."""
        for program in reversed(self.programs):
            program.stop()
