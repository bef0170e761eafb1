"""The slicer's REST API on its control socket and on TCP: what it answers whom, and what it refuses at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from controller_process import eventually
from silent_dialers import served_friends
from slicer_lab import SlicerLab, slicer_lab

from hyroads.controller.cli.main import main
from hyroads.controller.core.admission import Limits
from hyroads.controller.framework.admitted import AdmittedListener
from hyroads.rest.client import ApiError, Client, ClientError, address
from hyroads.slices.core.model import token_hash
from hyroads.slices.server import http

ADMIN, VIEWER, ANN, BOB = (f"the token of {name} 0123456789" for name in ("ops", "wall", "ann", "bob"))
TOKENS = {"ops": {"token": ADMIN}, "wall": {"token": VIEWER, "role": "viewer"}}
LAB: dict[str, Any] = {
    "name": "lab",
    "owner_token_sha256": token_hash(ANN),
    "permissions": ["read", "write", "delegate"],
    "flowspace": [{"switches": [1], "ports": ["p1", "p2"]}],
}
RED: dict[str, Any] = {
    "name": "red",
    "owner_token_sha256": token_hash(BOB),
    "flowspace": [{"switches": [2], "ports": ["p1"]}],
}
PART = {"flowspace": [{"switches": [1], "ports": ["p1"]}]}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlicerLab]:
    monkeypatch.setattr("hyroads.slices.server.slicer.REFUSALS_EVERY_S", 0.05)
    with slicer_lab(tmp_path, [LAB, RED], api_tokens=TOKENS) as found:
        yield found


def status(client: Client, method: str, path: str, document: Any = None) -> int:
    try:
        return client.request(method, path, document).status
    except ApiError as error:
        assert error.problem["status"] == error.status and error.problem["detail"]
        return error.status


def names(client: Client) -> set[str]:
    return {each["name"] for each in client.listed("/slices", "slices")}


# -- the operator -----------------------------------------------------------------------------------------------------


def test_slices_are_read_changed_and_kept(tmp_path: Path) -> None:
    with slicer_lab(tmp_path, [LAB, RED]) as lab, lab.operator() as client:
        assert stat.S_IMODE((tmp_path / "control").stat().st_mode) == 0o600
        assert names(client) == {"lab", "red", "production"}
        blue = {"flowspace": [{"ports": ["p3"], "name": "third"}]}
        nothing: dict[str, list[str]] = {"added": [], "changed": [], "removed": []}
        assert client.change("PUT", "/slices/blue", blue) == {**nothing, "added": ["blue"]}
        assert client.change("PUT", "/slices/blue", blue) == nothing, "the same again changes nothing"
        assert client.change("PATCH", "/slices/blue", {"limits": {"tables": 3}})["changed"] == ["blue"]
        assert client.change("POST", "/slices/blue/flowspace", {"ports": ["p4"]})["changed"] == ["blue"]
        assert client.change("DELETE", "/slices/blue/flowspace/third")["changed"] == ["blue"]
        [rule] = client.listed("/slices/blue/flowspace", "flowspace")
        assert (rule["slice"], rule["rule"], rule["ports"]) == ("blue", 0, ["p4"])
        assert client.get("/slices/blue")["limits"]["tables"] == 3
        assert [each["slice"] for each in client.listed("/flowspace", "flowspace")] == ["lab", "red", "blue"]
        assert client.change("DELETE", "/slices/red")["removed"] == ["red"]
        assert client.get("/switches") == {"switches": [], "next": None}
    with slicer_lab(tmp_path, [LAB, RED]) as lab, lab.operator() as client:
        assert names(client) == {"lab", "blue", "production"}, "changes outlive a restart"
        assert client.change("POST", "/reload") == {"added": ["red"], "changed": [], "removed": ["blue"]}
    with slicer_lab(tmp_path, [LAB, RED]) as lab, lab.operator() as client:
        assert names(client) == {"lab", "red", "production"}, "and a reload ends them"


@pytest.mark.parametrize(
    ("method", "path", "document", "code", "words"),
    [
        ("GET", "/nothing", None, 404, "not found"),
        ("GET", "/slices/blue", None, 404, "no slice 'blue'"),
        ("DELETE", "/slices/blue", None, 404, "no slice 'blue'"),
        ("PATCH", "/slices", {}, 405, "not allowed"),
        ("GET", "/switches/0x7", None, 404, "no switch '0x7'"),
        ("GET", "/slices/blue%2F", None, 404, "not found"),
        ("DELETE", "/slices/production", None, 409, "always there"),
        ("PUT", "/slices/blue", {"flowspace": [{"priority": 0}]}, 422, "flowspace[0].priority"),
        ("PUT", "/slices/blue", {"name": "green"}, 422, "the name of the path"),
        ("PUT", "/slices/blue", {"colour": 1}, 422, "Unknown field"),
        ("PUT", "/slices/blue", {"flowspace": RED["flowspace"]}, 409, "both have priority 100"),
        ("PUT", "/slices/blue", {"parent": "lab", "flowspace": [{"ports": ["p9"]}]}, 409, "of its parent lab"),
        ("PUT", "/slices", {"slices": [RED, RED]}, 422, "duplicate slice"),
        ("POST", "/slices/red/flowspace", {"prio": 1}, 422, "Unknown field"),
        ("DELETE", "/slices/red/flowspace/7", None, 404, "no flowspace rule '7'"),
    ],
)
def test_what_is_wrong_changes_nothing(
    lab: SlicerLab, method: str, path: str, document: Any, code: int, words: str
) -> None:
    before = lab.server.slicer.model
    with lab.operator() as client, pytest.raises(ApiError) as error:
        client.request(method, path, document)
    assert error.value.status == code and words.lower() in str(error.value).lower()
    assert lab.server.slicer.model is before


def test_changes_at_once_are_made_one_after_another(lab: SlicerLab) -> None:
    def add(number: int) -> Any:
        with lab.operator() as client:
            return client.change("POST", "/slices/red/flowspace", {"switches": [3], "ports": [number]})

    with ThreadPoolExecutor(6) as pool:
        assert all(found["changed"] == ["red"] for found in pool.map(add, range(1, 19)))
    with lab.operator() as client:
        assert len(client.get("/slices/red")["flowspace"]) == 19, "none is lost"


# -- tokens and owners ------------------------------------------------------------------------------------------------


def test_tokens_and_their_roles(lab: SlicerLab) -> None:
    with lab.client(ADMIN) as admin, lab.client(VIEWER) as viewer, lab.client("nobody's token", tries=1) as nobody:
        assert admin.get("/slices/lab")["owner_token_sha256"] == LAB["owner_token_sha256"]
        assert "owner_token_sha256" not in viewer.get("/slices/lab")
        assert status(viewer, "PUT", "/slices/blue", {}) == 403 == status(viewer, "POST", "/reload")
        assert status(admin, "PUT", "/slices/blue", {}) == 200
        assert status(nobody, "GET", "/slices") == 401
    with lab.client(tries=1) as stranger:
        assert status(stranger, "GET", "/slices") == 401
        assert 429 in [status(stranger, "GET", "/slices") for _ in range(100)], "tokens are not to be guessed"


def test_without_tokens_this_machine_is_the_operator_and_owners_are_owners(tmp_path: Path) -> None:
    with slicer_lab(tmp_path, [LAB, RED]) as lab, lab.client() as client, lab.client(ANN) as ann:
        assert status(client, "PUT", "/slices/blue", {}) == 200
        assert status(ann, "DELETE", "/slices/blue") == 403
        assert status(lab.client("nobody's token"), "GET", "/slices") == 401


def test_an_owner_sees_its_own_and_of_others_the_names(lab: SlicerLab) -> None:
    lab.switch(1), lab.switch(2)
    with lab.client(ANN) as ann:
        found = {each["name"]: each for each in ann.listed("/slices", "slices")}
        assert found["red"] == {"name": "red"} and found["production"] == {"name": "production"}
        assert found["lab"]["flowspace"] and "owner_token_sha256" not in found["lab"]
        assert status(ann, "GET", "/slices/red") == 403 == status(ann, "GET", "/slices/red/flowspace")
        assert {each["slice"] for each in ann.listed("/flowspace", "flowspace")} == {"lab"}
        assert [each["dpid"] for each in ann.listed("/switches", "switches")] == ["0x1"]
        there = ann.get("/switches/0x1")
        assert there["ports"] == {"p1": 1, "p2": 2} and set(there["slices"]) == {"lab"}
        assert status(ann, "GET", "/switches/0x2") == 404


def test_an_owner_changes_only_what_is_its_own(lab: SlicerLab) -> None:
    with lab.client(ANN) as ann:
        for method, path, document in (
            ("PUT", "/slices/red", {}),
            ("PATCH", "/slices/red", {}),
            ("DELETE", "/slices/red", None),
            ("DELETE", "/slices/lab", None),
            ("POST", "/slices/lab/flowspace", {"ports": ["p9"]}),
            ("DELETE", "/slices/lab/flowspace/0", None),
            ("PATCH", "/slices/lab", {"limits": {"groups": 1001}}),
            ("PATCH", "/slices/lab", {"controllers": ["tcp:127.0.0.1:6653"]}),
            ("PATCH", "/slices/lab", {"permissions": ["read"]}),
            ("PUT", "/slices/new", {**PART, "parent": "red"}),
            ("PUT", "/slices", {"slices": []}),
            ("POST", "/reload", None),
        ):
            assert status(ann, method, path, document) == 403, (method, path)
        assert status(ann, "PATCH", "/slices/lab", {"limits": {"groups": 10}}) == 200
        assert ann.get("/slices/lab")["limits"]["groups"] == 10


def test_an_owner_gives_out_parts_of_its_slice(lab: SlicerLab) -> None:
    with lab.client(ANN) as ann, lab.client(BOB) as bob:
        assert ann.change("PUT", "/slices/part", {**PART, "owner_token_sha256": token_hash(BOB)})["added"] == ["part"]
        part = ann.get("/slices/part")
        assert part["parent"] == "lab" and part["flowspace"][0]["priority"] == 101 and part["limits"]["tables"] == 2
        assert bob.get("/slices/part") == part and status(bob, "GET", "/slices/lab") == 403
        assert status(bob, "POST", "/slices/part/flowspace", {"ports": ["p2"]}) == 403
        with pytest.raises(ApiError, match="not in the flowspace of its parent lab") as error:
            ann.change("POST", "/slices/part/flowspace", {"switches": [1], "ports": ["p3"]})
        assert error.value.status == 409
        assert ann.change("POST", "/slices/part/flowspace", {"switches": [1], "ports": ["p2"]})["changed"] == ["part"]
        assert status(bob, "PUT", "/slices/deep", {**PART, "parent": "part"}) == 409, "no permission delegate"
    with lab.operator() as operator:
        assert operator.change("DELETE", "/slices/lab")["removed"] == ["lab", "part"]


def test_each_token_has_its_rate(tmp_path: Path) -> None:
    limits = {"requests_per_s": 0.1, "burst": 5}
    with slicer_lab(tmp_path, [LAB, RED], api_tokens=TOKENS, api_limits=limits) as lab:
        ann, bob = lab.client(ANN, tries=1), lab.client(BOB, tries=1)
        assert [status(ann, "GET", "/slices") for _ in range(6)] == [200] * 5 + [429]
        assert status(bob, "GET", "/slices") == 200


def test_tls(tmp_path: Path) -> None:
    subprocess.run(
        ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=slicer", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "pem"),
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    files = {"key": "key", "certificate": "pem"}
    with slicer_lab(tmp_path, [LAB], api_tokens=TOKENS, rest_tls=files) as lab:
        with lab.client(ANN, ca=str(tmp_path / "pem")) as ann:
            assert "lab" in names(ann)
        with pytest.raises(ClientError, match="certificate"):
            lab.client(ANN, tries=1).get("/slices")
        with pytest.raises(ClientError):
            Client(f"http://127.0.0.1:{lab.rest}", ANN, tries=1).get("/slices")


# -- switches that hang, and events -----------------------------------------------------------------------------------


def test_a_switch_that_hangs_holds_up_no_other_and_is_named(lab: SlicerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyroads.slices.server.slicer.CONFIRM_WITHIN_S", 0.3)
    quick, slow = lab.switch(1), lab.switch(2)
    slow.hang()
    with lab.operator() as client:
        before = quick.entries
        rule = {"match": {"vlan_vid": 7}}
        first = client.request("POST", "/slices/red/flowspace", {**rule, "priority": 7})
        assert first.status == 202 and "switch 0x2" in first.document["pending"]
        assert eventually(lambda: quick.entries > before), "in force where it is not hung"
        before = quick.entries
        second = client.request("POST", "/slices/lab/flowspace", {**rule, "priority": 8, "switches": [1]})
        assert second.status == 202
        assert eventually(lambda: quick.entries > before), "nor is the next change held up"
        assert client.request("POST", "/slices/lab/flowspace?wait=false", {**rule, "priority": 9}).status == 202

        def confirmed() -> dict[str, bool]:
            return {each["dpid"]: each["confirmed"] for each in client.get("/switches")["switches"]}

        assert eventually(lambda: confirmed()["0x1"]) and not confirmed()["0x2"]
        slow.wake()
        for answer in (first, second):
            assert client.confirmed(answer.document)["state"] == "confirmed"
        assert eventually(lambda: all(confirmed().values()))
        # What was left out meanwhile came in one go.
        assert {each["priority"] for each in client.get("/slices/lab")["flowspace"]} == {100, 8, 9}


def test_a_change_waits_for_switches_that_are_away(lab: SlicerLab) -> None:
    gone = lab.switch(2)
    with lab.operator() as client:

        def connected() -> set[str]:
            return {each["dpid"] for each in client.get("/switches")["switches"] if each["connected"]}

        assert "0x2" in connected()
        gone.socket.shutdown(socket.SHUT_RDWR)
        assert eventually(lambda: "0x2" not in connected())
        rule = {"match": {"vlan_vid": 7}, "priority": 7}
        answer = client.request("POST", "/slices/red/flowspace", rule)
        assert answer.status == 202 and "switch 0x2" in answer.document["pending"]
        lab.switch(2)
        assert client.confirmed(answer.document)["state"] == "confirmed"


def test_a_new_slice_gets_nothing_of_one_that_a_hung_switch_still_has(
    lab: SlicerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyroads.slices.server.slicer.CONFIRM_WITHIN_S", 0.1)
    switch = lab.switch(2)
    with lab.operator() as client:
        [old] = [t.view.block for n, t in lab.server.slicer.switches[2].tenants.items() if n == "red"]
        switch.hang()
        client.request("DELETE", "/slices/red")
        client.request("PUT", "/slices/red", {**RED, "name": "red"})
        new = lab.server.slicer.allocation.blocks[2]["red"]
        assert new.number != old.number, "its tables are emptied before anything leads to them again"
        switch.wake()
        assert eventually(lambda: client.get("/switches/0x2")["confirmed"])


def test_a_hung_switch_that_goes_is_waited_for_until_it_returns(
    lab: SlicerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyroads.slices.server.slicer.CONFIRM_WITHIN_S", 0.1)
    switch = lab.switch(2)
    switch.hang()
    with lab.operator() as client:
        answer = client.request("POST", "/slices/red/flowspace", {"ports": ["p4"], "switches": [2]})
        assert answer.status == 202
        switch.socket.shutdown(socket.SHUT_RDWR)
        assert eventually(lambda: not client.get("/switches/0x2")["connected"])
        assert client.get(f"/operations/{answer.document['id']}")["pending"] == ["switch 0x2"]
        lab.switch(2)
        assert client.confirmed(answer.document)["state"] == "confirmed"
        assert client.get("/switches/0x2")["confirmed"]


def test_events_tell_owners_what_is_theirs(lab: SlicerLab) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    lab.switch(1), lab.switch(2)
    with lab.operator() as operator, lab.client(ANN) as ann, lab.client(BOB) as bob:
        operator.change("PATCH", "/slices/lab", {"controllers": [f"tcp:127.0.0.1:{port}"]})
        peer, _ = listener.accept()
        peer.sendall(b"\4\0\0\10\0\0\0\1" + b"\4\x4d\0\10\0\0\0\2")
        operator.change("PUT", "/slices/red", {**RED, "limits": {"tables": 3}})
        assert status(ann, "DELETE", "/slices/red") == 403

        def heard(client: Client) -> set[str]:
            return {event.kind for event in client.events(follow=False)}

        eventually(lambda: {"guest.connected", "guest.refused"} <= heard(operator))
        kinds = {"switch.up", "slice.changed", "guest.connected", "guest.refused", "change.refused"}
        assert kinds <= heard(operator)
        mine = list(ann.events(follow=False))
        assert {event.document.get("slice", "lab") for event in mine} == {"lab"}
        assert {event.document["switch"] for event in mine if event.kind == "switch.up"} == {"0x1"}
        refused = next(event for event in mine if event.kind == "guest.refused")
        assert refused.document["count"] == 1 and refused.document["reason"] and refused.document["switch"] == "0x1"
        theirs = list(bob.events(follow=False))
        assert {event.kind for event in theirs} == {"switch.up", "slice.changed", "change.refused"}
        peer.close()
        eventually(lambda: "guest.disconnected" in heard(ann))
        assert "guest.disconnected" not in heard(bob)
        last = next(event.id for event in mine if event.kind == "guest.refused")
        later = list(ann.events(last=last, follow=False))
        assert all(event.id > last for event in later)
        stream = ann.events("slice")
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(next, stream)
            number = itertools.count(500)
            eventually(lambda: coming.done() or not operator.change(
                "PATCH", "/slices/lab", {"limits": {"groups": next(number)}}) or coming.done())  # fmt: skip
        assert coming.result().kind == "slice.changed"
        stream.close()  # type: ignore[attr-defined]
    listener.close()


GET = b"GET /api/v1/slices HTTP/1.1\r\nHost: localhost\r\n"
PUT = b"PUT" + GET[3:]

# -- what is no request -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (GET + b"no colon\r\n\r\n", b"400"),
        (GET + b"Name : value\r\n\r\n", b"400"),
        (GET + b"A: b\r\n folded\r\n\r\n", b"400"),
        (GET + b"A: b\nB: c\r\n\r\n", b"400"),
        (GET + b"Authorization: a\r\nAuthorization: b\r\n\r\n", b"400"),
        (b"GET /api/v1/slices HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /api/v1/slices HTTP/2.0\r\nHost: a\r\n\r\n", b"400"),
        (b"GET http://a/api/v1/slices HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET /api/v1/slices HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (PUT + b"Content-Type: application/json\r\nContent-Length: 4\r\n\r\n{{{{", b"400"),
        (PUT + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", b"415"),
        (PUT + b"Content-Length: 99999999\r\n\r\n", b"413"),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n", b"411"),
        (PUT + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", b"400"),
        (PUT + b"Transfer-Encoding: gzip, chunked\r\n\r\n", b"501"),
        (b"HEAD" + PUT[3:] + b"Transfer-Encoding: chunked\r\n\r\n", b"411"),
        (PUT + b"Content-Length: -1\r\n\r\n", b"400"),
        (PUT + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", b"400"),
        (PUT + b"Content-Length: 2\r\nA: b\r\ncontent-length: 2\r\n\r\n{}", b"400"),
        (PUT + b"Content-Length: 2, 2\r\n\r\n{}", b"400"),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"A: " + b"a" * 40_000 + b"\r\n\r\n", b"431"),
        (GET + b"A: a\r\n" * 200 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"414"),
        (PUT + b"Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000, b"400"),
        (b"GET /api/v1/slices HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"200"),
    ],
)  # fmt: skip
def test_malformed_requests_get_an_answer(lab: SlicerLab, data: bytes, code: bytes) -> None:
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(20)
    peer.connect(lab.socket.removeprefix("unix:"))
    peer.sendall(data)
    head = peer.makefile("rb").readline()
    peer.close()
    assert head.split()[1] == code
    with lab.operator() as client:
        assert names(client)


def test_slow_peers_hold_no_thread_and_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("REQUEST_WITHIN_S", 1.0), ("WRITE_WITHIN_S", 1.0), ("WORKERS", 2)):
        monkeypatch.setattr(http, name, value)
    size = 1 << 24

    def application(environment: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        body = bytes(size) if environment["PATH_INFO"] == "/large" else environment["REQUEST_URI"].encode()
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    async def run() -> None:
        admitted = AdmittedListener("127.0.0.1", 0, Limits(6, 6, 10.0, each=6), lambda peer, why: None)
        server = http.HttpServer(application, 1000, {}, admitted)
        listener = await asyncio.start_server(server, sock=admitted, limit=http.MOST_HEAD)
        port = listener.sockets[0].getsockname()[1]
        peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        for _, writer in peers[:3]:
            writer.write(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        peers[3][1].write(b"GET /half")
        peers[4][1].write(b"GET /a%2Fb HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await peers[4][0].read()).endswith(b"/a%2Fb"), "three readers wait, two threads do not"
        assert await peers[3][0].read() == b"", "half a request"
        while server._serving:
            await asyncio.sleep(0.05)
        with contextlib.suppress(ConnectionError):
            assert len(await peers[0][0].read()) < size
        for _, writer in peers:
            writer.close()
        server.close()
        listener.close()
        await server.ended()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_silent_dialers_from_many_addresses_keep_no_operator_out(lab: SlicerLab) -> None:
    def friend() -> bool:
        try:
            with lab.client(ADMIN, tries=1) as client:
                return "lab" in names(client)
        except ClientError:
            return False

    assert served_friends(lab.rest, friend, friends=14) == 14


def test_a_web_page_that_names_us_in_its_own_domain_is_not_answered(tmp_path: Path) -> None:
    with slicer_lab(tmp_path, [LAB]) as lab, socket.create_connection(("127.0.0.1", lab.rest), 10) as peer:
        peer.sendall(b"GET /api/v1/slices HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert peer.makefile("rb").readline().split()[1] == b"403"


# -- commands ---------------------------------------------------------------------------------------------------------


def test_commands_over_rest(lab: SlicerLab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text(f"{ANN}\n")
    token.chmod(0o600)

    def slices(*words: str) -> Any:
        done = main(["slices", "--url", lab.url, "--token-file", str(token), "--json", *words])
        said = capsys.readouterr()
        assert done in (0, 2) and (done == 0 or len(said.err.splitlines()) == 1)
        return json.loads(said.out) if done == 0 else said.err

    assert {row["name"]: row["rules"] for row in slices("list-slices")} == {"lab": 1, "red": "-", "production": "-"}
    assert slices("add-slice", "part", "--parent", "lab")["added"] == ["part"]
    assert slices("add-flowspace", "part", "--switch", "1", "--port", "p1", "--name", "one")["changed"] == ["part"]
    assert "not in the flowspace" in slices("add-flowspace", "part", "--port", "p9")
    assert slices("list-flowspace", "part")[0]["name"] == "one"
    assert slices("remove-flowspace", "part", "one")["changed"] == ["part"]
    assert slices("update-slice", "part", "--limit", "tables=1")["changed"] == ["part"]
    assert slices("remove-slice", "part")["removed"] == ["part"]
    assert "another's" in slices("list-slice-info", "red")
    assert "only the operator" in slices("remove-slice", "lab")
    assert main(["slices", "--socket", lab.socket.removeprefix("unix:"), "list-slices"]) == 0
    assert "red" in capsys.readouterr().out
    assert address("slices", "a/b") == "/slices/a%2Fb"
