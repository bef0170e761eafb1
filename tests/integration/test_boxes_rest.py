"""Boxes at the real controller over REST: applying, adoption, restarts, and bounds for strangers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from controller_process import ControllerProcess, eventually, free_ports
from identities import Device, made, server_tls
from scripted_switch import ScriptedSwitch
from slicer_lab import slicer_lab

from hyroads.controller.cli.main import main
from hyroads.controller.core.adoption import proof
from hyroads.controller.core.identity import token_hash
from hyroads.controller.files.tls import fingerprint

ADMIN, VIEWER = "admin-" + "a" * 32, "viewer-" + "b" * 32
TOKENS = {"ops": {"token": ADMIN}, "eye": {"token": VIEWER, "role": "viewer"}}
INTERFACES = [
    {"name": "eth0", "kind": "ethernet", "mtu": 1500, "address": "b8:27:eb:41:c0:a1", "uplink": True},
    {"name": "a-wifi", "kind": "ethernet", "mtu": 1500, "address": "b8:27:eb:41:c0:a2"},
    {"name": "eth2", "kind": "ethernet", "mtu": 1500, "address": "b8:27:eb:41:c0:a3"},
]


class OneBox:
    """A box that speaks REST by hand, with a key that openssl has made."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, key = name, folder / f"{name}.key"
        curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
        subprocess.run(["openssl", "genpkey", *curve, "-out", str(key)], check=True, capture_output=True)
        words = ["openssl", "req", "-new", "-key", str(key), "-subj", "/CN=root"]
        self.request = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        form = ["openssl", "pkey", "-in", str(key), "-pubout", "-outform", "DER"]
        self.key = hashlib.sha256(subprocess.run(form, check=True, capture_output=True).stdout).hexdigest()
        self.key_file, self.claim, self.tokens = key, f"claim of {name}", {r: f"{r} {name}" for r in ("agent", "radio")}

    def application(self, **more: object) -> dict[str, Any]:
        return {
            "id": self.name, "key": self.key, "claim": token_hash(self.claim), "request": self.request,
            "tokens": {role: token_hash(token) for role, token in self.tokens.items()}, "system": "Debian",
            "interfaces": INTERFACES, "clock_s": time.time(), **more,
        }  # fmt: skip


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("boxes"))


def settings(identities: Path) -> dict[str, Any]:
    return {
        "api_tokens": TOKENS, "state_file": "state.json", "rest_tls": server_tls(identities, ca=False),
        "agents_tls": server_tls(identities, ca=True), "boxes": {"authority": str(identities), "most_pending": 9},
    }  # fmt: skip


class Controller(ControllerProcess):
    """Over TLS; requests are an operator's unless they say another token."""

    def rest(self, method: str, path: str, body: object = None, token: str | None = ADMIN) -> tuple[int, Any]:
        return super().rest(method, path, body, token or None)


def start(folder: Path, identities: Path) -> Controller:
    controller = Controller(folder, settings(identities))
    controller.context = ssl.create_default_context(cafile=str(identities / "ca.pem"))
    return controller


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory, identities: Path) -> Iterator[Controller]:
    with start(tmp_path_factory.mktemp("controller"), identities) as running:
        yield running


