"""What a plugin's process may not do to the machine, set by itself before a plugin's code is imported (Linux).

It dies with the controller, runs after everything else that wants the processor, has bounded memory and descriptors,
leaves no core files, and can't start processes: these would outlive it. This bounds faults, not malice: against that
give it a user of its own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import pwd
import resource
import signal
import struct
from dataclasses import dataclass

NICE = 10
MAX_DESCRIPTORS = 256
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 38, 22, 2
_LOAD, _EQUALS, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _REFUSE, _UNKNOWN_CALL = 0x7FFF0000, 0x80000000, 0x00050000 | 1, 0x00050000 | 38
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000


@dataclass(frozen=True, slots=True)
class Calls:
    """Numbers of system calls on a machine."""

    architecture: int
    clone: int
    forks: tuple[int, ...]
    clone3: int = 435


_MACHINES = {
    "x86_64": Calls(0xC000003E, 56, (57, 58)),
    "aarch64": Calls(0xC00000B7, 220, ()),
}


def confine(memory_mb: int, user: str | None) -> None:
    """Bound this process. ``OSError``, ``KeyError``: it can't be done."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_DESCRIPTORS, MAX_DESCRIPTORS))
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    if user is not None:
        account = pwd.getpwnam(user)
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    # After the change of user, which takes it back.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    calls = _MACHINES.get(platform.machine())
    if calls is not None:
        _filter(libc, _no_processes(calls))


def _no_processes(calls: Calls) -> bytes:
    """A filter for system calls: threads may be started, processes may not.

    ``clone3`` hides its flags from filters; told that it does not exist, the C library takes ``clone``.
    """
    refused = (*calls.forks,)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUALS, 1, 0, calls.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUALS, 0, 1, calls.clone3),
        (_RETURN, 0, 0, _UNKNOWN_CALL),
        (_ANY_BIT, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE),
        *(step for number in refused for step in ((_EQUALS, 0, 1, number), (_RETURN, 0, 0, _REFUSE))),
        (_EQUALS, 1, 0, calls.clone),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in program)


def _filter(libc: ctypes.CDLL, program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    steps = ctypes.create_string_buffer(program, len(program))
    filled = Program(len(program) // 8, ctypes.cast(steps, ctypes.c_char_p))
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filled), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "the system calls of plugins can't be bounded")
