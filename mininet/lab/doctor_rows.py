"""Rows of the verdict about ``hyroads box doctor``: boxes as they are set up, and faults that are planted in one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hyroads.mininet.programs import EmulationError, wait_until

from .box import Box
from .three_boxes import ATTIC, NODES, Setup
from .verdict import Wanted

BRIDGE, PORT = "br0", "eth1"
TOKEN, CERTIFICATE, AGENTS = "/etc/hyroads/agent.token", "/etc/hyroads/node.pem", "/etc/default/hyroads-ap"
_ASIDE = "/root/aside"
_BACK_WITHIN_S = 60.0
_DOCTOR_WITHIN_S = 120.0


@dataclass(frozen=True)
class Fault:
    """A fault: the command lines that plant and mend it, and check and place of the only finding that names it."""

    plant: str
    mend: str
    check: str
    place: str


FAULTS = (
    Fault(f"ip link set {PORT} mtu 1200", f"ip link set {PORT} mtu 1500", "mtu", PORT),
    Fault(f"ip link set {PORT} down", f"ip link set {PORT} up", "plc", PORT),
    Fault(f"ethtool -K {PORT} gro on", f"ethtool -K {PORT} gro off", "offloads", PORT),
    Fault(f"ovs-vsctl del-port {BRIDGE} {PORT}", f"ovs-vsctl add-port {BRIDGE} {PORT}", "switch", PORT),
    Fault(
        f"ovs-vsctl set-fail-mode {BRIDGE} standalone",
        f"ovs-vsctl set-fail-mode {BRIDGE} secure",
        "switch",
        f"bridge {BRIDGE}",
    ),
    Fault(
        "ovs-vsctl set Open_vSwitch . other_config:vlan-limit=1",
        "ovs-vsctl set Open_vSwitch . other_config:vlan-limit=0",
        "vlan-limit",
        "Open vSwitch",
    ),
    Fault("systemctl stop hyroads-ap-agent", "systemctl start hyroads-ap-agent", "service", "hyroads-ap-agent"),
    Fault(f"mv {TOKEN} {_ASIDE}", f"mv {_ASIDE} {TOKEN}", "token", TOKEN),
    Fault(
        f"cp -p {TOKEN} {_ASIDE} && echo {'w' * 48} > {TOKEN}",
        f"cp -p {_ASIDE} {TOKEN} && rm {_ASIDE}",
        "token",
        "192.0.2.1:6654",
    ),
    Fault(f"mv {CERTIFICATE} {_ASIDE}", f"mv {_ASIDE} {CERTIFICATE}", "certificate", CERTIFICATE),
    Fault(
        f"sed -i.aside s/192.0.2.1:6654/192.0.2.1:1/ {AGENTS}",
        f"mv {AGENTS}.aside {AGENTS}",
        "controller",
        "192.0.2.1:1",
    ),
    Fault(
        "mount --bind /etc/hyroads /etc/hyroads && mount -o remount,bind,ro /etc/hyroads",
        "umount /etc/hyroads",
        "disk",
        "/etc/hyroads",
    ),
)
HEALTHY = Wanted("faults that hyroads box doctor finds on the three boxes", "", at_most=0.0)
NAMED = Wanted(
    f"planted faults, of {len(FAULTS)}, that hyroads box doctor names in its only line", "", at_least=float(len(FAULTS))
)


def healthy_row(setup: Setup, failures: list[str]) -> tuple[Wanted, Callable[[], float]]:
    """The row of boxes without a fault; each fault that is found nevertheless is one of ``failures``."""

    def measure() -> float:
        found = [(node, *fault) for node in NODES for fault in faults_of(setup.box[node])]
        failures.extend(f"{node}: {check} {place}" for node, check, place in found)
        return len(found)

    return HEALTHY, measure


def planted_row(setup: Setup, failures: list[str]) -> tuple[Wanted, Callable[[], float]]:
    """The row of faults that are planted in the attic one after the other; those not named are ``failures``."""

    def measure() -> float:
        wrong = list(not_named(setup.box[ATTIC]))
        failures.extend(wrong)
        wait_until("the network after the faults", setup.in_force, _BACK_WITHIN_S, interval_s=0.2)
        return len(FAULTS) - len(wrong)

    return NAMED, measure


def not_named(box: Box) -> Iterator[str]:
    """Each planted fault that is not the only one found, with all findings."""
    for fault in FAULTS:
        box.type(fault.plant)
        try:
            found = faults_of(box)
        finally:
            box.type(fault.mend)
        if found != [(fault.check, fault.place)]:
            shown = ", ".join(" ".join(each) for each in found) or "nothing"
            yield f"{fault.plant}: {shown}"


def faults_of(box: Box) -> list[tuple[str, str]]:
    """Check and place of each fault that ``hyroads box doctor`` finds on a box."""
    done = box.run("hyroads", "box", "doctor", "--json", within_s=_DOCTOR_WITHIN_S)
    try:
        findings = json.loads(done.stdout)["findings"]
    except (ValueError, KeyError) as error:
        raise EmulationError(f"{box.name}: {(done.stderr.strip() or 'no verdict').splitlines()[-1]}") from error
    return [(each["check"], each["place"]) for each in findings if each["level"] == "fault"]
