"""A way over TCP that ends as a machine that vanishes: connections stay, nobody hears anything, none is reset."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress


class StallingProxy:
    """Passes connections on to a port of loopback, until it is :meth:`stalled`."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._lost: list[object] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.is_stalled = self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            ready = self._selector.select(0.05)
            if self.is_stalled:
                # The kernel goes on to accept and to take bytes; nobody answers.
                self._lose()
                time.sleep(0.02)
                continue
            for key, _ in ready:
                if key.data is None:
                    self._connect()
                else:
                    self._pass_on(key.fileobj, key.data)  # type: ignore[arg-type]

    def _lose(self) -> None:
        """Connections of before say nothing any more, also once it can be reached again."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                self._selector.unregister(key.fileobj)
                self._lost += [key.fileobj, key.data]

    def _connect(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._to_port))
        self._selector.register(near, selectors.EVENT_READ, far)
        self._selector.register(far, selectors.EVENT_READ, near)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for end in (source, target):
            with suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()

    def close(self) -> None:
        """Ends it."""
        self._is_over = True
        self._thread.join(5.0)
        self._listener.close()
