"""FlowVisor's management API: JSON-RPC 2.0 over HTTPS. Its events are in ``events``.

Its TLS is of 2013: it breaks connections that are kept alive under TLS 1.3, so 1.2 is the highest here; and with its
default DSA key it needs ciphers and key sizes that are refused today, which must be asked for by ``legacy_tls``. Its
default certificate names no address, so no authority can vouch for it: ``fingerprint`` says which certificate it is.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from hyroads.controller.core import strict_json
from hyroads.controller.core.strict_json import JsonError

from .entries import FailedInsideError, FlowVisorError

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 32 * 1024 * 1024
# Without a certificate there is nothing to check, so whoever is in between could ask for that.
LEGACY_CIPHERS = "ALL:!aNULL:@SECLEVEL=0"
FINGERPRINT_DIGITS = 64


@dataclass(frozen=True)
class Access:
    """Where a FlowVisor is and how to get in.

    Its certificate is the one with this ``fingerprint`` (SHA-256 in hexadecimal digits, with or without colons), or one
    for its address that an authority of ``ca_file`` has signed; with neither, one of the system's authorities.
    """

    url: str
    user: str
    password: str = field(repr=False)
    ca_file: str | None = None
    fingerprint: str | None = None
    legacy_tls: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme != "https" or not parts.hostname:
            raise FlowVisorError(f"url: expected https://HOST:PORT/, got {self.url[:80]!r}")
        if self.fingerprint is not None:
            if self.ca_file is not None:
                raise FlowVisorError("fingerprint: expected either a fingerprint or authorities, got both")
            digits = self.fingerprint.replace(":", "").lower()
            if len(digits) != FINGERPRINT_DIGITS or any(digit not in "0123456789abcdef" for digit in digits):
                expected = f"the certificate's SHA-256 in {FINGERPRINT_DIGITS} hexadecimal digits"
                raise FlowVisorError(f"fingerprint: expected {expected}, got {self.fingerprint[:80]!r}")
            object.__setattr__(self, "fingerprint", digits)

    def context(self) -> ssl.SSLContext:
        """How TLS is spoken; :class:`FlowVisorError` if the file of authorities can't be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise FlowVisorError(f"ca: {self.ca_file}: {error}") from error
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        if self.legacy_tls:
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.set_ciphers(LEGACY_CIPHERS)
        if self.fingerprint is not None:
            # The one certificate is compared instead, after the handshake and before anything is sent.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class _Adapter(HTTPAdapter):
    def __init__(self, access: Access) -> None:
        self._tls: dict[str, Any] = {"ssl_context": access.context(), "assert_fingerprint": access.fingerprint}
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        """Connections of this session use our context, and check the fingerprint."""
        super().init_poolmanager(*arguments, **(keywords | self._tls))


class Client:
    """One session. Requests are not repeated by themselves: a lost answer may have been carried out."""

    def __init__(self, access: Access) -> None:
        self._url = access.url
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.auth = (access.user, access.password)
        self._session.verify = access.fingerprint is None if access.ca_file is None else access.ca_file
        self._session.mount("https://", _Adapter(access))
        self._ids = count(1)

    def close(self) -> None:
        """Closes the connections."""
        self._session.close()

    def call(self, method: str, parameters: Any = None) -> Any:
        """The result of a method; :class:`FlowVisorError` says what is wrong and with what."""
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        if parameters is not None:
            request["params"] = parameters
        try:
            answer = self._session.post(
                self._url, data=json.dumps(request), timeout=TIMEOUT_S, stream=True, allow_redirects=False
            )
            status, body = answer.status_code, answer.raw.read(MAX_ANSWER_BYTES + 1, decode_content=True)
        except (requests.RequestException, OSError) as error:
            raise FlowVisorError(f"{method}: no answer from {self._url}: {_reason(error)}") from error
        return _result(method, status, body)


def _result(method: str, status: int, body: bytes) -> Any:
    if status == requests.codes.unauthorized:
        raise FlowVisorError(f"{method}: user name or password is wrong")
    if len(body) > MAX_ANSWER_BYTES:
        raise FlowVisorError(f"{method}: the answer is longer than {MAX_ANSWER_BYTES} bytes")
    if not body:
        raise FailedInsideError(f"{method}: FlowVisor failed inside (HTTP {status} without a word); its log says why")
    try:
        document = strict_json.parse(body)
    except JsonError as error:
        raise FlowVisorError(f"{method}: HTTP {status}, and the answer is not JSON") from error
    if not isinstance(document, dict):
        raise FlowVisorError(f"{method}: the answer is no JSON object")
    problem = document.get("error")
    if problem is not None:
        known = isinstance(problem, dict)
        message = problem.get("message") if known else problem
        code = problem.get("code") if known else None
        raise FlowVisorError(f"{method}: {str(message)[:300]}", code if isinstance(code, int) else None)
    if "result" not in document:
        raise FlowVisorError(f"{method}: HTTP {status}, and the answer has no result")
    return document["result"]


def _reason(error: BaseException) -> str:
    """The innermost cause, which is what the user needs to know."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return str(error)[:200] or type(error).__name__
