#!/usr/bin/env python3
"""One flow over WiFi and power line at once, between Mininet-WiFi's nodes. Run it as root."""

import sys

from mininet.log import info, setLogLevel

from hyroads.mininet.wifi import CLI, wifi_net
from hyroads.rest.client import Client

if __name__ == "__main__":
    setLogLevel("info")
    net = wifi_net("wifi-and-plc")
    net.start()
    net.controllers[0].wait_ready(timeout_s=120)
    for path in Client("http://127.0.0.1:8080").get("/flows/down")["multipath"]:
        info(f"{' + '.join(path['links'])}: {path['rate_mbps']:.2f} Mb/s\n")
    info("both at once: laptop iperf3 -s -1 -D, then g iperf3 -c 10.0.0.3\n")
    CLI(net, script=sys.argv[1] if len(sys.argv) > 1 else None)
    net.stop()
