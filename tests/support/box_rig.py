"""The service of boxes as tests steer it: a port whose switches and agents connect when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hyroads.controller.cli.main import main
from hyroads.controller.core.identity import token_hash
from hyroads.controller.core.network import Network
from hyroads.controller.files.authority import key_digest
from hyroads.controller.files.documents import read_file
from hyroads.controller.model.state import Presence, TopologyContext
from hyroads.controller.services.boxes import Adopting, BoxService
from hyroads.controller.settings.controller import Settings, parse
from hyroads.rest.contract import NotSavedError, Token

TRIANGLE = Path(__file__).resolve().parents[2] / "mininet" / "networks" / "triangle.yaml"
OPS = Token("ops", "", "admin")
NOW_S = 1_790_000_000.0


class Saver:
    """A state file that can be full."""

    def __init__(self) -> None:
        self.is_full, self.meanwhile = False, lambda: None

    def check(self) -> None:
        self.meanwhile()

    def change(self, what: str, undo: Callable[[], object]) -> Callable[[], object]:
        return undo

    def wait(self, undo: Callable[[], object]) -> None:
        if self.is_full:
            undo()
            raise NotSavedError("the state file can't be written: No space left on device")


class Connection:
    closed = False

    def close(self) -> None:
        self.closed = True


class Rig:
    """A service; ``network`` is the triangle unless another one is given."""

    def __init__(self, settings: Settings, network: Network | None = None) -> None:
        self.happened: list[str] = []
        self.saver = Saver()
        self.port: Any = SimpleNamespace(
            context=TopologyContext.of(network or read_file(TRIANGLE)), state=SimpleNamespace(agents={}), switches={},
            saver=self.saver, events=SimpleNamespace(publish=lambda kind, _: self.happened.append(kind)),
            progress=SimpleNamespace(wait=lambda _: self.pass_time()), clock=lambda: self.now_s,
            note_unsaved=lambda: None,
        )  # fmt: skip
        self.now_s = 0.0
        self.service = BoxService(self.port, settings, Adopting.of(settings, "test"), clock=lambda: NOW_S)
        self.tokens: list[set[str]] = []
        self.service.tokens_changed = lambda: self.tokens.append({node for _, node in self.service.tokens})

    def pass_time(self) -> None:
        self.now_s += 1.0

    def apply(self, name: str) -> None:
        self.service.apply(application(name), "192.0.2.7")

    def connect(self, node: str) -> None:
        self.port.switches[node] = SimpleNamespace(connection=Connection())
        self.port.state.agents[node] = Presence.UP


def application(name: str, **more: object) -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "b")])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request = made.public_bytes(serialization.Encoding.PEM).decode()
    interfaces = [{"name": port, "kind": "ethernet", "mtu": 1500, "address": f"00:00:5e:00:53:0{i}"}
                  for i, port in enumerate(("a-wifi", "a-plc", "b-wifi", "b-plc"))]  # fmt: skip
    tokens = {role: token_hash(role + name) for role in ("agent", "radio")}
    return {"id": name, "key": key_digest(request), "claim": token_hash(name), "tokens": tokens, "request": request,
            "system": "Debian", "interfaces": interfaces, "clock_s": NOW_S, **more}  # fmt: skip


def settings_of(folder: Path) -> Settings:
    """Settings of a controller that boxes can join; its authority is made in ``folder``."""
    for words in (["authority"], ["server", "c"]):
        assert main(["identity", *words, "--folder", str(folder)]) == 0
    tls = {"key": "c.key", "certificate": "c.pem"}
    document = {"network": str(TRIANGLE), "rest_tls": tls, "tls": tls, "boxes": {"authority": ".", "most_pending": 2}}
    return parse(document, str(folder / "hyroads.yaml"), {})
