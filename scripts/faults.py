"""The faults that ``mutate.py`` puts into a module: small changes of its syntax tree, one at a time."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
    """Annotations and decorators: their content is no behaviour, or all of a class."""
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
