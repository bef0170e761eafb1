#!/usr/bin/env python3
"""Two access points and a walking station: Mininet-WiFi moves it, HyRoads' flows follow. Run it as root."""

from mininet.log import setLogLevel

from hyroads.mininet.wifi import CLI, WifiNet, wifi_net


def walk(start_s: int = 10, stop_s: int = 40) -> WifiNet:
    """The network; its station walks from one access point to the other between these seconds."""
    net = wifi_net("walk", params={"ap1": {"range": 40}, "ap2": {"range": 40}})
    station = net["sta1"]
    net.setPropagationModel(model="logDistance", exp=4)
    net.configureNodes()
    net.startMobility(time=0)
    net.mobility(station, "start", time=start_s, position="20,35,0")
    net.mobility(station, "stop", time=stop_s, position="80,35,0")
    net.stopMobility(time=stop_s + 1)
    return net


if __name__ == "__main__":
    setLogLevel("info")
    network = walk()
    network.start()
    CLI(network)
    network.stop()
