"""``hyroads mininet-wifi``: an emulated network whose WiFi is Mininet-WiFi's, with Mininet-WiFi's prompt."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hyroads.controller.core.network import Network

from . import wifi_import
from .emulation import Emulation, EmulationOptions
from .interactive import watch
from .programs import EmulationError, run
from .wifi import wifi_net, with_radio_names

wifi_import.load()

from mn_wifi.cli import CLI  # noqa: E402

SOCKETS = (Path("/run/hostapd"), Path("/run/wpa_supplicant"))


class WifiEmulation(Emulation):
    """As ``hyroads emulate``'s, but WiFi is real 802.11 on Mininet-WiFi's radios."""

    propagation: Mapping[str, Any] = {}
    """Arguments of Mininet-WiFi's ``setPropagationModel``; none: it is left as it is."""
    mobility: Mapping[str, Any] = {}
    """Arguments of ``setMobilityModel``, likewise."""

    def __init__(self, network: Network, name: str, directory: Path, options: EmulationOptions) -> None:
        super().__init__(with_radio_names(network), name, directory, options)

    def _start_mininet(self) -> None:
        from mininet.log import setLogLevel
        from mininet.net import Mininet

        setLogLevel("output")
        # As for every emulated network: no limits of the machine are raised.
        Mininet.inited = True
        for folder in SOCKETS:
            # Sockets are called after interfaces: those of this network must meet none of another.
            folder.mkdir(parents=True, exist_ok=True)
            run("mount", "-t", "tmpfs", "none", str(folder))
        # /sys shows the radios of the namespace in which it was mounted, and iw looks for them there.
        run("mount", "-t", "sysfs", "none", "/sys")
        os.chdir(self.directory)
        options = self.options
        self.net = net = wifi_net(
            self.network,
            directory=self.directory,
            controller=False,
            realtime=options.realtime,
            bound_to_parent=False,
            medium_options=options.medium,
        )
        if self.propagation:
            net.setPropagationModel(**self.propagation)
        net.configureNodes()
        if self.mobility:
            net.setMobilityModel(**self.mobility)
        self._start_net(net, net.shared)


def forget_folders() -> None:
    """Removes the folders of sockets where nobody has any: a run makes them for its own."""
    for folder in SOCKETS:
        with suppress(OSError):
            folder.rmdir()


def keep_running(emulation: Emulation, script: str | None) -> int:
    """Mininet-WiFi's prompt, or a file of its commands; leaving it ends the network."""
    if script is not None and not Path(script).is_file():
        raise EmulationError(f"--script {script}: no such file")
    stop = threading.Event()
    watcher = threading.Thread(target=watch, args=(emulation, stop), daemon=True)
    watcher.start()
    CLI(emulation.net, script=script)
    stop.set()
    watcher.join()
    if emulation.net is not None:
        emulation.net.stop()
    return 0
