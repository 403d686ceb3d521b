"""Small faults made on purpose: every way of changing one place of a Python file that a good test should notice.

A mutant replaces the text of one node of the syntax tree. It is known by its file, the function or class it is in and
its lines before and after, without a line number, so that it is the same mutant after unrelated lines were added.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
Place = ast.stmt | ast.expr

_COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_TWINS = {"min": "max", "amin": "amax", "minimum": "maximum", "any": "all", "floor": "ceil", "zeros_like": "ones_like"}
_TWINS |= {twin: name for name, twin in _TWINS.items()}


@dataclass(frozen=True)
class Mutant:
    """One changed place.

    Attributes:
        file: The file it is in, as it is named to the tool.
        scope: The function or class it is in, dotted; empty at the top of the file.
        line: Number of its first line, to find it; no part of its name.
        before: Its lines as they are, joined.
        after: The same lines changed.
        source: The whole file with the change.
        in_function: Whether it is in the body of a function, not in what runs on import.
    """

    file: str
    scope: str
    line: int
    before: str
    after: str
    source: str
    in_function: bool

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is known by."""
        return self.file, self.scope, self.before, self.after


def mutants_of(file: str, source: str) -> list[Mutant]:
    """All mutants of a source text, in the order of its lines, each text once."""
    tree = ast.parse(source)
    lines = source.encode().splitlines(keepends=True)
    seen = {source}
    found = []
    bodies = [(f.body[0].lineno, f.end_lineno or 0) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)]
    for scope, node, replacement in _changes(tree, ""):
        inside = any(first <= node.lineno <= last for first, last in bodies)
        mutant = _spliced(file, scope, lines, node, replacement, inside)
        if mutant.source not in seen:
            seen.add(mutant.source)
            found.append(mutant)
    return sorted(found, key=lambda mutant: mutant.line)


def _spliced(file: str, scope: str, lines: list[bytes], node: Place, replacement: str, inside: bool) -> Mutant:
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    changed = head + replacement.encode() + tail
    source = b"".join([*lines[:first], changed, *lines[last + 1 :]]).decode()
    before = b" ".join(line.strip() for line in lines[first : last + 1]).decode()
    return Mutant(file, scope, node.lineno, before, changed.decode().strip(), source, inside)


def _changes(node: ast.AST, scope: str) -> Iterator[tuple[str, Place, str]]:
    """Scope, node, and the text to put in its place."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in getattr(node, "bases", [])):
            return  # nothing in it runs
        scope = f"{scope}.{node.name}" if scope else node.name
    if isinstance(node, ast.stmt):
        for text in _statement_changes(node):
            yield scope, node, text
    if isinstance(node, ast.If) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):  # which are turned anyway
        yield scope, node.test, f"not ({ast.unparse(node.test)})"
    if isinstance(node, ast.For):
        yield scope, node.iter, "[]"
    if isinstance(node, ast.expr):
        for changed in _expression_changes(node):
            yield scope, node, f"({ast.unparse(changed)})"
    for child in _children(node):
        yield from _changes(child, scope)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What of a node runs and has a place in the text: no annotations, docstrings, formatted strings or messages."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr, ast.Raise)):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "ctx"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _statement_changes(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return None"
        case ast.Raise() | ast.AugAssign() | ast.Delete():
            yield "pass"
        case ast.Break():
            yield "continue"
            yield "pass"
        case ast.Continue():
            yield "pass"
        case ast.Expr(value=ast.Call()):
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _names(value):
            yield "pass"  # a name made anew from itself: the old one is there to be used


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _expression_changes(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in _COMPARISONS[type(op)]:
                    yield _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            yield _with(node, op=_ARITHMETIC[type(node.op)]())
        case ast.BoolOp():
            yield _with(node, op=ast.And() if isinstance(node.op, ast.Or) else ast.Or())
            for i in range(len(node.values)):
                rest = [*node.values[:i], *node.values[i + 1 :]]
                yield rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.IfExp():
            yield node.body
            yield node.orelse
        case ast.Constant():
            yield from _constant_changes(node)
        case ast.Attribute() | ast.Name():
            yield from _twins(node)
        case ast.Call():
            yield from _call_changes(node)
        case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
            for i, part in enumerate(node.generators):
                if part.ifs:
                    bare = _with(part, ifs=[])
                    yield _with(node, generators=[*node.generators[:i], bare, *node.generators[i + 1 :]])
        case ast.Subscript(slice=ast.Slice() as cut):
            for name in ("lower", "upper"):
                if getattr(cut, name) is not None:
                    yield _with(node, slice=_with(cut, **{name: None}))


def _constant_changes(node: ast.Constant) -> Iterator[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2)
        yield ast.Constant(value + 1)
    elif isinstance(value, str):
        yield ast.Constant(value + "~")


def _twins(node: ast.Attribute | ast.Name) -> Iterator[ast.expr]:
    name = node.attr if isinstance(node, ast.Attribute) else node.id
    stem = name.rstrip("_")
    if stem in _TWINS:
        twin = _TWINS[stem] + name[len(stem) :]
        yield _with(node, **{"attr" if isinstance(node, ast.Attribute) else "id": twin})


def _call_changes(node: ast.Call) -> Iterator[ast.expr]:
    """The call without its last or a named argument, with a bound on the other side, without being made."""
    if node.args and _may_lack_arguments(node):
        yield _with(node, args=node.args[:-1])
    for i, keyword in enumerate(node.keywords):
        rest = [*node.keywords[:i], *node.keywords[i + 1 :]]
        yield _with(node, keywords=rest)
        if keyword.arg in ("min", "max"):
            other = ast.keyword(_TWINS[keyword.arg], keyword.value)
            yield _with(node, keywords=[*node.keywords[:i], other, *node.keywords[i + 1 :]])
    if isinstance(node.func, ast.Attribute) and not _is_no_operand(node.func.value):
        yield node.func.value


def _may_lack_arguments(node: ast.Call) -> bool:
    """Whether a call without one of its arguments could be more than an error at once."""
    if isinstance(node.func, ast.Name):
        return len(node.args) > 1 and node.func.id not in ("isinstance", "getattr", "hasattr")
    return True


def _is_no_operand(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "torch", "math", "np", "difflib", "itertools", "F")


def _with(node: Node, **fields: object) -> Node:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
