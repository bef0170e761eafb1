"""Many sockets read by one green thread: a message costs one system call, and no change of threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from eventlet import event, patcher

from . import ryu_shim as shim

READ_BYTES = 1 << 16
AT_ONCE = 64
# Others may go first after so much work. More would keep slots waiting; with less, what thousands of devices say grows
# old while others work.
WORK_S = 0.02
_select = patcher.original("select")

Take = Callable[[bytes], None]
"""Takes what came in; must not wait for anything. What it raises ends the reading of that socket."""


class SharedPoll:
    """Begins with the first socket; the green thread then lives as long as the process."""

    def __init__(self) -> None:
        self._epoll = _select.epoll()
        self._reads: dict[int, tuple[Any, Take, Any]] = {}
        self._runs = False

    def serve(self, connection: Any, take: Take) -> None:
        """Read until the stream ends; raises what ``take`` raises, and OSError as the socket's. Nobody else may read
        the socket meanwhile.
        """
        if not self._runs:
            self._runs = True
            shim.spawn(self._run)
        ended = event.Event()
        descriptor = connection.fileno()
        # The socket below the green one, which does not block.
        self._reads[descriptor] = (connection.fd.recv, take, ended)
        self._epoll.register(descriptor, _select.EPOLLIN)
        try:
            ended.wait()
        finally:
            self._forget(descriptor)

    def _forget(self, descriptor: int) -> None:
        if self._reads.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def _run(self) -> None:
        while True:
            shim.wait_readable(self._epoll.fileno())
            until_s = time.monotonic() + WORK_S
            while ready := self._epoll.poll(0, AT_ONCE):
                for descriptor, _ in ready:
                    self._read(descriptor)
                if time.monotonic() > until_s:
                    break
            shim.sleep(0)

    def _read(self, descriptor: int) -> None:
        found = self._reads.get(descriptor)
        if found is None:
            return
        receive, take, ended = found
        try:
            data = receive(READ_BYTES)
            if data:
                take(data)
                return
        except BlockingIOError:
            return
        except Exception as error:  # noqa: BLE001 - whoever serves the socket gets it
            self._forget(descriptor)
            ended.send_exception(error)
            return
        self._forget(descriptor)
        ended.send(None)
