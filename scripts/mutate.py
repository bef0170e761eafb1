"""Put small faults into modules, one at a time, and see whether the nearest unit tests find them.

    python scripts/mutate.py                         a sample of each module of the list below
    python scripts/mutate.py ofp.diff --count 0      all faults of one module (part of its name is enough)
    python scripts/mutate.py ofp.diff --only 17      fault 17 of that module again, with what the tests print

The faults: a comparison flipped or moved by its bound, a number one greater, a statement dropped, a condition negated,
"and" and "or" exchanged, two neighbours exchanged (calls, items of a list, arguments). Those that a person makes: one
of several conditions, operands, bounds, items or named arguments left out, a check that never or always holds, a
function taken for its counterpart (min and max, any and all, continue and break), a list that is not sorted. No file
changes: a process of its own compiles the module with the fault in it, and runs the tests. Same seed, same sample.
Ends with 1 if fewer than ``--least`` percent are killed. Faults that no test can see are listed in ``EQUIVALENT``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from faults import Mutant, mutants

ROOT = Path(__file__).resolve().parents[1]
UNIT = ROOT / "tests" / "unit"
UPDATES = ("control/test_flow_order.py", "controller/test_update_order.py", "control/test_late_branching.py")
SLICES = (
    "slices/test_allocation.py",
    "slices/test_classifier.py",
    "slices/test_slice_model.py",
    "slices/test_match_algebra.py",
    "slices/test_notation_and_oxm.py",
)
PROXY = tuple(
    f"slices/proxy/test_{name}.py"
    for name in ("translation_reference", "actions", "group_mod", "flow_mod", "packets", "region", "extensions")
)

NEAREST: dict[str, tuple[str, ...]] = {
    "hyroads.controller.control.update_order": UPDATES,
    "hyroads.controller.control.flow_order": UPDATES,
    "hyroads.controller.ofp.diff": ("test_ofp_diff.py", "test_ofp_wire.py"),
    "hyroads.controller.ofp.wire": ("test_ofp_wire.py", "test_ofp_rules.py", "test_ofp_diff.py"),
    "hyroads.controller.ofp.readback": (
        "test_ofp_readback.py",
        "test_ofp_wire.py",
        "controller/test_switch_reading.py",
    ),
    "hyroads.controller.ofp.sessions": ("control/test_sessions.py", "test_ofp_rules.py", "services/test_multicast.py"),
    "hyroads.controller.ha.election": ("ha/test_election_bounds.py", "ha/test_election.py"),
    "hyroads.controller.ha.instance": ("ha/test_instance.py", "ha/test_confirmed.py"),
    "hyroads.controller.ha.peers": ("ha/test_peers.py", "ha/test_confirmed.py"),
    "hyroads.controller.ha.told": ("ha/test_told.py",),
    "hyroads.controller.model.events": ("controller/test_events.py", "ha/test_events.py", "ha/test_told.py"),
    "hyroads.controller.model.handover": ("control/test_handover.py", "services/test_ncast.py"),
    "hyroads.controller.core.services.mobility": ("services/test_mobility.py", "services/test_plain_handovers.py"),
    "hyroads.controller.core.admission": ("test_admission.py",),
    "hyroads.controller.core.identity": ("test_identity.py",),
    "hyroads.controller.agents.frame_keys": ("controller/test_frame_keys.py",),
    "hyroads.slices.core.allocation": SLICES,
    "hyroads.slices.core.change": SLICES,
    "hyroads.slices.core.classifier": SLICES,
    "hyroads.slices.core.match": SLICES,
    "hyroads.slices.proxy.actions": PROXY,
    "hyroads.slices.proxy.extensions": ("slices/proxy/test_extensions.py", *PROXY),
    "hyroads.slices.proxy.flow_mod": ("slices/proxy/test_flow_mod.py", *PROXY),
    "hyroads.slices.proxy.group_mod": ("slices/proxy/test_group_mod.py", *PROXY),
    "hyroads.slices.proxy.guest_view": ("slices/proxy/test_group_mod.py", *PROXY),
    "hyroads.slices.proxy.packets": ("slices/proxy/test_packets.py", *PROXY),
    "hyroads.slices.proxy.region": ("slices/proxy/test_region.py", *PROXY),
    "hyroads.slices.proxy.discovery": ("slices/proxy/test_packets.py", "slices/proxy/test_control_channel.py"),
    "hyroads.slices.proxy.multipart": ("slices/proxy/test_multipart.py", "slices/proxy/test_control_channel.py"),
    "hyroads.slices.proxy.readback": (
        "slices/proxy/test_multipart.py",
        "slices/proxy/test_flow_mod.py",
        "slices/proxy/test_translation_reference.py",
        "slices/proxy/test_extensions.py",
    ),
    "hyroads.slices.proxy.roles": ("slices/proxy/test_control_channel.py", "slices/proxy/test_session.py"),
    "hyroads.slices.proxy.xids": ("slices/proxy/test_control_channel.py", "slices/proxy/test_packets.py"),
    "hyroads.slices.core.delegation": ("slices/test_delegation.py", "slices/test_slice_model.py"),
}
"""By module: the unit tests that are run, the ones most likely to find a fault first."""

EQUIVALENT: dict[tuple[str, str], str] = {
    ("diff", "rule.table, -[2]), -rule.priority"): "only has to be less than all positions",
    ("diff", "rule.table, -[2]), rule.priority"): "only has to be less than all positions",
    ("diff", "swap statements: ON.get("): "two lists are sorted, each by itself",
    ("election", "self._owner_s = ([1], self.now_s)"): "no key of etcd has revision 1: its first change makes 2",
    ("election", "self._owner_s = ([self.now_s, 0])"): "the first read of an owner sets both",
    ("election", "_Heard('', [1], -math.inf)"): "a sign of life at minus infinity never counts",
    ("election", "_Heard('', [-math.inf, 0])"): "no leader has an epoch of minus infinity",
    ("election", "at_s >[=] self._heard.at_s"): "two readings of the clock are never equal",
    ("election", "(epoch, heard_s) >[=] (self"): "equal ones are the same sign of life",
    ("election", "return [1] if self.seen is None"): "leaders have epochs from 1 on",
    ("election", "self.seen.owner else [1])"): "leaders have epochs from 1 on",
    ("election", "in ([member.identity.name, ''])"): "a test of membership, in either order",
    ("flow_order", "configs = (config for config in (view.[sent, view.acked])"): "all of both, in either order",
    ("flow_order", "in config.branch)) for config in (view.[sent, view.acked])"): "any of both, in either order",
    ("flow_order", "((flow.[ingress, 'ingress'), (flow.egress, 'e]gress'))"): "pending parts are a set",
    ("flow_order", "drop: [continue] -> [pass]"): "pending_of only calls this for flows that have both ends",
    ("flow_order", "_same([getattr(plan.agents[node], side)[name], have])"): "equality, either way round",
    ("flow_order", "isinstance(have, IngressFlow) [or]"): "both are of the same side of a flow",
    ("flow_order", "[[(path.[written, path.id])"): "pairs are compared with pairs of the same order",
    ("flow_order", "in ([wanted, have])]"): "equality, either way round",
    ("update_order", "FEW_FLOWS = 1[7]"): "how flows are looked for, not which are found",
    ("update_order", "if last is None or last is [not ]plan"): "more is worked out again, with the same result",
    ("classifier", "swap statements: value |="): "two sums, each by itself",
    (
        "classifier",
        "(CLASSIFIER_TABLE, self.priority, [self.instructions(layout), _match_fields(self.match",
    ): "a hash of the same bytes in another order",
    ("classifier", "wire.flow_mod_body([CLASSIFIER_TABLE, wire.ADD]"): "both are 0",
    ("classifier", "swap statements: heirs"): "two mappings, each by itself",
}
"""By the last part of a module's name and a part of the words of one fault: why no caller can see any difference."""


