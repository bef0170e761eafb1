"""Writes what must survive a restart, in a green thread of its own: a disk takes as long as it likes."""

from __future__ import annotations

from collections.abc import Callable

from hyroads.controller import ryu_shim as shim

IDLE_S = 60.0


class Saver:
    """``save`` writes; ``done`` is called afterwards, ``failed`` with what it raised."""

    def __init__(
        self, save: Callable[[], None], done: Callable[[], None], failed: Callable[[str, BaseException], None]
    ) -> None:
        self._save = save
        self._done = done
        self._failed = failed
        self._wake = shim.Signal()
        self._noted = False
        self._writing = False

    @property
    def pending(self) -> bool:
        """Whether something is not on the disk yet. What was confirmed to a user outlives the controller."""
        return self._noted or self._writing

    def note(self) -> None:
        """There is something to save. It is not begun before :meth:`begin`: telling agents is more urgent."""
        self._noted = True

    def begin(self) -> None:
        """Save what was noted."""
        if self._noted:
            self._wake.notify()

    def run(self) -> None:
        """Work for ever, in the calling green thread."""
        while True:
            if not self._noted:
                self._wake.wait(IDLE_S)
            if self._noted:
                self.once()

    def once(self) -> None:
        """Save now."""
        self._noted, self._writing = False, True
        try:
            self._save()
        except Exception as error:  # noqa: BLE001 - the next change is another try; it is counted and shown
            self._failed("saving", error)
        finally:
            self._writing = False
        self._done()
