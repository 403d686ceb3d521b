"""Numbers in the words of the study: read from the scores, told as a person would, and none made up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # `studies` is a folder of the repository, not of the package

from studies import _numbers  # noqa: E402
from studies._plans import plan_of  # noqa: E402
from studies._questions import Extra  # noqa: E402

ASKED = [
    {"network": "SqueezeNet", "method": "fei-vm", "spearman": 0.25, "deviations": [0.1, 0.02]},
    {"network": "SqueezeNet", "method": "fei-vm", "spearman": 0.75, "deviations": [0.1, 0.05]},
    {"network": "MobileNetV1", "method": "fei-vm", "spearman": 0.125, "deviations": [0.4, 0.02]},
]
MOSAICS = {"network": "SqueezeNet", "method": "fei", "rank": [0.5, 0.7], "energy": [0.25, 0.35]}
EXTRA = Extra([{"network": "SqueezeNet", "method": "fei-vm", "spearman": 1.0}] * 9, ASKED, [], [MOSAICS])


class Numbers:
    """Numbers of a plan, photographs × seeds, given for each row and metric with its protocol."""

    def __init__(self, name: str, given: dict[str, list[Any]]) -> None:
        self.plan, self._given = plan_of(name), given

    @property
    def rows(self) -> range:
        return range(len(self.plan.methods))

    def protocols(self, kind: str, metric: str) -> list[str]:
        return ["fei-paper/1", "held-out/1"]

    def layers(self, pair: int, kind: str, metric: str, protocol: str = "") -> list[str]:
        return ["early", "last"]

    def items(self, pair: int, kind: str) -> list[str]:
        return ["one", "two"]

    def values(self, pair: int, row: int, quantity: Any) -> Any:
        keys = (f"{self.plan.methods[row].label} {quantity.metric} {quantity.protocol}".strip(),)
        found = next((self._given[key] for key in keys if key in self._given), [[np.nan]] * 2)
        return np.array(found, dtype=float)


STUDY: Any = {
    "second-cheap": Numbers(
        "second-cheap",
        {
            "FEI insertion held-out/1": [[0.2], [0.4]],
            "FEI insertion fei-paper/1": [[0.6], [0.6]],
            "Grad-CAM insertion held-out/1": [[0.1], [0.25]],
            "Grad-CAM++ insertion held-out/1": [[0.3], [0.3]],
            "Centre insertion held-out/1": [[0.5], [0.5]],
            "FEI mse fei-paper/1": [[120.0], [140.0]],
            "FEI-NONE mse fei-paper/1": [[195.0], [np.nan]],
            "FEI-VM mse fei-paper/1": [[97.5], [50.0]],
            "Lift-CAM mse fei-paper/1": [[100.0], [100.0]],
            "LayerCAM mse fei-paper/1": [[90.0], [90.0]],
        },
    ),
    "second-protocols": Numbers(
        "second-protocols",
        {
            "FEI deletion fei-paper/1": [[0.1], [0.3]],
            "Grad-CAM deletion fei-paper/1": [[0.1], [0.2]],
            "Random deletion fei-paper/1": [[0.9], [0.8]],
            "FEI deletion held-out/1": [[0.4], [0.4]],
            "Grad-CAM deletion held-out/1": [[0.5], [0.5]],
            "Random deletion held-out/1": [[0.6], [0.6]],
            "Edges deletion held-out/1": [[0.1], [0.1]],  # of one protocol alone: without a place
        },
    ),
    "second-seeds": Numbers("second-seeds", {"FEI insertion fei-paper/1": [[0.1, 0.2, 0.3], [0.3, 0.4, 0.5]]}),
    "second-black": Numbers("second-black", {"FEI-AVM fired": [[1], [0]], "FEI-VM fired": [[0], [0]]}),
    "second-sanity": Numbers("second-sanity", {"FEI-VM spearman": [[0.5], [0.25]]}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("mean | second-cheap | SqueezeNet | FEI | insertion held-out", ".300"),
        ("mean | second-cheap | SqueezeNet | FEI | insertion", ".600"),
        ("mean | second-cheap | SqueezeNet | FEI; Grad-CAM | insertion held-out", ".300 and .175"),
        ("mean | second-cheap | * | FEI | insertion held-out", ".300, .300 and .300"),
        ("mean | second-cheap | SqueezeNet | FEI | mse", "130.0"),
        ("mean | second-cheap | SqueezeNet | best baseline | insertion held-out", ".300"),  # not the centre's .5
        ("mean | second-cheap | SqueezeNet | best control | insertion held-out", ".500"),
        ("mean | second-cheap | SqueezeNet | best baseline | mse", "90.0"),  # the lowest
        ("mean | second-cheap | SqueezeNet | Edges | mse", "–"),
        ("interval | second-cheap | SqueezeNet | FEI | insertion held-out", ".300 [.200, .400]"),
        ("gap | second-cheap | SqueezeNet | FEI | Grad-CAM | insertion held-out", "+.125 [.100, .150]"),
        ("gap | second-cheap | SqueezeNet | Grad-CAM | FEI | insertion held-out", "−.125 [−.150, −.100]"),
        ("gap | second-cheap | SqueezeNet | FEI | Edges | mse", "–"),
        ("times | second-cheap | SqueezeNet | FEI-NONE | Lift-CAM | mse", "1.95"),  # on the photograph that both have
        ("seeds | second-seeds | SqueezeNet | FEI | insertion", ".100"),
        ("fires | second-black | AlexNet | FEI-AVM; FEI-VM", "1 of 2 and 0 of 2"),
        ("fires | second-black | * | FEI-VM", "0 of 2 each"),
        ("place | second-protocols | SqueezeNet | FEI; Grad-CAM; Random | deletion", "2, 1 and 3"),
        ("place | second-protocols | SqueezeNet | FEI | deletion held-out", "1"),
        ("tau | second-protocols | SqueezeNet | deletion | held-out", ".33"),  # one of three pairs in another order
        ("redrawn | second-sanity | SqueezeNet | FEI-VM", ".375"),
        ("n | second-black | *", "2"),
        ("class | SqueezeNet | fei-vm", ".500 [.250, .750]"),  # of the second edition alone
        ("class | MobileNetV1 | fei-vm", ".125"),
        ("class | MobileNetV1 | fei-ibm", "–"),
        ("asked | SqueezeNet | fei-vm", "2"),
        ("flat | fei-vm; gradcam", ".20 (.05 to .50) and –"),
        ("vivid | fei-vm; gradcam", ".25, .75 and –"),
        ("grid | SqueezeNet | fei | rank", ".600 [.500, .700]"),
        ("grid | SqueezeNet; MobileNetV1 | fei; fei-vm | energy", ".300 [.250, .350], –, – and –"),
        ("mosaics | SqueezeNet; MobileNetV1", "2 and 0"),
        ("mean | main | * | FEI-VM | insertion", "–"),  # a plan without scores
        ("ever | fast | FEI-AVM; FEI-VM", "4 of 8 and 0 of 8"),  # one of two on each of four networks
        ("ever | fast | FEI-AVM | without", "3 of 6"),  # batch normalisation: all but MobileNetV1
        ("ever | fast | FEI-AVM | with", "1 of 2"),
        ("ever | paper | FEI-AVM", "–"),
        ("effect | H2 | fast", "2.00"),  # of the photograph that both rows have, so without an interval
        ("effect | H2 | paper", "–"),
        ("effect | H2 | fast | FEI-NONE / Random", "–"),
        ("verdict | H2", "not testable here"),  # one photograph
        ("sizes | H6", "2"),
    ],
)  # fmt: skip
def test_a_number_is_told_by_its_scores(asked: str, told: str) -> None:
    assert _numbers.number(asked, STUDY, EXTRA) == told


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, ".000"), (-0.0001, ".000"), (-0.05, "−.050"), (0.9996, "1.000"), (2.5, "2.500"), (27.46, "27.5"),
     (float("nan"), "–")],
)  # fmt: skip
def test_numbers_in_words(value: float, told: str) -> None:
    assert _numbers.plain(value) == told


def test_words_have_their_numbers_wherever_they_are() -> None:
    words = {"intro": "none", "second": {"page": "It has {{mean | second-cheap | SqueezeNet | FEI |\n insertion}}."}}
    assert _numbers.spoken(words, STUDY, EXTRA) == {"intro": "none", "second": {"page": "It has .600."}}


@pytest.mark.parametrize(
    "asked",
    [
        "mean | second-chaep | SqueezeNet | FEI | insertion",
        "mean | second-cheap | Squeezenet | FEI | insertion",
        "mean | second-cheap | SqueezeNet | FIE | insertion",
        "mean | second-cheap | SqueezeNet | FEI | insertion rise",
        "mean | second-cheap | SqueezeNet | FEI",
        "median | second-cheap | SqueezeNet | FEI | insertion",
        "redrawn | second-sanity | SqueezeNet | FIE",
        "tau | second-protocols | SqueezeNet | deletion | rise",
        "place | second-cheap | MobileNetV1 | FEI | insertion",  # places are those on the first network
        "class | SqueezeNet | VM",
        "class | Squeezenet | fei-vm",
        "flat | vm",
        "grid | ResNet50 | fei | rank",
        "grid | SqueezeNet | vm | rank",
        "grid | SqueezeNet | fei | place",
        "ever | quick | FEI-AVM",
        "ever | fast | FEI-AVM | beyond",
        "effect | H2 | fast | FEI-NONE / FEI-VAN",
        "effect | H5 | fast",  # shares of trials have no ratio
        "verdict | H11",
    ],
)
def test_what_no_plan_has_is_an_error_and_no_dash(asked: str) -> None:
    with pytest.raises(SystemExit, match="prose.toml asks for"):
        _numbers.number(asked, STUDY, EXTRA)
