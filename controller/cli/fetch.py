"""``hyroads fetch``: files over all interfaces at once."""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import json
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyroads.controller.download.engine import SAID, Engine, Limiter
from hyroads.controller.download.fetch import Download, Fetcher, Request, is_local, paths_of
from hyroads.controller.download.http1 import parse_url
from hyroads.controller.download.interfaces import LOOPBACK, InputError, default_interfaces, named_interfaces

from .main import EXIT_INTERRUPTED, Command, argument

if TYPE_CHECKING:
    from rich.progress import Progress

    from hyroads.controller.download.proxy import Proxy

_EXIT_FAILED = 1
_MOST_MBPS = 1e6
_MOST_PORT = 0xFFFF
_MOST_WEIGHT = 1000.0
_ALGORITHMS = ("sha256", "sha512", "sha1", "md5")
# Ours: they say which bytes we want, or what the connection does.
_OUR_HEADERS = frozenset(
    b"range if-range host connection content-length transfer-encoding if-match if-none-match te upgrade expect".split()
)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)")


def _run(args: argparse.Namespace) -> int:
    requests = requests_of(args)
    limit_mbps = None
    if args.limit_mbps is not None:
        limit_mbps = _number("--limit-mbps", args.limit_mbps, _MOST_MBPS, "a rate above 0 Mb/s")
    timeout_s = _number("--timeout", args.timeout, 86_400.0, "a time above 0 s")
    paths_of(requests)
    names = named_interfaces(args.interfaces) if args.interfaces is not None else default_interfaces()
    if args.interfaces is None:
        local = [is_local(parse_url(url)) for url in (*args.urls, *args.mirror)]
        names = [*(names if not all(local) else ()), *([LOOPBACK] if any(local) else ())]
    if not names:
        raise InputError("no interface has a default route (--interfaces names those to use)")
    show = not args.json and not args.no_progress and sys.stderr.isatty()
    progress = _Bars() if show else None
    say = progress.say if progress is not None else _say

    def tell(event: str, name: str) -> None:
        say(f"{name}: {SAID[event]}")

    engine = Engine(names, limiter=Limiter(limit_mbps), timeout_s=timeout_s, say=tell, dns=dns_of(args.dns, names))
    watch: Callable[[Sequence[Download]], None] = progress.show if progress is not None else lambda _: None
    signal.signal(signal.SIGTERM, _interrupt)
    if args.metrics is not None:
        serve_metrics_of("fetch", engine, None, args.metrics)
    downloads: list[Download] = []
    try:
        downloads = Fetcher(engine, say).run(requests, watch)
    except KeyboardInterrupt:
        say("interrupted; the same command goes on where this one ended")
        return EXIT_INTERRUPTED
    finally:
        if progress is not None:
            progress.stop()
    return _report(downloads, as_json=args.json)


def serve_metrics_of(program: str, engine: Engine, proxy: Proxy | None, port: int) -> int:
    """The metrics of a program at a port of loopback; which port it is."""
    if not 0 <= port <= _MOST_PORT:
        raise InputError(f"--metrics {port}: expected a port number")
    # Only then: what writes them takes a while to import.
    from hyroads.controller.download.metrics import DownloadMetrics, serve_metrics

    return serve_metrics(port, DownloadMetrics(program, engine, proxy))


def dns_of(given: Sequence[str], names: Sequence[str]) -> dict[str, list[str]]:
    """``--dns IF=ADDRESS,ADDRESS`` by interface; raises InputError."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, _, servers = text.partition("=")
        try:
            addresses = [str(ipaddress.ip_address(word.strip())) for word in servers.split(",")]
        except ValueError as error:
            raise InputError(f"--dns {text[:60]!a}: expected IF=ADDRESS, or several addresses with commas") from error
        if name not in names:
            raise InputError(f"--dns {text[:60]!a}: expected one of the interfaces {', '.join(names)}")
        found.setdefault(name, []).extend(addresses)
    return found


def requests_of(args: argparse.Namespace) -> list[Request]:
    """What the command line asks for; raises InputError for what can't be."""
    urls: list[str] = args.urls
    for single, name in ((args.output, "-o"), (args.mirror, "--mirror"), (args.checksum, "--checksum")):
        if single and len(urls) > 1:
            raise InputError(f"{name}: for one URL only, got {len(urls)}")
    for url in (*urls, *args.mirror):
        parse_url(url)
    weights = _weights(args.weight, len(urls))
    checksum = None if args.checksum is None else _checksum(args.checksum)
    headers = tuple(_header(text) for text in args.header)
    output = None if args.output is None else Path(args.output)
    return [
        Request(url, output, tuple(args.mirror), weight, checksum, headers, args.force, args.no_resume)
        for url, weight in zip(urls, weights, strict=True)
    ]


