"""Does what a page of the documentation says: types its commands into terminals, and looks for the output it shows.

How a page is written so that it can be run:

- A ``console`` block is typed, line by line. ``$ `` begins a command of any user, ``# `` one of root, ``mininet> ``
  a line at Mininet's prompt. ``^C`` alone is Ctrl-C.
- Every other line of such a block is output. It must appear, in this order; more output may come between. ``...``
  stands for anything within a line; runs of blanks are equal.
- Blocks share one terminal. A block with ``title="Terminal 2"`` has the terminal of that name.
- Any other block with a ``title`` is a file of that name, written where the page is read.
- ``<!-- stays -->`` before a block: its last command does not end. The page goes on once its output has appeared.
- ``<!-- not run: REASON -->`` before a block: it is not typed.

A page begins in a folder that looks like a fresh checkout. What it writes stays there. Commands must have status 0.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WITHIN_S = 120.0
_BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^>]*?) -->\n)?(?P<indent> *)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]*)\")?\n"
    r"(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
_READY = re.compile(r"\[\[ready (\d+)\]\] $")
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
_REWRITTEN = re.compile(r"[^\n]*\r(?!\n)")
_PROMPTS = ("$ ", "# ", "mininet> ")
_STAYS = "stays"
_NOT_RUN = "not run: "


@dataclass(frozen=True)
class Block:
    """One fenced block; ``note`` is the comment in front of it."""

    line: int
    note: str
    language: str
    title: str
    text: str

    @property
    def typed(self) -> bool:
        """Whether its lines are typed into a terminal."""
        return self.language == "console" and not self.note.startswith(_NOT_RUN)


@dataclass(frozen=True)
class Step:
    """One line that is typed, and the output that the page shows for it."""

    prompt: str
    words: str
    output: tuple[str, ...]
    stays: bool = False


def pages(*folders: str) -> list[Path]:
    """All pages in these folders of docs/."""
    return sorted(page for folder in folders for page in (DOCS / folder).glob("*.md"))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        body = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(Block(line, match["note"] or "", match["language"], match["title"] or "", body))
    return found


def needs_root(page: Path) -> bool:
    """Whether the page types anything as root, or starts a server, which gets a network namespace of its own."""
    typed = [step for block in blocks(page) if block.typed for step in steps(block)]
    return any(step.prompt == "# " or step.stays for step in typed)


def steps(block: Block) -> list[Step]:
    """The lines that a block types."""
    found: list[Step] = []
    for line in block.text.splitlines():
        prompt = next((each for each in _PROMPTS if line.startswith(each)), "^C" if line == "^C" else "")
        if prompt:
            found.append(Step(prompt, line.removeprefix(prompt), ()))
        elif found:
            last = found.pop()
            found.append(Step(last.prompt, last.words, (*last.output, line)))
        else:
            raise AssertionError(f"line {block.line}: a console block begins with a prompt, not with {line!r}")
    if block.note == _STAYS:
        found[-1] = Step(found[-1].prompt, found[-1].words, found[-1].output, stays=True)
    return found


def shows(output: str, wanted: tuple[str, ...]) -> str | None:
    """The first wanted line that is not in the output behind the ones before it; None if all are."""
    lines = iter([_squeezed(line) for line in output.splitlines()])
    for line in wanted:
        text = _squeezed(line)
        if text in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in text.split("...")))
        if not any(pattern.search(each) for each in lines):
            return line
    return None


def _squeezed(line: str) -> str:
    return " ".join(line.split())


class Terminal:
    """A shell at a terminal of its own; ``prefix`` is put in front of it, for example to enter a namespace."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # A shell that starts with the signal ignored, as below nohup, never ends by it.
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.chdir(folder)
            path = f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"
            bare = {"PATH": path, "TERM": "xterm", "NO_COLOR": "1", "HOME": str(folder), "LANG": "C.UTF-8"}
            # What was unpacked once (scripts/prometheus.sh) is not fetched again.
            bare["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
            words = [*prefix, "bash", "--norc", "--noprofile", "-i"]
            os.execvpe(words[0], words, bare)
        self._raw = b""
        self._send("stty -echo cols 120; bind 'set enable-bracketed-paste off'; PS1='[[ready $?]] '\n")
        self._until(lambda text: _READY.search(text) is not None, 20.0)

    def do(self, step: Step) -> None:
        """Types one line, waits for what it leads to, and compares."""
        self._raw = b""
        self._send("\x03" if step.prompt == "^C" else step.words + "\n")
        if step.stays:
            self._until(lambda text: shows(text, step.output) is None or bool(_READY.search(text)), WITHIN_S)
            assert shows(self._text, step.output) is None, f"{step.words}: {self._text}"
            return
        self._until(lambda text: bool(_READY.search(text)) or text.endswith("mininet> "), WITHIN_S)
        ended = _READY.search(self._text)
        missing = shows(self._text, step.output)
        assert missing is None, f"{step.words}: no line like {missing!r} in\n{self._text}"
        assert ended is None or step.prompt == "^C" or ended[1] == "0", f"{step.words}: {self._text}"

    def close(self) -> None:
        """Ends the shell and what runs in it."""
        for _ in range(3):
            try:
                self._raw = b""
                self._send("\x03")
                # What takes its time to end must not get the end of its input as well.
                with suppress(AssertionError):
                    self._until(lambda text: bool(_READY.search(text)), 0.2)
                self._raw = b""
                self._send("\x04")
                self._until(lambda text: bool(_READY.search(text)), 10.0)
            except (OSError, AssertionError):
                break
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGHUP)
            deadline_s = time.monotonic() + 10.0
            while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline_s:
                    os.kill(self._pid, signal.SIGKILL)
                time.sleep(0.01)
        os.close(self._fd)

    @property
    def _text(self) -> str:
        """What is on the screen since the last command: without colours, of progress bars the last state."""
        text = _CONTROLS.sub("", self._raw.decode(errors="replace")).replace("\r\n", "\n")
        return _REWRITTEN.sub("", text)

    def _send(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def _until(self, condition: object, within_s: float) -> None:
        assert callable(condition)
        deadline_s = time.monotonic() + within_s
        while not condition(self._text):
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"not within {within_s:g} s; so far:\n{self._text}"
            if select.select([self._fd], [], [], min(left_s, 0.2))[0]:
                self._raw += os.read(self._fd, 65536)


class PageSession:
    """One reader of one page."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self.folder, self._prefix = folder, prefix
        self._terminals: dict[str, Terminal] = {}
        names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in {line.split("/")[0] for line in names.splitlines()} | {".venv", "hyroads"}:
            if (ROOT / name).exists():
                (folder / name).symlink_to(ROOT / name)

    def follow(self, page: Path) -> Iterator[str]:
        """Does what the page says; tells of each step before it is done."""
        for block in blocks(page):
            where = f"{page.parent.name}/{page.name}:{block.line}"
            if block.typed:
                terminal = self._terminal(block.title)
                for step in steps(block):
                    yield f"{where}: {step.prompt}{step.words}"
                    terminal.do(step)
            elif block.title and not block.note.startswith(_NOT_RUN):
                yield f"{where}: {block.title}"
                (self.folder / block.title).write_text(block.text)

    def close(self) -> None:
        """Ends all terminals, the last one first."""
        for terminal in reversed(self._terminals.values()):
            terminal.close()

    def _terminal(self, name: str) -> Terminal:
        # A page that names its terminals names all but, perhaps, the first.
        name = name or next(iter(self._terminals), "Terminal 1")
        if name not in self._terminals:
            self._terminals[name] = Terminal(self.folder, self._prefix)
        return self._terminals[name]


def follow(page: Path, folder: Path, prefix: tuple[str, ...] = ()) -> None:
    """The whole page, from top to bottom; an assertion names the step that went wrong."""
    session = PageSession(folder, prefix)
    step = "the beginning"
    try:
        for step in session.follow(page):
            print(step, flush=True)
    except AssertionError as error:
        raise AssertionError(f"{step}\n{error}") from error
    finally:
        session.close()
