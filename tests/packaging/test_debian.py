"""The Debian packages, really installed: in an overlay of this machine, and nightly in a fresh Debian 12."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from package_root import LIBRARIES, PackageRoot, fresh_debian

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "scripts" / "packages.py"
TRIANGLE = ROOT / "mininet" / "networks" / "triangle.yaml"
# Without the index of manual pages, which takes most of the time.
DPKG = ("dpkg", "--no-triggers")
OLD, NEW = "0.0.1", "0.0.2"
NO_PROGRAM = ("hyroads-ap", "hyroads-box")
"""Packages for machines of any kind."""
FIRST_ANSWER_WITHIN_S = 30.0
MOST_BYTES_OF_ACCESS_POINT = 3 << 20
MOST_RESIDENT_BYTES = 32 << 20

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("nfpm"), reason="nfpm is not installed"),
    pytest.mark.skipif(not shutil.which("dpkg"), reason="this is not Debian"),
]


def build(out: Path, version: str, *words: str) -> None:
    command = [sys.executable, str(BUILD), "--out", str(out), "--version", version, "--formats", "deb", *words]
    done = subprocess.run(command, text=True, capture_output=True, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def access_point(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both versions of an access point's packages."""
    out = tmp_path_factory.mktemp("access-point")
    for version in (OLD, NEW):
        build(out, version, "hyroads-edge", "hyroads-ap", "hyroads-box")
    return out


