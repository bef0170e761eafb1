"""What the options of ``hyroads emulate`` and ``demo`` make of the controller's settings."""

from __future__ import annotations

import argparse
import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.cli import emulate
from hyroads.controller.cli.main import add_all
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.files.documents import read_file
from hyroads.controller.settings.controller import parse

pytest.importorskip("mininet")

from hyroads.mininet import runner
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.shared_medium import SharedMedium


def settings(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_all(parser, emulate.RUN_ARGUMENTS)
    return dict(emulate.options(parser.parse_args(arguments)).emulation.settings)


def test_only_what_is_given_reaches_the_controller() -> None:
    assert settings() == {}
    assert settings("--mode", "controller", "--margin", "0") == {"mode": "controller", "margin": 0.0}


def test_an_unknown_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        settings("--mode", "guess")
    assert "solver" in capsys.readouterr().err


def emulation(*arguments: str) -> Any:
    parser = argparse.ArgumentParser()
    add_all(parser, emulate.RUN_ARGUMENTS)
    args = parser.parse_args(arguments)
    emulate.check_options(args)
    return emulate.options(args).emulation


def test_several_controllers_have_an_etcd_and_one_has_none() -> None:
    assert (emulation().controllers, emulation().etcd_members) == (1, 0)
    assert (emulation("--controllers", "1").controllers, emulation("--controllers", "1").etcd_members) == (1, 0)
    several = emulation("--controllers", "3")
    assert (several.controllers, several.etcd_members) == (3, 1)
    assert emulation("--controllers", "2", "--etcd-members", "3").etcd_members == 3


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--controllers", "0"], "--controllers 0: expected 1 to 5"),
        (["--controllers", "6"], "--controllers 6: expected 1 to 5"),
        (["--controllers", "3", "--etcd-members", "2"], "--etcd-members 2: expected 1, 3, 5"),
        (["--etcd-members", "1"], "--etcd-members: only with --controllers 2 or more"),
    ],
)
def test_numbers_of_controllers_are_checked(arguments: list[str], error: str) -> None:
    with pytest.raises(HyroadsError, match=error):
        emulation(*arguments)


def test_ports_on_media_have_the_mtu_of_the_file_the_option_or_ethernet(tmp_path: Path) -> None:
    network = replace(read_file(find_network("triangle")), mtu={"plc": 1400})

    def found(*arguments: str) -> list[int]:
        made = Emulation(network, "sizes", tmp_path, emulation(*arguments)).network
        shared = SharedMedium(made, Addressing.of(made), tmp_path)
        return [shared.mtu_of("a", "plc"), shared.mtu_of("a", "wifi"), shared.mtu_of("c", "wifi")]

    # c is a plain client: its port is the interface of its host.
    assert found() == [1400, 1500, 1500]
    assert found("--mtu", "1600") == [1400, 1600, 1500]
    for wrong in ("1279", "9217"):
        with pytest.raises(HyroadsError, match=f"--mtu {wrong}: expected 1280 to 9216 bytes"):
            emulation("--mtu", wrong)


def test_controllers_that_stand_by_differ_in_their_ports_and_names_alone(tmp_path: Path) -> None:
    """What the settings files of three say; without several there is no etcd, and the state is in a file."""
    network = read_file(find_network("triangle"))
    several = Emulation(network, "several", tmp_path, EmulationOptions(controllers=3, etcd_members=3))
    files = [json.loads((tmp_path / f"controller{suffix}.json").read_text()) for suffix in ("", "-2", "-3")]
    assert [one["ha"].pop("name") for one in files] == ["c1", "c2", "c3"]
    assert [one["ha"].pop("advertise")["rest"] for one in files] == several.rest_urls
    ports = [port["port"] for one in files for port in one.pop("listen").values()]
    assert len(set(ports)) == len(ports) == 12
    assert files[0] == files[1] == files[2]
    assert len(files[0]["ha"]["etcd"]) == 3 and "state_file" not in files[0]
    alone = Emulation(network, "alone", tmp_path, EmulationOptions())
    settings = json.loads((tmp_path / "controller.json").read_text())
    assert alone.etcd is None and "ha" not in settings and "listen" not in settings and settings["state_file"]


def test_rest_of_each_controller_is_published_and_nothing_stays_open() -> None:
    options = EmulationOptions(controllers=2, etcd_members=1)
    base = next(port for port in range(20_000, 30_000, 7) if is_free(port) and is_free(port + 100))
    found = runner._listeners(runner.RunOptions(publish=base, emulation=options), print)
    assert [(listener.getsockname()[1], inside) for listener, inside in found] == [(base, 8080), (base + 100, 8180)]
    found[0][0].close()
    with pytest.raises(HyroadsError, match=f"--publish {base + 100}"):
        runner._listeners(runner.RunOptions(publish=base, emulation=options), print)
    assert is_free(base)
    found[1][0].close()
    assert runner._listeners(runner.RunOptions(publish=0, emulation=options), print) == []


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("each", "members"), [(None, 0), (1, 0), (2, 1)])
def test_each_region_has_as_many_controllers_that_stand_by_for_each_other(
    tmp_path: Path, each: int | None, members: int
) -> None:
    parser = argparse.ArgumentParser()
    add_all(parser, emulate.RUN_ARGUMENTS)
    more = [] if each is None else ["--controllers", str(each)]
    args = parser.parse_args(["--regions", *more])
    emulate.check_options(args)
    network = read_file(find_network("two-buildings"))
    emulate.use_regions(network, "two-buildings", args)
    options = emulate.options(args).emulation
    assert (options.controllers, options.etcd_members) == (2 * (each or 1), members)
    made = Emulation(network, "regions", tmp_path, options)
    found = [parse(json.loads(path.read_text()), str(path), {}) for path in sorted(tmp_path.glob("controller*.json"))]
    assert len(found) == len(made.controllers) == options.controllers
    listens: dict[str, set[int]] = {"north": set(), "south": set()}
    for settings in found:
        assert settings.region is not None and (settings.ha is not None) == bool(members)
        listens[settings.region.name].add((settings.region.listen or settings.peer).port)
    for settings in found:
        assert settings.region is not None
        (other,) = listens.keys() - {settings.region.name}
        assert {endpoint.port for endpoint in settings.region.peers[other]} == listens[other]
    ports = [port.port for each in found for port in (each.openflow, each.agents, each.rest, each.peer)]
    assert len(set(ports)) == len(ports)
