"""What contention costs on the media: from the network file and the options to the medium's configuration."""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.cli import emulate
from hyroads.controller.cli.main import add_all, main
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import Contention, Network

pytest.importorskip("mininet")

from hyroads.mininet.emulation import CSMA, FROM_FILE, IDEAL, with_contention
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.shared_medium import SharedMedium

DOCUMENT: dict[str, Any] = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}},
    "links": [
        {"id": k, "from": "a", "to": "b", "technology": k, "capacity_mbps": 10, "both": True}
        for k in ("plc-panel-1", "wifi", "ethernet")
    ],
    "interference": {"rule": "technology"},
}


def network(technologies: object = None) -> Network:
    document = copy.deepcopy(DOCUMENT)
    return parse(document | ({} if technologies is None else {"technologies": technologies}), "test")


def test_media_are_ideal_unless_the_file_says_otherwise() -> None:
    assert network().contention == network({"wifi": {"contention": "ideal"}, "plc-panel-1": {}}).contention == {}
    read = network({"wifi": {"contention": "csma-802.11"}, "plc-panel-1": {"contention": "csma-1901"}})
    assert read.contention == {"wifi": Contention.CSMA_802_11, "plc-panel-1": Contention.CSMA_1901}
    again = parse(to_document(read), "again")
    assert (again.contention, again.unshared) == (read.contention, {"ethernet"})
    assert read.with_capacities({"wifi": 5.0}).contention == read.contention


@pytest.mark.parametrize(
    ("technologies", "place", "problem"),
    [
        ({"wifi": {"contention": "csma"}}, "technologies.wifi.contention", "expected ideal, csma-802.11 or csma-1901"),
        ({"wifi": {"contention": 802.11}}, "technologies.wifi.contention", "got 802.11"),
        ({"ethernet": {"contention": "csma-802.11"}}, "technologies.ethernet.contention", "not shared"),
        ({"wifi": {"shared": False, "contention": "csma-1901"}}, "technologies.wifi.contention", "not shared"),
    ],
)
def test_a_wrong_contention_names_its_place(technologies: object, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        network(technologies)
    assert place in str(caught.value) and problem in str(caught.value)


def test_options_overrule_the_file() -> None:
    told = network({"wifi": {"contention": "csma-1901"}})
    assert with_contention(told, FROM_FILE) is told
    assert with_contention(told, IDEAL).contention == {}
    everywhere = {"plc-panel-1": Contention.CSMA_1901, "wifi": Contention.CSMA_802_11}
    assert with_contention(told, CSMA).contention == with_contention(network(), CSMA).contention == everywhere
    with pytest.raises(EmulationError, match="'aloha'"):
        with_contention(told, "aloha")


def test_the_medium_is_told(tmp_path: Path) -> None:
    def configured(given: Network) -> object:
        return SharedMedium(given, Addressing.of(given), tmp_path).configuration()["contention"]

    assert configured(network()) == {}
    assert configured(with_contention(network(), CSMA)) == {"plc-panel-1": "csma-1901", "wifi": "csma-802.11"}


def test_the_commands_have_the_option() -> None:
    parser = argparse.ArgumentParser()
    add_all(parser, emulate.RUN_ARGUMENTS)
    assert emulate.options(parser.parse_args([])).emulation.contention == FROM_FILE
    assert emulate.options(parser.parse_args(["--contention", "csma"])).emulation.contention == CSMA


def test_check_config_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(DOCUMENT | {"technologies": {"wifi": {"contention": "csma-802.11"}}}))
    assert main(["check-config", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["technologies"]
    assert {name: row["contention"] for name, row in shown.items()} == {
        "plc-panel-1": "ideal",
        "wifi": "csma-802.11",
        "ethernet": "ideal",
    }
