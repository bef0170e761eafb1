"""The process of a foreign plugin: started, called with deadlines, killed; its own requests are answered.

It is a process rather than a thread. A thread that loops for ever can't be ended, and holds the interpreter's lock
every other millisecond; one that takes all memory, or exits, takes the controller with it. A call costs a third of a
millisecond (docs/reference/plugins.md).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.token_bucket import TokenBucket
from hyroads.controller.framework import ryu_shim as shim
from hyroads.plugins.host import Kind as FaultKind
from hyroads.plugins.kinds import DiscoveredPlugin

MAX_LINE = 256 * 1024
MAX_ASKS = 8
ASKS_PER_S, ASKS_BURST = 50.0, 100.0
MOST_EXCUSED_S = 60.0
LAST_LOOK_S = 0.05
START_S = 10.0
SEND_S = 5.0
LOG_LINES_PER_S, LOG_BURST, LOG_LINE = 5.0, 50.0, 300
_PAGE, _TICKS_PER_S = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
PASSED_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV")

Message = Mapping[str, Any]
Answer = Callable[[str, Message], bytes]
"""Answers what a plugin asks for: JSON without line ends, or :class:`AskRefusedError`."""


class AskRefusedError(HyroadsError):
    """What a plugin asked for is not given."""

    def __init__(self, status: int, detail: str, problem: Message | None = None) -> None:
        self.document = {"status": status, "detail": detail, "problem": dict(problem or {})}
        super().__init__(detail)


class PluginFaultError(HyroadsError):
    """A plugin did not do what it was called for."""

    def __init__(self, kind: FaultKind, what: str) -> None:
        self.kind = kind
        super().__init__(what)


class PluginProcess:
    """One run of a plugin. Calls come from green threads and go one at a time."""

    def __init__(self, found: DiscoveredPlugin, answer: Answer, clock: Callable[[], float]) -> None:
        self._found = found
        self._answer = answer
        self._clock = clock
        self._log = logging.getLogger(f"hyroads.plugin.{found.name}")
        self._calling, self._sending = shim.new_lock(), shim.new_lock()
        self._bell = shim.Signal()
        self._asks = TokenBucket(ASKS_PER_S, ASKS_BURST)
        self._number = 0
        self._outcome: Message | None = None
        self._asking = 0
        self._asking_since_s = 0.0
        self._excused_s = 0.0
        self.ended: PluginFaultError | None = None
        """How it ended; None while it runs."""
        self.calls = 0
        self.call_s: deque[float] = deque(maxlen=200)
        self._connection, there = shim.socket_pair()
        with there:
            self._process = self._start(there.fileno())
        shim.spawn(self._read)
        shim.spawn(self._read_log)

    def _start(self, descriptor: int) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ}
        environment |= {"PYTHONUNBUFFERED": "1", "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(
            (sys.executable, "-P", "-m", "hyroads.plugins.runner", str(descriptor)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=(descriptor,),
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def load(self) -> Message:
        """Bounds the process, imports the plugin; what that says of itself."""
        told = self.call("load", self._found.load_document(), START_S)
        return told if isinstance(told, dict) else {}

    def call(self, do: str, arguments: Message, deadline_s: float | None = None) -> Any:
        """What the plugin answers; :class:`PluginFaultError`. A plugin that does not answer in time is killed."""
        with self._calling:
            if self.ended is not None:
                raise self.ended
            self._number += 1
            self._outcome, self._excused_s, self._asking_since_s = None, 0.0, self._clock()
            began_s = self._clock()
            self._send(json.dumps({"call": self._number, "do": do, "with": arguments}).encode())
            outcome = self._awaited(do, began_s, self._found.bounds.deadline_s if deadline_s is None else deadline_s)
            self.calls += 1
            self.call_s.append(self._clock() - began_s)
        if "failed" in outcome:
            raise PluginFaultError(FaultKind.RAISED, f"{do}: {str(outcome.get('what'))[:LOG_LINE]}")
        return outcome.get("value")

    def kill(self, why: PluginFaultError) -> None:
        """End it, whatever it does."""
        if self.ended is None:
            self.ended = why
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            shim.shut(self._connection)
            self._bell.notify()
            shim.spawn(self._reap)

    def _reap(self) -> None:
        while self._process.poll() is None:
            shim.sleep(0.01)
        self._connection.close()

    # -- calls

    def _awaited(self, do: str, began_s: float, deadline_s: float) -> Message:
        looked = False
        while self._outcome is None:
            if self.ended is not None:
                raise self.ended
            left_s = deadline_s - (self._clock() - began_s - self._excuse_s())
            if left_s > 0:
                self._bell.wait(min(left_s, 0.1) if self._asking else left_s)
            elif not looked:
                # The controller itself may have been busy: what has come meanwhile is read first.
                looked = True
                self._bell.wait(LAST_LOOK_S)
            else:
                hung = PluginFaultError(FaultKind.HUNG, f"{do}: no answer within {deadline_s:g} s")
                self.kill(hung)
                raise hung
        return self._outcome

    def _excuse_s(self) -> float:
        """For how long of this call the plugin waited for the controller."""
        running_s = self._clock() - self._asking_since_s if self._asking else 0.0
        return min(MOST_EXCUSED_S, self._excused_s + running_s)

    def _send(self, line: bytes) -> None:
        with shim.Timer(SEND_S) as timer, self._sending:
            try:
                self._connection.sendall(line + b"\n")
            except OSError as error:
                self.kill(PluginFaultError(FaultKind.EXITED, f"its connection ended: {error.strerror}"))
        if timer.fired:
            self.kill(PluginFaultError(FaultKind.HUNG, f"took nothing in for {SEND_S:g} s"))
        if self.ended is not None:
            raise self.ended

    # -- what comes from it

    def _read(self) -> None:
        reader = shim.LineReader(self._connection, MAX_LINE)
        try:
            while (line := reader.next(None)) is not None:
                self._take(line)
                shim.sleep(0)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.kill(PluginFaultError(FaultKind.WRONG, "wrote what is no message"))
        except OSError:
            pass
        self._at_end()

    def _at_end(self) -> None:
        """Its connection is closed: usually the process ended, and a moment later tells how."""
        for _ in range(20):
            if self.ended is not None or self._process.poll() is not None:
                break
            shim.sleep(0.01)
        self.kill(PluginFaultError(FaultKind.EXITED, _how(self._process.returncode)))

    def _take(self, line: bytes) -> None:
        if len(line) > MAX_LINE:
            raise ValueError("a line too long")
        message = strict_json.parse(line)
        if "ask" in message:
            self._take_ask(int(message["ask"]), str(message["do"]), dict(message["with"]))
        elif message.get("done", message.get("failed")) == self._number:
            self._outcome = message
            self._bell.notify()
        else:
            raise ValueError("an answer that nobody asked for")

    def _take_ask(self, number: int, do: str, arguments: Message) -> None:
        """Requests wait here if they come too fast, which holds up nobody but the plugin."""
        if not self._asking:
            self._asking_since_s = self._clock()
        self._asking += 1
        shim.sleep(self._asks.reserve_s(self._clock()))
        while self._asking > MAX_ASKS:
            shim.sleep(0.01)
        shim.spawn(self._serve, number, do, arguments)

    def _serve(self, number: int, do: str, arguments: Message) -> None:
        try:
            line = b'{"answer":%d,"value":%b}' % (number, self._answer(do, arguments))
        except AskRefusedError as error:
            line = json.dumps({"refused": number, **error.document}).encode()
        finally:
            self._asking -= 1
            if not self._asking:
                self._excused_s += self._clock() - self._asking_since_s
        with contextlib.suppress(PluginFaultError):
            self._send(line)

    def _read_log(self) -> None:
        """What it prints goes to the log, some lines a second."""
        output = self._process.stdout
        if output is None:
            return
        bucket, left_out, buffer = TokenBucket(LOG_LINES_PER_S, LOG_BURST), 0, b""
        with output:
            os.set_blocking(output.fileno(), False)
            while True:
                shim.wait_readable(output.fileno())
                chunk = os.read(output.fileno(), 4096)
                *whole, buffer = (buffer + chunk).split(b"\n")
                if not chunk or len(buffer) > LOG_LINE:
                    whole, buffer = [*whole, buffer], b""
                for line in filter(None, whole):
                    if bucket.take(self._clock()):
                        text = line[:LOG_LINE].decode("utf-8", "replace")
                        more = f" ({left_out} lines before were left out)" if left_out else ""
                        self._log.info("%s%s", text, more)
                        left_out = 0
                    else:
                        left_out += 1
                if not chunk:
                    return
                # A plugin that prints without end is read slowly, and waits.
                shim.sleep(0.01 if left_out else 0)


def usage(pid: int) -> tuple[float, float] | None:
    """Memory that a process holds (MiB) and processor time that it used (s); None if it is gone."""
    folder = Path("/proc") / str(pid)
    try:
        pages = int((folder / "statm").read_text().split()[1])
        times = (folder / "stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return None
    return pages * _PAGE / 2**20, (int(times[11]) + int(times[12])) / _TICKS_PER_S


def _how(status: int | None) -> str:
    if status is None:
        return "closed its connection"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
