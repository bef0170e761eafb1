"""Asks a running slicer over its control socket."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any
from urllib.parse import quote

from hyroads.slices.errors import SliceError

WITHIN_S = 90.0


class ControlClient:
    """One request a call; :class:`SliceError` says what the slicer said."""

    def __init__(self, path: str) -> None:
        self._path = path

    def ask(self, method: str, *parts: str, document: Any = None) -> Any:
        """The document of the answer."""
        connection = http.client.HTTPConnection("slicer", timeout=WITHIN_S)
        body = None if document is None else json.dumps(document)
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(WITHIN_S)
            connection.sock.connect(self._path)
            connection.request(method, "/" + "/".join(quote(part, safe="") for part in parts), body)
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise SliceError(f"{self._path}: no answer from the slicer: {reason}") from error
        finally:
            connection.close()
        answer: Any = json.loads(data) if data else None
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            place = answer.get("place", "")
            raise SliceError(f"{place}: {answer['detail']}" if place else answer["detail"])
        return answer
