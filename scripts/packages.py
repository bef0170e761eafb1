#!/usr/bin/env python3
"""Builds the packages of deploy/packages/nfpm.yaml: what goes into them is put together here, nfpm packs it.

    .venv/bin/python scripts/packages.py                    all .deb, .ipk, .apk and the wheel, into build/packages
    .venv/bin/python scripts/packages.py hyroads-edge       one of them

It runs on the distribution that the package is for: the virtual environment of ``hyroads`` is one of its Python. It
needs the programs of dataplane/ (make setup), the tools of ``make setup-dev``, and nfpm.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pins
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGING, UNITS = ROOT / "deploy" / "packages", ROOT / "deploy" / "systemd"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "armhf", "mips": "mipsel"}
ROLES = ("all", "announce", "dashboard", "ha")
"""The extras of pyproject.toml whose libraries ``hyroads`` brings."""
OPENWRT = ("ipk", "apk")
"""Formats of OpenWrt's packages: of opkg, and of apk since 25.12."""
DEBIAN_ONLY = ("hyroads", "hyroads-box")
SOURCES = ("ryu", "ovs")
"""Libraries that have no wheels."""
HOME = Path("/opt/hyroads")
AP_HOME = Path("/usr/lib/hyroads-ap")
AP_ROOTS = (
    "hyroads.controller.cli.__main__",
    *(f"hyroads.controller.cli.{name}" for name in ("ap_agent", "box", "box_join", "box_doctor")),
)
"""What runs on an access point; the program of ``hyroads-box`` is in these modules, too."""
AP_PROGRAM = f"""#!/bin/sh
# Programs of an access point. Their modules are their own, and nothing is written beside them.
export PYTHONPATH={AP_HOME} PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1
exec python3 -m hyroads.controller.cli {{command}}"$@"
"""
# Tests of libraries, a fifth of all they bring; nothing imports them.
_LIBRARY_TESTS = ("numpy", "scipy", "ryu")


@dataclass(frozen=True)
class Job:
    """What is built: ``edge`` is the program of the target, ``python`` that of the distribution."""

    out: Path
    version: str
    arch: str
    edge: Path
    python: str
    wheel: Path | None = None
    libraries: Path | None = None

    @property
    def stage(self) -> Path:
        """Where the contents are put together."""
        return self.out / "stage" / self.arch


