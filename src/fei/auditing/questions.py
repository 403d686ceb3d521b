"""What an audit asks of each method, and what has to be measured for an answer."""

from __future__ import annotations

from dataclasses import dataclass

from fei.auditing import thresholds
from fei.auditing.thresholds import Limit
from fei.bench.units import BLACK_IMAGE, KEPT, MAP
from fei.common.words import suggestion
from fei.errors import InputError

PROTOCOL = "held-out/1"

# What is measured at a time, in this order, and the score groups of a unit that it takes.
STEPS = {
    "map": (MAP, KEPT, "stability"),
    "class": ("class_sensitivity",),
    "weights": ("classifier_randomization",),
    "score": (f"external/{PROTOCOL}", f"internal/{PROTOCOL}"),
    "black": (BLACK_IMAGE,),
    "survey": ("reliance",),
}
METRICS = ("external", "internal", "class_sensitivity", "stability", "classifier_randomization", "reliance")


@dataclass(frozen=True)
class Question:
    """What a reader wants to know of a method.

    Attributes:
        name: As in ``--require``.
        title: The question.
        limit: What its number must exceed; of a share of black images, what it must stay below.
        steps: What is measured for it, see `STEPS`.
        measure: What the number is, in words.
        passes: What is said where it does.
        fails: And where it does not.
        essential: Whether a method that fails is not recommended.
    """

    name: str
    title: str
    limit: Limit
    steps: tuple[str, ...]
    measure: str
    passes: str
    fails: str
    essential: bool = True


QUESTIONS = (
    Question(
        "class",
        "Does the map depend on the class?",
        thresholds.CLASS,
        ("map", "class"),
        "rank correlation between seeds, minus that with the map of another class",
        "depends on the class",
        "hardly depends on the class",
    ),
    Question(
        "weights",
        "Does it depend on the weights?",
        thresholds.WEIGHTS,
        ("map", "weights"),
        "rank correlation between seeds, minus that after the classifier is redrawn",
        "depends on the weights",
        "hardly depends on the weights",
    ),
    Question(
        "seed",
        "Is it the same with another seed or reference?",
        thresholds.SEED,
        ("map",),
        "rank correlation between seeds",
        "stays the same with another seed",
        "changes with the seed",
    ),
    Question(
        "controls",
        "Is it better than maps that never look at the network?",
        thresholds.CONTROLS,
        ("map", "score"),
        "insertion − deletion, beyond that of the strongest control",
        "is better than every control",
        "is no better than a control",
    ),
    Question(
        "score",
        "Do the pixels it ranks first carry the score?",
        thresholds.SCORE,
        ("map", "score"),
        "share of the score: insertion − deletion, divided by the score of the photograph",
        "ranks the pixels first that carry the score",
        "does not rank the pixels first that carry the score",
    ),
    Question(
        "inside",
        "Do they keep what the network computes inside?",
        thresholds.INSIDE,
        ("map", "score"),
        "cosine of activations, beyond that of the strongest control",
        "keeps the inside",
        "keeps the inside no better than a control",
        essential=False,
    ),
    Question(
        "black",
        "Does it find nothing in a black image?",
        thresholds.BLACK,
        ("black",),
        "share of black images with a class in them",
        "finds nothing in black images",
        "finds classes in black images",
    ),
)
BY_NAME = {question.name: question for question in QUESTIONS}
CONTROLS = ("centre", "brightness", "edges", "smooth-noise")


def named(words: str | tuple[str, ...] | list[str]) -> tuple[Question, ...]:
    """Questions by their names, such as "class,weights"; none for an empty text.

    Raises:
        InputError: If there is no such question.
    """
    parts = words.split(",") if isinstance(words, str) else words
    names = [part.strip() for part in parts if part.strip()]
    for name in names:
        if name not in BY_NAME:
            raise InputError(f"There is no question '{name}'; {suggestion(name, BY_NAME)}")
    return tuple(question for question in QUESTIONS if question.name in names)
