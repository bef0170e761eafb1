"""Names of servers are asked of each interface's own network: a real DNS server (dnsmasq) in each of them (root)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from download_lab import PORT, SERVER, Lab
from range_server import content

pytestmark = [pytest.mark.root, pytest.mark.skipif(not shutil.which("dnsmasq"), reason="needs dnsmasq")]
NAME, MANY, ELSEWHERE = "files.example.org", "many.example.org", "elsewhere.example.org"
# The address of the same server that the network of if1 knows.
OTHER = "10.99.0.2"
SIZE = 2_000_000
OWN = ["--dns", "if0=10.90.0.1", "--dns", "if1=10.90.1.1"]
ASK = """
import json, socket, sys
from hyroads.controller.download.names import InterfaceNames
said = []
names = InterfaceNames(sys.argv[1], sys.argv[2].split(","), lambda: said.append(1))
found = {}
for host in sys.argv[3:]:
    try:
        found[host] = [str(address) for address in names.addresses(host, 80, ipv6="v6" in host)]
    except socket.gaierror:
        found[host] = None
print(json.dumps([found, len(said)]))
"""


class Networks:
    """Two networks, each with its DNS server; this machine's resolver is told of that of the first."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.servers: list[subprocess.Popen] = []
        self.resolver = Path("/etc/netns", lab.client)
        lab.serve()
        subprocess.run(["ip", "-n", lab.server, "address", "add", f"{OTHER}/32", "dev", "lo"], check=True)
        self.resolver.mkdir(parents=True)
        (self.resolver / "resolv.conf").write_text("nameserver 10.90.0.1\noptions timeout:1 attempts:1\n")
        (self.resolver / "hosts").write_text("127.0.0.1 localhost\n192.0.2.77 pinned.example.org\n")
        for k, address in enumerate((SERVER, OTHER)):
            self.start(k, address)

    def start(self, k: int, address: str) -> None:
        many = [f"--host-record={MANY},203.0.113.{host}" for host in range(1, 61)] if k == 1 else []
        only = [f"--host-record={ELSEWHERE},192.0.2.5"] if k == 0 else []
        command = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user="]
        command += ["--pid-file=", f"--listen-address=10.90.{k}.1", "--bind-interfaces", "--local=/example.org/"]
        command += [f"--host-record={NAME},{address}", "--log-queries", f"--log-facility={self.log(k)}", *many, *only]
        self.servers.append(self.lab.start(self.lab.server, *command))
        wait_until(lambda: "started" in self.queries(k))

    def log(self, k: int) -> Path:
        return self.lab.folder / f"dns{k}.log"

    def queries(self, k: int) -> str:
        return self.log(k).read_text() if self.log(k).exists() else ""

    def ask(self, interface: str, server: str, *hosts: str) -> tuple[dict[str, list[str] | None], int]:
        program = self.lab.start(
            self.lab.client, sys.executable, "-c", ASK, interface, server, *hosts, stdout=subprocess.PIPE
        )
        found, said = json.loads(program.communicate(timeout=60)[0])
        return found, said


def wait_until(condition: Callable[[], bool]) -> None:
    over_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < over_s
        time.sleep(0.02)


@pytest.fixture
def networks(tmp_path: Path) -> Iterator[Networks]:
    with Lab([None, None], tmp_path / "served") as lab:
        made = Networks(lab)
        try:
            yield made
        finally:
            shutil.rmtree(made.resolver)


def test_each_interface_asks_its_own_network_and_goes_where_that_says(networks: Networks, tmp_path: Path) -> None:
    lab = networks.lab
    status, document, error, _ = lab.fetched("-o", str(tmp_path / "file"), *OWN, f"http://{NAME}:{PORT}/{SIZE}.bin")
    assert status == 0 and (tmp_path / "file").read_bytes() == content(SIZE), error
    assert error == ""
    assert set(document["files"][0]["interfaces"]) == {"if0", "if1"}
    for k in (0, 1):
        assert f"{NAME} from 10.90.{k}.2" in networks.queries(k)
        assert f"from 10.90.{1 - k}.2" not in networks.queries(k)
    assert networks.ask("if0", "10.90.0.1", NAME) == ({NAME: [SERVER]}, 0)
    # Sixty addresses do not fit into a datagram: asked again over TCP.
    found, said = networks.ask("if1", "10.90.1.1", NAME, MANY, "127.0.0.1", "pinned.example.org")
    assert said == 0 and found[NAME] == [OTHER] and len(found[MANY] or []) == 60
    assert found["127.0.0.1"] == ["127.0.0.1"] and found["pinned.example.org"] == ["192.0.2.77"]


def test_this_machines_resolver_is_asked_when_a_network_does_not_answer_or_know(
    networks: Networks, tmp_path: Path
) -> None:
    found, said = networks.ask("if1", "10.90.1.1", ELSEWHERE, "unknown.example.org")
    assert (found, said) == ({ELSEWHERE: ["192.0.2.5"], "unknown.example.org": None}, 0)
    networks.servers[1].kill()
    networks.servers[1].wait()
    # Said once; the next name does not wait for it.
    assert networks.ask("if1", "10.90.1.1", NAME, ELSEWHERE) == ({NAME: [SERVER], ELSEWHERE: ["192.0.2.5"]}, 1)
    # The second of two servers answers.
    assert networks.ask("if0", "10.90.0.9,10.90.0.1", NAME) == ({NAME: [SERVER]}, 0)
    url = f"http://{NAME}:{PORT}/{SIZE}.bin"
    words = ["--interfaces", "if1", *OWN[2:], url]
    status, _, error, _ = networks.lab.fetched("-o", str(tmp_path / "file"), *words)
    assert status == 0 and (tmp_path / "file").read_bytes() == content(SIZE)
    assert error == "hyroads fetch: if1: its DNS servers do not answer, so this machine's resolver is asked\n"


def test_the_proxy_asks_the_network_of_the_interface_that_serves(networks: Networks, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hyroads.controller.cli", "proxy", "--interfaces", "if1", *OWN[2:]]
    command += ["--connect-ports", "all"]
    proxy = networks.lab.start(networks.lab.client, *command, stderr=subprocess.PIPE, text=True)
    assert "listens on" in proxy.stderr.readline()
    for more in ([], ["--proxytunnel"]):
        words = ["curl", "-sS", "-x", "http://127.0.0.1:3128", *more, "-o", str(tmp_path / "file")]
        curl = networks.lab.start(networks.lab.client, *words, f"http://{NAME}:{PORT}/{SIZE}.bin")
        assert curl.wait(30) == 0
        assert (tmp_path / "file").read_bytes() == content(SIZE)
    assert f"{NAME} from 10.90.1.2" in networks.queries(1)
    assert "query[" not in networks.queries(0)