def test_a_box_is_adopted_once_its_agent_and_switch_connect_and_stays_over_a_restart(
    tmp_path: Path, identities: Path
) -> None:
    box, folder = OneBox(tmp_path, "box"), tmp_path / "run"
    folder.mkdir()
    with start(folder, identities) as controller:
        # Boxes have no token; everybody else needs one, and the role admin to adopt.
        assert controller.rest("POST", "/boxes", box.application(), token="")[0] == 201
        assert controller.rest("POST", "/boxes", box.application(), token="")[0] == 200
        assert controller.rest("GET", "/boxes", token="")[0] == 401
        assert controller.rest("POST", "/boxes/box/adopt", {"as": "a"}, token="")[0] == 401
        assert controller.rest("POST", "/boxes/box/adopt", {"as": "a"}, token=VIEWER)[0] == 403
        assert controller.rest("DELETE", "/boxes/box", token=VIEWER)[0] == 403
        (shown,) = controller.rest("GET", "/boxes", token=VIEWER)[1]["boxes"]
        assert (shown["state"], shown["key"], shown["node"], shown["verified"]) == ("pending", box.key, None, False)
        assert box.claim not in json.dumps(shown) and "tokens" not in shown
        # The box's token is worth nothing before.
        assert refused(controller, identities, box, "a")
        status, problem = controller.rest("POST", "/boxes/box/adopt", {"as": "a"})
        assert (status, list(problem["errors"])) == (422, ["plc"])
        assert controller.rest("POST", "/boxes/box/adopt", {"as": "zz"})[0] == 422
        assert controller.rest("POST", "/boxes/box/adopt", {"as": "a", "ports": {"plc": "eth0"}})[0] == 422
        wanted = {"as": "a", "ports": {"plc": "eth2"}}
        status, operation = controller.rest("POST", "/boxes/box/adopt?wait=false", wanted)
        assert status == 202 and operation["pending"] == ["switch a", "agent a"]
        setup = waited(controller, box)["setup"]
        assert setup["ports"]["plc"] == {"interface": "eth2", "name": "a-plc"} and setup["dpid"] == f"{1:016x}"
        (tmp_path / "box.pem").write_text(setup["certificate"])
        device = Device(controller.agents, "a", box.tokens["agent"], context=context(identities, tmp_path, box))
        assert device.answer()["type"] == "welcome"
        device.live()
        eventually(lambda: controller.rest("GET", "/boxes/box")[1]["pending"] == ["switch a"])
        assert controller.rest("GET", f"/operations/{operation['id']}")[1]["state"] == "pending"
        device.close()
    with start(folder, identities) as controller:
        known = controller.rest("GET", "/boxes/box")[1]
        assert (known["state"], known["node"], known["owner"]) == ("adopted", "a", "ops")
        device = Device(controller.agents, "a", box.tokens["agent"], context=context(identities, tmp_path, box))
        assert device.answer()["type"] == "welcome"
        assert controller.rest("DELETE", "/boxes/box")[0] == 204
        while device.hear():
            pass
        assert refused(controller, identities, box, "a")
        assert controller.rest("POST", "/boxes/box/wait", {"claim": box.claim}, token="")[0] == 404


