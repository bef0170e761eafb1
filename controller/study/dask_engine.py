"""Carries out the tasks of a study on the workers of a Dask cluster (the extra ``dask``).

What runs there is this package, which the workers have installed; of another version nothing is taken. Outcomes come
back as text (``outcomes.py``), so that they are the same to the last bit. A task whose worker dies is given to another.
Whoever reaches a scheduler of Dask can run code on its workers: what leaves this machine goes by TLS, with certificates
for both ends.
"""

from __future__ import annotations

import functools
import importlib
import ipaddress
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from hyroads.controller.files.text import check_private

from .framework import StudyError
from .outcomes import OutcomeError, classes_of, decode, encode
from .task_store import code_digest

CONNECT_S = 10.0
NO_WORKER_S = 60.0
_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM: the authority that both ends trust, and our certificate with its key."""

    authority: Path
    certificate: Path
    key: Path


def check_address(address: str, tls: Tls | None, insecure: bool) -> None:
    """``StudyError`` unless it is ``tls://HOST:PORT`` with certificates, or ``tcp://`` to this very machine.

    With ``insecure`` ``tcp://`` may lead anywhere.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or parts.scheme not in ("tcp", "tls") or parts.path or parts.username is not None:
        raise StudyError(f"--dask {address[:80]!a}: expected tls://HOST:PORT, or tcp://HOST:PORT on this machine")
    if parts.scheme == "tls":
        if tls is None:
            raise StudyError(f"--dask {address}: TLS needs --dask-ca, --dask-cert and --dask-key")
        check_private(tls.key, "the key of a certificate")
        for path in (tls.authority, tls.certificate):
            if not path.is_file():
                raise StudyError(f"{path}: no such file")
    elif not insecure and not _is_loopback(host):
        raise StudyError(
            f"--dask {address}: tcp:// is neither encrypted nor authenticated; use tls://, or give --dask-insecure"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def dask_workers(address: str, tls: Tls | None = None, insecure: bool = False) -> Iterator[DaskWorkers]:
    """An engine that uses the cluster whose scheduler is there. ``StudyError`` if there is none, or it is not safe."""
    check_address(address, tls, insecure)
    if find_spec("distributed") is None:
        raise StudyError("--dask needs Dask: pip install 'hyroads[dask]'")
    distributed: Any = importlib.import_module("distributed")
    # What goes wrong is said once, by an error. Loggers below this one have levels of their own.
    for name in ("distributed", *(each for each in logging.root.manager.loggerDict if each.startswith("distributed."))):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    security = distributed.Security(**({} if tls is None else _files_of(tls)))
    try:
        client = distributed.Client(address, security=security, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise StudyError(f"--dask {address}: no scheduler answers ({_first_line(error)})") from error
    try:
        yield DaskWorkers(address, client)
    finally:
        with suppress(Exception):
            client.close(timeout=_LOOK_S)


def _files_of(tls: Tls) -> dict[str, Any]:
    return {
        "tls_ca_file": str(tls.authority),
        "tls_client_cert": str(tls.certificate),
        "tls_client_key": str(tls.key),
        "require_encryption": True,
    }


class DaskWorkers:
    """An ``Engine`` of the framework: a connected client of a Dask cluster."""

    def __init__(self, address: str, client: Any) -> None:
        self.address = address
        self._client = client

    def workers(self) -> list[str]:
        """The addresses of the workers that are there now."""
        return list(self._client.nthreads())

    def outcomes(self, work: Callable[[Any], Any], tasks: Mapping[int, Any]) -> Iterator[tuple[int, Any]]:
        """The number of each task with its outcome, in the order in which they end.

        ``StudyError`` if the scheduler is lost, no worker is there for a minute, or one is of another version.
        """
        classes = classes_of(work)
        ended: SimpleQueue[int] = SimpleQueue()
        label = f"hyroads-{work.__name__}-{time.monotonic_ns()}"
        futures = dict(
            zip(
                tasks,
                self._client.map(
                    functools.partial(carried_out, work),
                    list(tasks.values()),
                    key=[f"{label}-{number}" for number in tasks],
                    pure=False,
                ),
                strict=True,
            )
        )
        try:
            for number, future in futures.items():
                future.add_done_callback(functools.partial(_tell, ended, number))
            while futures:
                number = self._next(ended)
                yield number, self._outcome(futures.pop(number), work, classes)
        finally:
            with suppress(Exception):
                self._client.cancel(list(futures.values()))

    def _next(self, ended: SimpleQueue[int]) -> int:
        """The number of a task that has ended; looks now and then whether anybody is still at work."""
        seen = time.monotonic()
        while True:
            with suppress(Empty):
                return ended.get(timeout=_LOOK_S)
            try:
                workers = self.workers()
            except Exception as error:
                raise StudyError(f"--dask {self.address}: the scheduler is lost ({_first_line(error)})") from error
            if workers:
                seen = time.monotonic()
            elif time.monotonic() - seen > NO_WORKER_S:
                raise StudyError(f"--dask {self.address}: no worker for {NO_WORKER_S:g} s")

    def _outcome(self, future: Any, work: Callable[[Any], Any], classes: Mapping[str, type]) -> Any:
        distributed: Any = importlib.import_module("distributed")
        killed: type[Exception] = distributed.KilledWorker
        lost: type[Exception] = distributed.client.FutureCancelledError
        try:
            version, text = future.result()
        except lost as error:
            # The client gives up all tasks as soon as its connection ends, before anybody asks for the workers.
            raise StudyError(f"--dask {self.address}: the scheduler is lost, or dropped a task") from error
        except killed as error:
            raise StudyError(f"--dask {self.address}: each worker of a task died: {_first_line(error)}") from error
        except (OSError, TimeoutError, ImportError, AttributeError) as error:
            raise StudyError(f"--dask {self.address}: {type(error).__name__}: {_first_line(error)}") from error
        if version != code_digest():
            raise StudyError(f"--dask {self.address}: a worker has another version of HyRoads or of its libraries")
        try:
            return decode(text, classes)
        except OutcomeError as error:
            raise StudyError(f"--dask {self.address}: {work.__name__}: {_first_line(error)}") from error


def carried_out(work: Callable[[Any], Any], task: Any) -> tuple[str, str]:
    """On a worker: the version of what carries out the task, and its outcome as text."""
    try:
        return code_digest(), encode(work(task), classes_of(work))
    except OutcomeError as error:
        raise StudyError(f"outcomes of {work.__name__} can't be sent: {error}") from error


def _tell(ended: SimpleQueue[int], number: int, future: Any) -> None:
    ended.put(number)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
