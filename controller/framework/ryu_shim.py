"""The only module that imports Ryu; os-ken has the same shape and takes its place where :mod:`.launcher` chooses it.

Gives the rest of the controller: the base class of the application, :func:`on` for handlers, green threads and sockets,
the OpenFlow connection as a small :class:`Connection`, and :func:`guard_parser`, which stands in front of the
framework's message parser.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

from hyroads.controller.core.errors import OpenFlowError

from . import places
from .launcher import FRAMEWORK, prepare_eventlet

prepare_eventlet()


def _load(name: str) -> Any:
    return import_module(f"{FRAMEWORK}.{name}")


eventlet = import_module("eventlet")
_select: Any = eventlet.patcher.original("select")
_GreenSocket: Any = import_module("eventlet.greenio").GreenSocket
import_module("eventlet.tpool")
hub = _load("lib.hub")
_ofproto_parser = _load("ofproto.ofproto_parser")
ofproto = _load("ofproto.ofproto_v1_3")
_parser = _load("ofproto.ofproto_v1_3_parser")
ofp_event = _load("controller.ofp_event")
_handler = _load("controller.handler")
# Before the controller, which it imports: the other way round is a circle.
_manager = _load("base.app_manager")
_controller = _load("controller.controller")
CONF = _load("cfg").CONF

AppBase: Any = getattr(_manager, "RyuApp", None) or _manager.OSKenApp
OPENFLOW_VERSIONS = [ofproto.OFP_VERSION]
MAIN, DEAD = _handler.MAIN_DISPATCHER, _handler.DEAD_DISPATCHER

shut = places.shut
LOOKS = 20
"""Silent switches are looked for so often in the time after which each is asked for a sign of life."""
Handler = TypeVar("Handler", bound=Callable[..., None])
Item = TypeVar("Item")


def on(event: Any, dispatchers: Sequence[str]) -> Callable[[Handler], Handler]:
    """Register a method of the application for an event of the framework."""
    register: Callable[[Handler], Handler] = _handler.set_ev_cls(event, list(dispatchers))
    return register


class Connection:
    """One OpenFlow connection: what the controller needs of the framework's datapath, and nothing else."""

    def __init__(self, datapath: Any) -> None:
        self.datapath = datapath
        """The framework's object, for this module."""
        self.key = id(datapath)
        """Identity of the connection (not of the switch)."""

    @property
    def dpid(self) -> int:
        """Datapath id of the switch."""
        return int(self.datapath.id)

    @property
    def peer(self) -> str:
        """Where it comes from, for logs."""
        address = self.datapath.address
        return f"{address[0]}:{address[1]}" if isinstance(address, tuple) and len(address) > 1 else "local"

    def ports(self) -> dict[str, int]:
        """Names of ports that are up -> OpenFlow port number."""
        return {
            port.name.decode("ascii", "replace"): number
            for number, port in (self.datapath.ports or {}).items()
            if number <= ofproto.OFPP_MAX
            and not port.config & ofproto.OFPPC_PORT_DOWN
            and not port.state & ofproto.OFPPS_LINK_DOWN
        }

    def addresses(self) -> dict[str, str]:
        """Names of all ports -> MAC address, as the switch reports it."""
        ports = (self.datapath.ports or {}).items()
        return {
            port.name.decode("ascii", "replace"): port.hw_addr for number, port in ports if number <= ofproto.OFPP_MAX
        }

    def send(self, data: bytes) -> bool:
        """Send bytes (whole messages), or queue what there is no room for; False if the connection is closing."""
        return _send(self.datapath, data)

    def authenticated(self, name: str) -> bool:
        """The switch is this one of ours. False: another connection has taken its place, and it ends."""
        return bool(self.datapath.socket.place.authenticated(name))

    def has_unread(self) -> bool:
        """Whether the switch has said something that was not read yet."""
        return bool(self.datapath.socket.has_unread())

    def close(self) -> None:
        """Drop the connection; the switch dials again by itself."""
        self.datapath.close()
        with contextlib.suppress(OSError):
            self.datapath.socket.shutdown(socket.SHUT_RDWR)


