"""The control socket: what it answers, and what it refuses before anything happens."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hyroads.slices.errors import SliceError
from hyroads.slices.server.client import ControlClient
from hyroads.slices.server.run import Server
from hyroads.slices.server.settings import load

RED = {"name": "red", "flowspace": [{"ports": ["p1"]}]}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "slicer.json"
    path.write_text(json.dumps({"slices": [RED], "state_file": "state", "listen": {"control": "control"}}))
    return path


def with_server(config: Path, work: Callable[[Server, ControlClient], Awaitable[None]]) -> None:
    async def serve() -> None:
        server = Server(str(config), load(str(config)))
        control = await server.open_control()
        assert control is not None
        async with control:
            await work(server, ControlClient(str(config.parent / "control")))
            server.save()

    asyncio.run(serve())


async def ask(client: ControlClient, *words: str, document: Any = None) -> Any:
    return await asyncio.to_thread(client.ask, *words, document=document)


def test_slices_are_read_changed_and_kept(config: Path) -> None:
    async def change(_: Server, client: ControlClient) -> None:
        assert stat.S_IMODE((config.parent / "control").stat().st_mode) == 0o600
        assert {each["name"] for each in (await ask(client, "GET", "slices"))["slices"]} == {"red", "production"}
        blue = {"flowspace": [{"ports": ["p2"]}]}
        assert (await ask(client, "PUT", "slices", "blue", document=blue))["added"] == ["blue"]
        assert (await ask(client, "DELETE", "slices", "red"))["removed"] == ["red"]
        assert (await ask(client, "GET", "slices", "blue"))["name"] == "blue"
        assert (await ask(client, "GET", "switches")) == {"switches": []}

    async def still(server: Server, client: ControlClient) -> None:
        assert set(server.slicer.model.slices) == {"blue", "production"}, "changes outlive a restart"
        assert (await ask(client, "POST", "reload"))["added"] == ["red"]

    async def fresh(server: Server, _: ControlClient) -> None:
        assert set(server.slicer.model.slices) == {"red", "production"}, "and a reload ends them"

    for work in (change, still, fresh):
        with_server(config, work)


@pytest.mark.parametrize(
    ("words", "document", "expected"),
    [
        (("GET", "nothing"), None, "expected /slices"),
        (("GET", "slices", "blue"), None, "no slice 'blue'"),
        (("PATCH", "slices"), None, "expected GET or PUT"),
        (("GET", "switches", "7"), None, "no switch '7'"),
        (("DELETE", "slices", "production"), None, "always there"),
        (("PUT", "slices", "blue"), {"flowspace": [{"priority": 0}]}, "flowspace[0].priority"),
        (("PUT", "slices", "blue"), {"name": "green"}, "the name of the path"),
        (("PUT", "slices", "blue"), [1], "expected a mapping"),
        (("PUT", "slices", "blue"), RED | {"name": "blue"}, "both have priority 100"),
        (("PUT", "slices"), {"slices": [RED, RED]}, "duplicate slice"),
    ],
)
def test_what_is_wrong_changes_nothing(config: Path, words: tuple[str, ...], document: Any, expected: str) -> None:
    async def work(server: Server, client: ControlClient) -> None:
        before = server.slicer.model
        with pytest.raises(SliceError) as error:
            await ask(client, *words, document=document)
        assert expected in str(error.value) and server.slicer.model is before

    with_server(config, work)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"PUT /slices HTTP/1.1\r\nContent-Length: 4\r\n\r\n{{{{", b"400"),
        (b"PUT /slices HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"PUT /slices HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"PUT /slices HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"411"),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"PUT /slices HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000, b"400"),
    ],
)
def test_malformed_requests_get_an_answer(config: Path, data: bytes, status: bytes) -> None:
    async def work(_: Server, client: ControlClient) -> None:
        reader, writer = await asyncio.open_unix_connection(str(config.parent / "control"))
        writer.write(data)
        head = await asyncio.wait_for(reader.readline(), 5)
        assert head.split()[1] == status
        writer.close()
        assert await ask(client, "GET", "slices")

    with_server(config, work)
