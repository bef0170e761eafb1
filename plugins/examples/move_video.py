"""An application's plugin: moves a client's video away from a link that got too slow for it, without losing a packet.

    plugins:
      - {name: move-video, path: move_video.py, settings: {client: tv, flow: video, need_mbps: 6}}

The flow stays on one interface of the client. When that can carry less than it needs for ``patience_s``, the flow is
handed over to the best of the others, if that carries clearly more.
"""

from __future__ import annotations

from hyroads.plugins.api import App, ClientView, Event, Network, Option, Place, RequestError

CLEARLY = 1.25


class MoveVideo(App):
    """See the module."""

    name = "move-video"
    events = ("link.down",)
    every_s = 0.5

    def start(self, network: Network) -> None:
        """Where the flow is now tells the latest handover of it."""
        settings = network.settings
        self.client, self.flow = str(settings["client"]), str(settings["flow"])
        self.need_mbps, self.patience_s = float(settings["need_mbps"]), float(settings.get("patience_s", 2.0))
        self.slow_since_s: float | None = None
        known = network.request("GET", "/handovers?limit=1000")["handovers"]
        mine = (h for h in reversed(known) if h["client"] == self.client and self.flow in h["flows"])
        last = next((h for h in mine if h["phase"] == "done"), None)
        self.place = Place(last["to"]["node"], last["to"]["technology"]) if last is not None else None

    def on_event(self, network: Network, event: Event) -> None:
        """A link is gone: no need to be patient."""
        client = network.view().clients.get(self.client)
        if client is not None and self.place is not None and client.option(self.place) is None:
            self.move(network, client)

    def tick(self, network: Network) -> None:
        """Is the video's link still good enough?"""
        view = network.view()
        client = view.clients.get(self.client)
        if client is None or self.flow not in view.flows:
            return
        here = client.option(self.place)
        if here is not None and here.rate_mbps >= self.need_mbps:
            self.slow_since_s = None
            return
        if self.slow_since_s is None:
            self.slow_since_s = view.time_s
        if view.time_s - self.slow_since_s >= self.patience_s:
            self.move(network, client)

    def move(self, network: Network, client: ClientView) -> None:
        """To the best place, if it is worth it."""
        here = client.option(self.place)
        best = max(client.options, key=lambda option: option.rate_mbps, default=None)
        if best is None or best.place == self.place or not _is_better(best, here):
            return
        self.slow_since_s = None
        try:
            network.handover(self.client, best.place, flows=[self.flow])
        except RequestError as error:
            print("the video stays where it is:", error.detail)
            return
        self.place = best.place
        print(f"the video is at {best.place}, which carries {best.rate_mbps:.1f} Mb/s")


def _is_better(there: Option, here: Option | None) -> bool:
    return here is None or there.rate_mbps >= CLEARLY * here.rate_mbps


APP = MoveVideo