def _send(datapath: Any, data: bytes) -> bool:
    # To wake its green thread for each message costs more than to send it. Nothing may overtake what waits.
    if datapath.send_q is not None and not datapath.send_q.qsize():
        data = datapath.socket.send_now(data)
    return not data or bool(datapath.send(data))


def guard_parser(check: Callable[[Any, bytes], bool], failed: Callable[[Any, OpenFlowError], None]) -> None:
    """Put ``check(datapath, message)`` in front of the parser: False means that the message must not be parsed.

    The framework calls the parser through its module, so that replacing the name there is enough. It would log all of a
    message that its parser fails with, and more; instead ``failed(datapath, error)`` is told.
    """

    def guarded(  # noqa: PLR0917 - the framework's signature
        datapath: Any, version: int, kind: int, length: int, xid: int, data: Any
    ) -> Any:
        message = bytes(data)
        if not check(datapath, message):
            return None
        try:
            return parse_message(datapath, message)
        except OpenFlowError as error:
            failed(datapath, error)
            return None

    _ofproto_parser.msg = guarded


def parse_message(datapath: Any, message: bytes) -> Any:
    """A message that the guard let through, as the framework's parser gives it; OpenFlowError if that fails."""
    version, kind, length, xid = _ofproto_parser.header(message)
    try:
        return _parser.msg_parser(datapath, version, kind, length, xid, message)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"[:200]
        raise OpenFlowError(f"type {kind}, {length} bytes: the parser fails: {what}") from error


_CONTROLLER_2 = 37


def parse_flow(message: bytes, place: int) -> Any:
    """One rule of an answer with statistics of rules."""
    # It fails on an action ``controller`` with a meter. One that it does not know it shows with its bytes.
    _parser.NXActionController2.__base__._subtypes.pop(_CONTROLLER_2, None)
    rule = _parser.OFPFlowStats.parser(message, place)
    for instruction in rule.instructions:
        for action in getattr(instruction, "actions", ()):
            # The framework knows Open vSwitch's encap and decap, but has no words for them and asks for their bytes.
            if action.cls_action_type == ofproto.OFPAT_EXPERIMENTER and not hasattr(action, "data"):
                text = bytearray()
                action.serialize(text, 0)
                action.data = bytes(text[10:])
    return rule


def port_mac(connection: Connection, number: int) -> str:
    """The MAC of a switch's port."""
    port = connection.datapath.ports.get(number)
    return str(port.hw_addr) if port is not None else "00:00:00:00:00:00"


def ask_switch(
    connection: Connection, what: str, waiters: dict[int, Any], arguments: Mapping[str, Any]
) -> tuple[Any, bool]:
    """What ``ofctl_v1_3.get_...`` makes of a switch's answer, and whether there was any within its time.

    ``waiters[dpid][xid]`` is where whoever hears switches puts answers. ValueRefusedError: a filter that is none.
    """
    ofctl = _load("lib.ofctl_v1_3")
    datapath = connection.datapath
    told: list[Any] = []

    class Watched(dict[int, Any]):
        """Remembers where answers go; the framework's functions do not tell."""

        def __setitem__(self, xid: int, waiting: Any) -> None:
            told.append(waiting)
            super().__setitem__(xid, waiting)

    waiters[datapath.id] = Watched()
    answer = getattr(ofctl, f"get_{what}")(datapath, waiters, **arguments)
    return answer, any(done.is_set() for done, _ in told)


def match_problem(connection: Connection, match: Mapping[str, Any]) -> str | None:
    """What is wrong with a match in the framework's notation; None: nothing."""
    try:
        made = _load("lib.ofctl_v1_3").to_match(connection.datapath, dict(match))
        made.serialize(bytearray(), 0)
        if len(made.to_jsondict()["OFPMatch"]["oxm_fields"]) < len(match):
            return "expected fields that Ryu knows"
    except Exception as error:  # noqa: BLE001 - its converters raise whatever their parsers do
        return f"{type(error).__name__}: {error}"[:200]
    return None


def other_applications(own: str) -> list[str]:
    """Modules of the applications that this process runs beside those of the package ``own`` and the framework's own
    handler of connections. Complete once the manager starts the first application.
    """
    modules = {str(type(app).__module__) for app in _manager.SERVICE_BRICKS.values()}
    return sorted(name for name in modules if not name.startswith((f"{own}.", f"{FRAMEWORK}.controller.")))


