"""``hyroads box join`` and ``leave`` as one machine carries them out (docs/reference/boxes.md)."""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hyroads.controller.core.adoption import proof
from hyroads.controller.core.box_application import BOX_ID, Application, Interface, box_id
from hyroads.controller.core.box_record import Before, Phase, Record, check_again, record_of
from hyroads.controller.core.box_setup import KEY, STATE, Present, Run, Secrets, plan, setup_of
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.identity import token_hash

from .changes import Changes
from .discovery import choose_controller, find_controllers
from .link import Link, RefusedError, UnreachableError, WrongControllerError, normal_pin
from .system import System

RECORD = f"{STATE}/join.json"
PROGRAMS = {
    "openssl": "openssl",
    "ip": "iproute2",
    "systemctl": "systemd",
    "ovs-vsctl": "openvswitch-switch",
    "hyroads-edge": "hyroads-edge",
}
"""Program -> the Debian package that has it."""
FOLDERS = ("/etc", "/etc/default", "/etc/systemd/system", "/var/lib")
CONNECT_WITHIN_S = 60.0
RETRY_S, PAUSE_S = 2.0, 0.2
KEY_SHOWN = 16


@dataclass(frozen=True)
class Wanted:
    """What the owner types: the controller's address, its pin, a join code, a name; None: not given."""

    url: str | None = None
    pin: str | None = None
    code: str | None = None
    name: str | None = None