def _number(name: str, value: float, most: float, what: str) -> float:
    if not (math.isfinite(value) and 0 < value <= most):
        raise InputError(f"{name} {value:g}: expected {what}, at most {most:g}")
    return value


def _weights(text: str | None, count: int) -> list[float]:
    if text is None:
        return [1.0] * count
    try:
        weights = [float(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(f"--weight {text[:40]!a}: expected numbers with commas between them") from error
    if len(weights) != count:
        raise InputError(f"--weight: expected a number for each of the {count} URLs, got {len(weights)}")
    return [_number("--weight", weight, _MOST_WEIGHT, "a number above 0") for weight in weights]


def _checksum(text: str) -> tuple[str, str]:
    algorithm, _, digits = text.partition(":")
    algorithm, digits = algorithm.lower(), digits.lower()
    if algorithm not in _ALGORITHMS:
        raise InputError(f"--checksum {text[:40]!a}: expected {', '.join(_ALGORITHMS)}, ':' and hexadecimal digits")
    expected = 2 * hashlib.new(algorithm, usedforsecurity=False).digest_size
    if not re.fullmatch(f"[0-9a-f]{{{expected}}}", digits):
        raise InputError(f"--checksum {algorithm}: expected {expected} hexadecimal digits, got {digits[:140]!a}")
    return algorithm, digits


def _header(text: str) -> tuple[bytes, bytes]:
    match = _HEADER.fullmatch(text)
    if match is None:
        raise InputError(f"--header {text.partition(':')[0][:40]!a}: expected 'Name: value' in printable ASCII")
    name, value = match[1].encode(), match[2].encode()
    if name.lower() in _OUR_HEADERS:
        raise InputError(f"--header {match[1]}: is set by hyroads fetch itself")
    return name, value


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"hyroads fetch: {text}", file=sys.stderr, flush=True)


def _report(downloads: Sequence[Download], *, as_json: bool) -> int:
    failed = [each for each in downloads if each.error is not None]
    if as_json:
        print(json.dumps({"files": [_document(each) for each in downloads], "ok": not failed}, indent=2))
    else:
        for each in downloads:
            if each.error is None:
                print(_line(each))
    for each in failed:
        print(f"hyroads: {each.error}", file=sys.stderr)
    return _EXIT_FAILED if failed else 0


def _line(download: Download) -> str:
    shares = ", ".join(
        f"{name} {count / max(1, sum(download.bytes_by_interface.values())):.0%}"
        for name, count in download.bytes_by_interface.items()
    )
    resumed = f", {download.resumed_bytes / 1e6:.1f} MB were there" if download.resumed_bytes else ""
    size = (download.received_bytes + download.resumed_bytes) / 1e6
    speed = f"{download.seconds:.2f} s, {download.rate_mbps:.1f} Mb/s"
    return f"{download.path}: {size:.1f} MB in {speed} ({shares or 'nothing to fetch'}{resumed})"


def _document(download: Download) -> dict[str, Any]:
    """What ``--json`` says of a file (docs/how-to/download.md)."""
    return {
        "url": download.url.short,
        "file": str(download.path),
        "bytes": download.received_bytes + download.resumed_bytes,
        "resumed_bytes": download.resumed_bytes,
        "seconds": round(download.seconds, 4),
        "rate_mbps": round(download.rate_mbps, 3),
        "split": download.split,
        "interfaces": {
            name: {"bytes": count, "mbps": round(count * 8e-6 / download.seconds, 3)}
            for name, count in download.bytes_by_interface.items()
        },
        "error": None if download.error is None else str(download.error),
    }


class _Bars:
    """Progress bars on a terminal; what draws them is imported while the first bytes are on their way."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[int, Any] = {}
        self._rates: dict[tuple[int, str], tuple[float, int, float]] = {}
        self._shown_s = 0.0
        self._ready = threading.Event()
        threading.Thread(target=self._load, daemon=True).start()

    def _load(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
        rates = TextColumn("{task.fields[rates]}", markup=False)
        self._progress = Progress(*columns, rates, console=Console(stderr=True), auto_refresh=False)
        self._progress.start()
        self._ready.set()

    def say(self, text: str) -> None:
        """A line above the bars."""
        if self._progress is None:
            _say(text)
        else:
            self._progress.console.print(f"hyroads fetch: {text}", markup=False, highlight=False)

    def show(self, downloads: Sequence[Download]) -> None:
        """Draw the bars, four times a second."""
        now_s = time.monotonic()
        if self._progress is None or now_s - self._shown_s < 0.25:
            return
        self._shown_s = now_s
        for number, each in enumerate(downloads):
            if number not in self._tasks:
                name = each.path.name[-40:].replace("[", "\\[")
                self._tasks[number] = self._progress.add_task(name, total=each.length, rates="")
            rates = " ".join(
                f"{name} {self._rate(number, name, count, now_s):.1f} MB/s"
                for name, count in tuple(each.bytes_by_interface.items())
            )
            there = each.received_bytes + each.resumed_bytes
            self._progress.update(self._tasks[number], total=each.length, completed=there, rates=rates)
        self._progress.refresh()

    def _rate(self, number: int, name: str, count: int, now_s: float) -> float:
        """Megabytes per second of an interface, over about the last second."""
        since_s, before, rate = self._rates.get((number, name), (now_s - 0.25, 0, 0.0))
        rate = 0.6 * rate + 0.4 * (count - before) / 1e6 / max(0.01, now_s - since_s)
        self._rates[number, name] = (now_s, count, rate)
        return rate

    def stop(self) -> None:
        """Leave the bars as they are."""
        if self._ready.is_set() and self._progress is not None:
            self._progress.stop()


DNS = argument(
    "--dns",
    action="append",
    default=[],
    metavar="IF=ADDRESS",
    help="DNS servers of an interface's network (default: those that it told this machine, else this machine's own)",
)
METRICS = argument("--metrics", type=int, metavar="PORT", help="metrics for Prometheus at 127.0.0.1:PORT/metrics")
COMMAND = Command(
    "Fetch files (http, https) over several interfaces at once. A file has its name only when it is whole, of one "
    "version, and its checksum is right; until then it is FILE.part, and the same command goes on where an earlier one "
    "ended. Exit status 0: all files are there, 1: one could not be fetched, 2: bad input.",
    _run,
    argument("urls", nargs="+", metavar="URL", help="http://... or https://..."),
    argument("-o", "--output", metavar="FILE", help="where to write (default: the last part of the URL's path)"),
    argument("--interfaces", metavar="IF,IF", help="interfaces to use (default: all with a default route)"),
    DNS,
    argument("--mirror", action="append", default=[], metavar="URL", help="another server with the same file"),
    argument("--checksum", metavar="ALGORITHM:HEX", help="what the file must be, e.g. sha256:..."),
    argument("--limit-mbps", type=float, metavar="X", help="at most so many Mb/s, all files together"),
    argument("--weight", metavar="W,W", help="share of each URL when several are fetched (default 1 each)"),
    argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="one more request header"),
    argument("--timeout", type=float, default=30.0, metavar="S", help="give up after S s without a byte (default 30)"),
    argument("--force", action="store_true", help="overwrite an existing file"),
    argument("--no-resume", action="store_true", help="begin again, whatever an earlier run left"),
    argument("--no-progress", action="store_true", help="no progress bars"),
    argument("--json", action="store_true", help="print one JSON document at the end"),
    METRICS,
)
