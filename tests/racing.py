"""Races of an audit on a clock of their own: methods whose numbers and costs are known."""

import random

from fei.auditing.costs import Costs
from fei.auditing.measured import Measured
from fei.auditing.questions import CONTROLS, QUESTIONS, STEPS
from fei.auditing.schedule import Race
from fei.bench.units import BLACK_IMAGE, MAP, Outcome

ITEMS = [f"{number:02d}.png" for number in range(40)]
# What methods are like: the means of their numbers, and seconds per map.
GOOD = {"stability": 1.0, "random_class": 0.1, "classifier_randomization": 0.0, "gain": 0.5, "cosine": 0.7}
KINDS = {
    "good": GOOD | {"seconds": 0.5},
    "better": GOOD | {"gain": 0.7, "seconds": 0.4},
    "slow": GOOD | {"gain": 0.8, "seconds": 20.0},
    "blind": GOOD | {"random_class": 0.95, "classifier_randomization": 0.95, "seconds": 0.3},
    "noise": GOOD
    | {"stability": 0.0, "random_class": 1.0, "classifier_randomization": 1.0, "gain": 0.0, "cosine": 0.4},
}
CONTROL = {"gain": 0.2, "cosine": 0.5, "seconds": 0.0}

# SqueezeNet: seconds per map on one thread, class and weights (beyond the seeds', with spreads), seed, insertion −
# deletion and cosine inside; the last is the share of black images that fire. As measured, in round numbers
# (docs/methods.md and studies/flagship/scores/SqueezeNet.jsonl), a guess where only maps were timed.
SQUEEZENET = """
saliency               0.03   .44 .10   .46 .10   1.00   .09 .35
gradcam                0.03   .72 .32  1.05 .20   1.00   .28 .51
gradcam++              0.03   .18 .07   .17 .05   1.00   .25 .54
layercam               0.03   .42 .25   .66 .22   1.00   .26 .53
xgradcam               0.03   .72 .32  1.05 .20   1.00   .28 .51
guided-backprop        0.05   .02 .02   .06 .04   1.00   .12 .44
liftcam                0.10   .60 .30  1.00 .20   1.00   .27 .51
iia                    1.1    .60 .30   .95 .20   1.00   .27 .52
smoothgrad             1.5    .35 .15   .40 .15    .80   .12 .40
integrated-gradients   1.6    .20 .10   .20 .10    .50   .02 .17
gradient-shap          1.6    .10 .10   .10 .10    .40   .00 .17
fei                    4.6   1.06 .43   .76 .29    .99   .34 .56   0
fei-vm                 4.2   1.00 .40   .70 .30    .97   .30 .57   0
fei-ivm                4.2    .80 .40   .60 .30    .95   .20 .47   0
fei-avm                4.2   1.00 .40   .70 .30    .97   .33 .55   0
fei-ibm                4.2   1.00 .40   .70 .30    .97   .33 .55   0
fei-bm                 4.2    .50 .40   .40 .30    .90   .03 .30   0
fei-abm                4.2    .50 .40   .40 .30    .90   .02 .28   0
fei-none               4.0    .60 .40   .50 .30    .80   .15 .22   1
fgvis                  4.2    .40 .40   .40 .30    .80   .02 .20   0
occlusion              5.0    .60 .30   .90 .20   1.00   .27 .50
scorecam               6.8    .30 .20   .50 .20   1.00   .24 .52
kernel-shap           15      .70 .30   .90 .20    .70   .28 .48
fgvce                 42      .72 .32  1.05 .20   1.00   .28 .51
rise                  55      .60 .30   .90 .20    .92   .27 .50
extremal-perturbation 700     .60 .30   .80 .20    .95   .20 .50
centre                 0      0 0   0 0   1   .16 .51
brightness             0      0 0   0 0   1   .00 .41
edges                  0      0 0   0 0   1   .06 .44
smooth-noise           0      0 0   0 0   1   .02 .34
"""


def squeezenet(*, slower=1.0, photographs=0):
    """What methods and controls are like on SqueezeNet, by their names.

    Args:
        slower: How many times as long the machine takes.
        photographs: Seed of the photographs.
    """
    found = {}
    for line in SQUEEZENET.strip().splitlines():
        name, *numbers = line.split()
        seconds, of_class, class_spread, of_weights, weights_spread, seed, gain, cosine, *fires = map(float, numbers)
        found[name] = {
            "really": seconds * slower, "stability": seed, "gain": gain, "cosine": cosine, "photographs": photographs,
            "random_class": seed - of_class, "class_spread": class_spread,
            "classifier_randomization": seed - of_weights, "weights_spread": weights_spread,
        }  # fmt: skip
        if fires:
            found[name]["fires"] = fires[0]
    return found


