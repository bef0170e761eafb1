"""Factory addresses of the interfaces of emulated boxes. The controller is not given any: boxes report them."""

from __future__ import annotations

from hashlib import blake2b

from hyroads.controller.core.addressing import Addressing


def factory_address(addressing: Addressing, node: str, technology: str) -> str:
    """The address of a node's interface: a vendor's three octets for the box, three more for the interface.

    Looks random, and is the same in each run and each process. A plain client has the address of its host.
    """
    if addressing.is_plain_client(node):
        return addressing.host_mac[node]
    vendor, number = _digest(node), _digest(f"{node}/{technology}")
    # Neither a group's address nor a locally administered one.
    return bytes((vendor[0] & 0xFC, *vendor[1:], *number)).hex(":")


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=3, person=b"hyroads-factory").digest()
