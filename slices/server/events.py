"""What happens in the slicer, told by the event loop and heard by threads."""

from __future__ import annotations

import threading
import time

from hyroads.controller.events import EventLog


class _Bell:
    def __init__(self) -> None:
        self.changed = threading.Condition()

    def notify(self) -> None:
        """Wake all who wait now."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the next :meth:`notify`."""
        with self.changed:
            return self.changed.wait(timeout_s)


class ThreadEvents(EventLog):
    """A log whose readers wait in threads. Once it is closed, nobody waits any more."""

    def __init__(self) -> None:
        self._threads = _Bell()
        self._closed = False
        super().__init__(time.time, self._threads)

    def wait(self, last: int, timeout_s: float) -> bool:
        """Wait for an event after ``last``; False after the time is over."""
        changed = self._threads.changed
        with changed:
            changed.wait_for(lambda: last < self.last or self._closed, timeout_s)
        return last < self.last

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self._threads.notify()
