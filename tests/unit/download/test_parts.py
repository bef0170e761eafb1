"""What downloads are made of: URLs, names, answers of servers, heads of requests, the window, files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.cli.proxy import listening, parse_flows
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.download.heads import RefusedError, end_of_head, parse_head
from hyroads.controller.download.http1 import Answer, Origin, parse_url
from hyroads.controller.download.interfaces import InputError
from hyroads.controller.download.intervals import Intervals
from hyroads.controller.download.partfile import PartFile, Version, name_of
from hyroads.controller.download.proxy import Window


@given(st.text(max_size=300))
def test_a_name_leads_nowhere_else(text: str) -> None:
    name = name_of("/" + text)
    assert name and name not in {".", ".."} and not name.startswith(("-", "."))
    assert not set("/\\\0") & set(name) and name.isprintable() and len(name.encode()) <= 200
    assert Path("folder", name).parent == Path("folder")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("/a/film.mkv?token=secret", "film.mkv"),
        ("/a/b%20c.txt", "b c.txt"),
        ("/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "___.._etc_passwd"),
        ("/..", "__"),
        ("/-rf", "_rf"),
        ("/.bashrc", "_bashrc"),
        ("/", "download"),
        ("/a%0ab%1b[31m", "a_b_[31m"),
        ("/%ff", "\ufffd"),
    ],
)
def test_names_of_files(target: str, name: str) -> None:
    assert name_of(target) == name


def test_redirects_never_lead_from_https_to_http() -> None:
    url = parse_url("https://example.org/a/b?c")
    assert str(url.joined("../d")) == "https://example.org/d"
    assert str(url.joined("//other.example/x")) == "https://other.example/x"
    assert (
        str(parse_url("http://example.org:80/a").joined("https://[2001:db8::1]:8443/")) == "https://[2001:db8::1]:8443/"
    )
    for location in ("http://example.org/", "ftp://example.org/", "file:///etc/passwd", "https://a:b@example.org/"):
        with pytest.raises(InputError):
            url.joined(location)


@pytest.mark.parametrize("location", ["http://[", "//[::1", "http://a]b/", "http://[v1.x"])
def test_a_redirect_to_no_url_is_refused(location: str) -> None:
    with pytest.raises(InputError, match=r"redirected|URL"):
        parse_url("http://192.0.2.1/a").joined(location)


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://", "http://["]))
def test_any_text_is_a_url_or_one_line_of_error(text: str, start: str) -> None:
    try:
        url = parse_url(start + text)
    except InputError as error:
        assert "\n" not in str(error) and str(error).isprintable()
    else:
        assert str(parse_url(str(url))) == str(url)


def answer(**headers: str) -> Answer:
    return Answer(
        206, b"", [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()], None
    )


@pytest.mark.parametrize(
    ("headers", "validator"),
    [
        ({"etag": '"a"'}, b'"a"'),
        ({"etag": 'W/"a"'}, None),
        ({"etag": "a"}, None),
        (
            {
                "etag": 'W/"a"',
                "last_modified": "Mon, 01 Jan 2024 00:00:00 GMT",
                "date": "Mon, 01 Jan 2024 01:00:00 GMT",
            },
            None,
        ),
        ({"last_modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, None),
        ({"last_modified": "Mon, 01 Jan 2024 00:00:00 GMT", "date": "Mon, 01 Jan 2024 00:00:59 GMT"}, None),
        (
            {"last_modified": "Mon, 01 Jan 2024 00:00:00 GMT", "date": "Mon, 01 Jan 2024 00:01:00 GMT"},
            b"Mon, 01 Jan 2024 00:00:00 GMT",
        ),
        ({"last_modified": "yesterday", "date": "today"}, None),
    ],
)
def test_only_a_strong_validator_tells_versions_apart(headers: dict[str, str], validator: bytes | None) -> None:
    assert answer(**headers).validator == validator


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes 0-9/10", (0, 10, 10)),
        ("bytes 5-5/10", (5, 6, 10)),
        ("bytes 0-10/10", None),
        ("bytes 6-5/10", None),
        ("bytes */10", None),
        ("bytes 0-9/*", None),
        ("bytes 0-9/10, 11-12/20", None),
        ("bits 0-9/10", None),
        (f"bytes 0-9/{'9' * 30}", None),
    ],
)
def test_content_range(text: str, found: tuple[int, int, int] | None) -> None:
    assert answer(content_range=text).content_range == found


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_head_is_found_or_refused_however_it_is_cut(data: bytes, cut: int) -> None:
    """What was fine in pieces is fine as a whole, and the other way round."""

    def judged(some: bytes) -> int:
        try:
            return end_of_head(some)
        except RefusedError as error:
            return -error.status

    whole = judged(data)
    if judged(data[:cut]) > 0:
        assert whole == judged(data[:cut])
    if whole > 0:
        assert data[:whole].endswith(b"\r\n\r\n") and b"\n" not in data[:whole].replace(b"\r\n", b"")
        try:
            parse_head(data, h11.Connection(h11.SERVER), b"us")
        except RefusedError as error:
            assert 400 <= error.status <= 599


def test_a_body_is_no_part_of_the_head() -> None:
    head = b"POST http://example.org/x HTTP/1.1\r\nHost: y\r\nContent-Length: 9\r\n\r\n"
    machine = h11.Connection(h11.SERVER)
    found = parse_head(head + b"a\r\n b\n\0\r\r", machine, b"us")
    assert (found.length, found.origin) == (9, Origin("http", "example.org", 80))
    assert machine.next_event().data == b"a\r\n b\n\0\r\r"


@given(st.integers(0, 10**6))
def test_bytes_leave_a_window_in_order_whatever_is_written_late_or_twice(seed: int) -> None:
    rng, content = random.Random(seed), bytes(index * 7 % 251 for index in range(3000))
    window, done, sent = Window(256), Intervals(), b""
    for _ in range(200):
        low = max(0, len(sent) - 100)
        begin = rng.randint(low, min(len(content), len(sent) + 256))
        end = rng.randint(begin, min(len(content), begin + 120))
        window.write(begin, memoryview(content[begin:end]))
        done.add(begin, min(end, len(sent) + 256))
        there = done.covered_to(len(sent))
        piece = bytes(window.slice(there)) if there > len(sent) else b""
        piece = piece[: rng.randint(0, len(piece))]
        sent += piece
        assert window.advance(len(piece)) == len(sent)
        assert content.startswith(sent)


def resumed(path: Path, version: Version) -> tuple[list[tuple[int, int]], str]:
    part = PartFile(path)
    try:
        return part.resume(version)
    finally:
        part.close()


def test_a_journal_counts_what_the_disk_has_after_another_start_of_the_machine(tmp_path: Path) -> None:
    version = Version("http://example.org/x", 1000, b'"a"')
    part = PartFile(tmp_path / "x")
    part.allocate(1000)
    part.note(version, Intervals([(0, 100)]), sync=True)
    part.note(version, Intervals([(0, 300), (500, 600)]))
    part.close()
    assert resumed(tmp_path / "x", version) == ([(0, 300), (500, 600)], "")
    journal = json.loads((tmp_path / "x.part.json").read_text())
    (tmp_path / "x.part.json").write_text(json.dumps({**journal, "boot": "another"}))
    assert resumed(tmp_path / "x", version) == ([(0, 100)], "")
    for other in (Version("", 1001, b'"a"'), Version("", 1000, b'"b"'), Version("", 1000, None)):
        done, why = resumed(tmp_path / "x", other)
        assert done == [] and why


@pytest.mark.parametrize(
    "done", [[[0, 2000]], [[5, 5]], [[-1, 5]], [["0", 5]], [[0, 5, 6]], "x", [[0.0, 5.0]], [[True, 5]]]
)
def test_a_damaged_journal_counts_for_nothing(tmp_path: Path, done: object) -> None:
    version = Version("http://example.org/x", 1000, b'"a"')
    part = PartFile(tmp_path / "x")
    part.allocate(1000)
    part.note(version, Intervals([(0, 100)]), sync=True)
    journal = json.loads((tmp_path / "x.part.json").read_text())
    (tmp_path / "x.part.json").write_text(json.dumps({**journal, "done": done, "synced": done}))
    part.close()
    assert resumed(tmp_path / "x", version)[0] == []


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("flows: [{match: {host: a}}]", "flows[0].name"),
        ("flows: [{name: a, interfaces: [eth9]}]", "flows[0].interfaces[0]"),
        ("flows: [{name: a, interfaces: []}]", "flows[0].interfaces"),
        ("flows: [{name: a, weight: 0}]", "flows[0].weight"),
        ("flows: [{name: a, weight: .nan}]", "flows[0].weight"),
        ("flows: [{name: a, match: {port: 0}}]", "flows[0].match.port"),
        ("flows: [{name: a, match: {path: /x}}]", "flows[0].match.path"),
        ("flow: []", "flow"),
        ("[]", ""),
    ],
)
def test_a_wrong_flows_file_names_the_place(text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_flows(text, "flows.yaml", ["eth0", "wlan0"])
    assert where in [each.place for each in (caught.value, *caught.value.more)]


@pytest.mark.parametrize(
    "text", ["3128", "127.0.0.1", "127.0.0.1:", ":3128", "127.0.0.1:99999", "example.org:1", "127.0.0.1:-1"]
)
def test_where_to_listen(text: str) -> None:
    assert listening("[::1]:3128") == ("::1", 3128) and listening("localhost:0") == ("127.0.0.1", 0)
    with pytest.raises(InputError):
        listening(text)