def set_defaults(**values: object) -> None:
    """Defaults of the framework's options; what the command line says wins."""
    for name, value in values.items():
        if value is not None:
            CONF.set_default(name, value)


sleep: Callable[[float], None] = hub.sleep
"""Let others run, for so many seconds."""
later: Callable[[float, Callable[[], object]], object] = eventlet.spawn_after
"""Call a function after so many seconds, in a green thread of its own."""


def spawn(function: Callable[..., object], *arguments: object) -> Any:
    """A green thread; an exception that leaves it is logged by the framework."""
    return hub.spawn(function, *arguments)


def cooperatively(
    items: Iterable[Item], every: int = 50, pause_s: float = 0.0, wait: Callable[[], object] = lambda: None
) -> Iterator[Item]:
    """The items; lets other green threads run now and then, and leaves the processor to them for ``pause_s``, and as
    long as ``wait`` takes.
    """
    for number, item in enumerate(items, start=1):
        yield item
        if number % every == 0:
            sleep(pause_s)
            wait()


# How long a thread may keep the green threads waiting each time that they want to go on, and they a thread: each of
# them gives the interpreter away in nearly every operation on a large array, and then has to get it back.
sys.setswitchinterval(0.0001)


def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function returns, run in a thread of the system while green threads go on; it must touch nothing of
    theirs.
    """
    return eventlet.tpool.execute(function, *arguments)


def is_green() -> bool:
    """Whether this is called in the thread that has all green threads, and not in another one of the system."""
    return bool(original("threading").get_ident() == _MAIN)


original: Callable[[str], Any] = import_module("eventlet.patcher").original
"""A module of the standard library as it is without green threads (``socket``, ``time``), for threads of the system."""


_MAIN = original("threading").main_thread().ident

BACKGROUND_NICE = 10
"""The priority of work that may take long, as of ``nice``."""


def start_thread(function: Callable[..., object], *arguments: object, name: str) -> None:
    """A thread of the system, which ends with the process; what it calls must not touch green threads."""
    original("threading").Thread(target=function, args=arguments, name=name, daemon=True).start()


class Background:
    """A thread of the system for work that may take long: it has the processor when nobody else wants it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_begun = False
        self._work: Any = original("queue").SimpleQueue()

    def run(self, function: Callable[..., Any], *arguments: object) -> Any:
        """As :func:`in_thread`; one after the other."""
        if not self._is_begun:
            self._is_begun = True
            start_thread(self._serve, name=self._name)
        return in_thread(self._wait, function, arguments)

    def _wait(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        found: Any = original("queue").SimpleQueue()
        self._work.put((function, arguments, found))
        result, error = found.get()
        if error is not None:
            raise error
        return result

    def _serve(self) -> None:
        # Of this thread alone.
        os.setpriority(os.PRIO_PROCESS, original("threading").get_native_id(), BACKGROUND_NICE)
        while True:
            function, arguments, found = self._work.get()
            try:
                found.put((function(*arguments), None))
            except Exception as error:  # noqa: BLE001 - whoever wants it done gets it
                found.put((None, error))


class Gate:
    """Holds threads of the system up while green threads have something urgent to do."""

    def __init__(self) -> None:
        self._is_open = original("threading").Event()
        self.open()

    def open(self) -> None:
        """Who waits goes on."""
        self._is_open.set()

    def close(self) -> None:
        """Who comes now waits."""
        self._is_open.clear()

    def wait(self, timeout_s: float) -> None:
        """Wait in a thread of the system until it is open; so long at most."""
        self._is_open.wait(timeout_s)


def let_threads_log() -> None:
    """Let threads of the system log, too: handlers that exist, and those to come, have locks of the system.

    A lock of green threads wakes whoever waits for it in the wrong thread, or never; then nobody logs any more, and
    nobody who wants to goes on. No handler gives way to other green threads while it has its lock.
    """
    threading = original("threading")
    logging.threading = threading  # type: ignore[attr-defined]
    logging._lock = threading.RLock()  # type: ignore[attr-defined]
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]
        handler = reference()
        if handler is not None:
            handler.createLock()


