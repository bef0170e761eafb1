"""What HyRoads is made of: a CycloneDX document of all packages that requirements*.txt and Cargo.lock pin.

``make sbom`` writes it to build/sbom.json. It is made from the files alone, and is the same each time for the same
files: no network, no time, no machine in it. ``--list`` prints the packages, a line each, for a reader without a tool.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pins

ROOT = Path(__file__).resolve().parents[1]
Component = dict[str, Any]


def python_packages() -> Iterator[Component]:
    """What runs is ``required``, what only tests and builds need ``excluded``; with the hashes of all files that may be
    installed.
    """
    seen = set()
    for file, scope in zip(pins.FILES, ("required", "excluded", "excluded"), strict=True):
        for pin in pins.read(ROOT / file)[1]:
            if pin.key not in seen:
                seen.add(pin.key)
                found = component("pypi", pin.key, pin.version, scope)
                yield {**found, "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes]}


def rust_packages() -> Iterator[Component]:
    """The crates of the data plane, and those that only its fuzzers need, with the hashes of their sources."""
    seen = set()
    for folder, scope in (("dataplane", "required"), ("dataplane/fuzz", "excluded")):
        lock = tomllib.loads((ROOT / folder / "Cargo.lock").read_text(encoding="utf-8"))
        for package in lock["package"]:
            key = package["name"], package["version"]
            if "source" in package and key not in seen:
                seen.add(key)
                found = component("cargo", *key, scope)
                yield {**found, "hashes": [{"alg": "SHA-256", "content": package["checksum"]}]}


def component(kind: str, name: str, version: str, scope: str) -> Component:
    """One package."""
    url = f"pkg:{kind}/{name}@{version}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "scope": scope, "purl": url}


def document() -> dict[str, Any]:
    """The whole, by CycloneDX 1.5."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    whole = component("pypi", project["name"], project["version"], "required")
    whole |= {"type": "application", "licenses": [{"license": {"id": project["license"]["text"]}}]}
    parts = sorted((*python_packages(), *rust_packages()), key=lambda part: str(part["bom-ref"]))
    # The same parts are the same document.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, "".join(part["bom-ref"] for part in (whole, *parts)))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": whole},
        "components": parts,
    }


def main() -> int:
    """Print the document, write it to a file, or print the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the document there")
    parser.add_argument("--list", action="store_true", help="print name, version and scope of each package instead")
    arguments = parser.parse_args()
    found = document()
    if arguments.list:
        for part in found["components"]:
            print(part["purl"], part["scope"])
        return 0
    text = json.dumps(found, indent=1) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
        return 0
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(text, encoding="utf-8")
    print(f"{arguments.out}: {len(found['components'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
