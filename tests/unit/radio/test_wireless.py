"""The wanted wireless configuration, and SETs of HYROADS-MIB on it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point import wireless_mib as mib
from hyroads.controller.access_point.mib import Value
from hyroads.controller.access_point.wireless import (
    OPEN,
    WPA2,
    WPA3,
    Bss,
    BssReport,
    Inconsistent,
    RadioAbilities,
    Report,
    Wireless,
    WirelessError,
    check,
    document_of,
    first_of,
    frequency_mhz,
    restored,
    with_addresses,
)

ABILITIES = {
    "wlan0": RadioAbilities("wlan0", (1, 6, 11), most_bss=3),
    "wlan1": RadioAbilities("wlan1", (36, 40), most_bss=2, most_mbm=2300),
}
MACS = {"wlan0": "00:11:22:33:44:00", "wlan1": "02:11:22:33:44:01"}
EMPTY = first_of(ABILITIES.values())
GUESTS = Bss("wlan0-guests", "wlan0", b"guests", WPA2, "correct horse", enabled=True, slice_name="guests")


def with_bss(*bsss, base=EMPTY):
    return with_addresses(Wireless(base.radios, {**base.bsss, **{bss.name: bss for bss in bsss}}), MACS)


def shown(wireless=EMPTY, **other):
    return mib.Shown(wireless, ABILITIES, **{"report": Report(), "index_of": {"wlan0": 3, "wlan1": 4}, **other})


def radio(column, number=3):
    return (*mib.RADIO_ENTRY, column, number)


def bss(column, name="wlan0-guests"):
    return (*mib.BSS_ENTRY, column, *mib.bss_index(name))


def integer(number):
    return Value("integer", number)


def octets(data):
    return Value("octet", data)


CREATE = [
    (bss(mib.BSS_SSID), octets(b"guests")),
    (bss(mib.BSS_SECURITY), integer(2)),
    (bss(mib.BSS_PASSPHRASE), octets(b"correct horse")),
    (bss(mib.BSS_ENABLED), integer(1)),
    (bss(mib.BSS_SLICE), octets(b"guests")),
    (bss(mib.BSS_RADIO), octets(b"wlan0")),
    (bss(mib.BSS_ROW), integer(4)),
]


# -- channels and addresses -------------------------------------------------------------------------------------------


def test_channels_have_the_frequencies_of_the_standard():
    known = {1: 2412, 6: 2437, 13: 2472, 14: 2484, 36: 5180, 64: 5320, 100: 5500, 144: 5720, 149: 5745, 177: 5885}
    assert {channel: frequency_mhz(channel) for channel in known} == known
    assert all(frequency_mhz(channel) is None for channel in (0, 15, 35, 37, 68, 96, 148, 150, 181, 233))


names = st.from_regex(r"[a-z][a-z0-9.-]{0,14}", fullmatch=True)


@given(st.lists(names, unique=True, max_size=20), st.sets(st.integers(0, 19)))
def test_addresses_differ_are_local_and_stay(found, gone):
    able = {"wlan0": replace(ABILITIES["wlan0"], most_bss=40)}
    radios = first_of(able.values()).radios
    one = with_addresses(Wireless(radios, {name: Bss(name, "wlan0") for name in found}), MACS)
    given_ = [each.bssid for name, each in one.bsss.items() if name != "wlan0"]
    assert len(set(given_)) == len(given_) and MACS["wlan0"] not in given_
    for address in given_:
        first = int(address[:2], 16)
        assert first & 2 and not first & 1 and address[2:] == MACS["wlan0"][2:]
    left = {name: each for number, (name, each) in enumerate(one.bsss.items()) if number not in gone}
    again = with_addresses(Wireless(radios, {**left, "new": Bss("new", "wlan0")}), MACS)
    assert all(again.bsss[name].bssid == each.bssid for name, each in left.items() if name != "new")


def test_the_radios_own_interface_keeps_its_address():
    assert with_bss(Bss("wlan0", "wlan0")).bsss["wlan0"].bssid == MACS["wlan0"]


# -- checks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (replace(GUESTS, ssid=b""), "no SSID"),
        (replace(GUESTS, passphrase=""), "needs a passphrase"),
        (replace(GUESTS, radio="wlan7"), "no radio wlan7"),
        (replace(GUESTS, name="wlan1"), "interface of another radio"),
        (replace(GUESTS, name="wlan0-b"), "same SSID as wlan0-a"),
        (replace(GUESTS, name="wlan0-z", ssid=b"z"), "room for 3 BSSs, not for 4"),
    ],
)
def test_what_contradicts_itself_is_refused(changed, problem):
    others = [replace(GUESTS, name="wlan0-a")] if "same" in problem else []
    others += [replace(GUESTS, name=f"wlan0-{n}", ssid=n.encode()) for n in "abc"] if "room" in problem else []
    with pytest.raises(Inconsistent, match=problem):
        check(with_bss(*others, changed), ABILITIES)


def test_what_is_not_on_the_air_needs_nothing_yet():
    check(with_bss(Bss("wlan0-later", "wlan0", security=WPA3)), ABILITIES)


def test_a_kept_configuration_comes_back_and_nonsense_is_an_error():
    wanted = with_bss(GUESTS)
    assert restored(document_of(wanted), ABILITIES) == wanted
    without = {"wlan1": ABILITIES["wlan1"]}
    assert restored(document_of(wanted), without).bsss == {}, "a radio that is gone takes its BSSs along"
    for document in (None, {}, {"radios": {}, "bsss": {"a": {}}}, {"radios": [], "bsss": {}}):
        with pytest.raises(WirelessError):
            restored(document, ABILITIES)
    assert "correct horse" not in repr(wanted)


# -- SNMP -------------------------------------------------------------------------------------------------------------


def test_a_network_is_made_by_one_set_in_any_order():
    for bindings in (CREATE, CREATE[::-1]):
        made = mib.tried(shown(), bindings).bsss["wlan0-guests"]
        assert replace(made, bssid="") == GUESTS


def test_what_was_set_is_read_but_the_passphrase():
    wanted = with_bss(GUESTS)
    report = Report({"wlan0-guests": BssReport(True, 5)})
    values = dict(mib.objects(shown(wanted, report=report, problem="why")))
    assert values[bss(mib.BSS_SSID)] == octets(b"guests")
    assert values[bss(mib.BSS_PASSPHRASE)] == octets(b"")
    assert values[bss(11)].value == 5 and values[radio(6)] == integer(1) and values[radio(6, 4)] == integer(2)
    assert values[radio(3)].value == 2412 and values[mib.PROBLEM] == octets(b"why")
    assert not any(b"correct" in value.value for value in values.values() if isinstance(value.value, bytes))


def test_the_radio_is_set():
    wanted = mib.tried(shown(), [(radio(2), integer(11)), (radio(4), integer(1750)), (radio(5, 4), integer(2))])
    assert (wanted.radios["wlan0"].channel, wanted.radios["wlan0"].power_mbm) == (11, 1750)
    assert not wanted.radios["wlan1"].up


REFUSALS = [
    ([(radio(2), integer(15))], mib.WRONG_VALUE, 1),
    ([(radio(2), integer(36))], mib.INCONSISTENT_VALUE, 1),
    ([(radio(2), integer(6)), (radio(4), integer(2100))], mib.INCONSISTENT_VALUE, 1),
    ([(radio(2), octets(b"6"))], mib.WRONG_TYPE, 1),
    ([(radio(2), integer(6)), (radio(1), octets(b"x"))], mib.NOT_WRITABLE, 2),
    ([(radio(9), integer(6))], mib.NO_ACCESS, 1),
    ([(radio(2, 9), integer(6))], mib.NO_CREATION, 1),
    ([(mib.PROBLEM, octets(b""))], mib.NOT_WRITABLE, 1),
    ([(bss(mib.BSS_SSID), octets(b"a"))], mib.INCONSISTENT_NAME, 1),
    ([(bss(mib.BSS_ROW), integer(4))], mib.INCONSISTENT_VALUE, 1),
    ([(bss(mib.BSS_ROW), integer(5))], mib.WRONG_VALUE, 1),
    ([(bss(mib.BSS_ROW), integer(1))], mib.INCONSISTENT_VALUE, 1),
    ([*CREATE[:-1], (bss(mib.BSS_SSID), octets(bytes(33)))], mib.WRONG_LENGTH, 7),
    ([(bss(mib.BSS_PASSPHRASE), octets(b"short"))], mib.WRONG_LENGTH, 1),
    ([(bss(mib.BSS_PASSPHRASE), octets(b"with\nnewline"))], mib.WRONG_VALUE, 1),
    ([(bss(mib.BSS_RADIO), octets(b"a b"))], mib.WRONG_VALUE, 1),
    ([(bss(mib.BSS_SECURITY), integer(6))], mib.WRONG_VALUE, 1),
    ([(bss(mib.BSS_RADIUS), octets(b"a b"))], mib.WRONG_VALUE, 1),
    ([(bss(9), octets(bytes(6)))], mib.NOT_WRITABLE, 1),
    ([((*mib.BSS_ENTRY, mib.BSS_SSID, 2, 47, 47), octets(b"a"))], mib.NO_CREATION, 1),
    ([((*mib.BSS_ENTRY, mib.BSS_SSID, 9, 97), octets(b"a"))], mib.NO_CREATION, 1),
    ([each for each in CREATE if each[0] != bss(mib.BSS_PASSPHRASE)], mib.INCONSISTENT_VALUE, 1),
]


@pytest.mark.parametrize(("bindings", "status", "index"), REFUSALS)
def test_a_set_is_refused_with_the_right_error(bindings, status, index):
    with pytest.raises(mib.SetError) as refused:
        mib.tried(shown(), bindings)
    assert (refused.value.status, refused.value.index) == (status, index)


def test_a_row_goes_and_destroying_what_is_not_there_is_no_error():
    wanted = with_bss(GUESTS)
    destroy = [(bss(mib.BSS_ROW), integer(6))]
    assert mib.tried(shown(wanted), destroy).bsss == {}
    assert mib.tried(shown(), destroy) == EMPTY


def test_another_radio_means_another_address():
    moved = mib.tried(shown(with_bss(GUESTS)), [(bss(mib.BSS_RADIO), octets(b"wlan1"))])
    assert moved.bsss["wlan0-guests"].bssid == ""


oids = st.one_of(
    st.builds(radio, st.integers(0, 9), st.integers(2, 5)),
    st.builds(bss, st.integers(0, 13), st.sampled_from(["wlan0-guests", "wlan1-x", "a"])),
    st.tuples(*[st.integers(0, 2**32 - 1)] * 3).map(lambda tail: (*mib.WIRELESS, *tail)),
)
values = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(integer), st.binary(max_size=70).map(octets),
    st.sampled_from([integer(n) for n in (1, 2, 4, 6)] + [octets(b"wlan0"), octets(b"12345678")]),
)  # fmt: skip


@given(st.lists(st.tuples(oids, values), max_size=6), st.booleans())
def test_whatever_is_set_the_result_makes_sense_or_is_refused(bindings, full):
    before = with_bss(GUESTS, Bss("wlan0", "wlan0", b"a", OPEN, enabled=True)) if full else EMPTY
    try:
        wanted = mib.tried(shown(before), bindings)
    except mib.SetError as error:
        assert 0 <= error.index <= len(bindings)
    else:
        check(with_addresses(wanted, MACS), ABILITIES)