class Mailbox:
    """Items from threads of the system for one green thread, in order."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._reader, self._writer = os.pipe()
        for descriptor in (self._reader, self._writer):
            os.set_blocking(descriptor, False)
        self._write = original("os").write

    def put(self, item: object) -> None:
        """From any thread."""
        self._items.append(item)
        # A full pipe wakes as well.
        with contextlib.suppress(BlockingIOError):
            self._write(self._writer, b"\0")

    def take(self) -> Iterator[Any]:
        """The items that are there, once there are some; other green threads run meanwhile."""
        while not self._items:
            wait_readable(self._reader)
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 4096)
        while self._items:
            yield self._items.popleft()


def signals(numbers: Sequence[int]) -> Iterator[int]:
    """These signals as they come, from now on, for the green thread that asks for the next one."""
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    # The hub sleeps in a system call, which a handler of Python's does not end; what is in the pipe does.
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        # The wakeup descriptor has it.
        signal.signal(number, lambda _number, _frame: None)

    def received() -> Iterator[int]:
        while True:
            wait_readable(reader)
            with contextlib.suppress(BlockingIOError):
                # Other signals that Python handles are told here, too.
                yield from (number for number in os.read(reader, 64) if number in numbers)

    return received()


def let_end(numbers: Iterable[int]) -> None:
    """From now on these signals end the process at once."""
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def _exit(_number: int, _frame: object) -> None:
    raise SystemExit(0)


def end_by(number: int) -> None:
    """End the process: by SIGTERM with status 0, by an interrupt as that does by itself."""
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _exit)
    # In the hub, where either ends the manager and not one green thread.
    eventlet.hubs.get_hub().schedule_call_global(0, os.kill, os.getpid(), number)


def wait_readable(descriptor: int) -> None:
    """Let other green threads run until there is something to read from a pipe (or its end)."""
    eventlet.hubs.trampoline(descriptor, read=True)


new_queue, QueueFull = eventlet.queue.LightQueue, eventlet.queue.Full
"""A bounded queue between green threads, and what its ``put_nowait`` raises."""
new_event = eventlet.event.Event
"""What one green thread waits for (``wait``) until another one has it (``send``, ``send_exception``)."""
new_lock = eventlet.semaphore.Semaphore
"""A lock between green threads."""


class Signal:
    """An event for green threads that may be set again and again; waiting has a bound."""

    def __init__(self) -> None:
        self._event = eventlet.event.Event()

    def notify(self) -> None:
        """Wake all who wait now."""
        event, self._event = self._event, eventlet.event.Event()
        event.send(None)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the next :meth:`notify`; False after the time is over."""
        event = self._event
        with Timer(timeout_s) as timer:
            event.wait()
        return not timer.fired


def listen(host: str, port: int) -> Any:
    """A listening TCP socket for green threads; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # All devices of a network dial at once when the controller starts; the kernel bounds the number by its own.
    return eventlet.listen((host, port), family=family, backlog=4096, reuse_port=False)


def socket_pair() -> tuple[Any, socket.socket]:
    """Two connected sockets: one for green threads, one for another process, which inherits it."""
    here, there = import_module("eventlet.green.socket").socketpair()
    return here, socket.socket(fileno=there.detach())


def accept(listener: Any) -> tuple[Any, Any]:
    """The next connection and its peer's address. Failures pass (no descriptors left, a peer that has gone again)."""
    while True:
        try:
            connection, address = listener.accept()
        except OSError as error:
            logging.getLogger("hyroads.controller").warning("can't accept a connection: %s", error.strerror)
            sleep(0.1)
        else:
            return connection, address


def replace_switch_server(serve: Callable[[Callable[[Any, Any], None]], None]) -> None:
    """``serve(handle)`` accepts switches in place of the framework, in a green thread of its own.

    ``handle(socket, address)`` runs one connection.
    """

    class Server:
        def __init__(self, _address: object, handle: Callable[[Any, Any], None], **_tls: object) -> None:
            self.serve_forever = lambda: serve(handle)

    _controller.StreamServer = Server