class _Faulty(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports one module from other source text than its file."""

    def __init__(self, module: str, path: str, source: str) -> None:
        self.module, self.path, self.source = module, path, source

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self, origin=self.path) if name == self.module else None

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str) -> bytes:
        return self.source.encode()


def outcome(
    module: str, path: str, source: str, limit_s: float, *, shown: bool = False, libraries: str | None = None
) -> str:
    """What the nearest tests say of a module with this source: "passed", "failed" or "too slow".

    The names of libraries that they need are written to the file ``libraries``.
    """
    child = os.fork()
    if child == 0:
        _run_tests(module, path, source, shown, libraries)
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "passed" if status == 0 else "failed"
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "too slow"


def _run_tests(module: str, path: str, source: str, shown: bool, libraries: str | None) -> None:
    os.setsid()
    if not shown:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    # A package imports some of its modules itself: what came in before must be read again, with the fault.
    for name in [name for name in sys.modules if name.partition(".")[0] == "hyroads"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Faulty(module, path, source))
    import pytest

    tests = [str(UNIT / name) for name in NEAREST[module]]
    status = 1
    try:
        status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests])
        if libraries is not None:
            found = [name for name, of in sys.modules.items() if "site-packages" in str(getattr(of, "__file__", ""))]
            Path(libraries).write_text("\n".join(found))
    finally:
        os._exit(1 if status else 0)


def _sample(of: list[Mutant], args: argparse.Namespace) -> list[Mutant]:
    return random.Random(args.seed).sample(of, min(args.count, len(of)))  # noqa: S311 - no secret


def worth_trying(name: str, every: list[Mutant]) -> list[Mutant]:
    """The faults of a module that some test can see; SystemExit if an entry of ``EQUIVALENT`` is not exactly one."""
    listed: set[int] = set()
    for words in (words for of, words in EQUIVALENT if of == name):
        found = [each.number for each in every if words in each.words]
        if len(found) != 1:
            raise SystemExit(f"{name}: {len(found)} faults have the words of EQUIVALENT, expected one: {words}")
        listed.update(found)
    return [each for each in every if each.number not in listed]


def _judge(module: str, args: argparse.Namespace) -> tuple[int, int]:
    """How many faults of a module were tried, and how many of these were killed."""
    spec = importlib.util.find_spec(module)
    path = str(spec and spec.origin)
    source = Path(path).read_text()
    every = mutants(source)
    if args.only is not None:
        print(f"{module}:{every[args.only].line} {every[args.only].words}")
        found = outcome(module, path, every[args.only].source, 600.0, shown=True)
        return 1, int(found != "passed")
    began = time.monotonic()
    with tempfile.NamedTemporaryFile("r") as names:
        if outcome(module, path, ast.unparse(ast.parse(source)), 600.0, libraries=names.name) != "passed":
            raise SystemExit(f"{module}: its tests fail without a fault")
        # What tests need and no fault touches is imported once, before the processes of the faults begin.
        for library in names.read().split():
            with contextlib.suppress(Exception):
                importlib.import_module(library)
    limit_s = 20.0 + 5 * (time.monotonic() - began)
    name = module.rpartition(".")[2]
    worth = worth_trying(name, every)
    chosen = worth if not args.count else _sample(worth, args)
    killed = 0
    for each in sorted(chosen, key=lambda mutant: mutant.number):
        if outcome(module, path, each.source, limit_s) != "passed":
            killed += 1
            continue
        print(f"  survives: line {each.line}, {each.words}")
        print(f"    python scripts/mutate.py {module} --only {each.number}", flush=True)
    share = 100.0 * killed / max(1, len(chosen))
    print(f"{module}: {killed} of {len(chosen)} killed ({share:.0f} %), {len(every)} faults known", flush=True)
    return len(chosen), killed


def main() -> int:
    """Try the faults that the command line names; 1 if too few are killed."""
    parser = argparse.ArgumentParser(description="Put faults into modules and see whether unit tests find them.")
    parser.add_argument("modules", nargs="*", help="parts of names of modules; all of the list if there are none")
    parser.add_argument("--count", type=int, default=30, help="faults of each module; 0: all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default %(default)s)")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one fault, with what its tests print")
    parser.add_argument("--least", type=float, default=90.0, help="percent to be killed (default %(default)s)")
    args = parser.parse_args()
    chosen = [name for name in NEAREST if not args.modules or any(part in name for part in args.modules)]
    if not chosen or (args.only is not None and len(chosen) != 1):
        parser.error("expected modules of the list, and with --only one: " + ", ".join(NEAREST))
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    counts = [_judge(module, args) for module in chosen]
    tried, killed = (sum(column) for column in zip(*counts, strict=True))
    share = 100.0 * killed / max(1, tried)
    print(f"in all {killed} of {tried} killed ({share:.1f} %)")
    return 0 if share >= args.least or args.only is not None else 1


if __name__ == "__main__":
    sys.exit(main())