@dataclass(eq=False)
class Joining:
    """``say`` shows a line, ``clock`` is Unix time in seconds, ``sleep`` waits for some."""

    system: System
    say: Callable[[str], None]
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    # -- join

    def join(self, wanted: Wanted) -> int:
        """From a machine to a node; the exit status. HyroadsError: nothing is changed, or it waits to be adopted."""
        record = self._record()
        pin = None if wanted.pin is None else normal_pin(wanted.pin)
        url = wanted.url or (record.url if record is not None else "")
        if record is not None:
            check_again(record, url, wanted.name, pin)
        if record is not None and record.phase is Phase.JOINED:
            self.say(f"this box is {record.node} already")
            return 0
        if record is not None and record.undo:
            self.say("the last join was interrupted: undoing what it did")
            record = replace(self._taken_back(record), phase=Phase.PENDING)
        self._check_machine()
        url = url or choose_controller(find_controllers(), pin, self.say)
        found, own_address = Link.of(url).meet()
        fresh = record is None
        try:
            record = record or self._fresh(replace(wanted, url=url), pin, found, own_address)
            link = Link.of(record.url, record.pin)
            self._apply(link, record, wanted, self._interfaces(own_address))
        except (HyroadsError, KeyboardInterrupt):
            # A box that waits already keeps its identity.
            if fresh:
                self._forget()
            raise
        return self._become(link, record, own_address)

    def _check_machine(self) -> None:
        if os.geteuid() != 0:
            raise HyroadsError("hyroads box join: this needs root")
        for program, package in PROGRAMS.items():
            if not self.system.has_program(program):
                raise HyroadsError(f"{program} is not installed: apt install {package}")
        for folder in FOLDERS:
            self.system.check_folder(folder)
        if self.system.has(KEY):
            raise HyroadsError(f"{KEY} is there: this machine was set up by hand; remove it first")

    def _fresh(self, wanted: Wanted, pin: str | None, found: str, own_address: str) -> Record:
        """A new identity, stored before it is used."""
        url = str(wanted.url)
        if pin is not None and pin != found:
            raise WrongControllerError(f"{url}: wrong pin: the certificate there has the SHA-256 {found}")
        name = wanted.name or _usual_id(self._interfaces(own_address))
        if not BOX_ID.fullmatch(name):
            raise HyroadsError("--name: expected letters, digits, dots and dashes, 64 at most")
        key = self.system.run(Run(("openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")))
        tokens = {role: secrets.token_hex(24) for role in ("agent", "radio")}
        record = Record(Phase.PENDING, url, found, name, secrets.token_hex(24), tokens, key.decode("ascii"))
        self.system.make_folder(STATE, 0o700)
        self._store(record)
        if pin is None:
            trust = "checked by the join code" if wanted.code else "compare it with hyroads box pin at the controller"
            self.say(f"controller {url}: SHA-256 {found} ({trust})")
        return record

    def _apply(self, link: Link, record: Record, wanted: Wanted, interfaces: Sequence[Interface]) -> None:
        """The controller knows that this box waits."""
        application = self._application(record, interfaces)
        body: dict[str, Any] = {**application.document(), "clock_s": self.clock()}
        if wanted.code:
            body["code_proof"] = proof(wanted.code, "box", record.pin, application.key)
        answer = link.post("/boxes", body)
        if wanted.code:
            _check_proof(answer, proof(wanted.code, "controller", record.pin, application.key))
        self.say(f"pending: box {record.id}, key {application.key[:KEY_SHOWN]}")
        self.say(f"at the controller: hyroads box adopt {record.id} --as NODE")

    def _application(self, record: Record, interfaces: Sequence[Interface]) -> Application:
        key = record.key.encode()
        public = self.system.run(Run(("openssl", "pkey", "-pubout", "-outform", "DER")), key)
        request = self.system.run(Run(("openssl", "req", "-new", "-key", "/dev/stdin", "-subj", "/CN=box")), key)
        hashes = {role: token_hash(token) for role, token in record.tokens.items()}
        digest = hashlib.sha256(public).hexdigest()
        system = self.system.operating_system()
        return Application(
            record.id, digest, token_hash(record.claim), hashes, request.decode("ascii"), system, tuple(interfaces)
        )

    def _become(self, link: Link, record: Record, own_address: str) -> int:
        """Wait to be adopted, set up, and wait until the controller sees it."""
        try:
            document = self._adopted(link, record)
        except KeyboardInterrupt:
            self.say("it still waits: the same command continues, hyroads box leave ends it")
            raise
        changes = Changes(self.system, record, self._store)
        try:
            setup = setup_of(document, f"[{link.host}]" if ":" in link.host else link.host)
            changes.record = replace(record, node=setup.node)
            present = self._present(self._interfaces(own_address))
            changes.take(plan(setup, Secrets(record.key, record.tokens), present))
            self._store(replace(changes.record, phase=Phase.JOINED))
        except (HyroadsError, KeyboardInterrupt) as error:
            self._undo(link, changes, str(error) or "interrupted")
            raise
        self.say(f"adopted as {setup.node}: waiting for its switch and agent to connect")
        return self._connected(link, record, setup.node)

    def _adopted(self, link: Link, record: Record) -> Any:
        while True:
            answer = self._ask(link, record, "adopted")
            if answer.get("state") == "left":
                self._forget()
                raise HyroadsError(f"box {record.id} has left: join again")
            if isinstance(answer.get("setup"), dict):
                return answer["setup"]
            self.sleep(PAUSE_S)

    def _connected(self, link: Link, record: Record, node: str) -> int:
        until_s, pending = self.clock() + CONNECT_WITHIN_S, ["controller"]
        while self.clock() < until_s:
            answer = self._ask(link, record, "connected", until_s)
            pending = [str(each) for each in answer.get("pending") or ()]
            if answer.get("connected") is True:
                self.say(f"{node} is connected")
                return 0
            self.sleep(PAUSE_S)
        self.say(f"{node} is set up, but not connected after {CONNECT_WITHIN_S:g} s: {', '.join(pending)}")
        return 1

    def _ask(self, link: Link, record: Record, until: str, until_s: float = math.inf) -> dict[str, Any]:
        """How this box stands. While the controller is away it is tried again, until the time ``until_s``; HyroadsError
        if it has forgotten this box.
        """
        while True:
            try:
                answer = link.post(f"/boxes/{record.id}/wait", {"claim": record.claim, "until": until})
            except UnreachableError:
                if self.clock() >= until_s:
                    return {"pending": ["controller"]}
                self.sleep(RETRY_S)
                continue
            except RefusedError as error:
                if error.status == 404 and until == "adopted":
                    self._forget()
                    raise HyroadsError(f"the controller has forgotten box {record.id}: join again") from error
                raise
            if isinstance(answer, dict):
                return answer
            raise RefusedError(502, f"{link.host}:{link.port} is no controller")

    def _present(self, interfaces: Sequence[Interface]) -> Present:
        run = self.system.run
        bridges = run(Run(("ovs-vsctl", "--timeout=10", "list-br"))).decode().split()
        certificate = run(Run(("ovs-vsctl", "--timeout=10", "get", "Open_vSwitch", ".", "ssl"))).decode().strip()
        limit = run(
            Run(("ovs-vsctl", "--timeout=10", "--if-exists", "get", "Open_vSwitch", ".", "other_config:vlan-limit"))
        )
        text = limit.decode().strip().strip('"')
        kernel = self.system.has_kernel_datapath()
        return Present(interfaces, bridges, certificate not in ("", "[]"), text or None, kernel)

    def _undo(self, link: Link, changes: Changes, problem: str) -> None:
        """A join that failed: everything is as before, and the controller knows why."""
        changes.take_back()
        line = " ".join(problem.split())[:200]
        try:
            link.post(f"/boxes/{changes.record.id}/leave", {"claim": changes.record.claim, "problem": line})
        except HyroadsError as error:
            self.say(f"{error}; forget this box at the controller: hyroads box forget {changes.record.id}")
        self._forget()

    # -- leave

    def leave(self) -> int:
        """Undo everything that join did; the exit status. HyroadsError if something can't be undone now."""
        if os.geteuid() != 0:
            raise HyroadsError("hyroads box leave: this needs root")
        record = self._record()
        if record is None:
            self._forget()
            self.say("this box has not joined")
            return 0
        record = self._taken_back(record)
        try:
            Link.of(record.url, record.pin).post(f"/boxes/{record.id}/leave", {"claim": record.claim})
        except HyroadsError as error:
            if not isinstance(error, RefusedError) or error.status != 404:
                self.say(f"{error}; forget this box at the controller: hyroads box forget {record.id}")
        self._forget()
        self.say(f"left: {record.node or record.id}")
        return 0

    # -- the record

    def _taken_back(self, record: Record) -> Record:
        changes = Changes(self.system, record, self._store)
        changes.take_back()
        return changes.record

    def _record(self) -> Record | None:
        found = self.system.read(RECORD)
        return None if found.data is None else record_of(found.data.decode("utf-8", "replace"), RECORD)

    def _store(self, record: Record) -> None:
        self.system.put(Before(RECORD, record.text().encode(), 0o600))

    def _forget(self) -> None:
        """Nothing of the join is left."""
        for path in (RECORD, f"{RECORD}.new"):
            self.system.put(Before(path, None))
        self.system.remove_folder(STATE)

    def _interfaces(self, own_address: str) -> list[Interface]:
        return self.system.interfaces(own_address)[:32]


def _usual_id(interfaces: Sequence[Interface]) -> str:
    if not interfaces:
        raise HyroadsError("this machine has no Ethernet or WiFi interface: name the box with --name")
    return box_id(interfaces[0].address)


def _check_proof(answer: Any, expected: str) -> None:
    shown = str(answer.get("code_proof", "")) if isinstance(answer, dict) else ""
    if not hmac.compare_digest(shown.encode(), expected.encode()):
        raise WrongControllerError("what answers does not know the join code: it is not the controller")
