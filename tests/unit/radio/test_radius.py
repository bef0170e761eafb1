"""RADIUS servers of an access point: its file, hostapd's lines, and what hostapd says of users and servers."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hostapd_peer import Peer
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point import hostapd, hostapd_conf
from hyroads.controller.access_point.config import parse
from hyroads.controller.access_point.hostapd import HostapdFollower
from hyroads.controller.access_point.hostapd_conf import Place, radio_text
from hyroads.controller.access_point.radius import wired_text, with_secrets
from hyroads.controller.access_point.radius_watch import RadiusWatch, without_user
from hyroads.controller.access_point.wireless import (
    ENTERPRISE,
    WPA2_ENTERPRISE,
    WPA3_ENTERPRISE,
    Bss,
    Inconsistent,
    Radio,
    Wireless,
    check,
    document_of,
    restored,
)
from hyroads.controller.core.errors import ConfigError

MAC = "02:aa:00:00:00:01"
SERVERS = [{"address": "10.0.0.5", "secret_file": "s"}, {"address": "2001:db8::5", "port": 1645, "secret_file": "s"}]
FILE: dict[str, Any] = {
    "node": "ap1",
    "radius": {
        "campus": {
            "servers": SERVERS,
            "accounting": [{"address": "10.0.0.5", "secret_file": "s"}],
            "disconnect": {"address": "10.0.0.5", "secret_file": "s"},
        },
        "guests": {"servers": SERVERS[:1], "own_address": "10.0.0.9", "reauthenticate_s": 600},
    },
    "wired": {"interface": "br0", "radius": "campus"},
    "wireless": {"radios": [{"interface": "wlan0", "channels": [6]}]},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s").write_text("a-shared-secret\nand a comment\n")
    (tmp_path / "s").chmod(0o600)
    return tmp_path


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_wired_port_asks_servers_in_their_order(folder: Path) -> None:
    config = parse(json.dumps(FILE), "ap.json")
    assert config.wired is not None
    group = with_secrets(config.radius, folder)["campus"]
    found = lines(wired_text(config.wired, group, "/run/c"))
    assert {"interface=br0", "driver=wired", "ieee8021x=1", "use_pae_group_addr=1", "nas_identifier=ap1"} <= set(found)
    servers = [line for line in found if line.startswith("auth_server")]
    assert servers == [
        "auth_server_addr=10.0.0.5", "auth_server_port=1812", "auth_server_shared_secret=a-shared-secret",
        "auth_server_addr=2001:db8::5", "auth_server_port=1645", "auth_server_shared_secret=a-shared-secret",
    ]  # fmt: skip
    assert {"acct_server_port=1813", "radius_das_port=3799", "radius_das_client=10.0.0.5 a-shared-secret"} <= set(found)
    assert "eap_reauth_period=3600" in found and "radius_retry_primary_interval=600" in found
    assert "a-shared-secret" not in repr(group), "secrets are in no log"
    only = lines(wired_text(config.wired, with_secrets(config.radius, folder)["guests"], "/run/c"))
    assert not any(line.startswith(("radius_das", "acct_", "radius_retry")) for line in only)
    assert "own_ip_addr=10.0.0.9" in only


@pytest.mark.parametrize(
    ("at", "value", "place"),
    [
        (("radius",), {}, "radius"),
        (("radius", "a b"), {"servers": SERVERS}, "radius.a b"),
        (("radius", "campus", "servers"), [], "radius.campus.servers"),
        (("radius", "campus", "servers"), SERVERS[:1] * 2, "radius.campus.servers"),
        (("radius", "campus", "servers", 0, "address"), "radius.example", "radius.campus.servers.0.address"),
        (("radius", "campus", "servers", 0, "address"), "10.0.0.5\nx=1", "radius.campus.servers.0.address"),
        (("radius", "campus", "servers", 0, "port"), 0, "radius.campus.servers.0.port"),
        (("radius", "campus", "servers", 0, "port"), True, "radius.campus.servers.0.port"),
        (("radius", "campus", "servers", 1, "secret_file"), None, "radius.campus.servers.1.secret_file"),
        (("radius", "campus", "servers", 0, "secret"), "x", "radius.campus.servers.0.secret"),
        (("radius", "campus", "nas_identifier"), "a b", "radius.campus.nas_identifier"),
        (("radius", "campus", "nas_identifier"), "a\nb=1", "radius.campus.nas_identifier"),
        (("radius", "campus", "own_address"), "fe80::1%eth0", "radius.campus.own_address"),
        (("radius", "campus", "reauthenticate_s"), 0, "radius.campus.reauthenticate_s"),
        (("wired", "radius"), "other", "wired.radius"),
        (("wired", "interface"), "br0\nx=1", "wired.interface"),
        (("wireless", "radios", 0, "options"), ["auth_server_addr=1.2.3.4"], "wireless.radios.0.options.0"),
    ],
)
def test_each_error_names_its_place(at: tuple[Any, ...], value: Any, place: str) -> None:
    document = copy.deepcopy(FILE)
    section: Any = document
    for key in at[:-1]:
        section = section[key]
    section[at[-1]] = value
    with pytest.raises(ConfigError) as error:
        parse(json.dumps(document), "ap.json")
    assert error.value.place == place and "ap.json" in str(error.value)


@pytest.mark.parametrize(
    ("text", "mode", "what"),
    [("a-shared-secret", 0o640, "0600"), ("short", 0o600, "8 to 128"), ("with a blank in it", 0o600, "8 to 128")],
)
def test_a_file_of_a_secret_that_is_none_is_named_and_not_shown(
    tmp_path: Path, text: str, mode: int, what: str
) -> None:
    (tmp_path / "s").write_text(text)
    (tmp_path / "s").chmod(mode)
    with pytest.raises(ConfigError, match=what) as error:
        with_secrets(parse(json.dumps(FILE), "ap.json").radius, tmp_path)
    assert str(tmp_path / "s") in str(error.value) and text not in str(error.value)


def test_networks_with_servers_are_written_for_hostapd(folder: Path) -> None:
    config = parse(json.dumps(FILE), "ap.json")
    assert config.wireless is not None
    abilities = config.wireless.radios
    place = Place("/run/c", radius=with_secrets(config.radius, folder))
    staff = Bss("wlan0", "wlan0", b"staff", WPA3_ENTERPRISE, "", True, bssid="00:11:22:33:44:00", radius="campus")
    guests = Bss("wlan0-g", "wlan0", b"g", WPA2_ENTERPRISE, "", True, bssid="06:11:22:33:44:00", radius="guests")
    wireless = Wireless({"wlan0": Radio(6)}, {bss.name: bss for bss in (staff, guests)})
    check(wireless, abilities)
    text = radio_text(abilities["wlan0"], Radio(6), wireless, place)
    head, second = text.split("\nbss=")
    assert {"wpa_key_mgmt=WPA-EAP-SHA256", "ieee80211w=2", "auth_server_addr=10.0.0.5"} <= set(lines(head))
    assert {"wpa_key_mgmt=WPA-EAP", "ieee80211w=1", "own_ip_addr=10.0.0.9"} <= set(lines(second))
    assert "radius_das_port=3799" in head and "radius_das_port" not in second
    assert "passphrase" not in text
    # What is kept on the access point's disk comes back, without any secret of a server.
    kept = document_of(wireless)
    assert restored(kept, abilities) == wireless and "a-shared-secret" not in json.dumps(kept)
    for security in ENTERPRISE:
        assert hostapd_conf.KEY_MANAGEMENT[security] in text


@pytest.mark.parametrize(("group", "what"), [("", "needs a group"), ("other", "campus, guests")])
def test_a_network_without_servers_is_refused(group: str, what: str) -> None:
    config = parse(json.dumps(FILE), "ap.json")
    assert config.wireless is not None
    bss = Bss("wlan0", "wlan0", b"x", WPA2_ENTERPRISE, "", True, radius=group)
    with pytest.raises(Inconsistent, match=what):
        check(Wireless({"wlan0": Radio(6)}, {"wlan0": bss}), config.wireless.radios)


def test_servers_can_disconnect_stations_of_one_network_of_a_group() -> None:
    config = parse(json.dumps(FILE), "ap.json")
    assert config.wireless is not None
    bsss = {
        name: Bss(name, "wlan0", name.encode(), WPA2_ENTERPRISE, "", True, radius="campus") for name in ("wlan0", "x")
    }
    with pytest.raises(Inconsistent, match="without disconnect"):
        check(Wireless({"wlan0": Radio(6)}, bsss), config.wireless.radios)


# -- what hostapd says

ENTRY = (
    "02:aa:00:00:00:01\nflags={flags}\naid=0\ndot1xAuthAuthControlledPortControl={control}\n"
    "dot1xAuthSessionUserName={user}\nauthMultiSessionId=376C39FC75E565F1\nlast_eap_type_as=25 (PEAP)\n"
    "last_eap_type_sta=25 (PEAP)\n{more}connected_time=3\n"
)


def entry(user: str, flags: str = "[AUTHORIZED]", more: str = "", control: int = 2) -> bytes:
    return ENTRY.format(user=user, flags=flags, more=more, control=control).encode()


def test_who_a_station_is() -> None:
    found = hostapd.station_of(entry("alice", more="vlan_id=20\n"))
    assert found == hostapd.Station(MAC, True, None, 3.0, "alice", 20, on_cable=True)
    found = hostapd.station_of(entry("DOM\\bob@x", "[AUTH][ASSOC][AUTHORIZED]", control=1))
    assert found == hostapd.Station(MAC, True, None, 3.0, "DOM\\bob@x", is_shut_out=True)
    for nobody in ("N/A", "", "a\x01", "x" * 254):
        told = hostapd.station_of(entry(nobody))
        assert told is not None and told.user is None


LIES = "x\nflags=[AUTH][ASSOC][AUTHORIZED]\nvlan_id=7\nsignal=-1\nlast_eap_type_as=1 (x)\nvlan_id=8\nconnected_time=9"


@given(st.text(max_size=300) | st.just(LIES) | st.just(LIES + "\nauthMultiSessionId=0000000000000000"))
def test_no_user_name_says_anything_else_of_a_station(name: str) -> None:
    """hostapd writes a name as it is; a stranger chooses it."""
    told = hostapd.station_of(entry(name, flags=""))
    assert told is not None
    assert (told.authorised, told.signal_dbm, told.vlan, told.connected_s) == (False, None, None, 3.0)
    assert told.user is None or told.user == name
    text, user = without_user(entry(name).decode())
    assert "vlan_id" not in text
    assert user is None or user.isprintable()


def mib(accepts: int, timeouts: int = 0, bad: int = 0, second: int = 0) -> str:
    blocks = (
        f"radiusAuthServerIndex={n}\nradiusAuthServerAddress=10.0.0.{n}\nradiusAuthClientServerPortNumber=1812\n"
        f"radiusAuthClientAccessAccepts={a}\nradiusAuthClientAccessRejects=0\nradiusAuthClientAccessChallenges=0\n"
        f"radiusAuthClientBadAuthenticators={b}\nradiusAuthClientTimeouts={t}\n"
        for n, a, b, t in ((1, accepts, bad, timeouts), (2, second, 0, 0))
    )
    return "".join(blocks) + "radiusAccServerIndex=1\nradiusAccServerAddress=10.0.0.1\nradiusAccClientTimeouts=99\n"


def test_what_a_server_does_is_told_once() -> None:
    watch = RadiusWatch(mib(3, timeouts=5))
    assert watch.is_used and not RadiusWatch("").is_used
    assert watch.news(mib(3, timeouts=5)) == [], "what was before"
    assert watch.news(mib(3, timeouts=6)) == [("silent", "10.0.0.1#1812")]
    assert watch.news(mib(3, timeouts=9)) == []
    assert watch.news(mib(3, timeouts=9, second=1)) == [], "the other one was never in trouble"
    assert watch.news(mib(4, timeouts=9, second=1)) == [("back", "10.0.0.1#1812")]
    assert watch.news(mib(4, timeouts=9, bad=1, second=1)) == [("bad-secret", "10.0.0.1#1812")]
    assert watch.news(mib(4, timeouts=9, bad=3, second=1)) == []
    assert watch.news(mib(5, timeouts=10, bad=3, second=1)) == [("back", "10.0.0.1#1812")]


@given(st.text(max_size=400))
def test_no_answer_harms_the_watch(text: str) -> None:
    watch = RadiusWatch(text)
    watch.news(text + mib(1))


class Authenticator(Peer):
    """hostapd on a cable, with a RADIUS server."""

    user, shut_out = "alice", False

    def answer(self, question: str) -> str:
        word, _, rest = question.partition(" ")
        if word == "EAPOL_SET":
            self.shut_out = question.endswith("ForceUnauthorized")
            return "OK\n"
        if word == "MIB":
            return mib(1)
        if word in {"STA", "STA-FIRST"} or (word == "STA-NEXT" and not rest):
            told = entry(self.user, "" if self.shut_out else "[AUTHORIZED]", control=1 if self.shut_out else 2)
            return told.decode()
        return "" if word == "STA-NEXT" else super().answer(question)


@pytest.fixture
def authenticator(tmp_path: Path) -> Any:
    found = Authenticator(tmp_path / "br0")
    yield found
    found.end()


def settled(follower: HostapdFollower, now_s: float, least: int = 1) -> list[dict[str, Any]]:
    """What a follower tells, waiting for what is under way."""
    import time

    documents: list[dict[str, Any]] = []
    for _ in range(200):
        documents += follower.poll(now_s)
        if len(documents) >= least:
            break
        time.sleep(0.005)
    return documents


def test_users_are_told_with_their_stations(authenticator: Authenticator) -> None:
    follower = HostapdFollower(str(authenticator.socket.getsockname()), "host", pytest.fail)
    joined = settled(follower, 0.0)[-1]
    assert (joined["event"], joined["user"]) == ("joined", "alice") and "vlan" not in joined
    authenticator.user = "carol"
    authenticator.tell(f"<3>CTRL-EVENT-EAP-SUCCESS2 {MAC}")
    again = settled(follower, 0.1)[0]
    assert (again["event"], again["user"]) == ("joined", "carol"), "authenticated anew, as another one"
    authenticator.tell(f"<3>CTRL-EVENT-EAP-FAILURE2 {MAC}")
    assert settled(follower, 0.2)[0] == {
        "type": "dot1x", "technology": "host", "event": "rejected", "mac": MAC, "user": "carol",
    }  # fmt: skip
    follower.close()


def test_who_is_let_go_on_a_cable_may_begin_anew_after_a_time(authenticator: Authenticator) -> None:
    follower = HostapdFollower(str(authenticator.socket.getsockname()), "host", pytest.fail)
    settled(follower, 0.0)
    assert follower.deauthenticate(MAC, 60.0) is None
    assert authenticator.shut_out
    follower.poll(30.0)
    assert authenticator.shut_out
    follower.poll(61.0)
    assert not authenticator.shut_out
    # Another follower, that knows of no time, lets it begin at once.
    assert follower.deauthenticate(MAC, 60.0) is None
    follower.close()
    later = HostapdFollower(str(authenticator.socket.getsockname()), "host", pytest.fail)
    later.poll(62.0)
    later.poll(64.0)
    assert not authenticator.shut_out
    assert not any(word.startswith("DEAUTHENTICATE") for word in authenticator.asked)
    later.close()
