"""The life of a controller's process: signals, reloads, its end, and what a service manager is told of them.

SIGHUP             settings and network file are read again, as by POST /api/v1/reload; one that comes meanwhile
                   queues one more
SIGTERM, SIGINT    saves, ends plugins and the SNMP collector, and goes; switches and agents forward as they did
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial

from hyroads.controller.agents.server import AgentServer
from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.token_bucket import Limit
from hyroads.controller.files.tls import Revoked
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.framework.service_manager import ServiceManager
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.files import read_files
from hyroads.controller.runtime.reload import Reloader, Steps
from hyroads.controller.settings.controller import Settings
from hyroads.controller.switches.server import SwitchServer
from hyroads.rest.access import Access
from hyroads.rest.contract import Document

from .wiring import Services, tokens_of

LOG = logging.getLogger("hyroads.controller")
ENDING = (signal.SIGTERM, signal.SIGINT)
# Nobody waits for longer than this for a plugin that does not end, or a disk that hangs.
END_WITHIN_S = 8


def limit_of(settings: Settings) -> Limit:
    """How much each of them may ask."""
    return Limit(settings.api_limits.requests_per_s, settings.api_limits.burst)


@dataclass(eq=False)
class Followers:
    """Those who keep a part of the settings of their own: each takes the new one, and takes the old one back."""

    services: Services
    agents: AgentServer
    switches: Callable[[], SwitchServer]
    revoked: Revoked
    access: Callable[[], Access]

    def __call__(self, steps: Steps, old: Settings, new: Settings) -> None:
        """Makes the steps from the settings of before to those of now."""
        for use in (self._tokens, self._clients, self._certificates, self._policies):
            steps.do(partial(use, new), partial(use, old))

    def _tokens(self, settings: Settings) -> None:
        tokens = tokens_of(settings)
        self.access().use(tokens, limit_of(settings))
        self.services.tokens = tokens
        self.services.access_rules.use(tokens)
        self.services.owners.tokens = tokens
        if self.services.sfnet is not None:
            self.services.sfnet.tokens = tokens

    def _clients(self, settings: Settings) -> None:
        # Those that may not connect any more end their sessions while they are still known.
        self.agents.use_tokens(self.services.device_tokens(settings), settings.clients)
        self.services.multihomed.allow(settings.clients)

    def _certificates(self, settings: Settings) -> None:
        # Connections between controllers look at these with each message.
        self.revoked.ids = settings.revoked
        self.agents.end_revoked()
        self.switches().end_revoked()

    def _policies(self, settings: Settings) -> None:
        self.services.plugins.use_policies(settings.policies, settings.placement)


@dataclass(eq=False)
class Life:
    """``close`` ends what would otherwise outlive the process."""

    event_loop: EventLoop
    followers: Followers
    environment: Mapping[str, str]
    _: KW_ONLY
    manager: ServiceManager
    close: Callable[[], None]

    def __post_init__(self) -> None:
        read = partial(read_files, dict(self.environment))
        self._reloader = Reloader(self.event_loop, read, follow=self.followers)
        self._hangups = shim.Signal()
        self._is_wanted = False

    def reload(self) -> Document:
        """For the REST API, see ``rest.reload``."""
        self.manager.reloading()
        try:
            return self._reloader.reload()
        finally:
            self.manager.ready()

    def start(self) -> None:
        """Follows signals from now on, and says that everything is there once others have run."""
        received = shim.signals((signal.SIGHUP, *ENDING))
        shim.spawn(self._follow, received)
        shim.spawn(self._reload_by_signal)
        shim.spawn(self._tell_ready)

    def _tell_ready(self) -> None:
        # The servers were spawned before, so they accept by now.
        rest = self.event_loop.settings.rest
        self.manager.ready(f"REST on {rest.host}:{rest.port}")
        if self.manager.watchdog_s:
            self._watch()

    def _watch(self) -> None:
        """Tells that the process lives, as long as the event loop and its slots turn: this green thread does anyway."""
        event_loop, period_s = self.event_loop, self.manager.watchdog_s
        while True:
            if event_loop.clock() - event_loop.turned_s < period_s:
                self.manager.alive()
            shim.sleep(period_s / 3)

    def _follow(self, received: Iterable[int]) -> None:
        for number in received:
            if number == signal.SIGHUP:
                self._is_wanted = True
                self._hangups.notify()
            else:
                self._end(number)
                return

    def _reload_by_signal(self) -> None:
        while True:
            if not self._is_wanted:
                self._hangups.wait(60.0)
                continue
            self._is_wanted = False
            try:
                self.reload()
            except HyroadsError as error:
                # The reloader has said why; what was accepted and is not confirmed yet is no failure.
                LOG.debug("reload: %s", error)
            except Exception as error:  # noqa: BLE001 - the next signal is another try; it is counted and shown
                self.event_loop.exception("a reload", error)

    def _end(self, number: int) -> None:
        LOG.info("ends, by %s", signal.Signals(number).name)
        self.manager.stopping()
        # Whoever asks twice does not wait for a disk; nor does anybody wait for ever.
        shim.let_end(ENDING)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(END_WITHIN_S)
        self.event_loop.saver.finish()
        self.close()
        shim.end_by(number)
