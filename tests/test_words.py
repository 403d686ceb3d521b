"""Phrases that were carried over from another language word by word do not come back.

A short list of what really stood in the package and its pages, each with the usual English for it. It is no style
checker: a phrase belongs here only if no good sentence needs it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THINGS = "number|seconds|rows?|points?|colour|masks?|maps?|pass(?:es)?|line|panel|column|site|folder|file|score|one"
OWNERS = "image|method|photograph|quantile|convolution|curve|plan|pair|row|visitor|subject|step|point|colour channel"
PHRASES = {
    rf"\b(?:{THINGS}) an? (?:{OWNERS})\b": '"one number per image", not "one number an image"',
    r"\bwho computes\b": '"where units are computed"; computers are not persons',
    r"\b(?:not called|spelled nearly) so\b": '"does not go by that name", "has a similar name"',
    r"\b(?:leave \w+|left) away\b": '"leave out"',
    r"\bversions of then\b": '"the versions used at the time"',
    r"\b(?:name|those|that|what) that there (?:is|are)(?: not)?\b": '"a name that does not exist", "those that exist"',
    r"\bis there twice\b": '"is given twice"',
    r"\bis at home with\b": '"copes with"',
    r"\bdo(?:es)? alike\b": '"does equally well", "gives about the same"',
    r"\bso many of it\b": '"this many times"',
    r"\bnobody among them\b": '"none of them"; methods are not persons',
}
FOLDERS = ("src", "docs", "benchmarks", "reliability", "studies", "examples")


def files() -> Iterator[Path]:
    """All prose and code that is read by people, but the history in the changelog."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.*")):
            if file.suffix in {".py", ".md", ".toml"} or file.suffix == ".ipynb":
                yield file


def joined(text: str) -> str:
    """A text with its lines joined, so that no phrase hides in a line break or between two parts of a string."""
    return re.sub(r"(?:\s|\\n|#|\"(?=\s*\n)|(?<=[\n ])f?\"|',)+", " ", text)


def found(text: str) -> list[str]:
    line = joined(text)
    return [
        f"'{match.group()}': write {better}"
        for phrase, better in PHRASES.items()
        for match in re.finditer(phrase, line, re.IGNORECASE)
    ]


def text_of(file: Path) -> str:
    """What people read of a file; of a notebook its cells without their outputs."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text


@pytest.mark.parametrize("file", list(files()), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_words_are_usual(file):
    assert found(text_of(file)) == []


@pytest.mark.parametrize(
    "text",
    [
        '"""One number an image."""',
        'raise InputError("give one number "\n        "an image")',
        "# seconds\n# an image",
        "Who computes: local or ray.",
        "This server is not called so.",
    ],
)
def test_phrases_are_seen_across_lines(text):
    assert found(text)


def test_usual_words_pass():
    assert not found("One number per image, in the order of an image's rows; a method and a pass of the network.")
