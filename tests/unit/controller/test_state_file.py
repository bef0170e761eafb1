"""Whatever is in the place of the state file: a process starts with what is sound, and loses nothing of the rest."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.files import state
from hyroads.controller.files.private import write_atomically
from hyroads.controller.files.state import MAX_BYTES, MOST_ASIDE, Format, Origin, StateFile, parse, text_of


def _doubled(document: Any) -> Any:
    return {**document, "names": document["names"] * 2}


def _counted(document: Any) -> Any:
    return {**document, "count": {"of": len(document["names"])}}


FORM = Format(3, {"names": list, "count": dict}, {1: _doubled, 2: _counted}, checked_from=2)
OLD, NEW = {"names": ["old"], "count": {"a": 1}}, {"names": ["new"], "count": {"b": 2}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a file that was written twice."""
    file = StateFile(tmp_path / "state.json", FORM)
    file.save(OLD)
    file.save(NEW)
    return tmp_path / "state.json"


def asides(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir() if each.name not in {"state.json", "state.json.1"})


@given(st.lists(JSON, max_size=2), st.dictionaries(st.text(max_size=8), JSON, max_size=2))
def test_what_is_written_is_read(names: list[Any], count: dict[str, Any]) -> None:
    text = text_of(FORM, {"names": names, "count": count})
    found = parse(text, "state.json", FORM)
    assert found.problem is None and found.document == {"names": names, "count": count}


@given(st.data())
def test_every_change_of_a_byte_is_noticed(data: st.DataObject) -> None:
    text = bytearray(text_of(FORM, NEW).encode())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 127))
    found = parse(text.decode(errors="replace"), "state.json", FORM)
    assert found.problem is not None


@given(st.text() | JSON.map(json.dumps))
def test_no_text_is_an_error(text: str) -> None:
    found = parse(text, "state.json", FORM)
    assert found.problem is not None or found.document is not None


def test_one_before_is_the_older_copy_and_nobody_else_can_read_them(path: Path) -> None:
    assert parse(path.read_text(), "", FORM).document == NEW
    assert parse(path.with_name("state.json.1").read_text(), "", FORM).document == OLD
    assert asides(path) == []
    for each in path.parent.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_theirs_no_longer(path: Path) -> None:
    path.chmod(0o644)
    StateFile(path, FORM).load()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def _written(data: bytes) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(data), None)[1]


