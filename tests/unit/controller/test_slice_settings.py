"""Slices in the settings: a mapping or the slicer's file, checked once, and flows that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse as parse_network
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.network import PRODUCTION, Network
from hyroads.controller.runtime.from_settings import loop_options_of
from hyroads.controller.settings.controller import Settings, parse


def settings_of(slices: Any, name: str = "h.yaml", **more: Any) -> Settings:
    return parse({"network": "net.yaml", "slices": slices, **more}, name, {})


def network_of(**flow: Any) -> Network:
    document = {
        "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}},
        "links": [{"id": "ab", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 30, "both": True}],
        "interference": {"rule": "technology"},
        "flows": [{"id": "f", "from": "a", "to": "b", **flow}],
    }
    return parse_network(document, "net.yaml")


def test_shares_come_from_a_mapping_or_from_the_slicers_file(tmp_path: Path) -> None:
    shares = {"research": {"wifi": 0.25}, "guests": {}}
    assert settings_of(shares).slices.shares == shares
    (tmp_path / "slices.yaml").write_text(
        "slices: [{name: research, limits: {airtime_share: {wifi: 0.25}}}, {name: guests}]\n"
    )
    found = settings_of("slices.yaml", str(tmp_path / "h.yaml")).slices
    assert {name: dict(of) for name, of in found.shares.items() if name != PRODUCTION} == shares
    options = loop_options_of(network_of(slice="research"), settings_of(shares))
    assert options.shares == shares
    assert not settings_of(None).slices.shares and not settings_of({}).slices.shares


@pytest.mark.parametrize(
    ("slices", "more", "place"),
    [
        (3, {}, "slices"),
        ({"research": 0.25}, {}, "slices.research"),
        ({"research": {"wifi": 1.25}}, {}, "slices.research.wifi"),
        ({"research": {"wifi": -0.1}}, {}, "slices.research.wifi"),
        ({"research": {"wifi": "much"}}, {}, "slices.research.wifi"),
        ({"research": {"wifi": 0.6}, "guests": {"wifi": 0.5}}, {}, "slices"),
        ({PRODUCTION: {"wifi": 0.5}}, {}, "slices.production"),
        ({"research": {"wifi": 0.25}}, {"mode": "controller"}, "slices"),
    ],
)
def test_wrong_shares_are_refused_with_their_place(slices: Any, more: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(slices, **more)
    assert caught.value.document == "h.yaml" and caught.value.place == place


def test_what_does_not_fit_the_network_is_refused() -> None:
    network = network_of(slice="research")
    with pytest.raises(ConfigError, match=r"h\.yaml: slices\.research: no technology 'wifi-9' in net\.yaml.* wifi"):
        loop_options_of(network, settings_of({"research": {"wifi-9": 0.25}}))
    with pytest.raises(ConfigError, match=r"net\.yaml: flows\[0\]\.slice: no slice 'research'"):
        loop_options_of(network, settings_of({"guests": {"wifi": 0.25}}))
    loop_options_of(network_of(), settings_of(None))


def test_flows_name_their_slice_and_are_written_as_they_were_read() -> None:
    (flow,) = network_of(slice="research").flows
    assert flow.slice == "research" and flow_document(flow)["slice"] == "research"
    (flow,) = network_of().flows
    assert flow.slice == PRODUCTION and "slice" not in flow_document(flow)
    with pytest.raises(ConfigError, match=r"flows\[0\]\.slice"):
        network_of(slice="")
