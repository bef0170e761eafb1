"""The server that the other tests use answers as FlowVisor 1.4 did: all of its recorded calls, in their order."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fake_flowvisor
from fake_flowvisor import FakeFlowVisor
from fake_flowvisor_https import certificate, served

FOLDER = Path(fake_flowvisor.__file__).parent
FIRST, SECOND = (
    json.loads((FOLDER / name).read_text())["calls"] for name in ("flowvisor-1.4.json", "flowvisor-1.4-more.json")
)
# What the real one drew at random when it was recorded, and how it was set up.
RANDOM_NAME = "17de877d-4e9c-48b1-b03a-b8e78caaa759"
SALTS = {"fvadmin": "1734881502", "b": "282626468"}
RECORDED_PASSWORD = "opsecret"
CUT_AT = 1500
# Of most additions the recording only says that they came to the end that was expected; an update has no status.
AS_EXPECTED = {"add-flowspace": [200, "SUCCESS"], "update-flowspace": [200, "UNKNOWN"]}
POLLS = 3

Post = Callable[[str, Any], tuple[int, Any]]


def poster(url: str, pem: Path) -> tuple[HTTPSConnection, Post]:
    """A connection, and a function that posts a call: HTTP status, and result, error or the bytes of the body."""
    connection = HTTPSConnection(urlsplit(url).netloc, context=ssl.create_default_context(cafile=str(pem)), timeout=5)
    login = base64.b64encode(f"fvadmin:{RECORDED_PASSWORD}".encode()).decode()

    def post(method: str, parameters: Any) -> tuple[int, Any]:
        request = {"jsonrpc": "2.0", "id": 1, "method": method}
        request |= {} if parameters is None else {"params": parameters}
        connection.request("POST", "/", json.dumps(request), {"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        body = answer.read()
        if not body:
            return answer.status, str(body)
        document = json.loads(body)
        return answer.status, document["result"] if "result" in document else document["error"]

    return connection, post


def plain(method: str, result: Any) -> Any:
    """As recorded: without numbers that depend on what was there before."""
    if method in ("add-flowspace", "update-flowspace") and isinstance(result, int):
        return "ID"
    if method == "list-flowspace" and isinstance(result, list):
        return [{key: value for key, value in entry.items() if key != "id"} for entry in result]
    return result


def followed(post: Post, before: tuple[int, Any]) -> list[Any]:
    """What becomes of an addition: its status once it is no longer pending, or why there is none."""
    status, number = before
    if not isinstance(number, int):
        return ["noid", number]
    answer = (status, "PENDING")
    for _ in range(POLLS):
        answer = post("list-fs-status", {"fs-id": number})
        if answer[1] != "PENDING":
            break
    return list(answer)


def test_each_recorded_call_is_answered_as_by_the_real_one(tmp_path: Path) -> None:
    fake = FakeFlowVisor(password=RECORDED_PASSWORD, salts=SALTS, draw_name=lambda: RANDOM_NAME, openflow_port=46633)
    pem = certificate(tmp_path)
    same: list[int] = []
    other: list[tuple[int, str, Any, Any]] = []
    before: tuple[int, Any] = (0, None)
    method = ""
    with served(fake, pem) as url:
        connection, post = poster(url, pem)
        for number, call in enumerate(FIRST + SECOND):
            # The real one listened elsewhere when it was recorded for the second time.
            fake.api_port = 48081 if number < len(FIRST) else 8081
            if "params" in call:
                method = call["call"]
                before = post(method, call["params"])
                answer: Any = [before[0], plain(method, before[1])]
            else:
                answer = followed(post, before)
            wanted = call["answer"]
            if call.get("answer_cut"):
                answer = json.dumps(answer, sort_keys=True)[:CUT_AT]
            elif wanted == "as expected by the fake":
                wanted = AS_EXPECTED[method]
            if answer == wanted:
                same.append(number)
            else:
                other.append((number, call["call"], wanted, answer))
        connection.close()
    assert not other
    assert len(same) == 111 + 77


def test_the_recordings_are_whole() -> None:
    assert (len(FIRST), len(SECOND)) == (111, 77)
    assert {call["call"] for call in FIRST if "params" in call} >= {"add-slice", "list-flowspace", "save-config"}
    assert {json.dumps(call.get("params")) for call in SECOND} >= {'{"show-disabled": true}'}
