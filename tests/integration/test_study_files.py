"""What studies write, from processes of their own: the same bytes each time, and nothing half written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_another_process_draws_the_same_bytes_whatever_the_users_own_style(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\nsvg.hashsalt: other\n")
    program = (
        "import sys, hashlib; sys.path[:0] = ['tests/unit']; from test_study_drawing import BARS, draw\n"
        "print(*(hashlib.sha256(data).hexdigest() for data in draw(BARS).values()))"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **more},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for more in ({}, {"MATPLOTLIBRC": str(tmp_path / "matplotlibrc"), "PYTHONHASHSEED": "7"})
    ]
    assert found[0] == found[1] and len(found[0].split()) == 3


def write_with_little_room(folder: Path) -> int:
    """In a process of its own that may write small files only: the exit status is 3 if that is said in one line."""
    program = (
        "import resource, sys; sys.path[:0] = ['tests/unit']; from test_study_drawing import *\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        f"try: write(RESULT, Path({str(folder)!r}), plots=True)\n"
        "except StudyError as error: sys.exit(3 if 'File too large' in str(error) else 4)"
    )
    return subprocess.run([sys.executable, "-c", program], check=False).returncode


def test_without_room_nothing_is_half_written(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("Earlier.")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert write_with_little_room(tmp_path) == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
