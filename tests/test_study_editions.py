"""The study's second edition: where it takes the place of the first, its effect sizes, questions and fronts."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # `studies` is a folder of the repository, not of the package

from studies import _beside, _effects, _paper, _questions, mosaics, other_class, page  # noqa: E402
from studies._editions import BLACK, FAST, PAPER, VARIANTS, Place, measured, places  # noqa: E402
from studies._hypotheses import HYPOTHESES  # noqa: E402
from studies._plans import SCORES, SECOND, plan_of  # noqa: E402
from studies.flagship.curve import points_of  # noqa: E402

import fei  # noqa: E402
from fei.bench.report.numbers import Numbers as Read  # noqa: E402
from fei.bench.store import Store  # noqa: E402

Given = dict[str, dict[str, Any]]
EXTRA = _questions.Extra([], [], [])


class Numbers:
    """Numbers of a plan, given for each label and metric; the same on all of its networks."""

    def __init__(self, name: str, given: Given) -> None:
        self.plan, self._given = plan_of(name), given

    def protocols(self, kind: str, metric: str) -> list[str]:
        return ["fei-paper/1", "held-out/1"]

    def layers(self, pair: int, kind: str, metric: str, protocol: str) -> list[str]:
        return ["early", "last"]

    def values(self, pair: int, row: int, quantity: Any) -> np.ndarray:
        found = self._given.get(self.plan.methods[row].label, {})
        key = f"{quantity.metric}, {quantity.protocol}"
        each = found.get(key, found.get(quantity.metric))
        return np.full((1, 1), np.nan) if each is None else np.array(each, dtype=float)[:, None]


def study(**given: Given) -> Any:
    """Plans with their numbers."""
    return {name.replace("_", "-"): Numbers(name.replace("_", "-"), rows) for name, rows in given.items()}


def variants(count: int, mean: float = 0.5, **others: float) -> Given:
    rows = {f"FEI-{name}": mean for name in ("VM", "IVM", "AVM", "IBM", "NONE")} | others
    wave = np.tile([-0.01, 0.01], count)[:count]
    return {
        label: {"insertion": value + wave, "mse": 2 * value + wave, "cosine": value + wave}
        for label, value in rows.items()
    }


def used(found: Any, editions: Any = VARIANTS[FAST]) -> dict[str, str]:
    return {place.network: place.plan for place in places(found, editions)}


def test_the_second_edition_takes_the_place_of_the_first_once_it_has_as_many() -> None:
    few, enough = (
        study(twenty=variants(20), second_cheap=variants(19)),
        study(twenty=variants(20), second_cheap=variants(20)),
    )
    assert set(used(few).values()) == {"twenty"}
    assert set(used(enough).values()) == {"second-cheap"}
    # all that was planned is enough, however few: 10 of ResNet50, and 4 of birds on VGG16, where there is nothing else
    assert used(study(resnet50=variants(15), second_resnet50=variants(10))) == {"ResNet50": "second-resnet50"}
    assert used(study(resnet50=variants(15), second_resnet50=variants(9))) == {"ResNet50": "resnet50"}
    assert used(study(second_cub_vgg16=variants(1))) == {"CUB, VGG16": "second-cub-vgg16"}
    assert used(study(cub=variants(5), second_cub=variants(5)))["CUB, ResNet50"] == "second-cub"


def test_a_photograph_counts_when_all_rows_have_it() -> None:
    rows = variants(6)
    rows["Random"] = {"insertion": [0.1, 0.1, math.nan, math.nan, math.nan, math.nan]}
    assert measured(Numbers("second-cheap", rows), 0) == 2


def test_a_plan_with_both_presets_is_read_by_its_labels() -> None:
    rows = variants(8) | {f"{label}, paper": row for label, row in variants(8, 0.9).items()}
    found = study(second_paper=rows, paper=variants(5, 0.2))
    fast, paper = (Place("second-paper", found["second-paper"], 0, preset) for preset in (FAST, PAPER))
    means = [float(np.mean(place.values("FEI-VM", "insertion"))) for place in (fast, paper)]
    assert means == pytest.approx([0.5, 0.9])
    assert (fast.where, paper.where) == ("EfficientNet-Lite0", "EfficientNet-Lite0, preset=paper")
    assert Place("paper", found["paper"], 0, PAPER).label("FEI-VM") == "FEI-VM"
    (h1,) = [each for each in HYPOTHESES if each.name == "H1"]
    assert {each.where.endswith("preset=paper") for each in h1.comparisons(found, (PAPER,))} == {True}
    assert h1.comparisons(found, (FAST,)) == []  # this plan is not where the verdict for `fast` is looked for


def test_expensive_baselines_are_opponents_where_they_were_measured() -> None:
    rows = variants(40) | {"Grad-CAM": {"mse": [1.0] * 40, "cosine": [0.1] * 40, "insertion": [0.1] * 40}}
    more = variants(12) | {"RISE": {"mse": [3.0] * 12, "cosine": [0.1] * 12, "insertion": [0.1] * 12}}
    (h3,) = [each for each in HYPOTHESES if each.name == "H3"]
    found = h3.comparisons(study(second_cheap=rows, second_expensive=more), (FAST,))
    rise = [each for each in found if each.what == "MSE: FEI-VM against RISE"]
    assert [(each.where, each.count, each.answer) for each in rise] == [("SqueezeNet", 12, "yes")]
    assert not any(each.what.endswith("against FEI") for each in found)


def test_a_plan_that_is_not_through_says_how_far_it_is(tmp_path: Path) -> None:
    """Trials of the first edition, as if they were the second's on two of four networks; the first has none."""
    for ending in ("parquet", "json"):
        shutil.copy(SCORES / f"black-image.{ending}", tmp_path / f"second-black.{ending}")
    with page.found_in(tmp_path) as found:
        pages = page.results(found)
    text = pages["results/black-images.md"]
    assert "*n (trials): AlexNet 0 of 20 so far; GoogLeNet 0 of 20 so far; SqueezeNet 20; MobileNetV1 20. FEI's" in text
    assert "<details><summary>Share of trials</summary>" in text
    assert "`python -m studies.run --only second-black-vgg16` computes it" in text
    assert f"Of the {len(SECOND)} plans of the second edition 0 are computed, 1 in part." in pages[page.RESULTS]
    assert "fires: `fast` NONE 40 of 40 [91, 100] %" in pages[page.RESULTS]


