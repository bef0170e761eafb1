"""Threads that fetch pieces of files: two for each interface, told by the range scheduler what to ask for next.

An interface is judged by its own silence: a piece without a byte for half a second is offered to the others, and after
another second its connection is given up; the interface is then tried again every second until a server answers over
it. One whose carrier goes gives everything back at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from socket import gaierror

from .http1 import Connection, Origin, TlsClient
from .interfaces import LOOPBACK, DownloadError, Interface, RefusedAddressError, has_carrier
from .names import InterfaceNames
from .ranges import Piece, RangeScheduler
from .transfers import Source, Transfer, certificate_problem, check_piece, must_move

SAID = {
    "interface.dead": "nothing arrives, the others take over",
    "interface.alive": "carries again",
    "interface.dns": "its DNS servers do not answer, so this machine's resolver is asked",
}
"""What an event means, for users."""
OUTSTANDING = 2
CONNECT_S = 1.5
_MOST_CONNECT_S = 3.0
_ABANDON_S = 1.0
_WATCH_S = 0.1
_BUFFER_BYTES = 256 * 1024
_MOST_CONNECTIONS = 4


class NotWantedError(Exception):
    """What is awaited is not wanted any more."""


class Limiter:
    """Holds readers back so that all together take at most ``mbps`` megabits per second; None: no bound."""

    def __init__(self, mbps: float | None) -> None:
        self._bytes_per_s = None if mbps is None else mbps * 125_000
        self._free_s = 0.0
        self._lock = threading.Lock()

    @property
    def most_bytes(self) -> int:
        """How much a reader may take at once."""
        return (
            _BUFFER_BYTES if self._bytes_per_s is None else max(4096, min(_BUFFER_BYTES, int(self._bytes_per_s / 50)))
        )

    def took(self, count: int) -> None:
        """Wait for as long as the bytes that were taken are worth."""
        if self._bytes_per_s is None:
            return
        with self._lock:
            now_s = time.monotonic()
            self._free_s = max(now_s - 0.02, self._free_s) + count / self._bytes_per_s
            wait_s = self._free_s - now_s
        if wait_s > 0:
            time.sleep(wait_s)


class Engine:
    """Transfers over interfaces. ``say(event, interface)`` tells of the events in ``SAID``. ``dns`` has DNS servers by
    interface, for those whose networks do not tell them.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        limiter: Limiter | None = None,
        timeout_s: float = 30.0,
        say: Callable[[str, str], None] = lambda *_: None,
        allowed: Callable[..., bool] = lambda _: True,
        dns: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.interfaces = [Interface(name, number) for number, name in enumerate(names)]
        for each in self.interfaces:
            if each.name != LOOPBACK:
                given = () if dns is None else dns.get(each.name, ())
                each.names = InterfaceNames(each.name, given, partial(say, "interface.dns", each.name))
        self.tls = TlsClient()
        self.changed = threading.Condition()
        """Held while the scheduler is used; notified of all that may matter to anybody."""
        self.scheduler = RangeScheduler(len(self.interfaces))
        self.limiter = limiter or Limiter(None)
        self.allowed = allowed
        self._transfers: dict[int, Transfer] = {}
        self._timeout_s, self._say = timeout_s, say
        self._watched: list[Callable[[], None]] = []
        self.closed = False

    def start(self) -> None:
        """Start the threads."""
        for interface in self.interfaces:
            for place in range(OUTSTANDING):
                self._thread(lambda i=interface, p=place: _Worker(self, i, p).run())  # type: ignore[misc]
        self._thread(self._watch)

    def _thread(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def watch(self, call: Callable[[], None]) -> None:
        """Call this ten times a second, too."""
        self._watched.append(call)

    @property
    def transfers(self) -> int:
        """How many transfers are under way."""
        return len(self._transfers)

    def add(
        self,
        transfer: Transfer,
        weight: float,
        accepts: Iterable[int],
        *,
        done: Iterable[tuple[int, int]] = (),
        window: int | None = None,
        stream: tuple[Connection, Interface, int] | None = None,
    ) -> None:
        """Begin with a transfer. ``stream`` is a connection over an interface on which its first bytes, up to an
        offset, are on their way already.
        """
        with self.changed:
            transfer.moved_s = time.monotonic()
            transfer.number = self.scheduler.add_flow(transfer.length, weight, accepts, done, window)
            self._transfers[transfer.number] = transfer
            if stream is not None:
                connection, interface, end = stream
                piece = self.scheduler.adopt(transfer.number, interface.number, end, time.monotonic())
                worker = _Worker(self, interface, 0)
                self._thread(lambda: worker.continue_stream(transfer, piece, connection))
            transfer.over = self.scheduler.complete(transfer.number)
            self.changed.notify_all()

    def end(self, transfer: Transfer, error: DownloadError | None = None) -> None:
        """A transfer has ended, well or not: nothing more is read for it."""
        with self.changed:
            transfer.over = True
            transfer.error = transfer.error or error
            self.changed.notify_all()

    def remove(self, transfer: Transfer) -> None:
        """Forget a transfer."""
        with self.changed:
            transfer.over = True
            if self._transfers.pop(transfer.number, None) is not None:
                self.scheduler.remove_flow(transfer.number)
            self.changed.notify_all()

    def close(self) -> None:
        """End all threads."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        for interface in self.interfaces:
            interface.abort()

    def transfer_of(self, piece: Piece) -> Transfer | None:
        """The transfer that a piece is of; None if it has ended."""
        return self._transfers.get(piece.flow)

    def alive(self, interface: Interface) -> None:
        """A server has answered over an interface."""
        with self.changed:
            if interface.failures:
                self._say("interface.alive", interface.name)
            interface.failures, interface.retry_s = 0, 0.0
            self.scheduler.answered(interface.number)

    def dead(self, interface: Interface) -> None:
        """Nothing came over an interface: it is tried again later."""
        with self.changed:
            interface.failures += 1
            interface.retry_s = time.monotonic() + min(1.0, 0.25 * interface.failures)
            if interface.failures == 1:
                self._say("interface.dead", interface.name)

    def _watch(self) -> None:
        """Carriers, silence, and transfers to which nothing happens."""
        while not self.closed:
            time.sleep(_WATCH_S)
            for interface in self.interfaces:
                carrier = has_carrier(interface.name)
                if not carrier and interface.carrier:
                    self.dead(interface)
                    interface.abort()
                elif carrier and not interface.carrier:
                    interface.retry_s = 0.0
                interface.carrier = carrier
            with self.changed:
                now_s = time.monotonic()
                if self.scheduler.offer_silent(now_s):
                    self.changed.notify_all()
                for transfer in self._transfers.values():
                    if not self.scheduler.wants(transfer.number):
                        # Whoever takes the bytes away is slow, not the servers.
                        transfer.moved_s = now_s
                    if not transfer.over and now_s - transfer.moved_s > self._timeout_s:
                        why = f"; last: {transfer.last_problem}" if transfer.last_problem else ""
                        self.end(transfer, DownloadError(f"{transfer.name}: no byte for {self._timeout_s:g} s{why}"))
            for call in self._watched:
                call()


class _Worker:
    """One of the two connections of an interface, as it were: it has one piece at a time."""

    def __init__(self, engine: Engine, interface: Interface, place: int) -> None:
        self.engine, self.interface, self.place = engine, interface, place
        self._connections: dict[Origin, Connection] = {}
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._connect_s = CONNECT_S

    def run(self) -> None:
        """Ask for piece after piece until the engine is closed."""
        engine = self.engine
        while not engine.closed:
            piece, transfer = None, None
            with engine.changed:
                now_s = time.monotonic()
                if self.interface.carrier and not self.interface.failures:
                    piece = engine.scheduler.ask(self.interface.number, now_s)
                transfer = engine.transfer_of(piece) if piece is not None else None
                if piece is None and not self._may_probe(now_s):
                    engine.changed.wait(0.05 if engine.scheduler.busy else None)
                    continue
            if piece is not None and transfer is not None:
                self._fetch(piece, transfer)
            elif piece is None:
                self._probe()

    def _may_probe(self, now_s: float) -> bool:
        """Whether the interface is one that was silent, and time to see if it answers again."""
        waits = self.interface.failures and self.interface.carrier and now_s >= self.interface.retry_s
        return bool(waits) and self.place == 0 and self._accepting() is not None

    def _accepting(self) -> Transfer | None:
        """A transfer that may use the interface."""
        engine, number = self.engine, self.interface.number
        with engine.changed:
            transfers = [each for each in engine._transfers.values() if not each.over]
            return next((each for each in transfers if engine.scheduler.accepts(each.number, number)), None)

    def _probe(self) -> None:
        """Connect to a server anew; that is all it takes to know that the interface carries again."""
        transfer = self._accepting()
        if transfer is None:
            return
        origin = transfer.sources[0].url.origin
        if (old := self._connections.pop(origin, None)) is not None:
            old.close()
        try:
            self._connection(origin)
        except ConnectionRefusedError:
            self.engine.alive(self.interface)
        except OSError:
            self._connect_s = min(_MOST_CONNECT_S, 1.5 * self._connect_s)
            self.engine.dead(self.interface)
        else:
            self._connect_s = CONNECT_S
            self.engine.alive(self.interface)

    def _fetch(self, piece: Piece, transfer: Transfer) -> None:
        """Ask for a piece and read it; whatever happens, it is not this worker's afterwards."""
        engine, source = self.engine, self._source(transfer)
        connection = None
        try:
            if transfer.over or source is None:
                return
            connection = self._connection(source.url.origin)
            connection.tick = lambda: self._tick(piece, transfer)
            # Others may take the end of the piece away while it is asked for.
            end = piece.end
            headers = [*source.headers, (b"Range", b"bytes=%d-%d" % (piece.at, end - 1))]
            headers += [(b"If-Range", source.validator)] if source.validator is not None else []
            answer = connection.ask("GET", source.url.target, headers)
            engine.alive(self.interface)
            if answer.status == 206:
                check_piece(answer, piece.at, end, transfer, source)
                self._read(piece, transfer, connection)
            elif must_move(answer, transfer, source, len(engine.interfaces)) and source.renew is not None:
                source.url = source.renew(self.interface)
        except NotWantedError:
            # Others were faster: perhaps because nothing comes over this interface at all.
            if engine.scheduler.suspect(self.interface.number):
                engine.dead(self.interface)
        except DownloadError as error:
            engine.end(transfer, error)
        except OSError as error:
            self._failed(transfer, source, error, asked=connection is not None)
        finally:
            self._settle(piece, connection)

    def continue_stream(self, transfer: Transfer, piece: Piece, connection: Connection) -> None:
        """Read the first bytes from a connection on which they are on their way already."""
        connection.tick = lambda: self._tick(piece, transfer)
        try:
            self._read(piece, transfer, connection)
        except NotWantedError:
            pass
        except DownloadError as error:
            self.engine.end(transfer, error)
        except OSError as error:
            self._failed(transfer, transfer.sources[0], error, asked=True)
        finally:
            self._settle(piece, connection)
            connection.close()

    def _settle(self, piece: Piece, connection: Connection | None) -> None:
        with self.engine.changed:
            self.engine.scheduler.give_back(piece)
            self.engine.changed.notify_all()
        if connection is not None and not connection.reusable:
            self._connections = {o: c for o, c in self._connections.items() if c is not connection}
            connection.close()

    def _source(self, transfer: Transfer) -> Source | None:
        """The server to ask: each worker begins with another one, and leaves out those that asked to be left alone."""
        now_s, count = time.monotonic(), len(transfer.sources)
        first = (self.interface.number * OUTSTANDING + self.place) % count
        ready = [s for s in (*transfer.sources[first:], *transfer.sources[:first]) if now_s >= s.paused_until_s]
        if not ready:
            time.sleep(0.02)
        return min(ready, key=lambda source: source.refusals) if ready else None

    def _connection(self, origin: Origin) -> Connection:
        connection = self._connections.pop(origin, None)
        if connection is None:
            while len(self._connections) >= _MOST_CONNECTIONS:
                self._connections.pop(next(iter(self._connections))).close()
            engine = self.engine
            connection = Connection.open(origin, self.interface, engine.tls, self._connect_s, allowed=engine.allowed)
        self._connections[origin] = connection
        return connection

    def _tick(self, piece: Piece, transfer: Transfer) -> None:
        """End a wait that is of no use any more."""
        if piece.over or transfer.over or self.engine.closed:
            raise NotWantedError
        limit_s = self.engine.scheduler.silence_s(self.interface.number) + _ABANDON_S
        if time.monotonic() - piece.moved_s > limit_s:
            raise TimeoutError(f"no byte for {limit_s:.1f} s over {self.interface.name}")

    def _failed(self, transfer: Transfer, source: Source | None, error: OSError, *, asked: bool) -> None:
        """A connection broke or was not made. Who refuses is there, so only the server rests; else the interface."""
        transfer.last_problem = f"{error.strerror or error} (over {self.interface.name})"
        if (problem := certificate_problem(error)) is not None:
            origin = source.url.origin.authority if source is not None else ""
            self.engine.end(transfer, DownloadError(f"{transfer.name}: {origin}: {problem}"))
        elif source is not None and isinstance(error, ConnectionRefusedError | gaierror | RefusedAddressError):
            source.refusals += 1
            source.paused_until_s = time.monotonic() + min(1.0, 0.1 * source.refusals)
        elif asked and not isinstance(error, TimeoutError):
            # The server closed or said what is no HTTP; or the interface went, then the next connection fails.
            time.sleep(0.02)
        else:
            self.engine.dead(self.interface)

    def _read(self, piece: Piece, transfer: Transfer, connection: Connection) -> None:
        """Read the body into the sink until nothing more of it is wanted."""
        engine = self.engine
        most = engine.limiter.most_bytes
        while True:
            room = min(most, max(1, piece.end - piece.at))
            count = connection.read_into(self._buffer[:room])
            if count == 0:
                return
            transfer.sink.write(piece.at, self._buffer[:count])
            self.interface.received_bytes += count
            with engine.changed:
                now_s = time.monotonic()
                transfer.moved_s = now_s
                by = transfer.bytes_by_interface
                by[self.interface.name] = by.get(self.interface.name, 0) + count
                more = engine.scheduler.received(piece, count, now_s)
                if not more:
                    transfer.over = transfer.over or engine.scheduler.complete(transfer.number)
                    engine.changed.notify_all()
            engine.limiter.took(count)
            if transfer.over or not more:
                return
