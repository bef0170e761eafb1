"""The real edge agent over TLS, under the real controller: who is dialled is checked, and so is who dials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from controller_process import ControllerProcess, eventually
from identities import issued, made, server_tls, without_role

from hyroads.controller.core.identity import CertificateRole
from hyroads.controller.files.authority import Authority

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

EDGE = Path(__file__).resolve().parents[2] / "dataplane" / "target" / "release" / "hyroads-edge"
SILENT = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
kept = []
while True:
    kept.append(listener.accept())
"""

HEARING = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    plain = listener.accept()[0]
    plain.settimeout(5)
    try:
        with context.wrap_socket(plain, server_side=True) as secured:
            print(secured.recv(4096), flush=True)
    except OSError as error:
        print("refused", error, flush=True)
"""
OTHER_ROLES = [role for role in CertificateRole if role is not CertificateRole.CONTROLLER]


class Lab:
    """A namespace with a loopback, in which everything runs."""

    def __init__(self, folder: Path) -> None:
        self.name = f"hr-tls-{uuid4().hex[:8]}"
        self.inside = ["ip", "netns", "exec", self.name]
        self.folder = folder
        self.identities = made(folder)

    def __enter__(self) -> Lab:
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        subprocess.run(["ip", "-n", self.name, "link", "set", "lo", "up"], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=True)

    @contextmanager
    def agent(
        self, port: int, node: str = "a", certified: str | None = "a", ca: Path | None = None, host: str = "127.0.0.1"
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """An agent, and what it says."""
        files, said = self.identities, self.folder / f"edge-{uuid4().hex[:6]}.log"
        own = files / (certified or "")
        shown = [] if certified is None else ["--cert", str(own / "node.pem"), "--key", str(own / "node.key")]
        command = [
            *self.inside, str(EDGE), "--node", node, "--access", "tap:x-acc", "--network", "tap:x-net",
            "--controller", f"{host}:{port}", "--token-file", str(files / node / "agent.token"),
            "--ca", str(ca or files / "ca.pem"), *shown,
        ]  # fmt: skip
        with said.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as program:
            try:
                yield program, said
            finally:
                program.terminate()
                program.wait(10)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("edge-tls")) as lab:
        yield lab


@pytest.fixture(scope="module")
def controller(lab: Lab) -> Iterator[ControllerProcess]:
    files = lab.identities
    settings = {"identities": str(files / "identities.json"), "agents_tls": server_tls(files, ca=True)}
    process = ControllerProcess(lab.folder, settings)
    document = json.loads(process.settings.read_text())
    document["listen"]["agents"]["host"] = "0.0.0.0"
    process.settings.write_text(json.dumps(document))
    log = process.log.open("ab")
    command = [*lab.inside, *process.command]
    with subprocess.Popen(command, env=process.environment, stdout=log, stderr=log) as running:
        try:
            assert eventually(lambda: "OpenFlow 127.0.0.1" in process.log.read_text(), 60)
            yield process
        finally:
            running.terminate()
            running.wait(20)
            log.close()


def cpu_s(program: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{program.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_agent_is_let_in_and_reports_for_a_while(lab: Lab, controller: ControllerProcess) -> None:
    size = controller.log.stat().st_size
    with lab.agent(controller.agents) as (program, said):
        assert eventually(lambda: "welcomed us" in said.read_text(), 15), said.read_text()
        time.sleep(3.0)
        told = controller.log.read_text()[size:]
        assert "agent a connected" in told and "agent a (" not in told, told
        assert "lost" not in said.read_text() and program.poll() is None


@pytest.mark.parametrize(
    ("changes", "where", "why"),
    [
        ({"certified": "b"}, "controller", "certificate is of 'b'"),
        ({"certified": None}, "controller", "TLS"),
        ({"ca": "other"}, "agent", "certificate"),
        # The controller is there, too, but its certificate is not for this address.
        ({"host": "127.0.0.2"}, "agent", "certificate"),
    ],
)
def test_who_is_not_whom_it_should_be_is_refused(
    lab: Lab, controller: ControllerProcess, tmp_path: Path, changes: dict[str, str], where: str, why: str
) -> None:
    size, given = controller.log.stat().st_size, dict(changes)
    options: dict[str, object] = dict(given)
    if given.get("ca"):
        options["ca"] = made(tmp_path) / "ca.pem"
    with lab.agent(controller.agents, **options) as (_, said):  # type: ignore[arg-type]

        def told() -> bool:
            return why in (said.read_text() if where == "agent" else controller.log.read_text()[size:])

        assert eventually(told, 10), (said.read_text(), controller.log.read_text()[size:])
        assert "welcomed us" not in said.read_text()


@pytest.mark.parametrize("role", [*OTHER_ROLES, "none as in version 0.3", CertificateRole.CONTROLLER])
def test_agent_sends_its_token_to_servers_with_role_controller_alone(lab: Lab, tmp_path: Path, role: str) -> None:
    is_known = role in set(CertificateRole)
    files = issued(lab.identities, role if is_known else "controller", f"other-{role[:4]}")
    if not is_known:
        without_role(Path(files.certificate), Authority.of(lab.identities))
    heard = tmp_path / "heard"
    command = [*lab.inside, sys.executable, "-c", HEARING, "21998", files.certificate, files.key]
    with heard.open("wb") as log, subprocess.Popen(command, stdout=log) as server:
        try:
            assert eventually(lambda: "listening" in heard.read_text(), 20)
            with lab.agent(21_998) as (_, said):
                if role == CertificateRole.CONTROLLER:
                    assert eventually(lambda: "hello" in heard.read_text(), 20), (said.read_text(), heard.read_text())
                    return
                assert eventually(lambda: "refused" in heard.read_text(), 20), (said.read_text(), heard.read_text())
                assert eventually(lambda: "the controller's certificate" in said.read_text(), 20)
                # Certificates of nodes and clients are not good for servers at all.
                may_serve = role not in ("node", "client")
                assert ("does not have the role controller: see hyroads identity" in said.read_text()) is may_serve
                assert "hello" not in heard.read_text()
        finally:
            server.terminate()


def test_a_silent_controller_costs_an_agent_no_time(lab: Lab) -> None:
    with subprocess.Popen([*lab.inside, sys.executable, "-c", SILENT, "21999"]) as silent:
        try:
            time.sleep(0.5)
            with lab.agent(21_999) as (program, _):
                time.sleep(0.5)
                before_s = cpu_s(program)
                time.sleep(3.0)
                assert cpu_s(program) - before_s < 0.5
        finally:
            silent.kill()