def _on_a_photograph(method, item, kind):
    """The numbers of a method on a photograph; what is high for one method is high for the others."""
    same = "gradcam" if method in ("xgradcam", "fgvce") else method  # these make the same maps on SqueezeNet
    shared, own = (random.Random(f"{kind['photographs']} {item} {whose}") for whose in ("", same))
    score, easy, inside = shared.uniform(0.4, 1.0), shared.gauss(0, 1), shared.gauss(0, 1)
    return {
        "probability": score,
        "gain": kind["gain"] + 0.16 * easy + own.gauss(0, 0.13 if kind["gain"] < 0.2 else 0.08),
        "cosine": kind["cosine"] + 0.08 * inside + own.gauss(0, 0.04),
        "stability": min(1.0, kind["stability"] + own.gauss(0, 0.1 * (1 - kind["stability"]))),
        "random_class": kind["random_class"] + own.gauss(0, kind["class_spread"]),
        "classifier_randomization": kind["classifier_randomization"] + own.gauss(0, kind["weights_spread"]),
    }


def outcome(method, item, step, kind, draw):
    """What a step of a method with these means brings."""
    if "photographs" in kind and step != "black":
        near = _on_a_photograph(method, item, kind)
        stability, probability = near["stability"], near["probability"]
    else:
        near = {
            name: value + draw.gauss(0, 0.05) for name, value in kind.items() if name not in ("stability", "seconds")
        }
        stability, probability = kind.get("stability", 1.0) - abs(draw.gauss(0, 0.01)), 0.9
    scores = {
        "map": {"stability": stability},
        "class": {"random_class": near.get("random_class", 1.0), "runner_up": 0.5},
        "weights": {"classifier_randomization": near.get("classifier_randomization", 1.0)},
        "score": {"insertion": 0.2 + near["gain"], "deletion": 0.2, "cosine": near["cosine"]},
        "black": {"fired": float(kind.get("fires", 0))},
        "survey": {},
    }[step]
    return Outcome(
        key=f"{method}-{item}",
        kind=BLACK_IMAGE if step == "black" else MAP,
        model="",
        data="",
        item=item,
        method=method,
        config="",
        seed=0,
        status="done",
        target=1,
        label="one",
        probability=probability,
        seconds=kind.get("really", kind.get("seconds", 0.1)) if step == "map" else None,
        scores=tuple((name, "", "", value) for name, value in scores.items()),
        groups=STEPS[step],
    )


class Simulation:
    """A race on a clock of its own; what steps take is drawn around what they should."""

    def __init__(
        self, methods, budget, *, measured=None, pass_seconds=0.02, seed=0, items=ITEMS, questions=QUESTIONS, row=1.0,
        controls=None,
    ):  # fmt: skip
        self.now, self.draw, self.steps, self.methods = 0.0, random.Random(seed), [], methods
        self.pass_seconds, self.row = pass_seconds, row  # a row of many takes longer than one by itself by this factor
        self.measured, self.controls = measured or Measured(), controls or {}
        costs = Costs(pass_seconds, {name: {} for name in methods}, self.measured)
        costs._passes |= {name: kind["seconds"] / pass_seconds for name, kind in methods.items() if "seconds" in kind}
        masks = [name for name, kind in methods.items() if "fires" in kind]
        self.told, self.begun_at, self.spent = [], {}, {}
        self.race = Race(
            list(methods), items, questions, masks, self.measured, costs, budget, lambda: self.now, self.told.append
        )

    def run(self):
        seen = set()
        while (step := self.race.next()) is not None:
            assert step not in seen
            self.steps.append(step)
            seen.add(step)
            kind = self.methods.get(step.method) or self.controls.get(step.method, CONTROL)
            maps = {"map": 2, "class": 2, "weights": 1, "black": 1}.get(step.name, 0)
            rows = {"score": 22, "survey": 18, "weights": 6, "map": 2}.get(step.name, 0)
            takes = maps * kind.get("really", kind.get("seconds", 0.1)) + rows * self.row * self.pass_seconds
            takes *= self.draw.uniform(0.8, 1.25)
            self.begun_at.setdefault(step.method, self.now)
            self.spent[step.method] = self.spent.get(step.method, 0.0) + takes
            self.now += takes
            came = outcome(step.method, step.item, step.name, kind, self.draw)
            self.measured.add(came)
            self.race.came(came)
        self.race.look()
        self.race.leave_out()
        return self

    def images(self, method, step="map"):
        return sum(each.method == method and each.name == step for each in self.steps)


def on_squeezenet(minutes, names=None, *, slower=1.0, photographs=0):
    """An audit of so many minutes with the costs and numbers of SqueezeNet; loading and the report take their part."""
    kinds = squeezenet(slower=slower, photographs=photographs)
    controls = {name: kinds.pop(name) for name in CONTROLS}
    seconds = 60 * minutes - 8 - max(4, 3 * minutes)
    return Simulation(
        {name: kinds[name] for name in names or kinds}, seconds, seed=photographs, controls=controls,
        items=[f"{number:03d}.jpg" for number in range(124)], pass_seconds=0.015 * slower, row=2.0,
    ).run()  # fmt: skip