# The libraries take minutes to put together, install and start. Every day those of this environment stand for them.
KINDS = ["overlay", pytest.param("fresh", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module", params=KINDS)
def controller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What the root is made of, and where the package is."""
    out = tmp_path_factory.mktemp("controller")
    if request.param == "overlay":
        own = subprocess.run(["/usr/bin/python3", "-c", "import sys; print(sys.version_info[1])"], capture_output=True)
        if int(own.stdout or 0) != sys.version_info[1]:
            pytest.skip("the libraries here are not those of the distribution's Python")
        build(out, NEW, "--libraries", str(LIBRARIES), "hyroads")
        return Path("/"), out
    build(out, NEW, "hyroads")
    return fresh_debian(ROOT / "build" / "roots"), out


@pytest.fixture(params=KINDS)
def below(request: pytest.FixtureRequest) -> Path:
    return Path("/") if request.param == "overlay" else fresh_debian(ROOT / "build" / "roots")


def versions(root: PackageRoot) -> dict[str, str]:
    said = root.run("dpkg-query", "-W", "-f=${Package} ${Version} ${db:Status-Status}\n", "hyroads*", check=False)
    return {
        name: f"{version} {status}" for name, version, status in re.findall(r"(?m)^(hyroads\S*) (\S*) (\S+)$", said)
    }


def debs(*names: str, version: str) -> list[str]:
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True).stdout.strip()
    return [f"/mnt/{name}_{version}_{'all' if name in NO_PROGRAM else architecture}.deb" for name in names]


# What dpkg and the programs that it runs write down for themselves.
NOT_OURS = re.compile(
    r"var/(lib|log|cache)/(dpkg|apt|man-db|debconf|systemd)|var/log/|var/cache/(man|ldconfig)|run/|tmp/|mnt/"
    r"|etc/(\.pwd\.lock|(passwd|group|shadow|gshadow|subuid|subgid)-?$)|dev/|var/lib/systemd|etc/ld\.so\.cache"
)


def left(root: PackageRoot) -> dict[str, Any]:
    """Files and users that are there, but were not before."""
    files = {name for name in root.files() if not NOT_OURS.match(name)}
    users = {line for line in (root.path / "etc/passwd").read_text().splitlines() if "hyroads" in line}
    groups = {line for line in (root.path / "etc/group").read_text().splitlines() if "hyroads" in line}
    return {"files": files, "users": users, "groups": groups}


NOTHING: dict[str, Any] = {"files": set(), "users": set(), "groups": set()}


def test_packages_of_an_access_point_come_run_and_go(access_point: Path, below: Path) -> None:
    names = ("hyroads-edge", "hyroads-ap")
    with PackageRoot(below, access_point) as root:
        root.run(*DPKG, "-i", *debs(*names, version=OLD))
        assert versions(root) == dict.fromkeys(names, f"{OLD} installed")
        sizes = [int(each) for each in root.run("dpkg-query", "-W", "-f=${Installed-Size}\n", *names).split()]
        assert sum(sizes) * 1024 <= MOST_BYTES_OF_ACCESS_POINT
        assert not list((root.path / "etc/systemd/system").rglob("*hyroads*")), "nothing is enabled"
        settings = root.path / "etc/default/hyroads-ap"
        settings.write_text(settings.read_text().replace("127.0.0.1:6654", "127.0.0.1:6666"))
        token, radios = root.path / "etc/hyroads/agent.token", root.path / "etc/hyroads/ap.json"
        token.parent.mkdir()
        token.write_text("a-token-of-the-operator\n")
        radios.write_text(
            json.dumps({"node": "up", "interfaces": [{"name": "none0", "technology": "wifi", "backend": "plc"}]})
        )
        for file in (token, radios):
            file.chmod(0o600)
            root.run("chown", "hyroads-ap:", f"/etc/hyroads/{file.name}")
        with root.service("hyroads-edge@", instance="up") as edge, root.service("hyroads-ap-agent") as agent:
            edge.ready()
            agent.ready()
            assert "up-acc" in root.run("ip", "link") and "up-net" in root.run("ip", "link")
            resident = [edge.resident_bytes(), agent.resident_bytes()]
            print(f"resident: {[each >> 10 for each in resident]} KiB; installed: {sizes} KiB")
            assert sum(resident) <= MOST_RESIDENT_BYTES
            assert "connect" in agent.log.read_text().lower() or "dialling" in agent.log.read_text()
        root.run(*DPKG, "-i", *debs(*names, version=NEW))
        assert versions(root) == dict.fromkeys(names, f"{NEW} installed")
        assert "127.0.0.1:6666" in settings.read_text() and token.read_text() == "a-token-of-the-operator\n"
        root.run(*DPKG, "-r", *names)
        assert settings.exists() and not (root.path / "usr/bin/hyroads-edge").exists()
        root.run(*DPKG, "-P", *names)
        # What the operator wrote stays the operator's, and so does the user that owns it.
        assert left(root)["files"] == {"etc/hyroads/agent.token", "etc/hyroads/ap.json"}
        assert left(root)["users"]
        root.run(*DPKG, "-i", *debs(*names, version=NEW))
        shutil.rmtree(token.parent)
        root.run(*DPKG, "-P", *names)
        assert left(root) == NOTHING


def test_package_of_a_box_brings_its_command_and_leaves_before_it_goes(access_point: Path) -> None:
    names = ("hyroads-edge", "hyroads-ap", "hyroads-box")
    with PackageRoot(Path("/"), access_point) as root:
        root.run(*DPKG, "-i", *debs(*names, version=NEW))
        assert versions(root) == {"hyroads": " not-installed", **dict.fromkeys(names, f"{NEW} installed")}
        verbs = re.findall(r"(?m)^    (\w+) ", root.run("hyroads", "box", "--help"))
        assert verbs == ["join", "leave", "doctor"]
        checked = json.loads(root.run("hyroads", "box", "doctor", "--json", check=False))
        assert checked["faults"] > 0 and {"switch", "controller"} & {each["check"] for each in checked["findings"]}
        # As after a join that was interrupted before its first step.
        record = root.path / "var/lib/hyroads-box/join.json"
        record.parent.mkdir(mode=0o700)
        record.write_text("{")
        record.chmod(0o600)
        assert "join.json" in root.run(*DPKG, "-r", "hyroads-box", check=False)
        assert versions(root)["hyroads-box"].endswith("installed"), "a package whose leave failed stays"
        record.unlink()
        root.run(*DPKG, "-P", *reversed(names))
        assert left(root)["files"] <= {"var/lib/hyroads-box"}


def test_maintainer_scripts_may_run_any_number_of_times(access_point: Path) -> None:
    with PackageRoot(Path("/"), access_point) as root:
        root.run(*DPKG, "-i", *debs("hyroads-edge", version=NEW))
        before = root.files(), left(root)
        script = "/var/lib/dpkg/info/hyroads-edge."
        for words in (
            ["postinst", "configure"],
            ["postinst", "configure", OLD],
            ["prerm", "upgrade"],
            ["postrm", "upgrade"],
        ):
            for _ in range(2):
                root.run(script + words[0], *words[1:])
        assert left(root) == before[1]
        for _ in range(2):
            root.run(script + "prerm", "remove")
            root.run(script + "postrm", "remove")
        for _ in range(2):
            root.run(script + "postrm", "purge")
        assert not left(root)["users"]
        root.run(script + "postinst", "configure")
        assert left(root)["users"] == before[1]["users"]


FLOW = {"id": "voice", "from": "c", "to": "a", "match": {"eth_type": 2048, "ip_proto": 17, "udp_dst": 7000}}

# Of the first version of the file: where a client's flows are.
PLACE = {"client": "c", "flow": None, "node": "b", "technology": "wifi"}
STATE = {"version": 1, "flows": [], "removed": [], "numbers": {}, "paths": {}, "places": [PLACE], "services": {}}


class Api:
    """The controller's REST API, asked from within."""

    def __init__(self, root: PackageRoot) -> None:
        self._root = root

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        said = self._root.run("python3", "-c", _ASK, method, path, json.dumps(body))
        status, document = json.loads(said)
        return status, document


_ASK = """
import json, sys, urllib.error, urllib.request
method, path, body = sys.argv[1:]
data = None if body == "null" else body.encode()
request = urllib.request.Request("http://127.0.0.1:8080/api/v1" + path, data, method=method)
request.add_header("Content-Type", "application/json")
try:
    with urllib.request.urlopen(request, timeout=20) as answer:
        print(json.dumps([answer.status, json.loads(answer.read() or b"null")]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, json.loads(error.read() or b"null")]))
except OSError:
    print(json.dumps([0, None]))
"""


@pytest.fixture
def root(controller: tuple[Path, Path]) -> Iterator[PackageRoot]:
    with PackageRoot(*controller) as root:
        yield root


def test_from_the_package_to_the_first_answer_and_back_to_nothing(root: PackageRoot) -> None:
    began_s, began_cpu_s = time.monotonic(), cpu_s()
    root.run(*DPKG, "-i", *debs("hyroads", version=NEW))
    assert not list((root.path / "etc/systemd/system").rglob("*hyroads*")), "nothing is enabled"
    ask = Api(root)
    with root.service("hyroads-controller") as service:
        service.ready()
        assert ask("GET", "/health")[0] == 200
        print(f"{time.monotonic() - began_s:.1f} s from the package to the first answer")
        # Of processor time: a machine that does other things besides may take longer.
        assert cpu_s() - began_cpu_s + service.cpu_s() <= FIRST_ANSWER_WITHIN_S
        listening = re.findall(r"(?m)^(?:tcp|udp)\s+LISTEN\s.*?(\S+):\d+\s", root.run("ss", "-tulnH", check=False))
        assert all(each.strip("[]") in ("127.0.0.1", "::1") for each in listening), listening
        assert ask("GET", "/nodes")[0] == 200
        assert service.end() == 0, service.log.read_text()
    check_programs(root)
    check_guest_network(root)
    network = root.path / "etc/hyroads/network.yaml"
    network.write_text(TRIANGLE.read_text())
    root.run(*DPKG, "-r", "hyroads")
    assert network.exists() and (root.path / "var/lib/hyroads").exists() and not (root.path / "opt/hyroads").exists()
    root.run(*DPKG, "-P", "hyroads")
    # Debian's /opt belongs to no package: where it is empty then, dpkg takes it away.
    assert left(root)["files"] <= {"opt"} and {**left(root), "files": set()} == NOTHING


def cpu_s() -> float:
    """Processor time of all that this process started and that has ended, seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check_programs(root: PackageRoot) -> None:
    """Each is where one looks for it, and runs."""
    assert root.run("hyroads", "--version") == f"hyroads {version_of_tree()}\n"
    assert "hyroads-client" in root.run("hyroads-client", "--version")
    network = "/usr/share/doc/hyroads/examples/slices.yaml"
    assert (root.path / network.lstrip("/")).exists()
    assert ": ok" in root.run("hyroads", "controller", "--check")
    for command in ("slicer", "snmpvisor", "plan", "fetch", "client"):
        assert "usage: hyroads" in root.run("hyroads", command, "--help")
    words = root.run("bash", "-c", 'source "$0"; COMP_WORDS=(hyroads contr); COMP_CWORD=1; COMP_LINE="hyroads contr"; '
                     'COMP_POINT=13; _shtab_hyroads hyroads contr hyroads; echo "${COMPREPLY[*]}"',
                     "/usr/share/bash-completion/completions/hyroads")  # fmt: skip
    assert words.split() == ["controller"]
    pages = {page.name for page in (root.path / "usr/share/man/man1").glob("hyroads*")}
    assert {"hyroads.1.gz", "hyroads-controller.1.gz", "hyroads-slices.1.gz"} <= pages
    text = "\n".join(path.read_text(errors="replace") for path in (root.path / "opt/hyroads/bin").glob("hyroads"))
    assert str(ROOT) not in text and "/tmp" not in text


def check_guest_network(root: PackageRoot) -> None:
    """Its unit's user and rights are enough: a guest gets an address, and at the end all is as before."""
    if not (root.path / "usr/sbin/dnsmasq").exists():
        return
    devices = ["link add guest0 type veth peer name guest1", "link add wan0 type veth peer name wan1"]
    for words in [*devices, "netns add hr-guest", "link set guest1 netns hr-guest", "-n hr-guest link set guest1 up"]:
        root.run("ip", *words.split())
    settings = root.path / "etc/hyroads/guest-network.yaml"
    settings.write_text("{interface: guest0, uplink: wan0}\n")
    forwarding = ("sysctl", "net.ipv4.conf.guest0.forwarding", "net.ipv4.conf.wan0.forwarding")
    before = root.run("nft", "list", "ruleset"), root.run(*forwarding)
    with root.service("hyroads-guest-network") as service:
        service.ready()
        lease = ("udhcpc", "-i", "guest1", "-n", "-q", "-t", "10", "-T", "1", "-s", "/bin/true")
        assert "lease of 192.168.90." in root.run("ip", "netns", "exec", "hr-guest", *lease)
        assert "hyroads_guest" in root.run("nft", "list", "ruleset")
        assert service.end() == 0, service.log.read_text()
    assert (root.run("nft", "list", "ruleset"), root.run(*forwarding)) == before
    settings.unlink()
    root.run("ip", "netns", "del", "hr-guest")


def version_of_tree() -> str:
    found = re.search(r'(?m)^version = "(.*)"$', (ROOT / "pyproject.toml").read_text())
    assert found
    return found[1]


def renumber(packages: Path, of: str, to: str) -> None:
    """Another number for a package."""
    inside = packages / "renumbered"
    subprocess.run(["dpkg-deb", "-R", packages / Path(of).name, inside], check=True)
    control = inside / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"\nVersion: {NEW}\n", f"\nVersion: {OLD}\n"))
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", inside, packages / Path(to).name], check=True)
    shutil.rmtree(inside)


