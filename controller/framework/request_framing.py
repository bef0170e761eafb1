"""Where an HTTP request ends: only requests about which two programs can't differ are taken. Pure.

Between us and who asks may be a proxy that admits requests. One that sees one request where we see two has let the
second one pass unseen (request smuggling). So lines end as the standard says, a header is on one line, nothing stands
between its name and the colon, a body has one length in decimal digits, and one host at most is named (with two, a
proxy and we may read different ones). We never take bodies in pieces:
``Transfer-Encoding`` is refused, whatever it says, and with it all that pieces could hide (RFC 9112, sections 2.2, 3.2,
5.1, 5.2, 6.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus

MOST_LENGTH_DIGITS = 15
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*\r\n")
_EMPTY_LINE = b"\r\n"
_REQUEST_LINE = re.compile(rb"[!-~]+ [!-\xff]+ HTTP/1\.[01]\r\n")

Refusal = tuple[HTTPStatus, str]


def refusal(request_line: bytes, header_lines: Sequence[bytes]) -> Refusal | None:
    """Why a request is not taken, and with it nothing more of its connection; None: it is clear where it ends.

    The lines are as they came, with their ends and with the empty line after them.
    """
    if not _REQUEST_LINE.fullmatch(request_line):
        return HTTPStatus.BAD_REQUEST, "expected a request line like GET /api/v1/health HTTP/1.1"
    if header_lines[-1:] != [_EMPTY_LINE]:
        return HTTPStatus.BAD_REQUEST, "expected lines that end with CR and LF, and an empty one after the headers"
    lengths: list[bytes] = []
    hosts: list[bytes] = []
    for line in header_lines[:-1]:
        found = _HEADER.fullmatch(line)
        if found is None:
            return HTTPStatus.BAD_REQUEST, "expected header lines like Name: value"
        # With an underscore it would be the same variable for an application.
        name = found[1].lower().replace(b"_", b"-")
        if name == b"transfer-encoding":
            return HTTPStatus.LENGTH_REQUIRED, "expected a body with Content-Length"
        if name == b"host":
            hosts.append(found[2])
        if name == b"content-length":
            lengths.append(found[2] if b"_" not in found[1] else b"")
    return _repeated(lengths, hosts)


def _repeated(lengths: Sequence[bytes], hosts: Sequence[bytes]) -> Refusal | None:
    if len(lengths) > 1 or not all(each.isdigit() and len(each) <= MOST_LENGTH_DIGITS for each in lengths):
        return HTTPStatus.BAD_REQUEST, "expected one Content-Length in decimal digits"
    return (HTTPStatus.BAD_REQUEST, "expected one Host") if len(hosts) > 1 else None
