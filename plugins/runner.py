"""A plugin's own process: reads calls from the controller, runs them one at a time, answers
(docs/reference/plugins.md).

    -> {"call": n, "do": "load" | ..., "with": {...}}        <- {"done": n, "value": ...} or {"failed": n, "what": ...}
    <- {"ask": m, "do": "request" | "view", "with": {...}}   -> {"answer": m, "value": ...} or {"refused": m, ...}

Lines of JSON on the socket that is the only argument. Whatever the plugin does here, the controller only sees lines.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import queue
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.plugins.api import App, Network, NetworkView, RequestError
from hyroads.plugins.codec import decode
from hyroads.plugins.confine import confine
from hyroads.plugins.kinds import ATTRIBUTES, PARTS, Kind
from hyroads.plugins.served import Served, serve

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


def load(kind: Kind, module: str | None, path: str | None, attribute: str | None) -> object:
    """The plugin's object, from an importable module or a file."""
    found = _file(Path(path)) if path is not None else importlib.import_module(module or "")
    plugin = getattr(found, attribute or ATTRIBUTES[kind], None)
    if plugin is None:
        raise HyroadsError(f"the module has no {attribute or ATTRIBUTES[kind]}")
    if isinstance(plugin, type):
        plugin = plugin()
    missing = sorted(part for part in PARTS[kind] if not hasattr(plugin, part))
    if missing:
        raise HyroadsError(f"{attribute or ATTRIBUTES[kind]} lacks {', '.join(missing)}")
    return plugin


def _file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"hyroads_plugin_{path.stem}", path)
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
        confine(given["memory_mb"], given["user"])
        kind = Kind(given["kind"])
        plugin = load(kind, given["module"], given["path"], given["attribute"])
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
