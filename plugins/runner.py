"""A plugin's own process: reads calls from the controller, runs them one at a time, answers.

    -> {"call": n, "do": "load" | ..., "with": {...}}        <- {"done": n, "value": ...} or {"failed": n, "what": ...}
    <- {"ask": m, "do": "request" | "view", "with": {...}}   -> {"answer": m, "value": ...} or {"refused": m, ...}

Lines of JSON on the socket that is the only argument (docs/reference/plugins.md). Whatever the plugin does here, the
controller only sees lines.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import pwd
import queue
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.services.mobility import Event as MobilityEvent
from hyroads.controller.core.services.mobility import Handover, MobilityManager, Request
from hyroads.controller.core.services.view import MobilityPolicy, Wish

from .api import App, Event, Network, NetworkView, RequestError
from .codec import decode, encode
from .kinds import ATTRIBUTES, PARTS, Kind

Arguments = Mapping[str, Any]
Served = dict[str, Callable[[Arguments], object]]
MAX_WISHES = 1000


def serve(kind: Kind, plugin: object, network: Network) -> Served:
    """By name of the call."""
    match kind:
        case Kind.APP:
            return _app(cast("App", plugin), network)
        case Kind.POLICY:
            return _policy(cast("MobilityPolicy[Any]", plugin))
        case Kind.MOBILITY:
            return _manager(cast("MobilityManager", plugin))


def _app(app: App, network: Network) -> Served:
    def event(given: Arguments) -> object:
        app.on_event(network, decode(Event, given["event"]))
        return None

    return {"start": lambda _: app.start(network), "event": event, "tick": lambda _: app.tick(network)}


def _policy(policy: MobilityPolicy[Any]) -> Served:
    memory = policy.fresh()

    def decide(given: Arguments) -> object:
        nonlocal memory
        memory, wishes = policy.decide(memory, decode(NetworkView, given["view"]))
        if len(wishes) > MAX_WISHES or not all(isinstance(wish, Wish) for wish in wishes):
            raise HyroadsError(f"expected at most {MAX_WISHES} wishes")
        return encode(tuple(wishes))

    return {"decide": decide}


def _manager(manager: MobilityManager) -> Served:
    """Each step answers the new state with what is wanted and when it is due: one round trip a step."""

    def told(handover: Handover) -> object:
        if not isinstance(handover, Handover):
            raise HyroadsError(f"expected a Handover, got {type(handover).__name__}")
        state = encode(handover)
        return {"handover": state, "due_s": manager.due_s(handover), "wanted": encode(manager.wanted(handover))}

    def start(given: Arguments) -> object:
        return told(manager.start(decode(Request, given["request"]), given["now_s"]))

    def on(given: Arguments) -> object:
        event = decode(MobilityEvent, given["event"])
        return told(manager.on(decode(Handover, given["handover"]), event, given["now_s"]))

    def tick(given: Arguments) -> object:
        return told(manager.tick(decode(Handover, given["handover"]), given["now_s"]))

    return {"start": start, "on": on, "tick": tick}


NICE = 10
MAX_DESCRIPTORS = 256
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 38, 22, 2
_LOAD, _EQUALS, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _REFUSE, _UNKNOWN_CALL = 0x7FFF0000, 0x80000000, 0x00050000 | 1, 0x00050000 | 38
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000


_CLONE3 = 435
_MACHINES = {"x86_64": (0xC000003E, 56, (57, 58)), "aarch64": (0xC00000B7, 220, ())}
"""The architecture as filters name it, and the numbers of its system calls ``clone`` and those that fork."""


def confine(memory_mb: int, user: str | None) -> None:
    """Bound what this process may do to the machine, before a plugin's code is imported (Linux).

    It dies with the controller, runs after everything else that wants the processor, has bounded memory and
    descriptors, leaves no core files, and can't start processes: these would outlive it. This bounds faults, not
    malice: against that give it a user of its own. ``OSError``, ``KeyError``: it can't be done.
    """
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    if user is not None:
        account = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    # After the change of user, which takes it back.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    machine = _MACHINES.get(platform.machine())
    if machine is not None:
        _filter(libc, _no_processes(*machine))


def _no_processes(architecture: int, clone: int, forks: tuple[int, ...]) -> bytes:
    """A filter for system calls: threads may be started, processes may not.

    ``clone3`` hides its flags from filters; told that it does not exist, the C library takes ``clone``.
    """
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUALS, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUALS, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _UNKNOWN_CALL),
        (_ANY_BIT, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        *(step for number in forks for step in ((_EQUALS, 0, 1, number), (_RETURN, 0, 0, _REFUSE))),
        (_EQUALS, 1, 0, clone),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _filter(libc: ctypes.CDLL, program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    steps = ctypes.create_string_buffer(program, len(program))
    filled = Program(len(program) // 8, ctypes.cast(steps, ctypes.c_char_p))
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filled), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "the system calls of plugins can't be bounded")


MAX_TEXT = 300


class Channel:
    """Lines in both directions. The reader is a thread: answers come in while a call is under way."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._asked = 0
        self.calls: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def send(self, message: Mapping[str, object]) -> None:
        """One line; ``ValueError``, ``TypeError`` if it is no JSON."""
        line = json.dumps(message).encode() + b"\n"
        with self._sending:
            self._connection.sendall(line)

    def ask(self, what: str, **arguments: object) -> Any:
        """Something of the controller; waits for the answer."""
        answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        with self._sending:
            self._asked += 1
            number = self._asked
            self._waiting[number] = answers
        self.send({"ask": number, "do": what, "with": arguments})
        answer = answers.get()
        if "refused" in answer:
            raise RequestError(answer["status"], answer["detail"], answer.get("problem"))
        return answer["value"]

    def read(self) -> None:
        """Until the controller is gone."""
        with self._connection.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if "call" in message:
                    self.calls.put(message)
                else:
                    number = message.get("answer", message.get("refused"))
                    self._waiting.pop(number).put(message)
        self.calls.put(None)


