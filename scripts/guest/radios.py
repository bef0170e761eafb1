"""Make radios of mac80211_hwsim in this network namespace, where they end with it: ``radios.py 2``."""

import sys

from hyroads.controller.kernel.generic_netlink import GenericNetlink

NEW_RADIO = 4

if __name__ == "__main__":
    with GenericNetlink("MAC80211_HWSIM") as hwsim:
        for _ in range(int(sys.argv[1])):
            hwsim.command(NEW_RADIO)
