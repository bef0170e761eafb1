"""Finds the controller of a network: DNS servers of the network name it (SRV records of ``_hyroads._tcp``)."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from hyroads.controller.core.dns_service import DnsError, question, servers
from hyroads.controller.core.errors import HyroadsError

SERVICE = "_hyroads._tcp"
RESOLVER = "/etc/resolv.conf"
PORT = 53
WITHIN_S = 2.0
MOST_BYTES = 4096
MOST_DOMAINS, MOST_SERVERS = 6, 3


def find_controller(resolver: str = RESOLVER, port: int = PORT) -> str:
    """The address ``https://HOST:PORT`` of the controller that the network's DNS names; HyroadsError if none does."""
    try:
        text = Path(resolver).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HyroadsError(f"{resolver}: {error.strerror}: name the controller, https://HOST:PORT") from error
    domains, addresses = resolver_of(text)
    for domain in domains[:MOST_DOMAINS]:
        for address in addresses[:MOST_SERVERS]:
            for host, there in _answered(f"{SERVICE}.{domain}", address, port):
                return f"https://{host}:{there}"
    searched = ", ".join(f"{SERVICE}.{domain}" for domain in domains) or "the network names no domain"
    raise HyroadsError(f"no controller found in DNS ({searched[:200]}): name it, https://HOST:PORT")


def resolver_of(text: str) -> tuple[Sequence[str], Sequence[str]]:
    """Search domains and addresses of servers in a file like ``/etc/resolv.conf``."""
    domains: list[str] = []
    addresses: list[str] = []
    for line in text.splitlines():
        match line.split("#")[0].split():
            case ["nameserver", address, *_]:
                addresses.append(address)
            case ["search" | "domain", *names]:
                domains = [name for name in names if name != "."]
    return domains, addresses


def _answered(name: str, address: str, port: int) -> Iterator[tuple[str, int]]:
    """What one server answers; nothing if it gives no answer that can be understood."""
    number = secrets.randbits(16)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError, DnsError), socket.socket(family, socket.SOCK_DGRAM) as sent:
        sent.settimeout(WITHIN_S)
        # A connected socket hears this server alone.
        sent.connect((address, port))
        sent.send(question(name, number))
        yield from servers(sent.recv(MOST_BYTES), number)
