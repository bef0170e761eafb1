"""Requests to a real etcd over TLS, which checks our certificate as we check its."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from controller_process import eventually, free_ports
from identities import issued
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from hyroads.controller.ha.election import Identity, Member
from hyroads.controller.ha.etcd import Etcd, EtcdError


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with two authorities, of which etcd knows ``good`` alone; and etcd's address."""
    folder = tmp_path_factory.mktemp("etcd")
    program = needs_etcd()
    own = issued(folder / "good", "etcd", "etcd")
    client, peer = free_ports(2)
    url, peers = f"https://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [program, "--data-dir", str(folder / "data"), "--name", "tls", "--logger", "zap"]
    command += ["--listen-client-urls", url, "--advertise-client-urls", url, "--client-cert-auth"]
    command += ["--cert-file", own.certificate, "--key-file", own.key]
    command += ["--trusted-ca-file", str(own.ca), "--listen-peer-urls", peers]
    command += ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"tls={peers}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield folder, url
    finally:
        process.kill()
        process.wait()


def etcd_of(folder: Path, url: str, name: str, ca: str) -> Etcd:
    files = replace(issued(folder / name, "controller", "a"), ca=issued(folder / ca, "controller", "a").ca)
    return Etcd([url], "/hyroads/tls/", 1.0, files)


def test_etcd_is_asked_over_tls(secured: tuple[Path, str]) -> None:
    etcd = etcd_of(*secured, "good", "good")

    def lease() -> int | None:
        try:
            return etcd.grant(10)
        except EtcdError:
            return None

    granted = eventually(lease)
    assert etcd.register(Member(Identity("a", "1"), granted)) and set(etcd.seen().members) == {"a"}


@pytest.mark.parametrize(("name", "ca"), [("other", "good"), ("good", "other")])
def test_whoever_has_the_wrong_certificate_is_refused(secured: tuple[Path, str], name: str, ca: str) -> None:
    test_etcd_is_asked_over_tls(secured)
    with pytest.raises(EtcdError):
        etcd_of(*secured, name, ca).seen()


def test_plain_http_is_refused_by_it(secured: tuple[Path, str]) -> None:
    _, url = secured
    test_etcd_is_asked_over_tls(secured)
    with pytest.raises(EtcdError):
        Etcd([url.replace("https", "http")], "/hyroads/tls/", 1.0).seen()