# Effect sizes


def test_a_ratio_of_means_has_the_interval_of_its_photographs() -> None:
    flat = np.array([[2.0, 1.0]] * 4)
    assert _effects.pooled([flat]) == (2.0, 2.0, 2.0, 4, 1)
    mixed = np.array([[4.0, 1.0], [2.0, 1.0]])
    found = _effects.pooled([mixed])
    assert found[:3] == pytest.approx((3.0, 2.0, 4.0))
    both = _effects.pooled([flat, np.array([[8.0, 1.0]] * 3)])
    assert (both.ratio, both.photographs, both.networks) == pytest.approx((4.0, 7, 2))
    assert math.isnan(_effects.pooled([flat[:1]]).low)


def test_effects_stand_beside_the_papers_own() -> None:
    rows = variants(10, 0.5, **{"FEI-NONE": 1.0, "Random": 1.0})
    effect = _effects.EFFECTS["H2"][0]
    assert effect.paper("ResNet50") == pytest.approx(1.494 / 0.412)
    assert effect.paper("SqueezeNet") is None
    text = _effects.effects_table("H2", study(second_resnet50=rows))
    assert "| MSE: FEI-NONE / FEI-VM | ResNet50 | `fast` | 2.00 [1.99, 2.01] | 3.63 | 10 | second |" in text
    assert "| MSE: FEI-NONE / Random | ResNet50 | `fast` | 1.00 [1.00, 1.00] | – | 10 | second |" in text
    assert _effects.papers(_effects.EFFECTS["H7"][0], "H7") == "1.28 (VGG16; table 4)"
    assert _paper.number("CUB, VGG16", "FEI-NONE", "mse") == 3.437


def test_every_effect_is_of_a_claim_with_rows_that_plans_have() -> None:
    labels = {
        row.label for name in ("second-cheap", "second-ablation", "second-scope-vgg16") for row in plan_of(name).methods
    }
    for name, effects in _effects.EFFECTS.items():
        assert name in _effects.WHERE
        assert {row for effect in effects for row in (effect.top, effect.bottom)} <= labels, name


# Questions


def _question(name: str, extra: _questions.Extra = EXTRA) -> Any:
    return {each.name: each for each in _questions.questions(extra)}[name]


