"""Plans as text: what is written in TOML, and mistakes in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from fei.errors import InputError

_MOST_SHOWN = 60  # characters of a wrong value
_EXPECTED = {
    "string_type": "give a text in quotes",
    "string_too_short": "give at least one character",
    "int_type": "give a whole number",
    "int_from_float": "give a whole number",
    "bool_type": "give true or false",
    "tuple_type": "give a list in square brackets",
    "dict_type": "give a table such as { name = value }",
    "model_type": "give a table",
    "model_attributes_type": "give a table",
    "too_short": "give at least one entry",
    "too_long": "give at most {max_length} entries",
    "greater_than_equal": "give at least {ge}",
    "less_than": "give less than {lt}",
    "literal_error": "choose one of {expected}",
}


def to_toml(document: Mapping[str, Any]) -> str:
    """A plan's document as TOML: plain values first, then its tables, a list of tables entry by entry."""
    plain = {key: value for key, value in document.items() if not _is_tables(value) and not isinstance(value, Mapping)}
    blocks = [list(_lines(plain))]
    for key, value in document.items():
        if _is_tables(value):
            blocks += [[f"[[{key}]]", *_lines(entry)] for entry in value]
        elif isinstance(value, Mapping):
            blocks.append([f"[{key}]", *_lines(value)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def to_sentence(error: ValidationError, root: type[BaseModel]) -> str:
    """What pydantic found wrong first, with its place."""
    mistakes = error.errors(include_url=False)
    # a key that is spelled wrong is the cause of one that is missing
    mistake = next((one for one in mistakes if one["type"] == "extra_forbidden"), mistakes[0])
    kind, context = mistake["type"], mistake.get("ctx", {})
    # such as methods[3].options
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in mistake["loc"]).removeprefix(".")
    if kind == "value_error":  # in words of our own, which name the place where the check is about the whole plan
        return f"`{place}`: {context['error']}" if place else str(context["error"])
    if kind == "extra_forbidden":
        keys = ", ".join(_model_at(root, mistake["loc"]).model_fields)
        return f"`{place}` is no key here; the keys are {keys}."
    if kind == "missing":
        return f"`{place}` is missing; give it a value."
    expected = _EXPECTED.get(kind, mistake["msg"])
    for name, value in context.items():
        expected = expected.replace(f"{{{name}}}", str(value).replace(" or ", ", "))
    shown = repr(mistake["input"])
    shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
    if kind == "tuple_type" and place in {"pairs", "methods"}:
        expected = f"begin each with a line [[{place}]]"
    return f"`{place}` is {shown}; {expected}."


def refuse_repeats(values: Sequence[Any], what: str, place: str = "") -> None:
    """Refuse a value that is given twice; {} in the place stands for its index."""
    seen: set[Any] = set()
    for index, value in enumerate(values):
        if value in seen:
            where = f" (`{place.format(index)}`)" if place else ""
            raise InputError(f"The {what} {value!r} is given twice{where}; give each once.")
        seen.add(value)


def _model_at(root: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel]:
    """The model of the table that holds the last key of a location."""
    model = root
    for key in location[:-1]:
        if isinstance(key, str):
            model = next(_models_in(model.model_fields[key].annotation))
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models_in(part)


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{_key(key)} = {_value(value)}" for key, value in table.items())


def _is_tables(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value) if isinstance(value, (int, float)) else str(value)  # the rest are TOML's dates and times
