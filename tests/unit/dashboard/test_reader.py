"""The dashboard's reader: documents that pages want, read from a controller that answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from hyroads.dashboard.reader import Reader, Source

PATH, PREFIX = "/boxes", "http://controller/api/v1"
WITHIN_S = 5.0


@asynccontextmanager
async def reading(reader: Reader, answer: Callable[[], httpx.Response]) -> AsyncIterator[None]:
    """The reader reads documents; ``answer`` gives what the controller answers for :data:`PATH`."""

    def handle(request: httpx.Request) -> httpx.Response:
        return answer() if request.url.path.endswith(PATH) else httpx.Response(503)

    transport = httpx.MockTransport(handle)
    async with httpx.AsyncClient(transport=transport, base_url=PREFIX) as http:
        task = asyncio.create_task(reader._documents(http))
        try:
            yield
        finally:
            task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_document_is_read_again_at_once_after_a_change() -> None:
    # The clock stands still, so the next regular reading never comes.
    reader, answered = Reader(Source("http://controller"), lambda: 0.0), []

    def answer() -> httpx.Response:
        answered.append(len(answered))
        return httpx.Response(200, json={"boxes": list(answered)})

    async def run() -> None:
        with reader.subscribe(PATH) as page:
            async with reading(reader, answer):
                await until(lambda: len(answered) == 1)
                reader.read_again(page.wanted)
                await until(lambda: reader.state.documents.get(PATH) == {"boxes": [0, 1]})

    asyncio.run(run())


def test_reason_is_known_while_the_controller_has_no_such_document() -> None:
    reader, problem = Reader(Source("http://controller"), lambda: 0.0), {"detail": "it has no setting boxes"}

    async def run() -> None:
        with reader.subscribe(PATH) as page:
            async with reading(reader, lambda: httpx.Response(404, json=problem)):
                await until(lambda: PATH in reader.state.refusals)
                assert (await page.next(WITHIN_S)).documents == {PATH}

    asyncio.run(run())
    assert reader.state.refusals == {PATH: "it has no setting boxes"}