def test_a_random_map_alone_is_not_every_control() -> None:
    chance = {"Random": {"insertion": [0.1] * 20, "mse": [9.0] * 20, "cosine": [0.0] * 20}}
    assert _question("Q1").verdict(study(twenty=variants(20) | chance)) == "not testable here"
    centre = {"Centre": {"insertion": [0.7] * 40, "mse": [9.0] * 40, "cosine": [0.0] * 40}}
    found = study(second_cheap=variants(40) | centre)
    assert _question("Q1").verdict(found) == "holds"
    assert _question("Q2").verdict(found) == "not"


def test_normalisation_or_chains() -> None:
    """AlexNet and SqueezeNet fire, MobileNetV1 does not: what no chain explains and normalisation does."""

    class Black(Numbers):
        def values(self, pair: int, row: int, quantity: Any) -> np.ndarray:
            fires = self.plan.pairs[pair].name in ("AlexNet", "SqueezeNet", "GoogLeNet")
            return (
                np.full((20, 1), float(fires)) if self.plan.methods[row].label == "FEI-AVM" else np.full((1, 1), np.nan)
            )

    found: Any = {"second-black": Black("second-black", {})}
    (h6,) = [each for each in HYPOTHESES if each.name == "H6"]
    assert (h6.verdict(found), _question("Q3").verdict(found)) == ("partly", "holds")
    assert set(used(found, BLACK[FAST])) == {"AlexNet", "GoogLeNet", "SqueezeNet", "MobileNetV1"}
    assert "| AlexNet | `fast` | FEI-AVM | 20 of 20 [84, 100] % | 93.8 % | second |" in _beside.beside_black(found)


def test_references_that_nothing_was_optimised_with_are_read_apart() -> None:
    rows = variants(40)
    rows["FEI-NONE"] |= {"insertion, fei-paper/1": [0.9] * 40, "insertion, held-out/1": [0.1] * 40}
    found = study(second_cheap=rows)
    (h1,) = [each for each in HYPOTHESES if each.name == "H1"]
    assert (h1.verdict(found), _question("Q7").verdict(found)) == ("holds", "not")


def test_classes_of_the_edition_with_more_photographs() -> None:
    def asked(method: str, *values: float) -> list[dict[str, Any]]:
        return [{"network": "SqueezeNet", "method": method, "spearman": value} for value in values]

    first, second = asked("fei-vm", 0.9, 0.9, 0.9), asked("fei-vm", 0.1, 0.2)
    extra = _questions.Extra(first, second, [])
    assert extra.classes("SqueezeNet", "fei-vm") == ([0.9] * 3, False)
    assert _question("Q5", extra).verdict({}) == "not"
    more = _questions.Extra(first, second + asked("fei-vm", 0.3) + asked("fei-vm, paper", 0.2, 0.3), [])
    assert more.classes("SqueezeNet", "fei-vm") == ([0.1, 0.2, 0.3], True)
    assert _question("Q5", more).verdict({}) == "holds"
    assert [each.where for each in _question("Q5", more).comparisons({}, (PAPER,))] == ["SqueezeNet, preset=paper"]


def test_fragments_are_compared_on_photographs_that_both_have() -> None:
    rows = [
        {
            "network": "net",
            "photograph": photo,
            "method": method,
            "kind": "smoothed to 0.03",
            "mse": value,
            "cosine": 0.5,
        }
        for method, value in (("fei-vm", 1.0), ("fei-none", 2.0))
        for photo in ("a", "b", "c")
    ]
    rows.append(
        {"network": "net", "photograph": "d", "method": "fei-none", "kind": "smoothed to 0.03", "variation": 0.1}
    )
    found = {each.what: each for each in _question("Q4", _questions.Extra([], [], rows)).comparisons({})}
    assert found["MSE, smoothed to 0.03: FEI-VM against FEI-NONE"].count == 3
    assert found["MSE, smoothed to 0.03: FEI-VM against FEI-NONE"].answer == "yes"
    assert "| net | smoothed to 0.03 | fei-none | 2.000 [2.000, 2.000] |" in _beside.fragments_table(
        _questions.Extra([], [], [row | {"relevant_mse": 1, "relevant_cosine": 1, "borders": 0.1} for row in rows])
    )


def test_agreement_is_kendalls_tau_of_the_means() -> None:
    draw = np.random.default_rng(0)
    one, two = draw.random((9, 6)), draw.random((9, 6))
    tau, low, high = _questions.agreement(one, two)
    assert tau == pytest.approx(kendalltau(one.mean(1), two.mean(1)).statistic)
    assert low <= tau <= high
    assert _questions.agreement(one, one)[:1] == (1.0,)
    assert math.isnan(_questions.agreement(one[:, :1], two[:, :1])[1])


