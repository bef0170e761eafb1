"""Supervises ``hyroads-client``, the Rust program that carries packets, and speaks to its control socket.

The program outlives the daemon if that is killed: whoever starts next finds the socket and takes the program over. A
program that ends, or does not answer, is started again after a growing pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.files.programs import program_path

from .json_lines import MAX_LINE, Document, LineError, close, encode, read

PROGRAM = "hyroads-client"
ANSWER_WITHIN_S = 3.0
START_WITHIN_S = 5.0
BACKOFF_S = (0.1, 5.0)
STEADY_S = 10.0
_LOOK_EVERY_S = 0.02


class ProgramError(HyroadsError):
    """The program can't be started, or refuses what it is asked."""


class RefusedError(ProgramError):
    """The program answered with an error, and nothing changed."""


class Program:
    """The program behind a control socket. ``ready`` is awaited whenever it is there (again); its errors end the
    connection; ``event`` takes its events.
    """

    def __init__(
        self,
        options: Sequence[str],
        control: Path,
        ready: Callable[[], Awaitable[None]],
        event: Callable[[Document], None],
        say: Callable[[str], None],
    ) -> None:
        self._options, self._control = options, control
        self._ready, self._event, self._say = ready, event, say
        self._child: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._pid: int | None = None
        self._waiting: dict[int, asyncio.Future[Document]] = {}
        self._seq = 0
        self.starts = 0

    @property
    def connected(self) -> bool:
        """Whether it can be asked."""
        return self._writer is not None

    async def keep(self) -> None:
        """Starts the program, or takes it over, and starts it again whenever it ends; for ever."""
        backoff_s = BACKOFF_S[0]
        while True:
            begun_s = time.monotonic()
            try:
                await self._connect()
                await self._serve()
            except (TimeoutError, OSError, LineError, ProgramError) as error:
                self._say(f"{PROGRAM}: {error or 'no answer'}")
            self._kill()
            if time.monotonic() - begun_s >= STEADY_S:
                backoff_s = BACKOFF_S[0]
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_S[1])

    async def request(self, document: Document) -> Document:
        """The answer; :class:`ProgramError` if it is an error, or none comes."""
        if self._writer is None:
            raise ProgramError(f"{PROGRAM} is being started, try again")
        self._seq += 1
        seq = self._seq
        self._waiting[seq] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(encode({**document, "seq": seq}))
            answer = await asyncio.wait_for(self._waiting[seq], ANSWER_WITHIN_S)
        except TimeoutError as error:
            raise ProgramError(f"no answer to {document.get('type')} within {ANSWER_WITHIN_S:g} s") from error
        finally:
            del self._waiting[seq]
        if answer.get("type") == "error":
            raise RefusedError(str(answer.get("message"))[:500])
        return answer

    async def stop(self) -> None:
        """End the program, whoever started it."""
        if self._pid is None and self._child is not None:
            self._pid = self._child.pid
        if self._pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGTERM)
        deadline_s = time.monotonic() + START_WITHIN_S
        while self._alive() and time.monotonic() < deadline_s:
            await asyncio.sleep(_LOOK_EVERY_S)
        self._kill()

    def detach(self) -> None:
        """Let it go on without us."""
        if self._writer is not None:
            self._writer.close()

    async def _connect(self) -> None:
        connection = self._existing()
        if connection is None:
            connection = await self._started()
        else:
            self._say(f"takes over the {PROGRAM} that is running")
        self._pid = _peer_of(connection)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)

    def _existing(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self._control))
        except OSError:
            connection.close()
            return None
        connection.setblocking(False)
        return connection

    async def _started(self) -> socket.socket:
        path = program_path(PROGRAM)
        if path is None:
            raise ProgramError("program not found (build it with 'make setup', or set HYROADS_BIN)")
        # A session of its own: a terminal's Ctrl-C is for us, who end it in order.
        command = [path, "--control", str(self._control), *self._options]
        self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self.starts += 1
        deadline_s = time.monotonic() + START_WITHIN_S
        while time.monotonic() < deadline_s:
            if (status := self._child.poll()) is not None:
                raise ProgramError(f"ended with status {status} as it was started")
            if (connection := self._existing()) is not None:
                return connection
            await asyncio.sleep(_LOOK_EVERY_S)
        raise ProgramError(f"{self._control} is not there within {START_WITHIN_S:g} s")

    async def _serve(self) -> None:
        """Reads answers and events until the program ends."""
        reading = asyncio.create_task(self._read())
        try:
            await self.request({"type": "watch"})
            await self._ready()
            await reading
        finally:
            reading.cancel()
            writer, self._writer = self._writer, None
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ProgramError(f"{PROGRAM} ended"))
            if writer is not None:
                await close(writer)

    async def _read(self) -> None:
        while (message := await read(self._reader)) is not None:
            if message.get("type") == "event":
                self._event(message)
                continue
            seq = message.get("seq")
            waiting = self._waiting.get(seq) if isinstance(seq, int) else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        # Who waits for an answer hears of the end at once.
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ProgramError(f"{PROGRAM} ended"))
        raise ProgramError("ended")

    def _alive(self) -> bool:
        if self._child is not None and self._child.pid == self._pid:
            return self._child.poll() is None
        try:
            os.kill(self._pid or 0, 0)
        except ProcessLookupError:
            return False
        return True

    def _kill(self) -> None:
        """What does not answer any more must be gone before another one begins."""
        for pid in {self._pid, self._child.pid if self._child is not None else None} - {None}:
            if self._child is not None and pid == self._child.pid:
                if self._child.poll() is None:
                    self._child.kill()
                self._child.wait()
            elif pid is not None and pid > 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._child, self._pid = None, None


def _peer_of(connection: socket.socket) -> int:
    """The process at the other end of a Unix socket."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", credentials)[0])


async def end_program(control: Path) -> None:
    """End a program that a daemon has left running behind this socket, if there is one."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(control))
        except OSError:
            return
        pid = _peer_of(connection)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline_s = time.monotonic() + START_WITHIN_S
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline_s:
            await asyncio.sleep(_LOOK_EVERY_S)
