"""``hyroads fetch`` against a server with faults, over loopback: the right bytes or one clear error."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from range_server import Server, content

from hyroads.controller.cli.main import main

SIZE = 3_000_000
COMMAND = [sys.executable, "-m", "hyroads.controller.cli", "fetch"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture()
def server(folder):
    running = Server("127.0.0.1", 0, folder).start()
    yield running
    running.close()


@pytest.fixture(autouse=True)
def signals():
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def url(server: Server, fault: str = "", size: int = SIZE) -> str:
    return f"http://127.0.0.1:{server.port}/{size}.bin" + (f"?fault={fault}" if fault else "")


def fetch(tmp_path: Path, capsys, *words: str) -> tuple[int, Path, str, dict]:
    target = tmp_path / "file"
    status = main(["fetch", "--json", "-o", str(target), *words])
    out, error = capsys.readouterr()
    return status, target, error, json.loads(out)["files"][0] if out else {}


@pytest.mark.parametrize("fault", ["", "cut", "stall", "busy", "more", "redirect"])
def test_all_bytes_arrive_in_parts(server, tmp_path, capsys, fault):
    # Slowly, so that there are several pieces.
    status, target, error, document = fetch(tmp_path, capsys, "--limit-mbps", "24", url(server, fault))
    assert (status, document["split"], document["bytes"]) == (0, True, SIZE), error
    assert target.read_bytes() == content(SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is left beside it"
    assert len([line for line, headers in server.log if "range" in headers]) > 3


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("no-range", "takes no ranges"),
        ("chunked", "takes no ranges"),
        ("chunked-parts", "without their length"),
        ("no-etag", "names no version"),
        ("weak-etag", "names no version"),
    ],
)
def test_what_cannot_be_split_comes_over_one_connection(server, tmp_path, capsys, fault, why):
    status, target, error, document = fetch(tmp_path, capsys, url(server, fault))
    assert (status, document["split"]) == (0, False), error
    assert target.read_bytes() == content(SIZE)
    assert error.count("\n") == 1 and why in error and str(server.port) in error


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("changes", "changed while it was fetched"),
        ("changes-late", "changed while it was fetched"),
        ("total", "its length was"),
        ("short", "bytes before the end of the body"),
        ("shifted", "asked for bytes"),
        ("forbidden-later", "status 403"),
        ("loop", "redirects"),
        ("cut-always", "no byte for"),
    ],
)
def test_a_server_that_lies_is_one_error_and_no_file(server, tmp_path, capsys, fault, what):
    status, target, error, document = fetch(tmp_path, capsys, "--timeout", "2", url(server, fault))
    last = error.strip().splitlines()[-1]
    assert status == 1 and what in last and f"127.0.0.1:{server.port}" in last, error
    assert document["error"] in last
    assert not target.exists()


@pytest.mark.parametrize(("size", "requests"), [(0, 2), (1, 1), (100_000, 1), (131_072, 1), (131_073, 2)])
def test_small_files(server, tmp_path, capsys, size, requests):
    status, target, error, _ = fetch(tmp_path, capsys, url(server, size=size))
    assert status == 0 and target.read_bytes() == content(size), error
    assert len(server.log) == requests and not error


def test_a_checksum_is_checked(server, tmp_path, capsys):
    right = hashlib.sha256(content(SIZE)).hexdigest()
    assert fetch(tmp_path, capsys, "--checksum", f"sha256:{right}", url(server, "no-etag"))[3]["split"]
    (tmp_path / "file").unlink()
    status, target, error, _ = fetch(tmp_path, capsys, "--checksum", "sha256:" + "0" * 64, url(server))
    assert status == 1 and "sha256 is" in error
    assert not target.exists() and not target.with_name("file.part.json").exists()


def test_mirrors_share_the_work_and_must_agree(server, folder, tmp_path, capsys):
    other = Server("127.0.0.1", 0, folder).start()
    try:
        status, target, error, _ = fetch(tmp_path, capsys, "--mirror", url(other), url(server))
        assert status == 0 and target.read_bytes() == content(SIZE), error
        assert len(server.log) > 1 and len(other.log) > 1, "more than the first look"
        target.unlink()
        status, _, error, _ = fetch(tmp_path, capsys, "--mirror", url(other, size=SIZE + 1), url(server))
        assert status == 1 and "not the file of" in error and "length" in error
        status, _, error, _ = fetch(tmp_path, capsys, "--mirror", url(other, "changes"), url(server))
        assert status == 1 and "not the file of" in error and "version" in error
        # One that breaks in the midst is left alone, the other one is enough.
        status, target, error, _ = fetch(
            tmp_path, capsys, "--mirror", url(other, "forbidden-later", SIZE + 2), url(server, size=SIZE + 2)
        )
        assert status == 0 and target.read_bytes() == content(SIZE + 2), error
    finally:
        other.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_it_goes_on_where_it_was_ended(server, tmp_path, capsys, how):
    target = tmp_path / "file"
    program = subprocess.Popen(
        [*COMMAND, "--limit-mbps", "8", "-o", str(target), url(server)],
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    journal = tmp_path / "file.part.json"
    over_s = time.monotonic() + 20
    while not (journal.exists() and json.loads(journal.read_text())["done"]) and time.monotonic() < over_s:
        time.sleep(0.05)
    program.send_signal(how)
    assert program.wait(20) == (-9 if how == signal.SIGKILL else 130)
    assert not target.exists()
    server.log.clear()
    status, target, error, document = fetch(tmp_path, capsys, url(server))
    assert status == 0 and target.read_bytes() == content(SIZE), error
    assert document["resumed_bytes"] > 100_000
    asked = [headers["range"].removeprefix("bytes=").split("-") for _, headers in server.log]
    assert all(headers.get("if-range") for _, headers in server.log[1:])
    assert sum(int(end) - int(begin) + 1 for begin, end in asked[1:]) <= SIZE - document["resumed_bytes"] + 200_000


def test_what_is_left_of_another_version_is_not_used(server, tmp_path, capsys):
    target = tmp_path / "file"
    (tmp_path / "file.part").write_bytes(b"x" * SIZE)
    left = {"version": 1, "boot": "", "url": url(server), "length": SIZE, "validator": '"other"'}
    (tmp_path / "file.part.json").write_text(json.dumps({**left, "done": [[0, SIZE]], "synced": [[0, SIZE]]}))
    status, target, error, document = fetch(tmp_path, capsys, url(server))
    assert status == 0 and target.read_bytes() == content(SIZE)
    assert document["resumed_bytes"] == 0 and error.count("\n") == 1 and "begins again: version" in error


def test_nothing_of_others_is_overwritten(server, tmp_path, capsys):
    target = tmp_path / "file"
    target.write_text("mine")
    assert main(["fetch", "-o", str(target), url(server)]) == 2
    assert "--force" in capsys.readouterr().err and target.read_text() == "mine"
    assert fetch(tmp_path, capsys, "--force", url(server))[0] == 0 and target.read_bytes() == content(SIZE)
    target.unlink()
    (tmp_path / "file.part").write_text("not ours")
    assert main(["fetch", "-o", str(target), url(server)]) == 2
    assert "not written by" in capsys.readouterr().err
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (tmp_path / "file.part").unlink()
    (tmp_path / "file.part").symlink_to(secret)
    assert main(["fetch", "--force", "-o", str(target), url(server)]) == 2
    assert secret.read_text() == "secret"


def test_several_files_and_their_weights(server, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    urls = [url(server, size=size) for size in (SIZE, SIZE + 1, 200_000)]
    assert main(["fetch", "--json", "--weight", "1,2,1", *urls]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] and [each["bytes"] for each in document["files"]] == [SIZE, SIZE + 1, 200_000]
    assert all((tmp_path / f"{size}.bin").read_bytes() == content(size) for size in (SIZE, SIZE + 1, 200_000))


def test_the_rate_is_limited(server, tmp_path, capsys):
    status, _, _, document = fetch(tmp_path, capsys, "--limit-mbps", "16", url(server))
    assert status == 0 and 4 < document["rate_mbps"] < 17


def test_a_certificate_that_nobody_signed_is_an_error(folder, tmp_path, capsys):
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    words = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run(["openssl", "req", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = Server("127.0.0.1", 0, folder, context).start()
    place = f"https://localhost:{server.port}/{SIZE}.bin"
    assert main(["fetch", "-o", str(tmp_path / "f"), place]) == 1
    assert "self-signed certificate" in capsys.readouterr().err
    environment = {**os.environ, "SSL_CERT_FILE": str(certificate), "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [*COMMAND, "-o", str(tmp_path / "f"), place]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f").read_bytes() == content(SIZE)
    server.close()


@pytest.mark.root()
def test_a_disk_that_is_too_small_is_known_at_once(server, tmp_path, capsys):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        status, _, error, _ = fetch(tmp_path, capsys, url(server))
        assert status == 1 and "no room for 3,000,000 bytes" in error
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["ftp://example.org/x"], "expected http://HOST"),
        (["http://user:secret@example.org/x"], "--header 'Authorization"),
        (["http://example.org/a b"], "without blanks"),
        (["http://"], "expected http://HOST"),
        (["http://a.example/x", "http://b.example/x"], "two of the URLs"),
        (["--interfaces", "nowhere0", "http://example.org/x"], "no interface 'nowhere0'"),
        (["--interfaces", "lo,lo", "http://example.org/x"], "twice"),
        (["--interfaces", "", "http://example.org/x"], "expected names"),
        (["--checksum", "sha256:12", "http://example.org/x"], "64 hexadecimal digits"),
        (["--checksum", "crc:12", "http://example.org/x"], "sha256"),
        (["--limit-mbps", "nan", "http://example.org/x"], "--limit-mbps nan"),
        (["--weight", "0", "http://example.org/x"], "--weight 0"),
        (["--weight", "1,nan", "http://a.example/x", "http://a.example/y"], "--weight nan"),
        (["--weight", "1,2", "http://a.example/x"], "each of the 1 URLs"),
        (["--header", "Range: bytes=0-1", "http://example.org/x"], "set by hyroads fetch itself"),
        (["--header", "X: a\r\nY: b", "http://example.org/x"], "expected 'Name: value'"),
        (["-o", "/nowhere/at/all", "http://example.org/x"], "no such folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, monkeypatch, tmp_path, words, what):
    monkeypatch.chdir(tmp_path)
    assert main(["fetch", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and what in error and "secret" not in error
    assert not list(tmp_path.iterdir())
