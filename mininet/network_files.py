"""The network files that come with HyRoads."""

from __future__ import annotations

import re
from pathlib import Path

from hyroads.mininet.errors import EmulationError

FOLDER = Path(__file__).resolve().parent / "networks"


def find_network(name: str) -> Path:
    """The network file of that path, or of that name among those that come with HyRoads."""
    for candidate in (Path(name), FOLDER / name, FOLDER / f"{name}.yaml"):
        if candidate.is_file():
            return candidate
    known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.yaml")))
    raise EmulationError(f"no network file {name} (a path, or one of: {known})")


def network_name(path: Path) -> str:
    """A name for an emulated network from its file's name: what may stand in the name of a namespace."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem).lstrip("_.-") or "network"
