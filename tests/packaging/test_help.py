"""Manual pages and completions, made from the parsers of the commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("shtab")
pytest.importorskip("argparse_manpage")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, in a folder."""
    folder = tmp_path_factory.mktemp("help")
    program = (
        "import pathlib, re, sys, manual_pages as m\n"
        "folder, root = map(pathlib.Path, sys.argv[1:])\n"
        "for name, text in m.manual_pages('1.2', '2026-01-01'): (folder / name).write_text(text)\n"
        "for shell in ('bash', 'zsh'): (folder / shell).write_text(m.completion(shell))\n"
        "source = (root / 'dataplane/src/edge/options.rs').read_text()\n"
        "usage = re.search(r'USAGE: &str = \"\\\\\\n(.*?)\";', source, re.DOTALL)[1]\n"
        "(folder / 'hyroads-edge.8').write_text(m.edge_page(usage, '1.2', '2026-01-01'))\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(ROOT)]
    path = f"{ROOT / 'scripts'}:{ROOT}"
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_command_has_its_page_with_all_its_options(made: Path) -> None:
    from hyroads.controller.cli.main import COMMANDS

    assert {page.name for page in made.glob("*.1")} == {"hyroads.1", *(f"hyroads-{name}.1" for name in COMMANDS)}
    page = (made / "hyroads-controller.1").read_text().replace("\\-", "-")
    assert all(option in page for option in ("--config", "--network", "--check", "--log-format", "--verbose"))
    overview = (made / "hyroads.1").read_text().replace("\\-", "-")
    assert all(f"hyroads-{name}(1)" in overview for name in COMMANDS)
    assert "--token-file" in (made / "hyroads-edge.8").read_text().replace("\\-", "-")


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_the_pages_are_well_formed(made: Path) -> None:
    for page in sorted(made.glob("*.[18]")):
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), f"{page.name}: {done.stderr}"
        assert page.stem.upper() in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["contr"], {"controller"}),
        (["controller", "--log-format", ""], {"text", "json"}),
        (["slices", "list-fl"], {"list-flowspace"}),
    ],
)
def test_the_shell_completes(made: Path, words: list[str], expected: set[str]) -> None:
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}\n'
        'function_=$(complete -p hyroads | sed "s/.*-F \\([^ ]*\\) .*/\\1/")\n'
        '"$function_" hyroads "${COMP_WORDS[$COMP_CWORD]}" "${COMP_WORDS[$COMP_CWORD-1]}"; echo "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", script, "bash", str(made / "bash"), "hyroads", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert set(done.stdout.split()) >= expected, done.stderr
    assert len(words) > 1 or set(done.stdout.split()) == expected
