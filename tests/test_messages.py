"""Every error that the package raises on purpose has one form: what is wrong; what to do about it.

The form, as CONTRIBUTING.md states it: one sentence on one line. It begins with a capital letter, a quoted value, a
backquoted name or a placeholder, says what is wrong, then "; ", then what to do or what is expected, and ends with a
full stop or a placeholder.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fei import errors

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fei"
FILES = sorted(SOURCE.rglob("*.py"))
CLASSES = {name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.FEIError)}
HOLE = "\0"  # stands where a placeholder of an f-string is


def texts(node: ast.expr) -> list[str]:
    """What a message may read, with a hole for each placeholder; nothing where it is not written out in the code."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(part.value if isinstance(part, ast.Constant) else HOLE for part in parts)]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return [one + two for one in texts(left) or [HOLE] for two in texts(right) or [HOLE]]
        case ast.IfExp(body=one, orelse=two):
            return texts(one) + texts(two)
    return []


def faults(text: str) -> list[str]:
    """What is wrong with the form of a message."""
    if re.fullmatch(r"[^a-zA-Z]*|[\w.\[\]`\0]+: \0", text):  # placeholders, or a place and one: made elsewhere
        return []
    return [
        fault
        for fault, found in (
            ("has a line break", "\n" in text),
            ("begins with a small letter", not re.match(r"[A-Z'\"`‘“\0]", text)),
            ('has no "; " before what to do', "; " not in text),
            ("does not end with a full stop", not text.endswith((".", ".)", HOLE))),
            ("is more than one sentence", bool(re.search(r"[.!?]['\")]? +[A-Z]", text))),
        )
        if found
    ]


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each message with which one of the package's errors is made, to be raised here or elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in CLASSES:
                yield from ((node.lineno, text) for text in texts(node.args[0]))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_messages_say_what_is_wrong_and_what_to_do(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    wrong = [
        f"{file.relative_to(ROOT).as_posix()}:{line} {' and '.join(found)}: {text.replace(HOLE, '{…}')}"
        for line, text in messages(tree)
        if (found := faults(text))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_there_are_messages_to_look_at():
    assert sum(1 for file in FILES for _ in messages(ast.parse(file.read_text(encoding="utf-8")))) > 100


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('raise InputError("The quantiles are 1.2, 0.5; give numbers between 0 and 1.")', []),
        ("raise DataError(f\"'{name}' is no image; give a JPEG or PNG file.\")", []),
        ('raise errors.ModelError(f"{why}; choose one of {names}")', []),
        ('raise InputError(f"{place}: {error}")', []),
        ('raise InputError(f"methods[{index}]: {error}")', []),
        ('raise InputError("the quantiles are wrong; give others.")', ["begins with a small letter"]),
        ('raise InputError("The quantiles are wrong.")', ['has no "; " before what to do']),
        ('raise InputError("The quantiles are wrong; give others")', ["does not end with a full stop"]),
        ('raise InputError("The quantiles are wrong. Give others; now.")', ["is more than one sentence"]),
        ('raise InputError("The quantiles are wrong;\\n give others; now.")', ["has a line break"]),
        ('raise InputError(f"{a} is wrong; " + ("give one." if b else "give two"))', ["does not end with a full stop"]),
        ('return DataError(f"the file {name} is damaged; get it again.")', ["begins with a small letter"]),
        ('raise ValueError("internal")', []),
    ],
)
def test_the_form_is_told_from_others(code, expected):
    found = [fault for _, text in messages(ast.parse(code)) for fault in faults(text)]
    assert found == expected
