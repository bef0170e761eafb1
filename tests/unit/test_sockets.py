"""Every place of the source that listens is in the table of docs/security.md, and the other way round."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hyroads.controller.core.sockets import SOCKETS

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import docs_site

ROOT = Path(__file__).parents[2]
PARTS = ("controller", "dashboard", "dataplane/src", "mininet", "plugins", "rest", "slices")
LISTENS = {
    *("bind", "listen", "create_server", "start_server", "start_unix_server", "create_datagram_endpoint"),
    *("HTTPServer", "ThreadingHTTPServer", "TCPServer", "UDPServer", "ThreadingTCPServer", "run_app"),
}
RUST_LISTENS = re.compile(
    r"\b(?:libc::(?:bind|listen)|(?:TcpListener|UdpSocket|UnixListener|UnixDatagram)::bind|BoundUdp::open"
    r"|(?:ControlSocket|Control)::listen|socket::bind)\("
)
_NETLINK = "netlink: only the kernel speaks there"
_PROBE = "nothing is ever received: it tells which address would be used"
NOT_LISTENING = {
    "controller/client/kernel_plane.py:link_events": _NETLINK,
    "controller/kernel/netlink.py:NetlinkSocket.__init__": _NETLINK,
    "dataplane/src/sys/genetlink.rs:open": _NETLINK,
    "dataplane/src/sys/netlink.rs:with_buffer": _NETLINK,
    "dataplane/src/sys/sock_owner.rs:open": _NETLINK,
    "dataplane/src/sys/sock_owner.rs:try_itself": _PROBE,
    "controller/download/interfaces.py:is_this_machine": _PROBE,
    "slices/snmpvisor/server.py:Server.run": "dials devices: a connected socket hears its own device alone",
    "dataplane/src/sys/packet_out.rs:open": "a packet socket that only sends: it is bound to no protocol",
}
"""What binds, and why nobody can speak to it."""
IN_NAMESPACES = "mininet/"
HOST_SOCKETS = {"mininet/runner.py", "mininet/relay.py"}
"""Of emulation, what is outside of its namespaces."""


def python_sites(path: Path) -> Iterator[str]:
    """``FILE:FUNCTION`` of each call, or base class, that opens a socket for others."""

    def visit(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            name, deeper = None, inside
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                deeper = (*inside, child.name)
                bases = [base.id for base in getattr(child, "bases", ()) if isinstance(base, ast.Name)]
                name, where = next(iter(LISTENS.intersection(bases)), None), deeper
            elif isinstance(child, ast.Call):
                called = child.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)
                # ``web.listen()`` is a method of ours, whose own calls are found where they are; so is a socket's
                # ``listen``, which comes after a ``bind``. Of NiceGUI ``ui.run`` listens.
                owner = (
                    called.value.id if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) else ""
                )
                name = "listen" if (owner, name) == ("ui", "run") else name if child.args else None
                where = inside
            if name in LISTENS:
                yield f"{path.relative_to(ROOT)}:{'.'.join(where)}"
            yield from visit(child, deeper)

    text = path.read_text()
    # To parse all files takes seconds; most of them have none of these words.
    if any(word in text for word in (*LISTENS, "ui.run")):
        yield from visit(ast.parse(text), ())


def rust_sites(path: Path) -> Iterator[str]:
    function = ""
    for line in path.read_text().split("#[cfg(test)]\nmod ")[0].splitlines():
        found = re.match(r"\s*(?:pub(?:\([a-z]+\))? )?(?:unsafe )?fn (\w+)", line)
        function = found[1] if found else function
        if RUST_LISTENS.search(line.split("//")[0]):
            yield f"{path.relative_to(ROOT)}:{function}"


def sites() -> set[str]:
    listed = subprocess.run(["git", "ls-files", *PARTS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: set[str] = set()
    for name in listed.split():
        path = ROOT / name
        if not path.is_file() or (name.startswith(IN_NAMESPACES) and name not in HOST_SOCKETS):
            continue
        if name.startswith("plugins/examples/"):
            # Programs for the hosts of a network, not parts of it.
            continue
        if path.suffix == ".py":
            found.update(python_sites(path))
        elif path.suffix == ".rs" and not path.stem.endswith(("_tests", "testing")):
            found.update(rust_sites(path))
    return found


def test_every_socket_has_a_row() -> None:
    known = {site for each in SOCKETS for site in each.code} | NOT_LISTENING.keys()
    missing = sorted(sites() - known)
    assert not missing, f"these listen and are not in controller/core/sockets.py: {missing}"


def test_every_row_and_exception_has_its_code() -> None:
    named = {site for each in SOCKETS for site in each.code} | NOT_LISTENING.keys()
    for site in sorted(named):
        file, _, function = site.partition(":")
        text = (ROOT / file).read_text()
        for part in function.split("."):
            assert re.search(rf"\b(?:def|class|fn) {part}\b", text), site


_HOSTILE = (
    "tests/integration/test_hostile_connections.py:test_friends_get_in_under_a_thousand_hostile_connections_a_second"
)
_SILENT = "tests/unit/test_silent_dialers.py"
ATTACKED = {
    ("controller", "`listen.openflow`"): _HOSTILE,
    ("controller", "`listen.agents`"): _HOSTILE,
    ("controller", "`listen.rest`"): _HOSTILE,
    ("controller", "`listen.peer`, `region.listen`"): "tests/unit/ha/test_peers.py:"
    "test_an_instance_gets_in_while_strangers_take_all_places",
    ("controller", "`sfnet`"): "tests/integration/test_sfnet.py:test_too_many_connections_and_one_that_does_not_read",
    ("slicer", "`listen.openflow`"): "tests/integration/test_slicer_identity.py:"
    "test_strangers_take_no_places_of_switches",
    ("slicer", "`listen.rest`"): "tests/unit/slices/test_slicer_rest.py:"
    "test_silent_dialers_from_many_addresses_keep_no_operator_out",
    ("SNMPVisor", "`metrics`"): f"{_SILENT}:test_metrics_of_snmpvisor",
    ("waypoint", "`--listen`, sessions"): "tests/unit/client/test_client_session.py:"
    "test_silent_dialers_from_many_addresses_keep_no_client_out",
    ("dashboard", "`--listen`"): "tests/integration/test_silent_dialers.py:test_dashboard",
    ("proxy", "`--listen`"): "tests/integration/test_proxy.py:"
    "test_silent_dialers_and_silent_tunnels_keep_no_program_out",
    ("proxy, fetch", "`--metrics`"): f"{_SILENT}:test_metrics_of_downloads",
    ("flowvisor watch", "`--listen`"): "tests/unit/slices/flowvisor/test_events.py:"
    "test_slow_and_many_strangers_keep_no_event_away",
}
"""By socket: the test that floods it with connections while friends come in."""
NOT_ATTACKED = {
    ("guest-network", "dnsmasq"): "a program of its own",
    ("emulation", "`--publish`, `--dashboard`"): "hands on what comes to a controller, which admits it",
}


def test_each_tcp_socket_is_attacked_by_a_test() -> None:
    sockets = {(each.part, each.name) for each in SOCKETS if "TCP" in each.default}
    assert sockets == ATTACKED.keys() | NOT_ATTACKED.keys()
    for test in ATTACKED.values():
        file, _, function = test.partition(":")
        assert f"def {function}(" in (ROOT / file).read_text(), test


def test_a_new_socket_is_noticed(tmp_path: Path) -> None:
    """The scanner finds each way to listen; else the first test proves nothing."""
    ways = (
        "socket.create_server(('', 1))",
        "asyncio.start_server(serve, '', 1)",
        "asyncio.start_unix_server(serve, path)",
        "loop.create_datagram_endpoint(make, local_addr=here)",
        "shim.listen('::', 1)",
        "HTTPServer(('', 1), Handler)",
        "found.bind(('', 1))",
        "ui.run(port=1)",
    )
    for way in ways:
        file = ROOT / "controller" / "core" / "x.py"
        text = f"class A:\n    def opens(self):\n        return {way}\n"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "read_text", lambda _, text=text: text)
            assert list(python_sites(file)) == ["controller/core/x.py:A.opens"], way
    for way in ("UnixListener::bind(p)", "unsafe { libc::bind(s, a, n) }", "ControlSocket::listen(p)"):
        assert RUST_LISTENS.search(way), way


def test_the_table_has_all_sockets_with_their_figures() -> None:
    page = docs_site.on_page_markdown("<!-- sockets -->")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) == len(SOCKETS) + 2
    assert all(line.count("|") == 7 for line in rows)
    assert "TCP 127.0.0.1:6653" in page and "{hyroads" not in page
    assert "<!-- sockets -->" in (ROOT / "docs" / "security.md").read_text()
