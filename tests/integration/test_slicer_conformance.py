"""What passes directly on Open vSwitch passes through a slicer with one slice that owns everything.

The cases of ``test_ofp_ovs`` and their network, with a slicer between. Left out are those that themselves reach into
the switch's tables by their real numbers: behind the slicer the controller's table 0 is another.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import test_ofp_ovs as direct
from sliced_rig import SlicedRig
from test_ofp_ovs import *  # noqa: F403 - every case of the module is a case here

del test_repair_touches_only_what_is_wrong, test_everything_open_vswitch_answers_passes_the_guard  # noqa: F821

pytestmark = direct.pytestmark


@pytest.fixture(scope="module")
def world() -> Iterator[direct.World]:
    with SlicedRig() as rig:
        yield direct.World(rig)
        assert "error of the slicer's own" not in (rig.folder / "slicer.log").read_text()
