"""Coverage-guided fuzzing of everything that reads strangers' bytes (docs/contributing/testing.md).

    scripts/fuzz.py list                          the targets, and how many inputs the corpus of each has
    scripts/fuzz.py run [TARGET...] --seconds N   fuzzes for N seconds in all, shared over the targets, as many at a
                                                  time as there are processors; what each has found grows on in build/
    scripts/fuzz.py repeat TARGET FILE            the one input again, without a fuzzer
    scripts/fuzz.py compare                       what the slicer sends on, Open vSwitch reads (``ovs-ofctl``)
    scripts/fuzz.py grown TARGET                  the smallest inputs that reach what the corpus does not, as TOML

Python's targets (tests/fuzz) run under Atheris, those of the data plane (dataplane/fuzz) under libFuzzer, which the
crate ``libfuzzer-sys`` brings. Both begin with the corpora in tests/fuzz/corpus. An input with a finding is put into
build/fuzz/findings with the command that repeats it. Exit status: 0 nothing found, 1 something, 2 it could not run,
3 a part could not (no Atheris for this processor, no C++ compiler), and the others found nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "fuzz"))
import inputs
import targets

ROOT = Path(__file__).resolve().parents[1]
HERE, WORK = ROOT / "tests" / "fuzz", ROOT / "build" / "fuzz"
CRATE, FINDINGS = ROOT / "dataplane" / "fuzz", WORK / "findings"
EACH_S, MEMORY_MB, LEAST_S = 10, 2048, 2
"""Longest that one input may take, most memory, and the shortest time that a target is worth starting for."""
COVERAGE = (
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
)
"""As cargo-fuzz has it; all of it is in stable compilers."""


class FuzzError(Exception):
    """A part can't run; says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What runs targets of one language: the command for a target with more arguments, and that for single inputs."""

    names: Sequence[str]
    command: Callable[[str], list[str]]
    plain: Callable[[str, Path], list[str]]
    options: Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one target: its last figures, and the inputs with findings."""

    name: str
    line: str
    findings: Sequence[Path]
    broken: str = ""
    """Why its fuzzer ended without a finding; empty: it did not."""


# -- the two engines --------------------------------------------------------------------------------------------------


def rust_names() -> list[str]:
    """The targets of the data plane."""
    return sorted(path.stem.replace("_", "-") for path in (CRATE / "targets").glob("*.rs"))


def python_names() -> list[str]:
    """The targets of the rest."""
    return sorted(targets.HOMES)


def rust(*, asan: bool = False) -> Engine:
    """Build the targets of the data plane; FuzzError."""
    for tool in ("cargo", "c++"):
        if shutil.which(tool) is None:
            raise FuzzError(f"the data plane: no {tool}")
    host = re.findall(r"host: (\S+)", _said("rustc", "-vV"))[0]
    home = WORK / ("asan" if asan else "cargo")
    flags = [*COVERAGE, *(["-Zsanitizer=address"] if asan else [])]
    environment = {**os.environ, "CARGO_TARGET_DIR": str(home), "RUSTFLAGS": " ".join(flags)}
    command = ["cargo", *(["+nightly"] if asan else []), "build", "--release", "--locked", "--quiet", "--target", host]
    if subprocess.run(command, cwd=CRATE, env=environment, check=False).returncode:
        raise FuzzError("the data plane: its targets could not be built (they need rustc 1.63 and a C++ compiler)")
    folder = home / host / "release"
    return Engine(
        rust_names(),
        lambda name: [str(folder / name)],
        lambda name, path: [str(folder / name), str(path)],
        lambda name: ["-max_len=4096"],
    )


def python() -> Engine:
    """Check that Atheris is there; FuzzError."""
    interpreter, runner = str(ROOT / ".venv" / "bin" / "python"), str(HERE / "run.py")
    command = [interpreter, "-c", "import sys; sys.path.append('.venv/fuzz'); import atheris"]
    if subprocess.run(command, cwd=ROOT, check=False, capture_output=True).returncode:
        why = "scripts/bootstrap.sh --dev installs it" if platform.machine() == "x86_64" else "it has no wheel for it"
        raise FuzzError(f"Python: no Atheris for {platform.machine()} ({why})")
    return Engine(
        python_names(),
        lambda name: [interpreter, runner, name],
        lambda name, path: [interpreter, runner, name, "--plain", str(path)],
        lambda name: [f"-max_len={_longest(name)}"],
    )


def _longest(name: str) -> int:
    text = (HERE / f"{targets.HOMES[name]}.py").read_text(encoding="utf-8")
    found = re.search(rf'@target\("{name}"[^)]*longest=(\d+)', text)
    return int(found[1]) if found else 2048


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# -- running ----------------------------------------------------------------------------------------------------------


def lay_out(name: str) -> list[Path]:
    """Where a target's inputs are as files: those it has grown itself, and those of the corpus."""
    grown, given = WORK / "grown" / name, WORK / "given" / name
    shutil.rmtree(given, ignore_errors=True)
    for folder in (grown, given, FINDINGS):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(inputs.seeds(name)):
        (given / f"{number:03}").write_bytes(seed.data)
    return [grown, given]


