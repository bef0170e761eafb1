"""The slicer's port of switches: places for strangers, certificates of datapath ids, one session of a switch."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from controller_process import eventually, free_ports
from identities import context_of, context_with, issued, made, server_tls
from scripted_switch import ScriptedSwitch
from slicer_lab import SlicerLab, slicer_lab

from hyroads.slices.server.switch_port import SPARE_CONNECTIONS

MOST = 4
STRANGERS = 3 * (MOST + SPARE_CONNECTIONS)
PROBE_S = 1.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("slicer-identity"))


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[SlicerLab]:
    slices = [{"name": "production", "controllers": [f"tcp:127.0.0.1:{free_ports(1)[0]}"]}]
    tls = server_tls(folder, ca=True)
    with slicer_lab(folder, slices, tls=tls, most_switches=MOST, any_switch=["outer"]) as lab:
        yield lab


def dial(lab: SlicerLab, context: ssl.SSLContext, dpid: int) -> ScriptedSwitch:
    plain = socket.create_connection(("127.0.0.1", lab.openflow), 10)
    found = ScriptedSwitch(context.wrap_socket(plain, server_hostname="127.0.0.1"), dpid)
    found.start()
    return found


def ends(found: ScriptedSwitch) -> bool:
    found.join(5)
    return not found.is_alive()


def end(found: ScriptedSwitch) -> None:
    with suppress(OSError):
        found.socket.shutdown(socket.SHUT_RDWR)
    assert ends(found)
    found.socket.close()


def served(lab: SlicerLab) -> set[str]:
    with lab.operator() as client:
        return {one["dpid"] for one in client.get("/switches")["switches"] if one["connected"]}


def test_strangers_take_no_places_of_switches(lab: SlicerLab, folder: Path) -> None:
    """They begin TLS and stop, say what is none, show no certificate, or one of nobody's authority."""
    kept, nobody = [], context_of(folder, None)
    for number in range(STRANGERS):
        peer = socket.create_connection(("127.0.0.1", lab.openflow), 10)
        kept.append(peer)
        with suppress(OSError):
            if number % 3 == 0:
                peer.sendall(b"\4\0\0\10\0\0\0\1" * 4)
            elif number % 3 == 1:
                with nobody.wrap_socket(peer, server_hostname="127.0.0.1") as secured:
                    secured.recv(1)
    began_s = time.monotonic()
    mine = dial(lab, context_of(folder, "a"), 1)
    assert eventually(lambda: "0x1" in served(lab), 10)
    assert time.monotonic() - began_s < 5
    for peer in kept:
        peer.close()
    end(mine)
    assert eventually(lambda: not served(lab), 10)


def test_a_certificate_is_of_one_datapath_id_unless_it_is_a_slicers(lab: SlicerLab, folder: Path) -> None:
    assert ends(dial(lab, context_of(folder, "b"), 1))
    mine = dial(lab, context_of(folder, "b"), 2)
    any_of_its = dial(lab, context_with(issued(folder, "slicer", "outer")), 77)
    assert eventually(lambda: served(lab) == {"0x2", f"{77:#x}"}, 10)
    for each in (mine, any_of_its):
        end(each)
    assert eventually(lambda: not served(lab), 10)


def test_a_second_session_is_refused_while_the_first_lives(lab: SlicerLab, folder: Path) -> None:
    a = context_of(folder, "a")
    living = dial(lab, a, 1)
    assert eventually(lambda: "0x1" in served(lab), 10)
    assert ends(dial(lab, a, 1))
    assert living.is_alive() and served(lab) == {"0x1"}
    living.hang()
    began_s, other = time.monotonic(), dial(lab, a, 1)
    assert ends(living)
    assert time.monotonic() - began_s < 3 * PROBE_S
    assert eventually(lambda: served(lab) == {"0x1"}, 10) and other.is_alive()
    end(other)
