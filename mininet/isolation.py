"""Runs a piece of work in process, mount and network namespaces of its own, so that nothing of it can outlive it.

Three processes: the *owner* (the command the user started) waits outside; *init* is process 1 of the new process
namespace, which the kernel empties with SIGKILL as soon as init ends, whatever ended it; the *worker* does the work.
Init dies with its owner (PR_SET_PDEATHSIG), so killing any of the three ends everything that the worker started.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hyroads.controller.core.errors import HyroadsError

from .programs import EmulationError

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
PR_SET_PDEATHSIG = 1
# siginfo's si_code for a signal that the kernel itself sent, such as a terminal's Ctrl-C.
SI_KERNEL = 0x80

EXIT_COULD_NOT_RUN = 2
EXIT_INTERRUPTED = 130
HANDLED = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    """One system call through libc; raises OSError with errno's text."""
    if getattr(_libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def enter_network_namespace(path: Path) -> None:
    """Moves this thread (and what it starts from now on) into the network namespace at ``path``."""
    with path.open("rb") as handle:
        _call("setns", handle.fileno(), CLONE_NEWNET)


def socket_in(
    namespace: Path, family: socket.AddressFamily, kind: socket.SocketKind, protocol: int = 0
) -> socket.socket:
    """A socket of another network namespace; this thread enters it for as long as that takes."""
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        enter_network_namespace(namespace)
        try:
            return socket.socket(family, kind, protocol)
        finally:
            _call("setns", home.fileno(), CLONE_NEWNET)


def udp_socket_in(namespace: Path) -> socket.socket:
    """A UDP socket of another network namespace, for IPv4."""
    return socket_in(namespace, socket.AF_INET, socket.SOCK_DGRAM)


def run_isolated(netns: Path, work: Callable[[], int]) -> int:
    """Runs ``work`` in fresh process and mount namespaces inside the network namespace ``netns``.

    Returns the exit status of ``work``; a HyroadsError of it is one line on stderr and status 2, an interruption is
    130. Every process that ``work`` started has ended when this returns.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    alive_read, alive_write = os.pipe()
    try:
        with Path("/proc/self/ns/pid").open("rb") as own_pid_namespace:
            _call("unshare", CLONE_NEWPID)
            sys.stdout.flush()
            sys.stderr.flush()
            init = os.fork()
            if init == 0:
                os.close(alive_write)
                _run_init(netns, work, alive_read, previous)
            # Only init belongs in the new namespace, not what the owner starts later.
            _call("setns", own_pid_namespace.fileno(), CLONE_NEWPID)
        return _wait_forwarding(init)
    finally:
        os.close(alive_read)
        os.close(alive_write)
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _run_init(netns: Path, work: Callable[[], int], alive_read: int, mask: set[int]) -> NoReturn:
    """Process 1: sets the namespaces up, starts the worker and reaps orphans until the worker ends."""
    status = EXIT_COULD_NOT_RUN
    try:
        _die_with_owner(alive_read)
        enter_network_namespace(netns)
        _call("unshare", CLONE_NEWNS)
        # Private before the mount, else the new /proc would show up in the mount namespace we came from.
        _call("mount", b"none", b"/proc", None, MS_REC | MS_PRIVATE, None)
        _call("mount", b"proc", b"/proc", b"proc", 0, None)
        worker = os.fork()
        if worker == 0:
            _run_worker(work, mask)
        status = _wait_forwarding(worker)
    except OSError as error:
        sys.stderr.write(f"hyroads: could not isolate the emulation: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(status)


def _die_with_owner(alive_read: int) -> None:
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The owner may have ended before the line above; then its end of the pipe is closed.
    if select.select([alive_read], [], [], 0)[0]:
        os._exit(EXIT_COULD_NOT_RUN)


def _run_worker(work: Callable[[], int], mask: set[int]) -> NoReturn:
    """Does the work; signals, blocked so far, are handled here and not by what the owner does with them."""
    status = EXIT_COULD_NOT_RUN
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = work()
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except HyroadsError as error:
        sys.stderr.write(f"hyroads: {error}\n")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else EXIT_COULD_NOT_RUN
    except BaseException as bug:  # noqa: BLE001  # the last handler of a forked process: report, end in order
        sys.excepthook(type(bug), bug, bug.__traceback__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                # The reader of our output has gone; there is nobody left to tell.
                status = status or EXIT_COULD_NOT_RUN
        os._exit(status)


def _interrupt(_number: int, _frame: object) -> None:
    # Not KeyboardInterrupt: at Mininet's prompt that ends a command, and the prompt goes on.
    raise SystemExit(EXIT_INTERRUPTED)


def _wait_forwarding(child: int) -> int:
    """Waits for ``child``, reaping every other one, and passes signals on; returns the shell's exit status."""
    while True:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError as error:
                raise EmulationError("lost the emulation's own process") from error
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if pid == 0:
                break
        received = signal.sigwaitinfo(HANDLED)
        # Ctrl-C at a terminal reaches the whole foreground group by itself.
        if received.si_signo != signal.SIGCHLD and received.si_code != SI_KERNEL:
            os.kill(child, received.si_signo)
