"""What a guest network is in the words of nftables and dnsmasq. Pure.

Guests are kept apart from the campus by what they may, not by what they may not: from the guests' interface packets go
to the uplink and nowhere else, and to the gateway itself only for DHCP, DNS and ping. At the uplink networks that are
not public are refused too, because the campus may be there as well. Nobody begins a conversation with a guest.
"""

from __future__ import annotations

import ipaddress
from pathlib import PurePath

from .settings import NOT_PUBLIC, GuestSettings

TABLE = "hyroads_guest"
_RULES = """\
table inet {table}
delete table inet {table}
table inet {table} {{
    set isolated {{
        type ipv4_addr
        flags interval
        elements = {{ {isolated} }}
    }}
    chain input {{
        type filter hook input priority -10; policy accept;
        iifname != "{interface}" accept
        meta nfproto != ipv4 drop
        udp sport 68 udp dport 67 accept
        ip saddr != {network} drop
        ip daddr {gateway} meta l4proto {{ tcp, udp }} th dport 53 accept
        ip daddr {gateway} icmp type echo-request accept
        ct state established,related accept
        drop
    }}
    chain forward {{
        type filter hook forward priority -10; policy accept;
        iifname "{interface}" goto from_guests
        oifname "{interface}" goto to_guests
    }}
    chain from_guests {{
        ip saddr != {network} drop
        meta nfproto != ipv4 drop
        ip daddr @isolated reject with icmp type admin-prohibited
        oifname != "{uplink}" drop{limit}
    }}
    chain to_guests {{
        iifname != "{uplink}" drop{limit}
        ct state established,related accept
        drop
    }}
    chain postrouting {{
        type nat hook postrouting priority 100; policy accept;
        ip saddr {network} oifname "{uplink}" masquerade
    }}
}}
"""
_BURST_S = 0.05
_LEAST_BURST_BYTES = 64_000


def nft_rules(settings: GuestSettings) -> str:
    """The table as a whole: loading it replaces one that is there, at once."""
    limit = ""
    if settings.rate_mbps is not None:
        rate_bytes_s = round(settings.rate_mbps * 1e6 / 8)
        burst = max(_LEAST_BURST_BYTES, round(rate_bytes_s * _BURST_S))
        limit = f"\n        limit rate over {rate_bytes_s} bytes/second burst {burst} bytes drop"
    isolated = ipaddress.collapse_addresses([*NOT_PUBLIC, *settings.isolated])
    return _RULES.format(
        table=TABLE,
        isolated=", ".join(map(str, isolated)),
        interface=settings.interface,
        uplink=settings.uplink,
        network=settings.network,
        gateway=settings.gateway,
        limit=limit,
    )


def dnsmasq_options(settings: GuestSettings, folder: PurePath) -> str:
    """The configuration file of dnsmasq; leases are in ``folder``.

    Names of the campus are not told to guests: answers with addresses that are not public are dropped.
    """
    first, last = settings.pool
    lines = [
        f"interface={settings.interface}",
        "except-interface=lo",
        "bind-interfaces",
        *([] if not settings.dns else ["no-resolv"]),
        *(f"server={address}" for address in settings.dns),
        "no-hosts",
        "domain-needed",
        "bogus-priv",
        "stop-dns-rebind",
        f"domain={settings.domain}",
        f"dhcp-range={first},{last},{settings.network.netmask},{settings.lease_minutes}m",
        f"dhcp-option=option:router,{settings.gateway}",
        f"dhcp-option=option:dns-server,{settings.gateway}",
        "dhcp-authoritative",
        f"dhcp-lease-max={settings.leases}",
        f"dhcp-leasefile={folder / 'leases'}",
    ]
    return "\n".join(lines) + "\n"
