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
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

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
    "hyroads.controller.ofp.readback": ("test_ofp_wire.py", "test_ofp_diff.py", "controller/test_switch_reading.py"),
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

_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_DROPPED = (ast.Expr, ast.AugAssign, ast.Assign, ast.Raise, ast.Continue, ast.Break, ast.Delete)
_COMMUTATIVE = {"compare_digest", "differing", "max", "min"}
"""Functions for which the order of arguments is of no matter."""
_COUNTERPARTS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_BODIES = ("body", "orelse", "finalbody")


@dataclass(frozen=True)
class Mutant:
    """One fault: its number in its module, the line, what it is in words, and the module with it."""

    number: int
    line: int
    words: str
    source: str


Change = tuple[int, str, Callable[[], None], Callable[[], None]]
"""Line, kind, how to put the fault into the tree, and how to take it out again."""


def mutants(source: str) -> list[Mutant]:
    """All faults of a module, in the order of its lines."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    for line, kind, put, take in sorted(_changes(tree), key=lambda change: (change[0], change[1])):
        clean = _statement(tree, line)
        put()
        text, fault = ast.unparse(tree), _statement(tree, line)
        take()
        found.append(Mutant(len(found), line, f"{kind}: {_difference(clean, fault)}", text))
    return found


def _statement(tree: ast.Module, line: int) -> str:
    """The innermost statement without a body of its own, or the head of the one with it, that has a line."""
    inner = [each for each in ast.walk(tree) if isinstance(each, ast.stmt) and each.lineno <= line <= _end(each)]
    found = copy.copy(max(inner, key=lambda each: (each.lineno, -_end(each))))
    for name in _BODIES:
        if getattr(found, name, None):
            setattr(found, name, [ast.Pass()])
    return " ".join(ast.unparse(found).split())


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _alike(first: str, second: str) -> int:
    """How many letters two texts begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(first), len(second)))


def _difference(clean: str, fault: str) -> str:
    """What differs, with some letters around it."""
    begin = _alike(clean, fault)
    end = _alike(clean[begin:][::-1], fault[begin:][::-1])
    around = slice(max(0, begin - 40), begin)
    return " -> ".join(
        f"{text[around]}[{text[begin : len(text) - end]}]{text[len(text) - end :][:30]}" for text in (clean, fault)
    )


