"""A DNS server that dnspython asks over one interface."""

from __future__ import annotations

import socket

import dns.message
import dns.nameserver
import dns.query


class DeviceNameserver(dns.nameserver.Do53Nameserver):
    """A server at an address and port, behind an interface."""

    def __init__(self, address: str, port: int, interface: str) -> None:
        super().__init__(address, port)
        self._interface = interface

    def query(  # noqa: PLR0917 - the library's own
        self,
        request: dns.message.QueryMessage,
        timeout: float,
        source: str | None,
        source_port: int,
        max_size: bool,
        one_rr_per_rrset: bool = False,
        ignore_trailing: bool = False,
    ) -> dns.message.Message:
        """The answer, over TCP if ``max_size``. Raises OSError and DNSException."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM if max_size else socket.SOCK_DGRAM) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._interface.encode() + b"\0")
            if max_size:
                connection.settimeout(timeout)
                connection.connect((self.address, self.port))
                connection.setblocking(False)
                return dns.query.tcp(request, self.address, timeout, self.port, sock=connection)
            connection.setblocking(False)
            return dns.query.udp(
                request,
                self.address,
                timeout,
                self.port,
                ignore_unexpected=True,
                raise_on_truncation=True,
                sock=connection,
                ignore_errors=True,
            )
