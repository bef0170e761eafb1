"""What owners of slices may see and change."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest

from hyroads.slices.core.delegation import OPERATOR, Asker, check, given_out, owned, visible
from hyroads.slices.core.errors import NotAllowedError
from hyroads.slices.core.model import SliceModel, Ssid, token_hash
from hyroads.slices.core.slicefile import parse

TOKEN = "the owner's token"
ALLOWED = (ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/32"))
MODEL = parse(
    {
        "slices": [
            {"name": "production", "controllers": ["tcp:192.0.2.1:6653"]},
            {
                "name": "lab",
                "owner_token_sha256": token_hash(TOKEN),
                "controllers": ["tcp:198.51.100.7:6653", "tcp:ctl.example:6653"],
                "permissions": ["read", "write", "delegate"],
                "flowspace": [{"match": {"vlan_vid": 100}}],
                "limits": {"flow_entries": 100, "airtime_share": {"wifi": 0.5}},
            },
            {
                "name": "lab-a",
                "parent": "lab",
                "flowspace": [{"priority": 101, "match": {"vlan_vid": 100, "vlan_pcp": 1}}],
                "limits": {"flow_entries": 10, "tables": 1, "flow_mods_per_s": 10},
            },
            {"name": "other", "flowspace": [{"match": {"vlan_vid": 200}}]},
        ]
    },
    "slices.yaml",
)
LAB, CHILD, OTHER = (MODEL.slices[name] for name in ("lab", "lab-a", "other"))
ANN = Asker(slices=owned(MODEL, token_hash(TOKEN)))


def refused(*put: object, remove: tuple[str, ...] = (), model: SliceModel = MODEL) -> str:
    with pytest.raises(NotAllowedError) as error:
        check(model, ANN, put, remove, ALLOWED)  # type: ignore[arg-type]
    return str(error.value)


def controllers(*texts: str) -> tuple[object, ...]:
    found = parse({"slices": [{"name": "x", "controllers": list(texts)}]}, "x")
    return found.slices["x"].controllers


def test_who_sees_what() -> None:
    assert ANN.slices == {"lab"} and owned(MODEL, token_hash("other")) == owned(MODEL, "") == frozenset()
    assert visible(MODEL, ANN) == {"lab", "lab-a"} and given_out(MODEL, ANN) == {"lab-a"}
    assert visible(MODEL, OPERATOR) == set(MODEL.slices)


def test_an_owner_changes_its_controllers_and_lowers_limits() -> None:
    kept = replace(LAB, controllers=(*LAB.controllers, *controllers("tcp:192.0.2.9", "tls:[2001:db8::9]:6654")))
    check(MODEL, ANN, [kept], (), ALLOWED)
    check(MODEL, ANN, [replace(LAB, controllers=())], (), ())
    lower = replace(LAB.limits, flow_entries=50, rate_in_mbps=5.0, airtime_share={"wifi": 0.4})
    check(MODEL, ANN, [replace(LAB, limits=lower)], (), ALLOWED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tcp:198.51.100.8", "at no address where owners may have controllers: 192.0.2.0/24"),
        ("tcp:127.0.0.1:6653", "at no address"),
        ("tcp:new.example:6653", "at no address"),
        ("tcp:[::ffff:192.0.2.9]:6653", "at no address"),
        ("tcp:192.0.2.1:6653", "is another's"),
        ("tls:192.0.2.1:6653", "is another's"),
    ],
)
def test_controllers_are_where_the_operator_allows_and_nobody_elses(text: str, words: str) -> None:
    assert words in refused(replace(LAB, controllers=controllers(text)))
    assert words in refused(replace(CHILD, controllers=controllers(text)))


def test_an_owner_changes_nothing_else_of_its_own() -> None:
    assert "flow_entries was 100" in refused(replace(LAB, limits=replace(LAB.limits, flow_entries=101)))
    assert "airtime_share" in refused(replace(LAB, limits=replace(LAB.limits, airtime_share={"wifi": 0.6})))
    assert "airtime_share" in refused(replace(LAB, limits=replace(LAB.limits, airtime_share={"plc": 0.1})))
    for limit in ({"queue": 4}, {"queue": 4, "rate_out_mbps": 1.0}, {"dscp": 46}, {"rate_out_least_mbps": 1.0}):
        assert "is the operator's to give" in refused(replace(LAB, limits=replace(LAB.limits, **limit)))
        assert "is the operator's to give" in refused(replace(CHILD, limits=replace(CHILD.limits, **limit)))
    held = SliceModel({**MODEL.slices, "lab": replace(LAB, limits=replace(LAB.limits, queue=4, rate_out_mbps=9.0))})
    for limit in ({"queue": 3}, {"queue": None}, {"rate_out_mbps": None}):
        lower = replace(held.slices["lab"], limits=replace(held.slices["lab"].limits, **limit))
        assert "is the operator's to give" in refused(lower, model=held)
    limited = SliceModel({**MODEL.slices, "lab": replace(LAB, limits=replace(LAB.limits, rate_in_mbps=5.0))})
    assert "rate_in_mbps was 5" in refused(LAB, model=limited)
    assert "not flowspace" in refused(replace(LAB, flowspace=()))
    assert "not owner_token_sha256" in refused(replace(LAB, owner_token_sha256="0" * 64))
    assert "not permissions" in refused(replace(LAB, permissions=frozenset()))
    assert "only the operator" in refused(remove=("lab",))


def test_an_owner_has_children_and_no_others() -> None:
    new = replace(CHILD, name="lab-b", flowspace=())
    check(MODEL, ANN, [new, replace(CHILD, flowspace=()), replace(CHILD, owner_token_sha256="0" * 64)], (), ALLOWED)
    check(MODEL, ANN, (), ["lab-a"], ALLOWED)
    assert "a parent that is yours" in refused(replace(new, parent=""))
    assert "a parent that is yours" in refused(replace(new, parent="other"))
    assert "is another's" in refused(replace(new, name="other"))
    assert "is another's" in refused(replace(OTHER, parent="lab"))
    assert "SSIDs are the operator's" in refused(replace(new, ssids=(Ssid("x"),)))
    assert "only the operator" in refused(remove=("other",))


def test_the_operator_may_everything() -> None:
    check(MODEL, OPERATOR, [replace(LAB, flowspace=())], ["other"], ())