# Fronts and curves


def test_the_front_is_what_no_other_beats() -> None:
    points = [
        ("a", 0.9, 3.0, 100),
        ("b", 0.5, 1.0, 100),
        ("c", 0.4, 1.5, 1),
        ("d", 0.4, 1.5, 200),
        ("e", 0.9, 3.0, 100),
    ]
    assert _beside.front(points) == ["a", "b", "e"]
    assert _beside.front(points, with_cost=True) == ["a", "b", "c", "e"]


def test_a_curve_goes_through_the_settings_that_are_measured() -> None:
    rows = [
        {"method": setting, "random_class": alike, "insertion": value}
        for setting, alike, value in (("focus 0", 0.9, 0.2), ("focus 0", 0.7, 0.4), ("focus 1", 0.1, 0.5))
    ]
    found = points_of(rows, ["focus 0", "focus 0.5", "focus 1"], "insertion")
    assert found == [pytest.approx((0.8, 0.3)), pytest.approx((0.1, 0.5))]


# Another class


class _Net(nn.Module):
    """Three classes whose evidence is in three bands of the image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 1, 1)
        nn.init.constant_(self.conv.weight, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([part.mean((1, 2, 3)) for part in self.conv(x).relu().chunk(3, dim=2)], 1) * 9


def test_maps_of_two_classes_are_compared(tmp_path: Path) -> None:
    image = torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    same = other_class.alike(_Net().eval(), image, 3, "random", {})
    assert same["other"] != same["predicted"]
    assert 0 <= same["other"] < 3
    assert same["spearman"] == pytest.approx(1.0)
    map_ = fei.methods.create("random")(_Net().eval(), image, generator=torch.Generator().manual_seed(0))
    assert same["deviations"] == pytest.approx([np.std(map_.numpy(), dtype=float)] * 2)
    assert other_class.alike(_Net().eval(), image, 3, "saliency", {})["spearman"] < 0.5
    rows = [
        {"network": "n", "item": "i", "method": "fei", "settings": "of before"},
        {"network": "n", "item": "i", "method": "gradcam"},
    ]
    assert [row["method"] for row in other_class.fresh(rows, other_class.SECOND)] == ["gradcam"]
    today = other_class.settings("fei", {})
    assert other_class.settings("fei", {"steps": 3}) != today
    (tmp_path / other_class.NAMES[1]).write_text(json.dumps(rows), encoding="utf-8")
    assert other_class.rows(tmp_path, other_class.NAMES[1]) == rows
    assert other_class.rows(tmp_path) == []


def test_the_default_is_compared_with_the_best_baseline_and_is_none(tmp_path: Path) -> None:
    plan = plan_of("second-extremal")
    with Store.create(tmp_path / "run", plan) as store:
        ours = {plan.methods[row].name for row in Read(store).ours}
    assert ours == {"fei", "fei-vm", "fei-ivm", "fei-avm", "fei-ibm"}


def test_a_map_is_asked_for_the_class_of_each_photograph_of_a_mosaic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Colours(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean((2, 3)) * 9

        def preprocess(self, file: Path) -> Tensor:
            return torch.eye(4)[int(file.name)][:, None, None].expand(4, 8, 8)

    colours = [Path(str(number)) for number in range(4)]
    inputs = torch.stack(list(map(Colours().preprocess, colours)))

    def colour(_: nn.Module, images: Tensor, target: Tensor) -> Tensor:
        return torch.stack([image[one][None] for image, one in zip(images, target, strict=True)])

    assert mosaics.played(Colours().eval(), inputs, colour, 0.5) == {"rank": [1.0], "energy": [1.0]}

    monkeypatch.setattr(fei.models, "load", lambda _: Colours())
    monkeypatch.setattr(mosaics, "drawn", lambda _, count: colours[:count])
    monkeypatch.setattr(mosaics, "METHODS", ("random", "saliency"))
    monkeypatch.setattr(sys, "argv", ["mosaics", "--count", "4", "--scores", str(tmp_path / "rows.jsonl")])
    for _ in range(2):  # again it has nothing to compute
        mosaics.main()
        assert [row["method"] for row in mosaics.rows(tmp_path / "rows.jsonl")] == ["random", "saliency"] * 3
    table = capsys.readouterr().out.strip().splitlines()
    assert table[-1] == "| `saliency` | " + " | ".join(["0.25"] * 6) + " |"  # its gradient is the same everywhere
    assert table[-4].count("n 1<br>") == 6
