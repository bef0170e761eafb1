"""Finding the controller: DNS (RFC 1035, 2782), multicast DNS, leases of DHCP clients; and answers that are none."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zeroconf import DNSOutgoing, DNSQuestion

from hyroads.controller.box import discovery
from hyroads.controller.box.discovery import Found, Places, choose_controller, find_controllers, resolver_of
from hyroads.controller.box.link import Link, UnreachableError
from hyroads.controller.core.dhcp_vendor import controller_in, option_of_dhclient, option_of_networkd
from hyroads.controller.core.dns_service import DnsError, Instance, instances, question, servers
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.framework.multicast_dns import service_of

NAME = "_hyroads._tcp.home.example"
CODED = b"\x08_hyroads\x04_tcp\x04home\x07example\0"
POINTER = b"\xc0\x0c"


def record(priority: int, weight: int, port: int, target: bytes, kind: int = 33) -> bytes:
    data = struct.pack("!HHH", priority, weight, port) + target
    return POINTER + struct.pack("!HHIH", kind, 1, 60, len(data)) + data


def answer(*records: bytes, number: int = 7, flags: int = 0x8180) -> bytes:
    return struct.pack("!HHHHHH", number, flags, 1, len(records), 0, 0) + CODED + b"\0\x21\0\x01" + b"".join(records)


def test_a_question_is_the_bytes_of_the_standard() -> None:
    assert question(NAME, 7) == struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + CODED + b"\0\x21\0\x01"
    for wrong in ("", ".", "a..b", "x" * 64 + ".b", "ab." * 100):
        with pytest.raises(DnsError):
            question(wrong, 7)


def test_servers_come_by_priority_then_weight_and_names_may_be_compressed() -> None:
    # The domain home.example begins at byte 26.
    first, second = b"\x02c1\xc0\x1a", b"\x02c2\x04home\0"
    found = servers(answer(record(10, 5, 8081, second), record(10, 9, 8080, first), record(1, 0, 9000, first)), 7)
    assert found == [("c1.home.example", 9000), ("c1.home.example", 8080), ("c2.home", 8081)]
    for hostile in (b"\x04a/.b\0", b'\x03a"b\0', b"\x03a b\0", b"\x02\x0aa\0", b"\x02\xffa\0"):
        assert servers(answer(record(0, 0, 80, hostile)), 7) == []
    assert servers(answer(record(0, 0, 80, b"\0"), record(0, 0, 1, first, kind=1)), 7) == []
    assert servers(answer(record(0, 0, 80, first), flags=0x8183), 7) == []


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\0" * 11, answer(number=8), answer(flags=0x0100), answer(record(0, 0, 80, b"\xc0\x5f\xc0")),
        answer(record(0, 0, 80, b"\x80a\0")), answer(record(0, 0, 80, b"\x02c1\xc0\x1a"))[:-3],
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(message: bytes) -> None:
    with pytest.raises(DnsError):
        servers(message, 7)


def test_names_that_point_at_themselves_have_an_end() -> None:
    whole = answer(record(0, 0, 80, b"\xc0\x00"))
    at = len(whole) - 2
    with pytest.raises(DnsError, match="bounded"):
        servers(whole[:-2] + struct.pack("!H", 0xC000 | at), 7)


@given(st.binary(max_size=80), st.integers(0, 0xFFFF))
def test_any_bytes_are_servers_or_an_error(data: bytes, count: int) -> None:
    for message in (data, struct.pack("!HHHHHH", 7, 0x8180, 1, count, 0, 0) + data):
        with suppress(DnsError):
            assert all(0 < port < 65536 for _, port in servers(message, 7))


def test_the_resolver_file_is_read_as_the_system_reads_it() -> None:
    text = "# made\nnameserver 192.0.2.53\nnameserver fd00::53 # two\nsearch home.example lan\noptions edns0\n"
    assert resolver_of(text) == (["home.example", "lan"], ["192.0.2.53", "fd00::53"])
    assert resolver_of("search .\n") == ([], [])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A DNS server that knows one domain; the resolver file that names it, and its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listens:
        listens.bind(("127.0.0.1", 0))
        listens.settimeout(10)

        def serve() -> None:
            for _ in range(2):
                data, client = listens.recvfrom(4096)
                number, known = int.from_bytes(data[:2], "big"), data[12:].startswith(CODED)
                said = answer(record(0, 0, 8080, b"\x02c1\xc0\x1a"), number=number)
                listens.sendto(said if known else data[:2] + b"\x81\x83" + data[4:], client)

        thread = threading.Thread(target=serve)
        thread.start()
        file = tmp_path / "resolv.conf"
        file.write_text("search none.example home.example\nnameserver 127.0.0.1\n")
        yield str(file), listens.getsockname()[1]
        thread.join()


def places(resolver: str | Path = "/none", port: int = 1, **more: Any) -> Places:
    """Of a network where nothing is found but by what a test names."""
    return Places(**{"resolver": str(resolver), "port": port, "link_port": 0, "leases": (), **more})


def test_the_first_domain_that_names_a_controller_counts(server: tuple[str, int]) -> None:
    assert find_controllers(places(*server)) == [Found("https://c1.home.example:8080", "DNS of home.example")]


def test_servers_that_give_no_answer_name_no_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "WITHIN_S", 0.05)
    file = tmp_path / "resolv.conf"
    for text in ("search a.example\nnameserver 127.0.0.1\n", ""):
        file.write_text(text)
        assert find_controllers(places(file)) == []


# -- DHCP: leases as systemd-networkd 252 and dhclient 4.4.3 store them, of a server dnsmasq 2.89 with
# dhcp-option=encap:43,1,https://192.0.2.1:8080

OPTION = bytes.fromhex("011668747470733a2f2f3139322e302e322e313a38303830ff")
NETWORKD = f"# This is private data. Do not parse.\nADDRESS=192.0.2.70\nVENDOR_SPECIFIC={OPTION.hex()}\n"
DHCLIENT = """lease {{
  interface "eth0";
  fixed-address 192.0.2.51;
  option dhcp-server-identifier 192.0.2.1;
{}  renew 6 2026/11/28 19:35:58;
}}
"""
OPTION_TEXT = "1:16:68:74:74:70:73:3a:2f:2f:31:39:32:2e:30:2e:32:2e:31:3a:38:30:38:30:ff"
OF_OPTION = f"  option vendor-encapsulated-options {OPTION_TEXT};\n"
URL = "https://192.0.2.1:8080"


def test_leases_of_dhcp_clients_name_the_controller(tmp_path: Path) -> None:
    kinds = (("n", "*", option_of_networkd), ("d", "dhclient*.leases", option_of_dhclient))
    leases = [(str(tmp_path / folder), pattern, reader) for folder, pattern, reader in kinds]
    for folder, _, _ in leases:
        Path(folder).mkdir()
    assert find_controllers(places(leases=leases)) == []
    (tmp_path / "n" / "2").write_text(NETWORKD)
    (tmp_path / "d" / "dhclient.eth0.leases").write_text(DHCLIENT.format(OF_OPTION))
    # Both name the same one.
    assert find_controllers(places(leases=leases)) == [Found(URL, "DHCP option 43")]


def test_only_the_last_lease_of_dhclient_counts() -> None:
    assert option_of_dhclient(DHCLIENT.format("") + DHCLIENT.format(OF_OPTION)) == OPTION
    assert option_of_dhclient(DHCLIENT.format(OF_OPTION) + DHCLIENT.format("")) is None


OPTIONS = {
    "one of another vendor before it": ("00 0204c0a80001 0116" + OPTION[2:24].hex(), URL),
    "an address of another vendor": ("0104c0a80001", None),
    "text without sub-options": (b"https://192.0.2.1:8080".hex(), None),
    "after the end": ("ff" + OPTION.hex(), None),
    "cut": (OPTION[:12].hex(), None),
    "a line end in it": ("0112" + b"https://a.example\n".hex(), None),
    "plain HTTP": ("0110" + b"http://a.example".hex(), None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("what", OPTIONS)
def test_option_43_names_a_controller_or_belongs_to_another_vendor(what: str) -> None:
    coded, url = OPTIONS[what]
    assert controller_in(bytes.fromhex(coded)) == url


# -- multicast DNS, with the library zeroconf as the controller's side


def legacy(info: Any, number: int, service: str = discovery.LINK_SERVICE) -> bytes:
    """An answer to a one-shot question, as zeroconf codes it."""
    out = DNSOutgoing(0x8400, multicast=False, id_=number)
    out.add_question(DNSQuestion(f"{service}.", 12, 1))
    out.add_answer_at_time(info.dns_pointer(), 0)
    for each in (info.dns_service(), info.dns_text(), *info.dns_addresses()):
        out.add_additional_answer(each)
    (packet,) = out.packets()
    return packet


def test_an_instance_is_read_from_what_zeroconf_sends() -> None:
    packet = legacy(service_of(["192.0.2.1", "198.51.100.1"], 8080), 7)
    assert instances(packet, 7, discovery.LINK_SERVICE) == [Instance(8080, ("192.0.2.1", "198.51.100.1"))]
    assert instances(packet, 7, "_other._tcp.local") == []
    with pytest.raises(DnsError):
        instances(packet, 8, discovery.LINK_SERVICE)
    for cut in range(12, len(packet)):
        with pytest.raises(DnsError):
            instances(packet[:cut], 7, discovery.LINK_SERVICE)


@pytest.mark.parametrize(
    ("named", "source", "used"),
    [
        (("192.0.2.1", "198.51.100.1"), "198.51.100.1", "198.51.100.1"),
        (("192.0.2.1",), "198.51.100.9", "192.0.2.1"),
        (("127.0.0.1", "0.0.0.0", "224.0.0.1"), "198.51.100.9", "198.51.100.9"),
        ((), "198.51.100.9", "198.51.100.9"),
    ],
)
def test_the_address_by_which_a_controller_answers_is_preferred(named: tuple[str, ...], source: str, used: str) -> None:
    assert discovery._address(Instance(8080, named), source) == used


# -- which one is joined

PINS = {"https://a:1": "aa" * 32, "https://b:1": "bb" * 32, "https://a2:1": "aa" * 32}


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> None:
    def meet(link: Link) -> tuple[str, str]:
        url = f"https://{link.host}:{link.port}"
        if url not in PINS:
            raise UnreachableError(f"{url}: Connection refused")
        return PINS[url], "192.0.2.7"

    monkeypatch.setattr(Link, "meet", meet)


CHOICES = {
    "the only one": (["a"], None, "https://a:1"),
    "two addresses of one": (["a", "a2"], None, "https://a:1"),
    "the one with the pin": (["b", "gone", "a"], "aa" * 32, "https://a:1"),
    "several": (["a", "b"], None, "several controllers found: name yours"),
    "one that is not reached beside one that is": (["a", "gone"], None, "several controllers found: name yours"),
    "only one that is not reached": (["gone"], None, "the controller found is not reached"),
    "another pin": (["a", "b"], "cc" * 32, "none of the controllers found has this pin"),
    "none": ([], None, "no controller found by DNS"),
}


@pytest.mark.usefixtures("met")
@pytest.mark.parametrize("what", CHOICES)
def test_a_box_joins_the_only_controller_or_the_one_with_its_pin(what: str) -> None:
    hosts, pin, expected = CHOICES[what]
    found, lines = [Found(f"https://{host}:1", "DNS") for host in hosts], []
    if expected.startswith("https:"):
        assert choose_controller(found, pin, lines.append) == expected
        assert lines == [f"found {expected} by DNS"]
        return
    with pytest.raises(HyroadsError, match=expected):
        choose_controller(found, pin, lines.append)
    # Each is listed with its certificate, or why there is none.
    assert len(lines) == len(hosts)
    for host, line in zip(hosts, lines, strict=True):
        assert line.startswith(f"found https://{host}:1 by DNS: ")
        assert PINS.get(f"https://{host}:1", "Connection refused") in line
