"""What all pages have in common: the menu, the banner, and how a page follows the network.

A page's ``build`` draws it and returns a function, which is called with each change of the network, and once a second.
It sends to the browser what differs; what is drawn is elements of NiceGUI, whose texts are never taken for HTML.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nicegui import ui
from starlette.requests import Request

from hyroads.controller.core.errors import HyroadsError
from hyroads.rest.client import Client

from ..access import LOGIN, LOGOUT, Session
from ..feed import Connection, Phase
from ..reader import Reader, Subscription, ask
from ..state import Changes, NetworkState
from ..worker import Worker

SECOND_S = 1.0
CONNECT_S = 30.0
Show = Callable[[Changes], None]
STYLE = """<style>
body{background:#fff;color:#1a1a1a}
.hr-head{background:#0b2f4a;color:#fff;gap:1rem;align-items:center;padding:.4rem 1rem;flex-wrap:wrap}
.hr-head a{color:#fff;text-decoration:none;padding:.2rem .4rem}
.hr-head a[aria-current=page]{border-bottom:2px solid #fff}
.hr-head h1{font-size:1.1rem;line-height:1.5;margin:0;font-weight:600}
.hr-banner{background:#a30000;color:#fff;padding:.5rem 1rem;width:100%;font-weight:600}
.hr-columns{display:flex;gap:1rem;width:100%;align-items:flex-start;flex-wrap:wrap}
.nicegui-echart.hr-map{width:100%;height:auto;aspect-ratio:1.6;min-width:20rem;border:1px solid #c5ccd3;background:#fff}
.hr-side{flex:1 1 20rem;min-width:18rem;max-width:100%}
.hr-side h2,.hr-part h2{font-size:1rem;line-height:1.5;margin:.6rem 0 .2rem;font-weight:600}
.hr-table{border-collapse:collapse;font-size:.85rem}
.hr-table th,.hr-table td{text-align:left;padding:.15rem .5rem;border-bottom:1px solid #d9dfe4}
.hr-legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.8rem;margin:0;padding:0;list-style:none}
.hr-legend li{display:flex;align-items:center;gap:.4rem}
.hr-legend svg{width:2.4rem;height:.7rem}
.hr-list{display:flex;flex-direction:column;max-height:18rem;overflow:auto;gap:2px}
.nicegui-echart.hr-chart{width:100%;height:15rem}
.hr-list .q-btn{color:#0b2f4a!important}
.hr-list .q-btn[aria-pressed=true]{background:#fbe6bd!important}
</style>"""


@dataclass
class View:
    """What a page works with: the network's state, who looks, and what it wants to know."""

    reader: Reader
    session: Session
    subscription: Subscription
    worker: Worker
    links: Mapping[str, str] = field(default_factory=dict)
    """Addresses of other programs, for example ``grafana``."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the page's address."""

    @property
    def state(self) -> NetworkState:
        """The network, as it is now."""
        return self.reader.state

    @property
    def now_s(self) -> float:
        """Time of the reader's clock."""
        return self.reader.clock()

    def want(self, path: str, wanted: bool = True) -> None:
        """Have a document of the API read now and then, or no more."""
        (self.subscription.wanted.add if wanted else self.subscription.wanted.discard)(path)

    async def do(self, resource: str, what: Callable[[Client], Any]) -> str | None:
        """Change a resource of the API with the token of this session; the reason if the controller refuses."""
        if self.session.ended or not self.session.may_change(resource):
            return "your token may not do this"
        try:
            await asyncio.to_thread(ask, self.reader.source, self.session.token, what)
        except HyroadsError as error:
            return str(error)
        self.reader.read_again(self.subscription.wanted)
        return None


@dataclass(frozen=True)
class Page:
    """A page; ``wants`` are paths of the API below ``/api/v1`` that it needs beside the live document."""

    path: str
    title: str
    build: Callable[[View], Show]
    wants: Sequence[str] = ()


def register(page: Page, menu: Sequence[Page], reader: Reader, worker: Worker, links: Mapping[str, str]) -> None:
    """Serve a page; ``links`` are addresses of other programs."""

    @ui.page(page.path, title=f"HyRoads: {page.title}")
    async def serve(request: Request) -> None:
        session: Session = request.scope["hyroads.session"]
        client = ui.context.client
        with reader.subscribe(*page.wants) as subscription:
            view = View(reader, session, subscription, worker, links, dict(request.query_params))
            ui.add_head_html(STYLE)
            ui.colors(primary="#0b5580", negative="#a30000", positive="#1b6e2c")
            head = _head(page, menu, view)
            show = page.build(view)
            await client.connected(timeout=CONNECT_S)
            show(Changes(topology=True, connection=True))
            while not client.is_deleted and not session.ended:
                changes = await subscription.next(SECOND_S)
                if client.has_socket_connection:
                    head(changes)
                    show(changes)
        if not client.is_deleted:
            ui.navigate.to(LOGIN)


def _head(page: Page, menu: Sequence[Page], view: View) -> Show:
    with ui.header().classes("hr-head"), ui.row().classes("hr-head"):
        with ui.element("h1"):
            ui.label(f"HyRoads: {page.title}")
        with ui.element("nav").props('aria-label="pages"'):
            for each in menu:
                link = ui.link(each.title, each.path)
                if each is page:
                    link.props("aria-current=page")
        network = ui.label()
        if view.session.id:
            ui.label(f"{view.session.name} ({view.session.role})")
            form = ui.element("form").props(f'method="post" action="{LOGOUT}"')
            with form, ui.element("button").props('type="submit"').style("color:#fff;text-decoration:underline"):
                ui.label("Log out")
        banner = ui.label().classes("hr-banner").props('role="alert"')

    def show(_: Changes) -> None:
        topology, text = view.state.topology, banner_text(view.reader.feed.connection, view.now_s)
        set_text(network, "" if topology is None else topology.name)
        set_text(banner, text)
        if banner.visible != bool(text):
            banner.set_visibility(bool(text))

    banner.set_visibility(False)
    return show


def banner_text(connection: Connection, now_s: float) -> str:
    """What is wrong with the connection to the controller; empty if nothing is."""
    for_s = now_s - connection.since_s
    if connection.phase is Phase.LIVE:
        return ""
    if connection.phase is Phase.CONNECTING:
        return "Connecting to the controller." if for_s > SECOND_S else ""
    since = f"The controller has not answered for {for_s:.0f} s ({connection.reason})."
    return f"{since} The picture is the last one; it goes on as soon as the controller is back."


def set_text(label: Any, text: str) -> None:
    """A label's text, if that is another."""
    if label.text != text:
        label.set_text(text)


class TextTable:
    """A plain table of texts; only cells that differ are sent."""

    def __init__(self, *titles: str, caption: str) -> None:
        with ui.element("table").classes("hr-table").props(f'aria-label="{caption}"'):
            if any(titles):
                with ui.element("thead"), ui.element("tr"):
                    for title in titles:
                        with ui.element("th").props('scope="col"'):
                            ui.label(title)
            self._body = ui.element("tbody")
        self._cells: list[list[Any]] = []
        self._width = len(titles)

    def show(self, rows: Sequence[Sequence[str]]) -> None:
        """These rows."""
        while len(self._cells) > len(rows):
            self._cells.pop()
            self._body.remove(len(self._cells))
        while len(self._cells) < len(rows):
            with self._body, ui.element("tr"):
                self._cells.append([_cell() for _ in range(self._width)])
        for cells, row in zip(self._cells, rows, strict=True):
            for cell, text in zip(cells, row, strict=True):
                set_text(cell, text)


def _cell() -> Any:
    with ui.element("td"):
        return ui.label()