def run(*command: str | Path, **options: Any) -> str:
    """Standard output; what fails ends the build with what it said."""
    # With a checkout on Python's path pip would take the checkout for an installed package.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, capture_output=True, text=True, env=env, **options)
    if done.returncode:
        sys.exit(f"packages: {command[0]} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """The command line."""
    documents = {document["name"]: document for document in yaml.safe_load_all((PACKAGING / "nfpm.yaml").read_text())}
    parser = argparse.ArgumentParser(description="Build the packages of HyRoads.")
    known = (*documents, "wheel")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "packages", help="where they go")
    parser.add_argument("--version", default=_version(), help="default %(default)s")
    parser.add_argument("--arch", default=ARCHITECTURES.get(os.uname().machine), help="Debian's name (%(default)s)")
    parser.add_argument("--edge", type=Path, default=ROOT / "dataplane/target/release/hyroads-edge", help="program")
    parser.add_argument("--python", default="/usr/bin/python3", help="the distribution's Python (%(default)s)")
    parser.add_argument("--wheel", type=Path, help="of hyroads, instead of one of this tree")
    parser.add_argument("--libraries", type=Path, help="use those there, for tests on this machine; nothing is brought")
    parser.add_argument("--formats", default="deb,ipk,apk", help="default %(default)s")
    args = parser.parse_args()
    if unknown := set(args.packages) - set(known):
        parser.error(f"unknown packages: {', '.join(sorted(unknown))}")
    names = args.packages or list(known)
    if names != ["wheel"] and shutil.which("nfpm") is None:
        parser.error("nfpm is missing: scripts/bootstrap.sh --dev installs it where there is Go 1.23 or later")
    job = Job(args.out.resolve(), args.version, args.arch, args.edge, args.python, args.wheel, args.libraries)
    for name in names:
        if name == "wheel":
            print(manylinux(job))
            continue
        STAGES[name](job, fresh(job.stage / name))
        for each in args.formats.split(","):
            if each in OPENWRT and name == "hyroads-edge" and not is_static(job.edge):
                # OpenWrt's C library is another.
                print(f"packages: no .{each} of {job.edge}: not static (scripts/cross.sh)", file=sys.stderr)
            elif each == "deb" or name not in DEBIAN_ONLY:
                print(pack(job, documents[name], each))


def pack(job: Job, document: dict[str, Any], kind: str) -> Path:
    """nfpm on one document, with its variables filled in; dependencies that are empty then are left out."""
    python = run(job.python, "-c", "import sys; print(*sys.version_info[:2])").split()
    known = {
        "VERSION": job.version,
        "ARCH": job.arch,
        "STAGE": str(job.stage),
        "EDGE_DEPENDS": "" if is_static(job.edge) else "libc6",
        # A dynamic program loads it for TLS; a static one has it (scripts/cross.sh).
        "EDGE_RECOMMENDS": "" if is_static(job.edge) else "libssl3 | libssl3t64",
        "PYTHON": ".".join(python),
        "PYTHON_NEXT": f"{python[0]}.{int(python[1]) + 1}",
    }
    filled = _filled(document, known)
    if kind in OPENWRT:
        filled["contents"] = [file for each in filled["contents"] for file in _files_of(each, kind)]
    file = job.stage / f"{document['name']}.nfpm.json"
    file.write_text(json.dumps(filled, indent=1))
    target = job.out / f"{document['name']}_{job.version}_{_arch(document, job)}.{kind}"
    run("nfpm", "package", "--config", file, "--packager", kind, "--target", target, cwd=ROOT)
    return target


def _files_of(content: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    """A content of nfpm for a kind of packages, a tree as its files: nfpm gives the folders of a tree in an .apk a mode
    that is out of range, and apk-tools 3 refuses the package.
    """
    if content.get("packager", kind) != kind:
        return
    if content.get("type") != "tree":
        yield content
        return
    root = Path(content["src"])
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        yield {"src": str(file), "dst": str(Path(content["dst"]) / file.relative_to(root))}


def is_static(program: Path) -> bool:
    """Whether a program of any processor needs no library."""
    return "INTERP" not in run("readelf", "--program-headers", program)


def _arch(document: dict[str, Any], job: Job) -> str:
    return "all" if document["arch"] == "all" else job.arch


def _filled(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda found: known[found[1]], value)
    if isinstance(value, list):
        return [filled for each in value if (filled := _filled(each, known)) != ""]
    if isinstance(value, dict):
        return {key: _filled(each, known) for key, each in value.items()}
    return value


# -- hyroads ----------------------------------------------------------------------------------------------------------


def stage_hyroads(job: Job, stage: Path) -> None:
    """A virtual environment of the distribution's Python with the roles' libraries, and all that is around it."""
    home = stage / HOME.relative_to("/")
    run(job.python, "-m", "venv", "--without-pip", home)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        home / "bin" / "python",
        "install",
        "-q",
    ]
    if job.libraries is None:
        needed = fresh(job.out / "pins") / "requirements.txt"
        needed.write_text("".join(f"{pin.text()}\n" for pin in pinned(ROLES) if pin.key not in SOURCES))
        run(*pip, "--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes", "-r", needed)
        run(*pip, "--no-deps", "--no-compile", *_wheels(job.out).glob("*.whl"))
    run(*pip, "--no-deps", "--no-compile", _wheel(job))
    _keep_only(home / "bin", {"hyroads", "ryu-manager", "python", "python3"})
    for folder in [each for name in _LIBRARY_TESTS for each in home.glob(f"lib/*/site-packages/{name}/**/tests")]:
        shutil.rmtree(folder, ignore_errors=True)
    if job.libraries is not None:
        (site,) = home.glob("lib/*/site-packages")
        (site / "libraries.pth").write_text(f"{job.libraries.resolve()}\n")
    for file in home.glob("lib/*/site-packages/*.dist-info/direct_url.json"):
        file.unlink()
    # What is told of places is told of where they will be.
    for file in [home / "pyvenv.cfg", *home.glob("bin/*")]:
        if not file.is_symlink():
            file.write_text(file.read_text().replace(str(home), str(HOME)))
    run(home / "bin" / "python", "-m", "compileall", "-q", "-s", stage, "-p", "/", home / "lib")
    programs = stage / "usr/bin"
    programs.mkdir(parents=True)
    (programs / "hyroads").symlink_to(HOME / "bin/hyroads")
    (library,) = home.glob("lib/*/site-packages/hyroads/controller/_native")
    (programs / "hyroads-client").symlink_to("/" / library.relative_to(stage) / "hyroads-client")
    install(stage, "usr/share/snmp/mibs", ROOT / "mibs/HYROADS-MIB.txt")
    units = [unit for unit in UNITS.glob("*.service") if unit.stem not in ("hyroads-edge@", "hyroads-ap-agent")]
    install(stage, "usr/lib/systemd/system", *units)
    install(stage, "usr/lib/sysusers.d", UNITS / "sysusers.conf", name="hyroads.conf")
    _documentation(stage, "hyroads", ROOT / "README.md")
    install(stage, "usr/share/doc/hyroads/examples", *(ROOT / "slices/examples/campus").glob("*.yaml"))
    _help(stage, job)
    names = [f"{unit.stem}*.service" if unit.stem.endswith("@") else unit.stem for unit in units]
    others = (unit.stem.rstrip("@") for unit in units if unit.stem != "hyroads-controller")
    folders = ["/var/lib/hyroads", *(f"/var/lib/{name}" for name in others)]
    maintain(job, "hyroads", names, "hyroads.conf", folders=folders, caches=HOME)


def pinned(roles: Iterable[str]) -> list[pins.Pin]:
    """The libraries of these extras, with what those need, as this environment's two files pin them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {pin.key: pin for name in pins.FILES for pin in pins.read(ROOT / name)[1]}
    extras = project["optional-dependencies"]
    waiting = [*project["dependencies"], *(each for role in roles for each in extras.get(role, ()))]
    found: dict[str, pins.Pin] = {}
    while waiting:
        wanted = Requirement(waiting.pop())
        name = canonicalize_name(wanted.name)
        if name == "hyroads":
            waiting += [each for extra in wanted.extras for each in extras[extra]]
        elif name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            # Named by pbr, which builds with it.
            if name == "setuptools":
                continue
            if name not in known:
                sys.exit(f"packages: requirements.txt does not pin {name}")
            found[name] = known[name]
            waiting += metadata.requires(name) or []
    return sorted(found.values(), key=lambda pin: pin.key)


def _wheels(out: Path) -> Path:
    """Those of packages that have none, made of sources whose hashes are checked, with this environment's setuptools:
    Ryu needs an old one.
    """
    folder = out / "wheels"
    if len(list(folder.glob("*.whl"))) < len(SOURCES):
        wanted = fresh(out / "pins") / "sources.txt"
        wanted.write_text("".join(f"{pin.text()}\n" for pin in pinned(ROLES) if pin.key in SOURCES))
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q")
        run(*pip, "--no-deps", "--no-build-isolation", "--require-hashes", "-w", folder, "-r", wanted)
    return folder


def _wheel(job: Job) -> Path:
    if job.wheel is not None:
        return job.wheel
    folder = fresh(job.out / "wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q")
    run(*pip, "--no-deps", "--no-build-isolation", "-w", folder, ROOT, cwd=folder)
    (built,) = folder.glob("hyroads-*.whl")
    return built


def manylinux(job: Job) -> Path:
    """The wheel, named after the oldest glibc that its programs run with; it must need no other library."""
    made = fresh(job.out / "manylinux")
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", made, _wheel(job))
    (built,) = made.glob("hyroads-*.whl")
    return built.replace(job.out / built.name)


def _help(stage: Path, job: Job) -> None:
    """Manual pages and completions, from the commands' own parsers."""
    from manual_pages import completion, manual_pages

    for name, text in manual_pages(job.version, _date()):
        if name != "hyroads-ap-agent.1":
            _write(stage / "usr/share/man/man1" / f"{name}.gz", gzip.compress(text.encode(), mtime=0))
    _write(stage / "usr/share/bash-completion/completions/hyroads", completion("bash").encode())
    _write(stage / "usr/share/zsh/vendor-completions/_hyroads", completion("zsh").encode())


# -- access points ----------------------------------------------------------------------------------------------------


def stage_edge(job: Job, stage: Path) -> None:
    """One program; its unit is Debian's only."""
    from manual_pages import edge_page

    program = stage / "usr/bin/hyroads-edge"
    program.parent.mkdir(parents=True)
    strip = {
        "arm64": "aarch64-linux-gnu-strip",
        "armhf": "arm-linux-gnueabihf-strip",
        "mipsel": "mipsel-linux-gnu-strip",
    }
    tool = strip.get(job.arch, "strip")
    # scripts/cross.sh has stripped it already where no compiler for the processor is installed.
    run(*([tool, "-o", program, job.edge] if shutil.which(tool) else ["cp", job.edge, program]))
    program.chmod(0o755)
    debian = fresh(job.stage / "hyroads-edge.deb")
    usage = re.search(r'USAGE: &str = "\\\n(.*?)";', (ROOT / "dataplane/src/edge/options.rs").read_text(), re.DOTALL)
    page = edge_page(usage[1] if usage else "", job.version, _date())
    _write(debian / "usr/share/man/man8/hyroads-edge.8.gz", gzip.compress(page.encode(), mtime=0))
    install(debian, "usr/lib/systemd/system", UNITS / "hyroads-edge@.service")
    install(debian, "usr/lib/sysusers.d", UNITS / "sysusers-ap.conf", name="hyroads-ap.conf")
    _documentation(debian, "hyroads-edge")
    maintain(job, "hyroads-edge", ["hyroads-edge@*.service"], "hyroads-ap.conf")
    _maintain_openwrt(job, "hyroads-edge")


def stage_ap(job: Job, stage: Path) -> None:
    """The modules of the agent, and no other."""
    from manual_pages import manual_pages

    for path in closure(AP_ROOTS).values():
        _write(stage / AP_HOME.relative_to("/") / "hyroads" / path.relative_to(ROOT), path.read_bytes())
    about = f"Metadata-Version: 2.1\nName: hyroads\nVersion: {job.version}\n"
    # Without a version in its name, for opkg leaves the folders of the version before, which Python would find first.
    _write(stage / AP_HOME.relative_to("/") / "hyroads.dist-info" / "METADATA", about.encode())
    _write(stage / "usr/bin/hyroads-ap-agent", AP_PROGRAM.format(command="ap-agent ").encode())
    (stage / "usr/bin/hyroads-ap-agent").chmod(0o755)
    debian = fresh(job.stage / "hyroads-ap.deb")
    page = dict(manual_pages(job.version, _date()))["hyroads-ap-agent.1"]
    _write(debian / "usr/share/man/man1/hyroads-ap-agent.1.gz", gzip.compress(page.encode(), mtime=0))
    install(debian, "usr/lib/systemd/system", UNITS / "hyroads-ap-agent.service")
    _documentation(debian, "hyroads-ap")
    install(debian, "usr/share/doc/hyroads-ap/examples", PACKAGING / "ap.json")
    maintain(job, "hyroads-ap", ["hyroads-ap-agent.service"], "hyroads-ap.conf", caches=AP_HOME)
    _maintain_openwrt(job, "hyroads-ap")


def stage_box(job: Job, stage: Path) -> None:
    """The command ``hyroads`` of a box, and the end of its membership when the package is removed."""
    _write(stage / "usr/bin/hyroads", AP_PROGRAM.format(command="").encode())
    (stage / "usr/bin/hyroads").chmod(0o755)
    _documentation(stage, "hyroads-box")
    before_removal = job.stage / "hyroads-box.prerm"
    _write(before_removal, (PACKAGING / "hyroads-box.prerm").read_bytes())
    before_removal.chmod(0o755)


def closure(roots: Sequence[str]) -> dict[str, Path]:
    """Module -> file of what these modules of ours import, at once or later. The rest must be the standard library."""
    found: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if path is None or name in found:
            continue
        found[name] = path
        for imported in imports(name, path):
            if imported.split(".")[0] not in {"hyroads", *sys.stdlib_module_names}:
                sys.exit(f"packages: {path}: imports {imported}, which an access point has not")
            waiting.append(imported)
        # The packages that it is in.
        waiting += [name.rpartition(".")[0]]
    return found


def _file_of(module: str) -> Path | None:
    parts = module.split(".")
    if parts[0] != "hyroads" or len(parts) < 2:
        return None
    base = ROOT.joinpath(*parts[1:])
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def imports(module: str, path: Path) -> Iterator[str]:
    """Names that may be modules; what only a type checker imports is left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for_types = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    left_out = {id(inner) for node in for_types for each in node.body for inner in ast.walk(each)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from [base, *(f"{base}.{alias.name}" for alias in node.names)]


# -- files ------------------------------------------------------------------------------------------------------------

STAGES = {"hyroads": stage_hyroads, "hyroads-edge": stage_edge, "hyroads-ap": stage_ap, "hyroads-box": stage_box}


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def install(stage: Path, folder: str, *files: Path, name: str | None = None) -> None:
    """Copies of files that everybody may read."""
    for file in files:
        _write(stage / folder / (name or file.name), file.read_bytes())


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o644)


def _documentation(stage: Path, package: str, *more: Path) -> None:
    folder = f"usr/share/doc/{package}"
    install(stage, folder, ROOT / "LICENSE", name="copyright")
    install(stage, folder, *more)
    change = (ROOT / "CHANGELOG.md").read_bytes()
    _write(stage / folder / "changelog.gz", gzip.compress(change, mtime=0))


def maintain(
    job: Job,
    package: str,
    units: Sequence[str],
    sysusers: str,
    *,
    folders: Sequence[str] = (),
    caches: Path | None = None,
) -> None:
    """What dpkg runs. The users of an access point's two packages are created by both, and go with the first."""
    text = (PACKAGING / "maintainer.sh").read_text()
    source = UNITS / ("sysusers-ap.conf" if sysusers == "hyroads-ap.conf" else "sysusers.conf")
    users = re.findall(r"(?m)^u (\S+)", source.read_text()) if package != "hyroads-ap" else []
    values = {
        "UNITS": " ".join(units),
        "SYSUSERS": sysusers,
        "USERS": " ".join(users),
        "FOLDERS": " ".join(folders),
        "CACHES": str(caches or ""),
    }
    for part in ("postinst", "prerm", "postrm"):
        lines = [f"PART={part}", *(f"{key}='{value}'" for key, value in values.items())]
        file = job.stage / f"{package}.{part}"
        file.write_text("\n".join(["#!/bin/sh", *lines, text]))
        file.chmod(0o755)


def _maintain_openwrt(job: Job, package: str) -> None:
    """What opkg and apk run before they remove a package, whose service has its name."""
    file = job.stage / f"{package}.openwrt.prerm"
    file.write_text(f"#!/bin/sh\nSERVICE={package}\n{(ROOT / 'deploy/openwrt/prerm').read_text()}")
    file.chmod(0o755)


def _keep_only(folder: Path, names: set[str]) -> None:
    for file in folder.iterdir():
        if file.name not in names and not file.name.startswith("python3."):
            file.unlink()


def _version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def _date() -> str:
    """Of the pages: of the source, where it says (reproducible-builds.org), else today."""
    epoch_s = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return time.strftime("%Y-%m-%d", time.gmtime(epoch_s))


if __name__ == "__main__":
    main()
