"""Files that hold secrets, or what must survive a loss of power: only their owner can read them, and nobody ever sees
half of one. Needs the standard library alone, so that every program of ours can write with it.

Files are opened as without green threads: theirs would make a hub, with a descriptor for good, in each thread of the
system that saves.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posix
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """The file is as before or has the whole text, also after a loss of power; mode 0600 from its first moment on."""
    put_in_place(write_beside(path, text.encode()), path)


def write_beside(path: Path, *parts: bytes) -> Path:
    """A new file with these parts, on the disk, to be put in the place of ``path``; nothing is left if that fails."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = posix.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        _keep_owner(descriptor, path)
        with open(descriptor, "wb") as handle:  # noqa: PTH123 - it has no path
            handle.writelines(parts)
            handle.flush()
            os.fsync(handle.fileno())
    except BaseException:
        # A full disk would else be a little fuller.
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    return new


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, which is made with mode 0600 if it is not there. The line is on the disk when this returns,
    and programs that append at the same time lose none. OSError.
    """
    descriptor = posix.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        # A loss of power may have cut the last line.
        is_whole = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
        posix.write(descriptor, f"{'' if is_whole else chr(10)}{line}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def _keep_owner(descriptor: int, path: Path) -> None:
    """A file that root replaces still belongs to the user of the program that reads it."""
    if os.geteuid() == 0:
        with contextlib.suppress(FileNotFoundError):
            known = path.lstat()
            os.fchown(descriptor, known.st_uid, known.st_gid)


def put_in_place(new: Path, path: Path) -> None:
    """From now on ``path`` is that file, and still is after a loss of power."""
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Names in a folder are on the disk."""
    descriptor = posix.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems have nothing to sync there.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)