def look_after_switches(take: Callable[[Any, bytes], object], echo: bytes, *, echo_s: float, dead_s: float) -> None:
    """Sockets of switches (``switches.reading``) say for how long nobody has heard anything. After ``echo_s`` a switch
    is asked by the message ``echo``, after ``dead_s`` its connection ends. Takes the place of the framework's own
    echoes, and of a green thread for each: it counts those that were not answered, also if it was itself too busy to
    read the answers.

    ``take(datapath, message)`` is given counters of ports; see there.
    """
    watched: deque[tuple[float, Any]] = deque()
    """All of them, each with when it is looked at next, in this order."""
    runs: list[Any] = []

    def watch(datapath: Any) -> None:
        datapath.socket.take = partial(take, datapath)
        watched.append((time.monotonic() + echo_s, datapath))
        if not runs:
            runs.append(spawn(look_at_all))

    def look_at_all() -> None:
        while True:
            sleep(echo_s / LOOKS)
            while watched and watched[0][0] <= time.monotonic():
                due_s, datapath = watched.popleft()
                if lives(datapath):
                    watched.append((due_s + echo_s, datapath))
                else:
                    datapath.close()
                    datapath.socket.wake()

    def lives(datapath: Any) -> bool:
        if not datapath.send_q or datapath.state == DEAD:
            return False
        silent_s = datapath.socket.silence_s()
        if silent_s > dead_s and not datapath.socket.has_unread():
            logging.getLogger("hyroads.controller").warning("a switch is silent for %.1f s", silent_s)
            return False
        if silent_s >= echo_s:
            # Where something waits to be sent nobody else does.
            is_free = not datapath.send_q.qsize()
            left = datapath.socket.send_now(echo) if is_free else echo
            if left:
                spawn(datapath.send, left) if left == echo else datapath.send(left)
        return True

    _controller.Datapath._echo_request_loop = watch


def has_unread(connection: Any) -> bool:
    """Whether something has come over a socket, or its end, that nobody has read yet."""
    descriptor = connection.fileno()
    if descriptor < 0:
        return False
    poll = _select.poll()
    poll.register(descriptor, _select.POLLIN)
    return bool(poll.poll(0))


def receives_now(connection: Any) -> Callable[[int], bytes] | None:
    """How to receive what is there, at most so many bytes, without waiting; as :func:`sends_now` otherwise."""
    receive: Callable[[int], bytes] | None = connection.fd.recv if type(connection) is _GreenSocket else None
    return receive


def sends_now(connection: Any) -> Callable[[bytes], int] | None:
    """How to send what there is room for without waiting, which says how many bytes that were; None: this socket can't,
    as it is not plain TCP. It raises BlockingIOError where there is no room, and OSError as the socket's.
    """
    send: Callable[[bytes], int] | None = connection.fd.send if type(connection) is _GreenSocket else None
    return send


def no_delay(connection: Any) -> None:
    """Small messages go out at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class LineReader:
    """Lines of bounded length from a socket."""

    def __init__(self, connection: Any, longest: int) -> None:
        self._socket = connection
        self._longest = longest
        self._buffer = bytearray()
        self._searched = 0
        """So many bytes have no end of a line in them."""

    def next(self, timeout_s: float | None) -> bytes | None:
        """The next line without its end; None at the end of the stream or after the time. OSError as the socket's.

        A line longer than allowed is returned cut just above the bound, for the caller to refuse.
        """
        with Timer(timeout_s):
            while (line := self._whole()) is None:
                data = self._socket.recv(65536)
                if not data:
                    return None
                self._buffer += data
            return line
        return None

    def given(self, data: bytes) -> Iterator[bytes]:
        """The lines that are whole now, with what somebody else read from the socket."""
        self._buffer += data
        while (line := self._whole()) is not None:
            yield line

    def rest(self) -> bytes:
        """What was read beyond the last whole line; whoever takes it reads on."""
        data = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return data

    def _whole(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched <= self._longest:
                return None
            end = self._longest + 1
        self._searched = 0
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line


class Timer:
    """Ends the block after some time without an error; ``fired`` says whether it did. None: no limit."""

    def __init__(self, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self.fired = False

    def __enter__(self) -> Timer:
        self._timer = eventlet.timeout.Timeout(self._timeout_s)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        self._timer.cancel()
        self.fired = error is self._timer
        return self.fired
