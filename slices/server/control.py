"""What the control socket offers (docs/slicing.md, section 9): slices read and changed, switches read, reload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from hyroads.slices.change import ModelChange
from hyroads.slices.model import PRODUCTION, Slice
from hyroads.slices.proxy.roles import EQUAL, MASTER, SLAVE
from hyroads.slices.proxy.session import Tenant
from hyroads.slices.server.http import HttpError, Request
from hyroads.slices.server.slicer import Slicer
from hyroads.slices.server.switch import Switch
from hyroads.slices.slicefile import document_of, parse, parse_slice, slice_document

if TYPE_CHECKING:
    from hyroads.slices.server.run import Server

_ROLES = {EQUAL: "equal", MASTER: "master", SLAVE: "slave"}


class Control:
    """Requests become changes of the slicer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._table: dict[tuple[str, str, int], Callable[[Request], Awaitable[Any]]] = {
            ("GET", "slices", 1): self._slices,
            ("PUT", "slices", 1): self._put_all,
            ("GET", "slices", 2): self._slice,
            ("PUT", "slices", 2): self._put,
            ("DELETE", "slices", 2): self._delete,
            ("GET", "switches", 1): self._switches,
            ("GET", "switches", 2): self._switch,
            ("POST", "reload", 1): self._reload,
        }

    @property
    def _slicer(self) -> Slicer:
        return self._server.slicer

    async def __call__(self, request: Request) -> Any:
        """The document of the answer."""
        first, count = request.path[0] if request.path else "", len(request.path)
        handler = self._table.get((request.method, first, count))
        if handler is None:
            known = {method for method, name, parts in self._table if (name, parts) == (first, count)}
            if known:
                raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, f"expected {' or '.join(sorted(known))}")
            raise HttpError(
                HTTPStatus.NOT_FOUND, "expected /slices, /slices/NAME, /switches, /switches/DPID or /reload"
            )
        return await handler(request)

    # -- slices -------------------------------------------------------------------------------------------------------

    async def _slices(self, _: Request) -> Any:
        return document_of(self._slicer.model)

    async def _slice(self, request: Request) -> Any:
        each = self._known(request)
        switches = {
            f"{dpid:#x}": _tenant(switch, switch.tenants[each.name])
            for dpid, switch in self._slicer.switches.items()
            if each.name in switch.tenants
        }
        return {**slice_document(each), "switches": switches}

    def _known(self, request: Request) -> Slice:
        each = self._slicer.model.slices.get(request.path[1])
        if each is None:
            raise HttpError(HTTPStatus.NOT_FOUND, f"there is no slice {request.path[1][:40]!a}")
        return each

    async def _put_all(self, request: Request) -> Any:
        return await self._changed(self._slicer.become(parse(request.document, "slices")))

    async def _put(self, request: Request) -> Any:
        document = request.document
        if isinstance(document, dict):
            document = {"name": request.path[1], **document}
        each = parse_slice(document, "slice")
        if each.name != request.path[1]:
            raise HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, "expected the name of the path", "name")
        return await self._changed(self._slicer.put([each]))

    async def _delete(self, request: Request) -> Any:
        self._known(request)
        if request.path[1] == PRODUCTION:
            raise HttpError(HTTPStatus.CONFLICT, f"{PRODUCTION} is always there")
        return await self._changed(self._slicer.put([], [request.path[1]]))

    async def _changed(self, change: Awaitable[ModelChange]) -> Any:
        done = await change
        if done:
            self._server.changed_slices = True
        return {"added": sorted(done.added), "changed": sorted(done.changed), "removed": sorted(done.removed)}

    async def _reload(self, _: Request) -> Any:
        done = await self._server.read_again()
        return {"added": sorted(done.added), "changed": sorted(done.changed), "removed": sorted(done.removed)}

    # -- switches -----------------------------------------------------------------------------------------------------

    async def _switches(self, _: Request) -> Any:
        found = self._slicer.switches.values()
        return {
            "switches": [
                {"dpid": f"{s.dpid:#x}", "connected": s.session is not None, "slices": sorted(s.tenants)} for s in found
            ]
        }

    async def _switch(self, request: Request) -> Any:
        try:
            switch = self._slicer.switches[int(request.path[1], 0)]
        except (ValueError, KeyError):
            raise HttpError(HTTPStatus.NOT_FOUND, f"there is no switch {request.path[1][:40]!a}") from None
        return {
            "dpid": f"{switch.dpid:#x}",
            "connected": switch.session is not None,
            "malformed_messages": switch.link.complaints if switch.link is not None else 0,
            "ports": dict(sorted(switch.names.items())),
            "slices": {name: _tenant(switch, tenant) for name, tenant in switch.tenants.items()},
        }


def _tenant(switch: Switch, tenant: Tenant) -> Any:
    view, links = tenant.view, {} if switch.link is None else switch.link.guests
    return {
        "tables": {"first": view.block.first, "count": view.block.count},
        "ports": sorted(view.ports),
        "flow_entries": tenant.entries.used,
        "groups": len(view.groups),
        "meters": len(view.meters),
        "dropped_packet_ins": tenant.dropped_packet_ins,
        "controllers": [
            {"address": link.address, "role": _ROLES[tenant.roles.role(link.number)]}
            for link in links.values()
            if link.tenant is tenant
        ],
    }
