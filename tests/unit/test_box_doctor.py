"""``hyroads box doctor``: a good box has no finding, each fault has one line, and consequences of a fault have none."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hyroads.controller.access_point import doctor_facts
from hyroads.controller.access_point.certificate_dates import certificate_dates
from hyroads.controller.access_point.doctor import (
    FAULT,
    NOTE,
    BoxFacts,
    CertificateFacts,
    ControllerFacts,
    DiskFacts,
    PlcFacts,
    PortFacts,
    RadioFacts,
    SecretFacts,
    ServiceFacts,
    SwitchConnection,
    SwitchFacts,
    judge,
)
from hyroads.controller.access_point.doctor_facts import STATUS_S, radio_facts, secret_problem, switch_facts
from hyroads.controller.access_point.doctor_settings import Secret, environment, read_settings, uci_sections
from hyroads.controller.access_point.model import RadioError

NOW_S = 1_790_000_000.0
YEAR_S = 365 * 86400.0
CONTROLLER = "192.0.2.1:6654"
SWITCH = SwitchFacts(
    vlan_limit="0",
    bridge="br0",
    ports=("wlan0", "eth1", "up-host", "up-acc", "up-net"),
    kernel_datapath=True,
    controllers=(SwitchConnection("ssl:192.0.2.1:6653", True),),
)
CERTIFICATE = CertificateFacts("certificate", "node.pem", "", NOW_S - YEAR_S, NOW_S + YEAR_S, ("up", "0" * 16))
GOOD = BoxFacts(
    node="up",
    now_s=NOW_S,
    switch=SWITCH,
    ports=(PortFacts("wlan0", 1500, "linux-wifi"), PortFacts("eth1", 1500, "plc"), PortFacts("up-host", 1500)),
    radios=(RadioFacts("wlan0", "mesh point"),),
    plc=(PlcFacts("eth1", ""),),
    secrets=(SecretFacts("agent's token", "agent.token"),),
    certificates=(replace(CERTIFICATE, place="ca", path="ca.pem", names=("HyRoads",), own=False), CERTIFICATE),
    controllers=(ControllerFacts(CONTROLLER, clock_ahead_s=0.2),),
    disks=(DiskFacts("/etc/hyroads", False, 1 << 30),),
    services=(ServiceFacts("hyroads-edge@up", True, "systemctl start hyroads-edge@up"),),
)


def switch(**changes: object) -> BoxFacts:
    return replace(GOOD, switch=replace(SWITCH, **changes))  # type: ignore[arg-type]


def ports(*changed: PortFacts) -> BoxFacts:
    by_name = {**{port.name: port for port in GOOD.ports}, **{port.name: port for port in changed}}
    return replace(GOOD, ports=tuple(by_name.values()))


def certificate(**changes: object) -> BoxFacts:
    return replace(GOOD, certificates=(replace(CERTIFICATE, **changes),))  # type: ignore[arg-type]


def controller(**changes: object) -> BoxFacts:
    return replace(GOOD, controllers=(ControllerFacts(CONTROLLER, **changes),))  # type: ignore[arg-type]


FAULTS = {
    "datapath missing": (switch(datapath_problem="no module"), "datapath", "bridge br0", "no module"),
    "no answer of Open vSwitch": (switch(problem="it does not answer"), "switch", "Open vSwitch", "not answer"),
    "no bridge": (switch(bridge=None), "switch", "Open vSwitch", "up-net"),
    "port outside": (switch(ports=("wlan0", "up-acc", "up-net")), "switch", "eth1", "not in bridge br0"),
    "standalone": (switch(fail_mode="standalone"), "switch", "bridge br0", "without a controller"),
    "vlan-limit": (switch(vlan_limit=None), "vlan-limit", "Open vSwitch", "tagged frames"),
    "small port": (ports(PortFacts("eth1", 1200, "plc")), "mtu", "eth1", "1200 bytes"),
    "large power line": (ports(PortFacts("eth1", 1600, "plc")), "mtu", "eth1", "1600 bytes"),
    "missing port": (ports(PortFacts("wlan0", None, "linux-wifi")), "port", "wlan0", "no such interface"),
    "lro": (ports(PortFacts("eth1", 1500, "plc", frozenset({"lro"}))), "offloads", "eth1", "lro on"),
    "managed": (replace(GOOD, radios=(RadioFacts("wlan0", "managed"),)), "radio", "wlan0", "managed"),
    "silent adapter": (replace(GOOD, plc=(PlcFacts("eth1", "no adapter answers"),)), "plc", "eth1", "no adapter"),
    "0x88e1": (replace(GOOD, plc=(PlcFacts("br0", "none", True, ("eth1",)),)), "0x88e1", "br0", "answers at port eth1"),
    "clock": (controller(clock_ahead_s=90.0), "clock", "this box", "90 s behind"),
    "clock of 1970": (replace(GOOD, now_s=60.0), "clock", "this box", "1970-01-01"),
    "no token": (
        replace(GOOD, secrets=(SecretFacts("agent's token", "agent.token", "it is empty"),)),
        "token", "agent.token", "empty",
    ),
    "wrong token": (controller(refused="wrong token"), "token", CONTROLLER, "wrong token"),
    "no certificate": (certificate(problem="No such file"), "certificate", "node.pem", "No such file"),
    "expired": (certificate(ends_s=NOW_S - 1.0), "certificate", "node.pem", "it ended on"),
    "wrong name": (certificate(names=("attic",)), "certificate", "node.pem", "made out to attic, not to up"),
    "unknown name": (controller(unresolved="Name or service not known"), "name", CONTROLLER, "no address"),
    "unreachable": (controller(unreachable="Connection refused"), "controller", CONTROLLER, "refused"),
    "no TLS": (controller(tls="Hostname mismatch"), "controller", CONTROLLER, "Hostname mismatch"),
    "full": (replace(GOOD, disks=(DiskFacts("/etc", False, 1 << 16),)), "disk", "/etc", "64 KiB free"),
    "read-only": (replace(GOOD, disks=(DiskFacts("/etc", True, 1 << 30),)), "disk", "/etc", "read-only"),
    "service": (
        replace(GOOD, services=(ServiceFacts("hyroads-edge@up", False, "start", "failed"),)),
        "service", "hyroads-edge@up", "does not run (failed)",
    ),
    "switch without controller": (switch(controllers=()), "switch", "bridge br0", "no controller"),
    "switch not connected": (
        switch(controllers=(SwitchConnection("ssl:192.0.2.1:6653", False, "Protocol error"),)),
        "switch", "bridge br0", "not connected to ssl:192.0.2.1:6653: Protocol error",
    ),
}  # fmt: skip


def test_a_good_box_has_no_finding() -> None:
    assert judge(GOOD) == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_one_line_that_names_it(name: str) -> None:
    facts, check, place, words = FAULTS[name]
    (found,) = judge(facts)
    assert (found.level, found.check, found.place) == (FAULT, check, place)
    assert words in found.what and found.do


def test_consequences_of_a_fault_have_no_line() -> None:
    dead = (SwitchConnection("ssl:192.0.2.1:6653", False),)
    expired = replace(CERTIFICATE, ends_s=NOW_S - 1.0)
    refused = (ControllerFacts(CONTROLLER, tls="certificate expired"),)
    facts = replace(GOOD, switch=replace(SWITCH, controllers=dead), certificates=(expired,), controllers=refused)
    assert [found.check for found in judge(facts)] == ["certificate"]
    early = (ControllerFacts(CONTROLLER, tls="not yet valid", not_yet_valid=True),)
    facts = replace(facts, now_s=60.0, controllers=early)
    assert [found.check for found in judge(facts)] == ["clock"]
    gone = (ControllerFacts(CONTROLLER, unreachable="Connection refused"),)
    facts = replace(GOOD, switch=replace(SWITCH, controllers=dead), controllers=gone)
    assert [found.check for found in judge(facts)] == ["controller"]
    unplugged = ports(PortFacts("eth1", None, "plc"))
    silent = replace(SWITCH, port_errors=(("eth1", "could not open network device"),))
    facts = replace(unplugged, switch=silent, plc=(PlcFacts("eth1", "No such device"),))
    assert [found.check for found in judge(facts)] == ["port"]
    stopped = (ServiceFacts("hyroads-edge@up", False, "start"),)
    taps = [PortFacts(f"up-{side}", None) for side in ("acc", "net")]
    errors = tuple((tap.name, "could not open network device") for tap in taps)
    facts = replace(ports(*taps), services=stopped, switch=replace(SWITCH, port_errors=errors))
    assert [found.check for found in judge(facts)] == ["service"]


def test_what_works_with_less_is_a_note() -> None:
    for facts, check in (
        (switch(datapath="netdev"), "datapath"),
        (ports(PortFacts("wlan0", 1400, "linux-wifi")), "mtu"),
        (certificate(ends_s=NOW_S + 86400.0), "certificate"),
    ):
        assert [(found.level, found.check) for found in judge(facts)] == [(NOTE, check)]


def test_gro_is_a_fault_of_a_datapath_in_a_process_alone() -> None:
    gro = ports(PortFacts("up-host", 1500, None, frozenset({"gro"})))
    assert judge(gro) == ()
    found = judge(replace(gro, switch=replace(SWITCH, datapath="netdev")))
    assert [(each.check, each.place) for each in found if each.level == FAULT] == [("offloads", "up-host")]


def test_modes_that_carry_frames_of_other_hosts() -> None:
    for text, wrong in (
        ("Interface wlan0\n\ttype managed\n\twiphy 0\n", True),
        ("Interface wlan0\n\ttype managed\n\twiphy 0\n\t4addr: on\n", False),
        ("Interface wlan0\n\ttype mesh point\n", False),
        ("Interface wlan0\n\ttype IBSS\n", False),
        ("Interface wlan0\n", True),
    ):
        radio = radio_facts("wlan0", lambda _, text=text: text)  # type: ignore[misc]
        assert bool(judge(replace(GOOD, radios=(radio,)))) == wrong, text


def test_a_datapath_that_is_built_into_the_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(command: list[str]) -> str:
        raise RadioError(f"{command[0]}: not found")

    known: dict[str, int] = {}
    monkeypatch.setattr(doctor_facts, "family_id", known.get)
    assert not doctor_facts._kernel_datapath(no_module)
    known["ovs_datapath"] = 30
    assert doctor_facts._kernel_datapath(no_module)


def test_a_program_that_is_missing_is_a_finding() -> None:
    def missing(command: list[str]) -> str:
        raise RadioError(f"{command[0]}: not found")

    (found,) = judge(replace(GOOD, radios=(radio_facts("wlan0", missing),)))
    assert "iw: not found" in found.what
    assert switch_facts("up", missing).problem


def test_certificates_are_read_without_a_library() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    begins = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    for ends in (
        datetime.datetime(2027, 1, 2, tzinfo=datetime.UTC),
        datetime.datetime(2055, 6, 7, tzinfo=datetime.UTC),
    ):
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "upstairs")])
        others = [x509.DNSName("0000000000000002"), x509.DNSName("upstairs")]
        builder = x509.CertificateBuilder(name, name, key.public_key(), 7, begins, ends)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
        pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        found = certificate_dates(f"words before\n{pem}")
        assert (found.begins_s, found.ends_s) == (begins.timestamp(), ends.timestamp())
        assert found.names == ("upstairs", "0000000000000002")
        body = pem.index("-----END")
        for cut in range(28, body - 12, 7):
            for text in (pem[:cut], f"{pem[:cut]}\n{pem[body:]}"):
                with pytest.raises(ValueError, match="PEM"):
                    certificate_dates(text)


def test_settings_of_both_agents(tmp_path: Path) -> None:
    settings, config = tmp_path / "hyroads-ap", tmp_path / "ap.json"
    settings.write_text(
        "# words\nCONTROLLER=192.0.2.1:6654,192.0.2.2:6654\nTOKEN_FILE=/etc/hyroads/agent.token\n"
        'EDGE_OPTIONS="--ca ca.pem --cert node.pem --key node.key --realtime"\n'
        "AP_OPTIONS='--token-file radio.token --ca ca.pem'\n"
    )
    config.write_text('{"node": "up", "interfaces": [{"name": "eth1", "technology": "plc", "backend": "plc"}]}')
    found = read_settings(settings, config)
    assert found.node == "up" and found.controllers == ("192.0.2.1:6654", "192.0.2.2:6654")
    assert [(each.role, each.path) for each in found.secrets] == [
        ("agent", "/etc/hyroads/agent.token"), ("radio", "radio.token"),
    ]  # fmt: skip
    assert (found.ca, found.certificate, found.key) == ("ca.pem", "node.pem", "node.key")
    assert [each.name for each in found.interfaces] == ["eth1"] and not found.problems
    config.write_text("{")
    settings.unlink()
    assert [place for place, _ in read_settings(settings, config).problems] == [str(settings), str(config)]
    assert environment("A='x y'\nB=1\nnothing\n") == {"A": "x y", "B": "1"}


def test_openwrts_example_configuration_is_understood() -> None:
    text = (Path(__file__).resolve().parents[2] / "deploy/openwrt/hyroads.config").read_text()
    (kind, options), *rest = uci_sections(text.replace("#config", "config").replace("#\toption", "\toption"))
    assert kind == "hyroads" and options["node"] == "upstairs" and options["controller"] == "192.0.2.1:6654"
    assert rest[0] == ("interface", {
        "name": "phy0-ap0", "technology": "wifi", "medium": "wifi-5180", "backend": "linux-wifi",
    })  # fmt: skip


def test_a_token_that_other_users_can_read_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "agent.token"
    secret = Secret("agent's token", str(path), "agent")
    assert secret_problem(secret) == "No such file or directory"
    for text, mode, problem in (("", 0o600, "it is empty"), ("x\n", 0o644, "expected 0600"), ("x\n", 0o600, "")):
        path.write_text(text)
        path.chmod(mode)
        assert problem in secret_problem(secret) and bool(problem) == bool(secret_problem(secret))


@pytest.mark.parametrize(("connects_s", "read_s"), [(0.0, 0.0), (3.0, 3.0), (60.0, 5.5)])
def test_connection_that_is_younger_than_the_switchs_database_is_no_fault(connects_s: float, read_s: float) -> None:
    """``ovs-vswitchd`` writes the state of connections every five seconds."""
    now = [0.0]
    target = "ssl:192.0.2.1:6653"

    def run(words: list[str]) -> str:
        if "get-controller" in words:
            return f"{target}\n"
        row = [target, now[0] >= connects_s, ["map", []]]
        return json.dumps({"headings": ["target", "is_connected", "status"], "data": [row]})

    def sleep(seconds: float) -> None:
        now[0] += seconds

    first = SwitchConnection(target, connects_s == 0.0)
    switch = SwitchFacts(bridge="br0", controllers=(first,))
    found = doctor_facts.with_fresh_connections(switch, run, lambda: now[0], sleep)
    assert [one.connected for one in found.controllers] == [connects_s < STATUS_S] and now[0] == read_s
