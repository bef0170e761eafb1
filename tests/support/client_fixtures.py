"""What tests of a multi-homed client's daemon begin with.

A module takes the fixtures that it wants by name::

    world, host = client_fixtures.world, client_fixtures.host_of(POLICY)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from multihomed import Host, World, make_tokens, waypoint_of

from hyroads.controller.files.programs import program_path

PROGRAM = program_path("hyroads-client")
NEEDS_ROOT = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nftables"),
]
NEEDS_PROGRAM = [*NEEDS_ROOT, pytest.mark.skipif(PROGRAM is None, reason="needs hyroads-client")]
FLOWS = """\
flows:
  - {name: web, match: {tcp_dst: 7000}, interfaces: [wwan0]}
  - {name: bulk, match: {tcp_dst: 7001}, interfaces: [wlan0, wwan0]}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def host_of(policy: str, *, real: str | None = None) -> Callable[[World], Host]:
    """The fixture of a client with this policy, over the ``real`` hyroads-client or its stand-in."""

    @pytest.fixture
    def host(world: World) -> Host:
        made = Host(world, world.client, "client", real=real)
        made.policy.write_text(policy)
        return made

    return host


@pytest.fixture
def gate(world: World, host: Host) -> Host:
    """A waypoint, which the client's policy names."""
    made = Host(world, world.net, "waypoint", real=PROGRAM)
    made.start("waypoint", *make_tokens(made.folder))
    host.policy.write_text(f"{host.policy.read_text()}waypoint: {waypoint_of(made.folder)}\n")
    return made