def _changed(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: (path.write_bytes(change(path.read_bytes())), None)[1]


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").write_text("of somebody")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


BROKEN: dict[str, Callable[[Path], None]] = {
    "empty": _written(b""),
    "cut": _changed(lambda data: data[: len(data) // 2]),
    "zeros": _changed(lambda data: bytes(len(data))),
    "end of zeros": _changed(lambda data: data[:-20] + bytes(20)),
    "no version": _written(b"{}"),
    "another version": _written(b'{"version": "3", "names": [], "count": {}}'),
    "version true": _written(b'{"version": true, "names": [], "count": {}}'),
    "a list": _written(b"[]"),
    "null": _written(b"null"),
    "newer": _written(b'{"version": 4, "names": {}}'),
    "names null": _written(text_of(FORM, {"names": None, "count": {}}).encode()),
    "not to be migrated": _written(b'{"version": 1, "names": null, "count": {}}'),
    "names missing": _written(b'{"version": 1}'),
    "edited": _changed(lambda data: data.replace(b"new", b"NEW")),
    "not UTF-8": _written(b'{"version": 3, "names": ["\xff"]}'),
    "twice": _written(b'{"version": 1, "version": 1, "names": [], "count": {}}'),
    "deep": _written(b"[" * 100_000),
    "long number": _written(b'{"version": ' + b"9" * 5000 + b"}"),
    "huge": _huge,
    "a folder": _folder,
    "a pipe": _pipe,
}


@pytest.mark.parametrize("kind", BROKEN)
def test_from_a_broken_file_the_older_copy_is_next_and_then_nothing(path: Path, kind: str) -> None:
    BROKEN[kind](path)
    is_folder, data = path.is_dir(), path.read_bytes() if path.is_file() and kind != "huge" else None
    found = StateFile(path, FORM).load()
    assert (found.document, found.origin) == (OLD, Origin.OLDER)
    (broken,) = found.broken
    assert broken.file == str(path) and broken.problem and broken.aside is not None
    assert len(str(broken).splitlines()) == 1 and len(str(broken)) < 400
    aside = path.with_name(broken.aside)
    assert not os.path.lexists(path) and asides(path) == [aside.name]
    assert aside.name.startswith("state.json.version-4-" if kind == "newer" else "state.json.broken-")
    assert aside.read_bytes() == data if data is not None else aside.is_dir() == is_folder
    # The next file is written as if nothing had been, and the older copy is still the older one.
    file = StateFile(path, FORM)
    file.save(NEW)
    assert file.load().document == NEW and aside.exists()
    BROKEN[kind](path)
    assert StateFile(path, FORM).load().document == OLD
    # Without an older copy.
    StateFile(path, FORM).save(NEW)
    path.with_name("state.json.1").unlink()
    BROKEN[kind](path)
    found = StateFile(path, FORM).load()
    edited = {"names": ["NEW"], "count": NEW["count"]}
    assert found.document == {"edited": edited, "names null": {"count": {}}}.get(kind)


def test_both_broken_means_nothing_and_both_are_put_aside(path: Path) -> None:
    for each in (path, path.with_name("state.json.1")):
        each.write_text("{")
    found = StateFile(path, FORM).load()
    assert (found.document, found.origin, len(found.broken)) == (None, Origin.NOTHING, 2)
    assert len(asides(path)) == 2 and not path.exists()


def test_a_file_that_is_missing_beside_its_older_copy_was_lost(path: Path) -> None:
    path.unlink()
    found = StateFile(path, FORM).load()
    assert (found.document, found.origin) == (OLD, Origin.OLDER) and "missing" in str(found.broken[0])
    path.with_name("state.json.1").unlink()
    found = StateFile(path, FORM).load()
    assert (found.document, found.origin, found.broken) == (None, Origin.NOTHING, ())


def test_earlier_versions_are_migrated_one_by_one(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json", FORM)
    file.path.write_text('{"version": 1, "names": ["a"]}')
    found = file.load()
    assert found.document == {"names": ["a", "a"], "count": {"of": 2}} and not found.broken
    file.save(found.document)
    assert StateFile(file.path, FORM).load().document == found.document
    # What it was is the older copy now.
    assert json.loads(file.older.read_text())["version"] == 1


def test_no_more_than_some_are_put_aside_and_later_versions_are_not_among_them(path: Path) -> None:
    file = StateFile(path, FORM)
    path.write_text('{"version": 9}')
    file.load()
    for number in range(2 * MOST_ASIDE):
        path.write_text(f"broken {number}")
        file.load()
    names = asides(path)
    assert len(names) == MOST_ASIDE + 1 and sum("version-9" in name for name in names) == 1
    contents = {path.with_name(name).read_text() for name in names if "broken" in name}
    assert contents == {f"broken {number}" for number in range(MOST_ASIDE, 2 * MOST_ASIDE)}


def test_a_later_version_that_could_not_be_put_aside_is_not_written_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text('{"version": 9}')
    file = StateFile(path, FORM)
    real = state.Path.rename

    def refuse(self: Path, target: object) -> Path:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(state.Path, "rename", refuse)
    assert file.load().broken[0].aside is None
    with pytest.raises(OSError, match="not permitted"):
        file.save(NEW)
    assert path.read_text() == '{"version": 9}'
    monkeypatch.setattr(state.Path, "rename", real)
    file.save(NEW)
    (name,) = asides(path)
    assert path.with_name(name).read_text() == '{"version": 9}' and file.load().document == NEW


def test_a_save_that_fails_leaves_everything_as_it_was_and_the_next_one_works(path: Path) -> None:
    """A disk without room: the process may write files of so many bytes only."""
    program = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_state_file import FORM, NEW, StateFile, Path
file = StateFile(Path({str(path)!r}), FORM)
file.save(NEW)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
# The last one is on the disk already; whether anything can be written is not known, though.
for sections in ({{"names": ["newest"], "count": {{}}}}, NEW):
    try:
        file.save(sections)
    except OSError as error:
        print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
file.load()
print(sorted(each.name for each in file.path.parent.iterdir()), file.load().document == NEW)
file.save({{"names": ["newest"], "count": {{}}}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["File too large"] * 2 + ["['state.json', 'state.json.1'] True"], done.stderr
    assert StateFile(path, FORM).load().document == {"names": ["newest"], "count": {}}
    assert parse(path.with_name("state.json.1").read_text(), "", FORM).document == NEW


def test_a_folder_that_vanished_is_made_again_and_one_that_can_not_be_is_an_error(path: Path) -> None:
    file = StateFile(path.parent / "deep" / "er" / "state.json", FORM)
    file.save(NEW)
    for each in (file.path, file.path.parent, file.path.parent.parent):
        each.unlink() if each.is_file() else each.rmdir()
    file.save(NEW)
    assert file.load().document == NEW
    blocked = StateFile(path / "state.json", FORM)
    with pytest.raises(OSError, match=r"exists|directory"):
        blocked.save(NEW)
    assert blocked.load().document is None


def test_what_comes_into_the_way_while_running_is_put_aside(path: Path) -> None:
    file = StateFile(path, FORM)
    file.save(OLD)
    _folder(path)
    file.older.unlink()
    file.older.mkdir()
    file.save(NEW)
    assert file.load().document == NEW and len(asides(path)) == 2
    file.save(OLD)
    assert parse(file.older.read_text(), "", FORM).document == NEW


def test_a_file_system_without_links_has_older_copies_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(state.os, "link", refuse)
    file = StateFile(path, FORM)
    file.save({"names": ["newest"], "count": {}})
    assert parse(file.older.read_text(), "", FORM).document == NEW
    assert file.load().document == {"names": ["newest"], "count": {}} and asides(path) == []


def test_a_copy_is_made_of_what_the_next_save_would_leave_out(path: Path) -> None:
    file = StateFile(path, FORM)
    file.load()
    name = file.copy_aside()
    file.save(OLD)
    file.save({"names": [], "count": {}})
    assert name is not None and parse(path.with_name(name).read_text(), "", FORM).document == NEW


def test_a_private_file_has_all_of_the_text_or_is_as_before(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_atomically(path, "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_text() == "one"
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "two \ud800")
    assert path.read_text() == "one" and [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_threads_that_save_need_no_descriptor_for_good(tmp_path: Path) -> None:
    """With green threads, opening a file made a hub for each thread of the system that did: up to twenty."""
    program = """
import sys
from pathlib import Path
import eventlet
eventlet.monkey_patch()
from eventlet import tpool
from hyroads.controller.files.private import write_atomically

def count():
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += "eventpoll" in str(each.readlink())
        except OSError:
            pass
    return found

tpool.execute(int)
before = count()
for number in range(40):
    tpool.execute(write_atomically, Path(sys.argv[1]), str(number))
print(count() - before, Path(sys.argv[1]).read_text())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "state.json")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 39\n"