class Remote(Network):
    """The network over the channel."""

    def __init__(self, channel: Channel, settings: Mapping[str, Any]) -> None:
        self._channel = channel
        self._settings = MappingProxyType(dict(settings))

    @property
    def settings(self) -> Mapping[str, Any]:
        """See :class:`Network`."""
        return self._settings

    def view(self) -> NetworkView:
        """See :class:`Network`."""
        view = decode(NetworkView, self._channel.ask("view"))
        assert isinstance(view, NetworkView)  # noqa: S101 - what decode gives for this type
        return view

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """See :class:`Network`."""
        return self._channel.ask("request", method=method, path=path, body=None if body is None else dict(body))


def load(
    kind: Kind, module: str | None, path: str | None, attribute: str | None, source: bytes | None = None
) -> object:
    """The plugin's object, from an importable module or a file, whose text is ``source`` if that was read already."""
    found = _file(Path(path), source) if path is not None else importlib.import_module(module or "")
    plugin = getattr(found, attribute or ATTRIBUTES[kind], None)
    if plugin is None:
        raise HyroadsError(f"the module has no {attribute or ATTRIBUTES[kind]}")
    if isinstance(plugin, type):
        plugin = plugin()
    missing = sorted(part for part in PARTS[kind] if not hasattr(plugin, part))
    if missing:
        raise HyroadsError(f"{attribute or ATTRIBUTES[kind]} lacks {', '.join(missing)}")
    return plugin


class _Loader(importlib.machinery.SourceFileLoader):
    """Of a file that was read already."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        super().__init__(name, str(path))
        self._source = source

    def get_data(self, path: str) -> bytes:
        """The text; what else is asked for is read."""
        return self._source if path == self.path else super().get_data(path)


def _file(path: Path, source: bytes | None) -> ModuleType:
    name = f"hyroads_plugin_{path.stem}"
    loader = None if source is None else _Loader(name, path, source)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise HyroadsError("the file is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # What lies beside it can be imported, as by a program.
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


class Runner:
    """Runs calls until the controller is gone."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._served: Served = {"load": self._load}

    def run(self) -> None:
        """For ever."""
        while (call := self._channel.calls.get()) is not None:
            self._channel.send(self._outcome(call))

    def _outcome(self, call: Mapping[str, Any]) -> dict[str, object]:
        number = call["call"]
        try:
            value = self._served[call["do"]](call["with"])
            json.dumps(value)
        except BaseException as error:  # noqa: BLE001 - whatever a plugin raises is the answer
            return {"failed": number, "what": text_of(error)}
        return {"done": number, "value": value}

    def _load(self, given: Mapping[str, Any]) -> object:
        # Read by whom the controller runs as: the user that the plugin is given need not be able to read its file.
        source = None if given["path"] is None else Path(given["path"]).read_bytes()
        confine(given["memory_mb"], given["user"])
        kind = Kind(given["kind"])
        plugin = load(kind, given["module"], given["path"], given["attribute"], source)
        self._served = serve(kind, plugin, Remote(self._channel, given["settings"]))
        return {"name": str(getattr(plugin, "name", ""))[:MAX_TEXT], **_wishes(plugin)}


def _wishes(plugin: object) -> dict[str, object]:
    if not isinstance(plugin, App):
        return {}
    every_s = plugin.every_s
    events = [plugin.events] if isinstance(plugin.events, str) else plugin.events
    return {"events": [str(kind) for kind in events], "every_s": None if every_s is None else float(every_s)}


def text_of(error: BaseException) -> str:
    """What an exception says, bounded; even that may raise."""
    try:
        return f"{type(error).__name__}: {error}"[:MAX_TEXT]
    except BaseException:  # noqa: BLE001 - see above
        return type(error).__name__[:MAX_TEXT]


def main(arguments: list[str]) -> int:
    """The process: its argument is the number of the socket."""
    with socket.socket(fileno=int(arguments[0])) as connection:
        connection.setblocking(True)
        channel = Channel(connection)
        threading.Thread(target=channel.read, daemon=True).start()
        Runner(channel).run()
    # Threads that the plugin left behind are not waited for.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
