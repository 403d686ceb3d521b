"""Mutations that the fuzzer's targets share: of bytes, of text token by token, and of JSON values.

All of them are pure functions of what they are given and of a random generator.
"""

from __future__ import annotations

import copy
import json
import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

NUMBERS = (
    *(0, 1, -1, 2, 7, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32),
    *(2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63), 10**30),
)
"""Where integers of some width end."""

STRINGS = (
    *(
        "",
        " ",
        "\0",
        "\n",
        "a\nb",
        "\x1b[31mred",
        "\ud800",
        "é",
        "Ω≈ç",
        "𝔘",
        "\u202etxt.exe",
        "\ufeff",
        "%s%n",
        "{0}{x}",
    ),
    *("../../../up", "/etc/passwd", "..\\..\\up", "~", "CON", "a" * 300, "x" * 70_000, "nan", "inf", "-0", "1e999"),
    *("$(touch canary)", "`touch canary`", "'; DROP TABLE units; --", "0x10", "1_000", "٣", "²"),
)
"""Texts that have surprised programs before."""

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def mutate_bytes(rng: Random, data: bytes, most: int = 6) -> bytes:
    """Damage bytes in one to `most` places."""
    content = bytearray(data)
    for _ in range(rng.randint(1, most)):
        rng.choice(_BYTE_STEPS)(rng, content)
    return bytes(content)


def mutate_text(rng: Random, text: str, words: Sequence[str] = (), most: int = 5) -> bytes:
    """Change a text token by token; now and then its encoding or its bytes as well."""
    tokens = _TOKEN.findall(text)
    for _ in range(rng.randint(1, most)):
        _change_token(rng, tokens, words)
    changed = "".join(tokens)
    if rng.random() < 0.03:
        changed = _nested(rng, changed)
    encoded = changed.encode(
        rng.choice(("utf-16", "latin-1", "utf-8-sig")) if rng.random() < 0.03 else "utf-8", "replace"
    )
    return mutate_bytes(rng, encoded, 3) if rng.random() < 0.1 else encoded


def mutate_json(rng: Random, document: Any, most: int = 3) -> Any:
    """Change a JSON document in one to `most` places."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, most)):
        places = list(_places(document))
        if not places:
            return odd_value(rng)
        holder, key = rng.choice(places)
        action = rng.random()
        if action < 0.7:
            holder[key] = odd_value(rng)
        elif action < 0.85:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(rng.randint(0, len(holder)), holder[key])
        else:
            holder[odd_string(rng)] = holder[key]
    return document


def json_text(rng: Random, document: Any) -> str:
    """A document as JSON; now and then nested more deeply than any reader goes, or with a number of no float."""
    text = json.dumps(document)
    chance = rng.random()
    if chance < 0.03:
        return _nested(rng, text)
    if chance < 0.05:
        return text.replace(rng.choice("0123456789"), rng.choice(("9" * 5000, "NaN", "Infinity", "1e400")), 1)
    return text


def odd_value(rng: Random) -> Any:
    """A JSON value of any kind."""
    return rng.choice(
        (
            lambda: None,
            lambda: rng.random() < 0.5,
            lambda: rng.choice(NUMBERS),
            lambda: rng.choice((0.5, -1.5, 1e308, 1e-320, float("nan"), float("inf"))),
            lambda: odd_string(rng),
            lambda: [],
            lambda: {},
            lambda: [rng.choice(NUMBERS) for _ in range(rng.randint(1, 5))],
            lambda: {odd_string(rng): rng.choice(NUMBERS)},
            lambda: [[[odd_string(rng)]]],
        )
    )()


def odd_string(rng: Random) -> str:
    """One of the odd texts that can be written as UTF-8."""
    return rng.choice(STRINGS).encode("utf-8", "replace").decode("utf-8")


def _nested(rng: Random, text: str) -> str:
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}"), ("{a=", "}"), ("[[a]]\n", ""), ("<a>", "</a>")))
    depth = rng.choice((50, 900, 3000, 20_000))
    if rng.random() < 0.5:
        return opening * depth + text + closing * depth
    place = rng.randint(0, len(text))
    return text[:place] + opening * depth + text[place:]


def _places(document: Any) -> Any:
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in list(keys):
        yield document, key
        yield from _places(document[key])


def _change_token(rng: Random, tokens: list[str], words: Sequence[str]) -> None:
    if not tokens:
        tokens.append(rng.choice(STRINGS))
        return
    place = rng.randrange(len(tokens))
    action = rng.randrange(8)
    if action == 0:
        del tokens[place : place + rng.choice((1, 1, 2, 8))]
    elif action == 1:
        tokens.insert(place, tokens[rng.randrange(len(tokens))])
    elif action == 2:
        other = rng.randrange(len(tokens))
        tokens[place], tokens[other] = tokens[other], tokens[place]
    elif action == 3:
        numbers = [i for i, token in enumerate(tokens) if token.isdecimal()] or [place]
        tokens[rng.choice(numbers)] = rng.choice((str(rng.choice(NUMBERS)), "9" * 5000, "1e999", "-nan", "0.5", "''"))
    elif action == 4 and words:
        tokens[place] = rng.choice(words)
    elif action == 5:
        first = rng.randrange(len(tokens))
        tokens[place:place] = tokens[first : first + rng.randint(2, 30)]
    elif action == 6:
        tokens.insert(place, rng.choice("[]{}()<>&;=,.\"'#\n\\\0"))
    else:
        tokens[place] = rng.choice(STRINGS)


def _flip(rng: Random, content: bytearray) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _set(rng: Random, content: bytearray) -> None:
    if content:
        content[rng.randrange(len(content))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _number(rng: Random, content: bytearray) -> None:
    width, order = rng.choice((1, 2, 4, 8)), rng.choice("<>")
    place = rng.randint(0, max(0, len(content) - width))
    value = rng.choice(NUMBERS) % (1 << 8 * width)
    content[place : place + width] = struct.pack(order + {1: "B", 2: "H", 4: "I", 8: "Q"}[width], value)


def _cut(rng: Random, content: bytearray) -> None:
    place = rng.randint(0, len(content))
    del content[place : place + rng.choice((1, 2, 4, 16, 256))]


def _truncate(rng: Random, content: bytearray) -> None:
    if rng.random() < 0.4:
        del content[rng.randint(0, len(content)) :]


def _repeat(rng: Random, content: bytearray) -> None:
    place = rng.randint(0, len(content))
    content[place:place] = content[place : place + rng.choice((1, 4, 64))] * rng.choice((1, 2, 50))


def _insert(rng: Random, content: bytearray) -> None:
    place = rng.randint(0, len(content))
    content[place:place] = rng.randbytes(rng.choice((1, 2, 8, 200)))


_BYTE_STEPS: tuple[Callable[[Random, bytearray], None], ...] = (
    *(_flip, _flip, _set, _number, _number, _cut, _truncate, _repeat, _insert),
)
