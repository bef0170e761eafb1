"""``hyroads dashboard``: a live picture of a running network in a browser, a process of its own."""

from __future__ import annotations

import argparse

from hyroads.controller.core.errors import ConfigError

from .main import Command, argument
from .remote import add_connection, connection

DEFAULT_PORT = 8090


def _run(args: argparse.Namespace) -> int:
    url, token = connection(args)
    if not 1 <= args.port <= 0xFFFF:
        raise ConfigError("--port", "", f"expected 1 to 65535, got {args.port}")
    from hyroads.dashboard.reader import Source
    from hyroads.dashboard.server import DashboardOptions, serve

    links = {} if args.grafana is None else {"grafana": args.grafana}
    # One is read, and each knows the same.
    source = Source(url.split(",")[0].rstrip("/"), token, args.ca)
    return serve(DashboardOptions(source, args.listen, args.port, args.cert, args.key, links))


COMMAND = Command(
    "Show a running network in a browser (docs/how-to/dashboard.md). On loopback without a login; beyond it with TLS, "
    "and a login with the tokens of the API.",
    _run,
    lambda parser: add_connection(parser, as_json=False),
    argument("--ca", metavar="FILE", help="certificates by which the controller is checked (default: the system's)"),
    argument("--listen", metavar="ADDRESS", default="127.0.0.1", help="where pages are served (default: %(default)s)"),
    argument("--port", type=int, default=DEFAULT_PORT, help="where pages are served (default: %(default)s)"),
    argument("--cert", metavar="FILE", help="certificate of the pages (PEM): with TLS everybody logs in"),
    argument("--key", metavar="FILE", help="its key"),
    argument("--grafana", metavar="URL", help="address of a Grafana, where older figures are"),
)