def _changes(tree: ast.Module) -> Iterator[Change]:
    skipped = _annotations(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        yield from _of_values(node)
        yield from _left_out(node)
        yield from _one_operand(node)
        for name in _BODIES:
            body = getattr(node, name, None)
            if isinstance(body, list):
                yield from _of_body(body)


def _annotations(tree: ast.Module) -> set[int]:
    """Annotations and decorators: what is in them is no behaviour, or all of a class."""
    roots: list[ast.AST] = []
    for node in ast.walk(tree):
        roots += [
            found for name in ("annotation", "returns") if isinstance(found := getattr(node, name, None), ast.AST)
        ]
        roots += getattr(node, "decorator_list", [])
    # Names of types, such as Key = tuple[str, str | None].
    assigned = [each.value for each in tree.body if isinstance(each, ast.Assign)]
    roots += [value for value in assigned if isinstance(value, ast.Subscript) or _is_union(value)]
    return {id(inner) for root in roots for inner in ast.walk(root)}


def _is_union(value: ast.expr) -> bool:
    """Whether it joins names of types; those of numbers are in capitals."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return _is_union(value.left) and _is_union(value.right)
    return isinstance(value, ast.Name) and not value.id.isupper()


def _of_values(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield _set(node.lineno, "flip", node.ops, i, _FLIPPED[type(op)]())
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _assign(node.lineno, "opposite", node, "value", not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield _assign(node.lineno, "off by one", node, "value", node.value + 1)
    elif isinstance(node, ast.BoolOp):
        yield _assign(node.lineno, "and/or", node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _assign(node.test.lineno, "negate", node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.comprehension):
        for i, test in enumerate(node.ifs):
            yield _set(test.lineno, "negate", node.ifs, i, ast.UnaryOp(ast.Not(), test))
    items = getattr(node, "elts", [])
    if isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        items = [] if called in _COMMUTATIVE else node.args
    if not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del) and not isinstance(node, ast.Set):
        yield from _swaps(items, "swap items")


def _left_out(node: ast.AST) -> Iterator[Change]:
    """Parts of a node that can be missing, and conditions that do not depend on anything."""
    if isinstance(node, ast.If | ast.IfExp):
        for always in (False, True):
            yield _put_in(node.test.lineno, "always" if always else "never", node, "test", ast.Constant(always))
    elif isinstance(node, ast.BoolOp):
        yield from _one_less(node.lineno, "no operand", node.values)
    elif isinstance(node, ast.comprehension):
        yield from _one_less(node.target.lineno, "no condition", node.ifs)
    elif isinstance(node, ast.List | ast.Set) and not isinstance(getattr(node, "ctx", None), ast.Store):
        yield from _one_less(node.lineno, "no item", node.elts)
    elif isinstance(node, ast.Call):
        yield from _one_less(node.lineno, "no argument", node.keywords)
        other = _COUNTERPARTS.get(getattr(node.func, "id", ""))
        if other is not None and not (other == "list" and node.keywords):
            yield _put_in(node.lineno, "counterpart", node, "func", ast.Name(other, ast.Load()))
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        # Of "a < b < c" only "b < c", or only "a < b".
        yield _fewer_bounds(node, node.comparators[0], slice(1, None))
        yield _fewer_bounds(node, node.left, slice(None, -1))


def _one_operand(node: ast.AST) -> Iterator[Change]:
    """One side instead of both, where a part of a node adds or joins two."""
    for name, value in ast.iter_fields(node):
        for i, each in enumerate(value if isinstance(value, list) else [value]):
            is_joined = isinstance(each, ast.BinOp) and isinstance(each.op, ast.BitOr | ast.BitAnd | ast.Add | ast.Sub)
            for kept in (each.left, each.right) if is_joined and name not in ("annotation", "returns") else ():
                to = (value, i) if isinstance(value, list) else (node, name)
                yield _put_in(each.lineno, "no operand", *to, kept)


def _one_less(line: int, kind: str, of: list) -> Iterator[Change]:
    for i in range(len(of)):
        whole = list(of)

        def put(i: int = i) -> None:
            del of[i]

        def take(whole: list = whole) -> None:
            of[:] = whole

        yield line, kind, put, take


def _fewer_bounds(node: ast.Compare, left: ast.expr, kept: slice) -> Change:
    before = node.left, node.ops, node.comparators

    def put() -> None:
        node.left, node.ops, node.comparators = left, before[1][kept], before[2][kept]

    def take() -> None:
        node.left, node.ops, node.comparators = before

    return node.lineno, "no bound", put, take


def _of_body(body: list[ast.stmt]) -> Iterator[Change]:
    for i, statement in enumerate(body):
        is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        to_names = isinstance(statement, ast.Assign) and all(
            isinstance(to, ast.Name | ast.Tuple) for to in statement.targets
        )
        if isinstance(statement, ast.Continue | ast.Break):
            other = ast.Break() if isinstance(statement, ast.Continue) else ast.Continue()
            yield _set(statement.lineno, "counterpart", body, i, ast.copy_location(other, statement))
        if isinstance(statement, _DROPPED) and not is_text and not to_names:
            yield _set(statement.lineno, "drop", body, i, ast.copy_location(ast.Pass(), statement))
    calls = [isinstance(each, ast.Expr | ast.AugAssign) and not isinstance(each.value, ast.Constant) for each in body]
    for i in range(len(body) - 1):
        if calls[i] and calls[i + 1]:
            yield _swap(body[i].lineno, "swap statements", body, i)


def _swaps(items: list[ast.expr], kind: str) -> Iterator[Change]:
    for i in range(len(items) - 1):
        if ast.dump(items[i]) != ast.dump(items[i + 1]):
            yield _swap(items[i].lineno, kind, items, i)


def _put_in(line: int, kind: str, of: list | ast.AST, at: int | str, new: ast.AST) -> Change:
    """A part of a list, by its position, or of a node, by its name."""
    return _set(line, kind, of, at, new) if isinstance(of, list) else _assign(line, kind, of, str(at), new)


def _set(line: int, kind: str, of: list, i: int, new: ast.AST) -> Change:
    old = of[i]
    return line, kind, lambda: of.__setitem__(i, new), lambda: of.__setitem__(i, old)


def _swap(line: int, kind: str, of: list, i: int) -> Change:
    def swap() -> None:
        of[i], of[i + 1] = of[i + 1], of[i]

    return line, kind, swap, swap


def _assign(line: int, kind: str, node: ast.AST, name: str, new: object) -> Change:
    old = getattr(node, name)
    return line, kind, lambda: setattr(node, name, new), lambda: setattr(node, name, old)


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
