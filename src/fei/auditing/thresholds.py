"""All limits of an audit, each with its reason.

They were fixed on 10 photographs of one half of the folder `imagenet/` of the test assets, before an audit was shown
with photographs of the other half; docs/audit.md has the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from fei.metrics.criteria import criterion


@dataclass(frozen=True)
class Limit:
    """A number that decides something, and why it is this one."""

    value: float
    reason: str


CLASS = Limit(
    0.3,
    "rank correlation between seeds, minus that with the map of an absent class: 0 for maps that ignore the class; on "
    "SqueezeNet guided backprop has .04 and gradcam++ .19, saliency .44 and gradcam .71",
)
WEIGHTS = Limit(
    0.3,
    "rank correlation between seeds, minus that after the classifier is redrawn: 0 for maps that ignore the weights; "
    "on SqueezeNet guided backprop has .06 and gradcam++ .17, saliency .46 and gradcam 1.06",
)
SEED = Limit(
    criterion("stability").limit,
    "rank correlation between two seeds, and so between two references where they are drawn: the limit of fei trust",
)
CONTROLS = Limit(0.0, "insertion − deletion, minus that of the strongest control on the same images: more than nothing")
SCORE = Limit(
    0.1,
    "insertion − deletion over references that no method optimises with, as a share of the score: a random order of "
    "pixels has 0 ± .01, and less than a tenth of the score is of no use to a reader",
)
INSIDE = Limit(0.0, "cosine of activations, minus that of the strongest control on the same images: more than nothing")
BLACK = Limit(
    0.2,
    "share of black images in which it finds a class: FEI's rules found none to 3 %, masks without a rule any class",
)

ALPHA = Limit(0.05, "share of the given verdicts that are expected to be wrong, over the whole table")
SURE = Limit(0.01, "the same share, below which a question is no longer measured and a method is dropped early")
FEWEST = 5
"""Images, or trials, that a verdict needs: with fewer the interval says more about its formula than about the mean."""

LADDER = (FEWEST, 8, 12, 18, 27, 40, 60, 90, 135, 200)
"""How many images all have before one goes on, where no answer is in sight; the last is the most of an audit."""
TRIALS = 24
"""Black images at most: if none of them fires, the rate is below .2 at the strictest level."""
BREADTH = Limit(
    0.6,
    "share of the time that is left which the quick questions of a method may take when it is begun; what maps take is "
    "guessed, and scores and more images come after them",
)
FAVOUR = Limit(
    0.1,
    "what the cost of `fei` counts for when it is asked who begins: it makes the maps where nobody names a method, so "
    "whether it can be trusted is asked before others that cost more than a tenth of it",
)
LEADERS = 3
"""Methods whose open questions come before others are begun: the one that would be recommended, and two rivals."""
LEAD = Limit(
    0.1,
    "what the seconds until an open question of these is told count for: three of about 25 methods lead, so of those "
    "that are begun one in ten will be among them, and answers about the others matter less",
)
SHARE = Limit(
    0.25,
    "share of the time after which a method goes on only where nothing else is left, `fei` aside: a method that "
    "is slow must not take what the open questions of quick ones, or another beginning, would need",
)
LOOKED_AT = (8, 32)
"""Images on which the network's answers are looked at before anything is measured: where it is clear, and at most."""

IGNORED = Limit(1e-4, "share of the range of the logits: rounding moves them less than that, a pixel that is read more")
DECIDES = Limit(
    0.5,
    "mean share of the score that is lost with the sixteenth of the image whose loss is the largest in every "
    "photograph; in real networks it is another sixteenth in nearly each (20 photographs, two networks)",
)
LINEAR = Limit(1e-3, "parts of the change of a logit that do not add up: rounding is below, networks with layers above")