def test_revoked_box_is_refused_at_every_port_and_named_by_the_audit(
    tmp_path: Path, identities: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    box, revoked = OneBox(tmp_path, "box"), str(identities / "revoked.pem")
    slices = [{"name": "production", "controllers": [f"tcp:127.0.0.1:{free_ports(1)[0]}"]}]
    controller = Controller(
        tmp_path, {**settings(identities), "tls": server_tls(identities, ca=True), "revoked": revoked}
    )
    controller.context = ssl.create_default_context(cafile=str(identities / "ca.pem"))

    def shown_by_audit() -> str:
        main(["audit", "--config", str(controller.settings)])
        return next(line for line in capsys.readouterr().out.splitlines() if "of box box" in line)

    with controller, slicer_lab(tmp_path, slices, tls=server_tls(identities, ca=True), revoked=revoked) as slicer:
        assert controller.rest("POST", "/boxes", box.application(), token="")[0] == 201
        wanted = {"as": "a", "ports": {"plc": "eth2"}}
        assert controller.rest("POST", "/boxes/box/adopt?wait=false", wanted)[0] == 202
        (tmp_path / "box.pem").write_text(waited(controller, box)["setup"]["certificate"])
        own = context(identities, tmp_path, box)

        def is_switch_taken(port: int) -> bool:
            """Whether a switch with the certificate of the box is asked for its state."""
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as plain:
                switch = ScriptedSwitch(own.wrap_socket(plain, server_hostname="127.0.0.1"), 1)
                switch.start()
                eventually(lambda: switch.questions or not switch.is_alive(), 20)
                with suppress(OSError):
                    switch.socket.shutdown(socket.SHUT_RDWR)
                switch.join(10)
                return switch.questions > 0
            return False

        def is_agent_taken() -> bool:
            with suppress(OSError), closing(Device(controller.agents, "a", box.tokens["agent"], context=own)) as device:
                return device.answer().get("type") == "welcome"
            return False

        def taken() -> tuple[bool, bool, bool]:
            return is_switch_taken(controller.openflow), is_agent_taken(), is_switch_taken(slicer.openflow)

        assert taken() == (True, True, True)
        assert shown_by_audit().endswith("good")
        assert main(["identity", "revoke", "a", "--folder", str(identities)]) == 0
        assert controller.rest("POST", "/reload")[0] == 200
        asyncio.run_coroutine_threadsafe(slicer.server.reload(), slicer.loop).result(20)
        assert taken() == (False, False, False)
        assert shown_by_audit().endswith("revoked")


def context(identities: Path, folder: Path, box: OneBox) -> ssl.SSLContext:
    found = ssl.create_default_context(cafile=str(identities / "ca.pem"))
    found.load_cert_chain(folder / "box.pem", box.key_file)
    return found


def refused(controller: Controller, identities: Path, box: OneBox, node: str) -> bool:
    """Whether the token of a box does not admit it, with a certificate that is good."""
    trusted = ssl.create_default_context(cafile=str(identities / "ca.pem"))
    trusted.load_cert_chain(identities / node / "node.pem", identities / node / "node.key")
    device = Device(controller.agents, node, box.tokens["agent"], context=trusted)
    return device.answer().get("type") != "welcome"


def waited(controller: Controller, box: OneBox) -> dict[str, Any]:
    status, document = controller.rest("POST", f"/boxes/{box.name}/wait", {"claim": box.claim}, token="")
    assert status == 200, document
    found: dict[str, Any] = document
    return found


def test_a_join_code_proves_both_ends_and_is_good_once(
    controller: Controller, tmp_path: Path, identities: Path
) -> None:
    pin = fingerprint(identities / "controller.pem")
    assert controller.rest("GET", "/box-codes")[1] == {"pin": pin}
    status, made_code = controller.rest("POST", "/box-codes")
    assert status == 201 and made_code["pin"] == pin
    assert controller.rest("POST", "/box-codes", token=VIEWER)[0] == 403
    box, other = OneBox(tmp_path, "box"), OneBox(tmp_path, "other")
    code = made_code["code"].lower().replace("-", " ")
    shown = proof(code, "box", pin, box.key)
    status, answer = controller.rest("POST", "/boxes", box.application(code_proof=shown), token="")
    assert (status, answer["code_proof"]) == (201, proof(code, "controller", pin, box.key))
    assert controller.rest("GET", "/boxes/box")[1]["verified"] is True
    again = proof(code, "box", pin, other.key)
    assert controller.rest("POST", "/boxes", other.application(code_proof=again), token="")[0] == 403
    assert controller.rest("DELETE", "/boxes/box")[0] == 204


def test_what_strangers_send_is_refused_in_one_line_and_bounded(controller: Controller, tmp_path: Path) -> None:
    box, other = OneBox(tmp_path, "box"), OneBox(tmp_path, "other")
    for wrong, status, said in (
        ({"clock_s": 60.0}, 403, "the clock of the box says 1970-01-01"),
        ({"key": other.key}, 422, "expected the SHA-256 of the key in the request"),
        ({"request": "x" * 400}, 422, "expected a certificate request"),
        ({"request": other.request.replace("M", "N", 3)}, 422, "expected a certificate request"),
        ({"id": "../x"}, 422, "id: expected"),
        ({"code_proof": "0" * 64}, 403, "the join code is wrong"),
    ):
        found, problem = controller.rest("POST", "/boxes", box.application(**wrong), token="")
        assert (found, said in problem["detail"]) == (status, True), problem
        assert "\n" not in problem["detail"]
    assert controller.rest("GET", "/boxes")[1]["boxes"] == []
    assert controller.rest("POST", "/boxes", box.application(), token="")[0] == 201
    found, problem = controller.rest("POST", "/boxes", {**other.application(), "id": "box"}, token="")
    assert found == 409 and "with another key" in problem["detail"]
    found, problem = controller.rest("POST", "/boxes", box.application(id="second"), token="")
    assert found == 409 and "has joined as box already" in problem["detail"]
    for claim in ("", "wrong", token_hash(box.claim)):
        assert controller.rest("POST", "/boxes/box/leave", {"claim": claim}, token="")[0] in (404, 422)
    assert controller.rest("POST", "/boxes/box/leave", {"claim": box.claim, "problem": "no space"}, token="")[0] == 204
    assert controller.rest("GET", "/boxes/box")[1]["problem"] == "no space"
    statuses = [controller.rest("POST", "/boxes", {}, token="")[0] for _ in range(30)]
    assert statuses[-1] == 429 and set(statuses) <= {422, 429}
    # Those with a token are not held up by strangers.
    assert controller.rest("GET", "/boxes")[0] == 200
