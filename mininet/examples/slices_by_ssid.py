#!/usr/bin/env python3
"""Two SSIDs, two controllers: staff is HyRoads' network, guests are served by Ryu's simple switch. Run it as root.

The slicer gives each controller the ports of its SSID, so whoever chooses an SSID has chosen a slice.
"""

import sys
from pathlib import Path

from mininet.log import setLogLevel

from hyroads.mininet.controllers import ListeningController
from hyroads.mininet.hybrid import temporary_directory
from hyroads.mininet.programs import HYROADS, Program
from hyroads.mininet.wifi import CLI, HyroadsController, WifiNet, wifi_net

SLICER = "listen: {{openflow: {{port: 6633}}, control: {0}/slicer.sock}}\nslices: {1}\nstate_file: {0}/slicer.state\n"
PORTAL = "10.0.9.1/16"


def two_ssids(directory: Path) -> WifiNet:
    """The network of the file, and a host that guests may reach."""
    ssids = {"wifi": "staff", "wifi-guests": "guests"}
    net = wifi_net("two-ssids", directory=directory, controller=False, ssids=ssids)
    portal = net.addHost("portal", ip=PORTAL)
    net.configureNodes()
    net.addLink(net["ap1"], portal, intfName1="ap1-portal")
    # The switches dial the slicer; it dials the controllers.
    net.addController("slicer", controller=ListeningController, port=6633)
    return net


def programs(directory: Path) -> list[Program]:
    """The slicer, and the guests' controller."""
    text = SLICER.format(directory, Path(__file__).with_name("slices.yaml"))
    (directory / "slicer.yaml").write_text(text, encoding="utf-8")
    ryu_manager = str(Path(sys.executable).with_name("ryu-manager"))
    commands = {
        "slicer": [*HYROADS, "slicer", "--config", str(directory / "slicer.yaml")],
        "guests": [ryu_manager, "--ofp-tcp-listen-port", "6701", "ryu.app.simple_switch_13"],
    }
    return [Program(name, words, directory / f"{name}.log", bound_to_parent=True) for name, words in commands.items()]


if __name__ == "__main__":
    setLogLevel("info")
    folder = temporary_directory()
    network = two_ssids(folder)
    staff = HyroadsController("c0", network=str(network.document))
    running: list[Program | HyroadsController] = [*programs(folder), staff]
    for program in running:
        program.start()
    network.start()
    staff.wait_ready(timeout_s=120)
    # staff1 ping g; guest1 ping 10.0.9.1; guest1 reaches nothing of staff's.
    CLI(network, script=sys.argv[1] if len(sys.argv) > 1 else None)
    network.stop()
    for program in running:
        program.stop()
