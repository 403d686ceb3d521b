"""Objects and boxes from XML files in PASCAL VOC's format, read without trust."""

from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from fei.data.dataset import Box
from fei.data.files import finite_numbers, read_bytes
from fei.errors import DataError

MAX_XML_BYTES = 1_000_000
"""Larger annotations are refused before they are read."""


class Annotated(NamedTuple):
    """An object in an image: the name of its class, and its edges as the file has them."""

    name: str
    edges: Box


def read_objects(file: Path) -> tuple[list[Annotated], list[str]]:
    """Read an annotation: `<annotation>` with any number of `<object>`, each with a `<name>` and a `<bndbox>`.

    Returns the objects, and a sentence for each box that was left out because it has no area. A file that is too large,
    not well-formed, has a document type (in which entities could hide), or lacks something is a DataError.
    """
    root = _parse(file)
    if root.tag != "annotation":
        raise DataError(f"'{file}' begins with <{root.tag}>; an annotation in PASCAL VOC's format was expected.")
    objects: list[Annotated] = []
    problems: list[str] = []
    for element in root.findall("object"):
        name = (element.findtext("name") or "").strip()
        if not name:
            raise DataError(f"The object on line {element.get('line')} of '{file}' has no <name>; add its class.")
        left, top, right, bottom = (_edge(element, edge, file) for edge in ("xmin", "ymin", "xmax", "ymax"))
        if left < right and top < bottom:
            objects.append(Annotated(name, (left, top, right, bottom)))
        else:
            problems.append(f"The box on line {element.get('line')} of '{file}' has no area; it was left out.")
    return objects, problems


def _edge(element: Element, edge: str, file: Path) -> float:
    text = (element.findtext(f"bndbox/{edge}") or "").strip()
    for value in finite_numbers([text]):
        return value
    has = f"<{edge}> {text[:40]!r}" if text else f"no <{edge}>"
    raise DataError(f"The object on line {element.get('line')} of '{file}' has {has}; a number was expected.")


def _parse(file: Path) -> Element:
    """Parse without a document type, and so without entities; each element remembers its line."""
    parser, builder = expat.ParserCreate(), TreeBuilder()

    def refuse(*_: object) -> None:
        line = parser.CurrentLineNumber
        raise DataError(f"Line {line} of '{file}' has a document type, which could hide a trap; remove <!DOCTYPE>.")

    def start(tag: str, attributes: dict[str, str]) -> None:
        builder.start(tag, {**attributes, "line": str(parser.CurrentLineNumber)})

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(read_bytes(file, MAX_XML_BYTES), True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: an encoding that does not exist
        reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        line = parser.CurrentLineNumber
        raise DataError(f"Line {line} of '{file}' is not well-formed XML ({reason}); download it again.") from error
    return builder.close()
