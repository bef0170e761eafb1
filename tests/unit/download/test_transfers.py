"""Whether an answer is the part of a file that was asked for, and what becomes of a server that does not answer so."""

from __future__ import annotations

import pytest

from hyroads.controller.download.http1 import Answer, parse_url
from hyroads.controller.download.interfaces import DownloadError
from hyroads.controller.download.transfers import Source, Transfer, check_piece, must_move

LENGTH = 1000


def transfer(*sources: Source) -> Transfer:
    return Transfer("x", LENGTH, sources, sink=None)  # nothing is written


def source(refusals: int = 0) -> Source:
    return Source(parse_url("http://example.org/x"), b'"a"', refusals=refusals)


def answer(status: int = 206, **headers: str) -> Answer:
    fields = {"content-range": f"bytes 100-199/{LENGTH}", "content-length": "100", "etag": '"a"', **headers}
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
    return Answer(status, b"", pairs, int(fields["content-length"]))


def test_a_right_part_makes_refusals_forgotten() -> None:
    asked = source(refusals=3)
    check_piece(answer(), 100, 200, transfer(asked), asked)
    assert asked.refusals == 0
    # Others may have taken the end of a piece away: less may come, more may not.
    check_piece(answer(), 100, 300, transfer(asked), asked)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"etag": '"b"'}, "its ETag was"),
        ({"content-range": "bytes 100-199/1001"}, "its length was 1000 and is now 1001"),
        ({"content-range": "bytes 101-200/1000"}, "asked for bytes 100-199, got bytes 101-200"),
        ({"content-range": "bytes 100-200/1000", "content-length": "101"}, "got bytes 100-200"),
        ({"content-length": "99"}, "in a body of 99 bytes"),
        ({"content-range": "lines 1-2/3"}, "names no range that can be read"),
    ],
)
def test_a_server_that_sends_something_else_is_not_believed(headers: dict[str, str], words: str) -> None:
    asked = source()
    with pytest.raises(DownloadError, match=words):
        check_piece(answer(**headers), 100, 200, transfer(asked), asked)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (200, {"etag": '"b"'}, "its version was"),
        (200, {}, "now sends the whole file"),
        (416, {}, "now that there are fewer"),
    ],
)
def test_an_answer_that_shows_another_file_ends_all(status: int, headers: dict[str, str], words: str) -> None:
    asked = source()
    with pytest.raises(DownloadError, match=words):
        must_move(answer(status, **headers), transfer(asked), asked, 2)


@pytest.mark.parametrize(("status", "moves"), [(503, False), (429, False), (302, True), (403, True), (404, True)])
def test_a_server_that_refuses_rests_and_what_moved_is_looked_for(status: int, moves: bool) -> None:
    asked = source()
    assert must_move(answer(status), transfer(asked), asked, 2) is moves
    assert asked.refusals == 1 and asked.paused_until_s > 0


def test_all_servers_must_refuse_before_a_download_ends() -> None:
    asked, other = source(refusals=10), source(refusals=0)
    assert not must_move(answer(503), transfer(asked, other), asked, 2)
    other.refusals = 6
    with pytest.raises(DownloadError, match="status 503 for a part"):
        must_move(answer(503), transfer(asked, other), asked, 2)
