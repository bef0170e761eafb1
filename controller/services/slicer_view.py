"""The resources ``slices`` and ``flowspace`` of a controller: the slicer's before it, or that there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hyroads.controller.settings_rest import SlicerPlace
from hyroads.rest.client import Answer, ApiError, Client, ClientError, address
from hyroads.rest.contract import AnsweredError, ConflictError, NotFoundError, Token
from hyroads.rest.slices import Changed

PRODUCTION = {
    "name": "production",
    "controllers": [],
    "permissions": ["read", "write"],
    "flowspace": [],
    "limits": {},
    "ssids": [],
}


def slices_before(place: SlicerPlace | None) -> NoSlicer | RemoteSlices:
    """What is asked about slices."""
    return NoSlicer() if place is None else RemoteSlices(place.url, place.ca)


class NoSlicer:
    """The controller is straight on the switches: every packet is production's."""

    def read(self, asker: Token, *path: str) -> Any:
        """Production alone."""
        if path == ("slices",):
            return [PRODUCTION]
        if path[:1] == ("slices",) and path[1] != PRODUCTION["name"]:
            raise NotFoundError(f"there is no slice {path[1][:40]!a}")
        return PRODUCTION if len(path) == 2 else []

    def change(self, asker: Token, method: str, *path: str, document: Any = None, wait: bool = True) -> Changed:
        """There is nobody who could."""
        raise ConflictError("there is no slicer before this controller (setting slicer; docs/explanation/slicing.md)")


class RemoteSlices:
    """Asks the slicer with the token of who asks us: what it may do is the slicer's to say."""

    def __init__(self, url: str, ca: str | None = None) -> None:
        self._url = url
        self._ca = ca

    def read(self, asker: Token, *path: str) -> Any:
        """As the slicer answers."""
        if len(path) == 2:
            return self._ask(asker, "GET", *path).document
        with self._client(asker) as client:
            try:
                return list(client.listed(address(*path), path[-1]))
            except ClientError as error:
                raise _refused(error) from error

    def change(self, asker: Token, method: str, *path: str, document: Any = None, wait: bool = True) -> Changed:
        """As the slicer answers; what it has accepted only is an operation here, too."""
        answer = self._ask(asker, method, *path, document=document, query={} if wait else {"wait": "false"})
        if answer.status != 202:
            return Changed(answer.document)
        operation = answer.document["id"]

        def pending() -> Sequence[str]:
            found = self._ask(asker, "GET", "operations", operation).document
            return found["pending"] if found["state"] == "pending" else ()

        return Changed({}, answer.document["pending"] or ("the slicer",), pending)

    def _ask(self, asker: Token, method: str, *path: str, document: Any = None, query: Any = None) -> Answer:
        with self._client(asker) as client:
            try:
                return client.request(method, address(*path), document, query=query)
            except ClientError as error:
                raise _refused(error) from error

    def _client(self, asker: Token) -> Client:
        return Client(self._url, asker.token or None, tries=1, ca=self._ca)


def _refused(error: ClientError) -> AnsweredError:
    if isinstance(error, ApiError) and error.problem:
        return AnsweredError(error.status, error.problem)
    text = {"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": f"the slicer: {error}"}
    return AnsweredError(503, text)
