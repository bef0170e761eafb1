"""Names this controller by multicast DNS (DNS-SD, ``_hyroads._tcp``), as long as its standard input is open.

A process of its own: ``zeroconf`` needs asyncio and threads, which the controller's green threads do not go with. It
reads one line of JSON, ``{"addresses": [...], "port": ...}``, and withdraws the name when the input ends.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from collections.abc import Sequence

from zeroconf import IPVersion, ServiceInfo, Zeroconf

SERVICE = "_hyroads._tcp.local."


def service_of(addresses: Sequence[str], port: int) -> ServiceInfo:
    """The announcement: IPv4 addresses and the port of the REST API, and nothing else."""
    host = addresses[0].replace(".", "-")
    return ServiceInfo(
        SERVICE,
        f"HyRoads {addresses[0]} {port}.{SERVICE}",
        port=port,
        addresses=[ipaddress.IPv4Address(each).packed for each in addresses],
        server=f"hyroads-{host}.local.",
    )


def main() -> int:
    """Announce until the input ends; the exit status."""
    wanted = json.loads(sys.stdin.readline())
    addresses, port = wanted["addresses"], wanted["port"]
    try:
        named = Zeroconf(interfaces=list(addresses), ip_version=IPVersion.V4Only)
    except OSError as error:
        print(f"{', '.join(addresses)}: {error.strerror or error}", flush=True)
        return 1
    try:
        named.register_service(service_of(addresses, port), allow_name_change=True)
        sys.stdin.read()
    finally:
        named.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