def fuzz(engine: Engine, name: str, seconds: float) -> Outcome:
    """Fuzz one target for some time."""
    folders = lay_out(name)
    prefix = FINDINGS / f"{name}-"
    before = set(FINDINGS.glob(f"{prefix.name}*"))
    options = [
        f"-max_total_time={max(1, round(seconds))}", f"-timeout={EACH_S}", f"-rss_limit_mb={MEMORY_MB}",
        f"-artifact_prefix={prefix}", "-reload=0", "-use_value_profile=1", *engine.options(name),
    ]  # fmt: skip
    done = subprocess.run(
        [*engine.command(name), *options, *map(str, folders)], cwd=ROOT, check=False, capture_output=True, text=True,
        errors="replace", env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip
    log = WORK / f"{name}.log"
    log.write_text(done.stderr + done.stdout, encoding="utf-8")
    figures = re.findall(r"(?m)^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", done.stderr)
    line = "{} inputs, {} edges, {} features, {} kept".format(*figures[-1]) if figures else "no figures"
    findings = sorted(set(FINDINGS.glob(f"{prefix.name}*")) - before)
    broken = f"ended with status {done.returncode}, see {log.relative_to(ROOT)}" if done.returncode else ""
    return Outcome(name, line, findings, "" if findings else broken)


def run(names: Sequence[str], seconds: float, jobs: int, *, asan: bool) -> int:
    """Fuzz targets side by side for a time in all."""
    status, work = 0, list[tuple[Engine, str]]()
    for build, known in ((partial(rust, asan=asan), rust_names()), (python, python_names())):
        wanted = [name for name in known if not names or name in names]
        if not wanted or (asan and build is python):
            continue
        try:
            engine = build()
        except FuzzError as error:
            print(f"fuzz: {error}", file=sys.stderr)
            status = 3
        else:
            work += [(engine, name) for name in wanted]
    if not work:
        return status or 2
    each_s = max(LEAST_S, seconds * jobs / len(work))
    print(f"fuzz: {len(work)} targets, {jobs} at a time, {each_s:.0f} s each")
    begun_s = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(lambda each: fuzz(*each, each_s), work):
            print(f"   {outcome.name}: {outcome.line}")
            if outcome.broken:
                status = 1
                print(f"   {outcome.name}: {outcome.broken}")
            for path in outcome.findings:
                status = 1
                shown = path.relative_to(ROOT)
                print(f"   {outcome.name}: FOUND {shown}; again: scripts/fuzz.py repeat {outcome.name} {shown}")
    print(f"fuzz: {time.monotonic() - begun_s:.0f} s")
    return status


def engine_of(name: str) -> Engine:
    """The engine of a target; FuzzError."""
    if name in rust_names():
        return rust()
    if name in python_names():
        return python()
    raise FuzzError(f"no target {name}; scripts/fuzz.py list shows them")


def repeat(name: str, path: Path) -> int:
    """Run one input again; its status is that of the target. Python's targets need no Atheris for it."""
    if name in python_names():
        return subprocess.run(
            [ROOT / ".venv/bin/python", HERE / "run.py", name, "--plain", path], check=False
        ).returncode
    return subprocess.run(engine_of(name).plain(name, path), cwd=ROOT, check=False).returncode


def grown(name: str) -> int:
    """The smallest set of grown inputs that reach what the corpus does not, as TOML; who adds one says what it is."""
    engine = engine_of(name)
    own, given = lay_out(name)
    merged = WORK / "merged" / name
    shutil.rmtree(merged, ignore_errors=True)
    shutil.copytree(given, merged)
    subprocess.run([*engine.command(name), "-merge=1", *engine.options(name), str(merged), str(own)], cwd=ROOT,
                   check=True, capture_output=True)  # fmt: skip
    known = {path.name for path in given.iterdir()}
    for path in sorted(merged.iterdir(), key=lambda each: each.stat().st_size):
        if path.name not in known:
            print(f'[[seed]]\nwhat = ""\nhex = "{path.read_bytes().hex()}"\n')
    return 0


# -- comparing with Open vSwitch --------------------------------------------------------------------------------------


def unread(messages: Sequence[bytes]) -> list[tuple[bytes, str]]:
    """Which OpenFlow messages Open vSwitch can't read, and what ``ovs-ofctl`` says of each."""
    WORK.mkdir(parents=True, exist_ok=True)
    found = []
    for at in range(0, len(messages), 500):
        part = messages[at : at + 500]
        path = WORK / "messages"
        path.write_bytes(b"".join(part))
        done = subprocess.run(
            ["ovs-ofctl", "ofp-parse", path], check=False, capture_output=True, text=True, errors="replace"
        )
        told = re.split(r"(?m)^(?=OF|\(\*\*\*|\*\*\*)", done.stdout)[1:]
        if len(told) != len(part):
            # One by one, to know which.
            told = [_printed(message) for message in part]
        found += [(message, text) for message, text in zip(part, told, strict=True) if _is_error(text)]
    return found


def _printed(message: bytes) -> str:
    done = subprocess.run(["ovs-ofctl", "ofp-print", message.hex()], check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


def _is_error(text: str) -> bool:
    return "***decode error" in text or "decode error" in text or ("ofp-print" in text and "failed" in text)


def sent_on(data: Iterable[bytes]) -> list[bytes]:
    """What the slicer sends to the switch of inputs of the target ``slicer-guests``, each message once."""
    from slicing import translated

    return list(dict.fromkeys(message for each in data for message in translated(each)))


def compare() -> int:
    """Let Open vSwitch read what the slicer sends on, of the corpus and of all that fuzzers have grown."""
    if shutil.which("ovs-ofctl") is None:
        print("fuzz: no ovs-ofctl, nothing is compared", file=sys.stderr)
        return 3
    folder = WORK / "grown" / "slicer-guests"
    data = [seed.data for seed in inputs.seeds("slicer-guests")]
    data += [path.read_bytes() for path in sorted(folder.glob("*"))]
    messages = sent_on(data)
    wrong = unread(messages)
    print(f"fuzz: Open vSwitch reads {len(messages) - len(wrong)} of {len(messages)} messages that the slicer sends on")
    for message, text in wrong[:20]:
        print(f"   {message.hex()}\n   {text.strip()[:300]}")
    return 1 if wrong else 0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list")
    verbs.add_parser("compare")
    running = verbs.add_parser("run")
    running.add_argument("targets", nargs="*")
    running.add_argument("--seconds", type=float, default=60.0, help="in all")
    running.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    running.add_argument(
        "--asan", action="store_true", help="the data plane alone, with AddressSanitizer (nightly rustc)"
    )
    again = verbs.add_parser("repeat")
    again.add_argument("target")
    again.add_argument("file", type=Path)
    verbs.add_parser("grown").add_argument("target")
    arguments = parser.parse_args()
    try:
        match arguments.verb:
            case "list":
                for name in (*rust_names(), *python_names()):
                    print(
                        f"{name:20} {'Rust' if name in rust_names() else 'Python':7} {len(inputs.seeds(name)):3} inputs"
                    )
                return 0
            case "run":
                unknown = set(arguments.targets) - {*rust_names(), *python_names()}
                if unknown:
                    raise FuzzError(f"no target {', '.join(sorted(unknown))}; scripts/fuzz.py list shows them")
                return run(arguments.targets, arguments.seconds, max(1, arguments.jobs), asan=arguments.asan)
            case "repeat":
                return repeat(arguments.target, arguments.file.resolve())
            case "grown":
                return grown(arguments.target)
            case _:
                return compare()
    except FuzzError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