def test_an_upgrade_keeps_flows_places_and_settings(controller: tuple[Path, Path]) -> None:
    """The same program under another number: what is tested is what dpkg and the maintainer scripts do."""
    below, packages = controller
    renumber(packages, *debs("hyroads", version=NEW), *debs("hyroads", version=OLD))
    with PackageRoot(below, packages) as root:
        root.run(*DPKG, "-i", *debs("hyroads", version=OLD))
        network, state = root.path / "etc/hyroads/network.yaml", root.path / "var/lib/hyroads/state.json"
        network.write_text(TRIANGLE.read_text())
        root.run("install", "-d", "-o", "hyroads", "/var/lib/hyroads")
        state.write_text(json.dumps(STATE))
        root.run("chown", "hyroads:", "/var/lib/hyroads/state.json")
        ask = Api(root)
        with root.service("hyroads-controller") as service:
            service.ready()
            assert ask("POST", "/flows?wait=false", FLOW)[0] in (200, 201, 202)
            assert service.end() == 0
        document = json.loads(state.read_text())
        assert [flow["id"] for flow in document["flows"]] == ["voice"] and document["places"] == STATE["places"]
        root.run(*DPKG, "-i", *debs("hyroads", version=NEW))
        assert versions(root) == {"hyroads": f"{NEW} installed"}
        assert network.read_text() == TRIANGLE.read_text()
        with root.service("hyroads-controller") as service:
            service.ready()
            assert "voice" in {flow["id"] for flow in ask("GET", "/flows")[1]["flows"]}
            assert service.end() == 0
        after = json.loads(state.read_text())
        assert all(after[section] == document[section] for section in document if section != "checksum")
