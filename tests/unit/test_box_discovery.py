"""Finding the controller in DNS: questions and answers as of RFC 1035 and 2782, and answers that are none."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.box import discovery
from hyroads.controller.box.discovery import find_controller, resolver_of
from hyroads.controller.core.dns_service import DnsError, question, servers
from hyroads.controller.core.errors import HyroadsError

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


def test_the_first_domain_that_names_a_controller_counts(server: tuple[str, int]) -> None:
    assert find_controller(*server) == "https://c1.home.example:8080"


def test_a_network_without_a_controller_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "WITHIN_S", 0.05)
    file = tmp_path / "resolv.conf"
    for text, said in (("search a.example\nnameserver 127.0.0.1\n", r"_hyroads\._tcp\.a\.example"), ("", "no domain")):
        file.write_text(text)
        with pytest.raises(HyroadsError, match=said) as raised:
            find_controller(str(file), 1)
        assert "\n" not in str(raised.value)
    with pytest.raises(HyroadsError, match="name the controller"):
        find_controller(str(tmp_path / "none"))
