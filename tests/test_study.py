"""The study: its plans can be computed, its page is what the committed scores say, its verdicts follow their rule."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import skimage
import torch
from scipy.ndimage import label
from torch import Tensor, nn

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # `studies` is a folder of the repository, not of the package

from studies import _costs, _plans, _scores, fragmentation, page  # noqa: E402
from studies import run as studies_run  # noqa: E402
from studies._blocks import are_marked, written  # noqa: E402
from studies._hypotheses import HYPOTHESES  # noqa: E402
from studies._verdicts import (  # noqa: E402
    Comparison,
    paired_difference,
    rate_against,
    rate_difference,
    verdict,
)
from studies.audit import beside  # noqa: E402
from studies.flagship import page as flagship  # noqa: E402
from studies.l2_penalty import L2Penalty  # noqa: E402
from studies.own_methods import FewerChannels, OtherReference  # noqa: E402
from studies.photographs import LARGEST, USED, first_fresh_seed, is_fresh  # noqa: E402
from studies.transformers import page as transformers  # noqa: E402

import fei  # noqa: E402
from fei.bench.engine.runner import run  # noqa: E402
from fei.bench.plan import Plan  # noqa: E402
from fei.bench.store import Store  # noqa: E402
from fei.bench.store.exchange import export  # noqa: E402

# Plans


@pytest.mark.parametrize(
    ("code", "returned", "exported"), [(0, 0, True), (1, 1, True), (130, 130, False), (-15, 3, False)]
)
def test_a_run_that_is_broken_off_exports_nothing_even_where_other_plans_had_a_part_of_every_unit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, returned: int, exported: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(studies_run, "_bench", lambda *words: asked.append(words[0]) or code)
    monkeypatch.setattr(studies_run, "_is_through", lambda _: True)
    monkeypatch.setattr(studies_run, "export_plan", lambda *_: asked.append("export"))
    options = argparse.Namespace(
        out=tmp_path, scores=tmp_path, trial=False, keep_maps=False, at_most=2, workers=1, threads=1
    )
    assert studies_run.run_plan("second-seeds", options) == returned
    assert asked == ["run", "export"][: 1 + exported]


def test_every_plan_is_in_the_order_and_valid() -> None:
    every = (*_plans.ORDER, *_plans.SECOND)
    assert {file.stem for file in _plans.FOLDER.glob("*.toml")} - {"prose"} == set(every)
    for name in every:
        assert _plans.plan_of(name).name


def test_the_second_edition_has_fresh_photographs_and_its_authors_settings() -> None:
    for name in _plans.SECOND:
        plan = _plans.plan_of(name)
        for pair in plan.pairs:
            folder = (pair.data or "").partition("@")[0].rpartition("/")[2]
            assert folder == ("" if plan.black_image else "cub" if "CUB" in pair.name else "imagenet_test"), name
        baselines = [row for row in plan.methods if not row.name.startswith("fei")]
        assert not any(row.options or row.label.endswith("]") for row in baselines), name
        trial = _plans.changed(plan, trial=True)
        assert not any("imagenet_test" in (pair.data or "") for pair in trial.pairs), name
    rows = {name: {row.name for row in _plans.plan_of(name).methods} for name in _plans.SECOND}
    controls = {"random", "smooth-noise", "centre"}
    for name in _plans.SECOND:
        if not any(part in name for part in ("black", "scope", "sanity")):
            assert controls <= rows[name], name
    assert not any("fei" in rows[name] for name in _plans.SECOND[:6])  # first those whose maps are settled
    assert not rows["second-cub-vgg16"] & {"rise", "extremal-perturbation"}


def test_the_main_plan_has_every_method() -> None:
    reduced = {"studies.own_methods:FewerChannels": "scorecam"}
    named = {reduced.get(row.name, row.name) for row in _plans.plan_of("main").methods}
    later = {"fei", "smooth-noise", "centre", "brightness", "edges"}  # which came after it
    later |= {"attention-rollout", "generic-attention", "legrad", "libra-fullgrad", "vit-cx"}
    assert named == set(fei.methods.available()) - later
    for name in ("resnet50", "seeds"):
        assert _plans.plan_of(name).methods == _plans.plan_of("main").methods


def test_fei_has_the_default_preset_where_nothing_else_is_said() -> None:
    for name in ("main", "resnet50", "black-image", "cub"):
        assert all(not row.options for row in _plans.plan_of(name).methods if row.name.startswith("fei-"))


def test_what_is_reduced_says_so() -> None:
    for row in _plans.plan_of("main").methods:
        assert bool(row.options) == row.label.endswith("]"), row.label


def test_a_run_may_begin_with_few_photographs() -> None:
    cheap = _plans.plan_of("second-cheap")
    few = _plans.changed(cheap, at_most=3)
    assert [pair.sample for pair in few.pairs] == [3, 3, 3]
    assert few.methods == cheap.methods
    assert few.metrics == cheap.metrics
    black = _plans.changed(_plans.plan_of("second-black"), at_most=3).black_image
    sanity = _plans.changed(_plans.plan_of("second-sanity"), at_most=3).sanity
    assert black is not None
    assert sanity is not None
    assert (black.trials, sanity.images) == (3, 3)
    more = _plans.changed(_plans.plan_of("second-black"), at_most=3, there={"AlexNet": 6, "GoogLeNet": 2}).black_image
    assert more is not None
    assert more.trials == 6
    kept = _plans.changed(cheap, at_most=3, there={"SqueezeNet": 5, "MobileNetV1": 1000})
    assert [pair.sample for pair in kept.pairs] == [3, 5, 40], "what has scores stays"
    for name in (*_plans.ORDER, *_plans.SECOND):
        plan = _plans.plan_of(name)
        assert _plans.changed(plan, at_most=1000) == _plans.changed(plan), "a limit that nothing reaches"


def test_every_network_of_a_plan_has_its_seconds() -> None:
    networks = {
        re.split(r"[:/]", pair.model)[-1]
        for name in (*_plans.ORDER, *_plans.SECOND)
        for pair in _plans.plan_of(name).pairs
    }
    assert networks <= _costs.SECONDS.keys()


def test_a_trial_asks_for_little_and_stays_valid() -> None:
    for name in (*_plans.ORDER, *_plans.SECOND):
        trial = _plans.changed(_plans.plan_of(name), trial=True)
        assert len(trial.seeds) == 1
        assert all(pair.sample == 1 for pair in trial.pairs if pair.data)
        assert all(row.options.get("steps", 2) <= 2 for row in trial.methods)
    assert not _plans.changed(_plans.plan_of("main")).keep_maps
    assert _plans.changed(_plans.plan_of("main"), keep_maps=True).keep_maps


def test_the_assets_may_be_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_plans, "ASSETS", tmp_path)
    plan = _plans.plan_of("main")
    placed = _plans.changed(plan)
    assert placed.pairs[1].model == f"{tmp_path}/zoo.py:squeezenet"
    assert placed.pairs[1].data == f"imagenet:{tmp_path}/imagenet"
    assert placed.pairs[0].model == "efficientnet_lite0"
    for one, other in zip(placed.pairs, plan.pairs, strict=True):
        assert (_plans.portable(one.model), _plans.portable(one.data or "")) == (other.model, other.data)


def test_the_photographs_are_fresh(assets: Path) -> None:
    photographs = fei.data.load(f"imagenet:{assets / 'imagenet'}")
    seeds = {pair.sample_seed for name in _plans.ORDER for pair in _plans.plan_of(name).pairs if pair.data}
    assert seeds == {0} == {first_fresh_seed(photographs)}
    largest = max(pair.sample or 0 for name in _plans.ORDER for pair in _plans.plan_of(name).pairs)
    assert largest <= LARGEST
    used = [item for item in photographs if item.id.split("/")[0] in USED]
    assert used
    assert not is_fresh(photographs.sample(len(photographs), 0))


# Verdicts, by hand


def _said(low: float, high: float, margin: float = 0.0) -> str:
    return Comparison("here", "this", (low + high) / 2, low, high, 5, margin).answer


def test_a_comparison_answers_by_its_interval() -> None:
    assert (_said(0.1, 0.3), _said(-0.3, -0.1), _said(-0.1, 0.3)) == ("yes", "no", "open")
    assert (_said(-0.04, 0.03, 0.05), _said(0.06, 0.2, 0.05), _said(-0.2, 0.01, 0.05)) == ("yes", "no", "open")
    assert _said(math.nan, math.nan) == "open"


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("", "not testable here"),
        ("ooo", "not testable here"),
        ("yyy", "holds"),
        ("yyoo", "holds"),
        ("yooo", "partly"),
        ("yyyyyn", "partly"),
        ("nooo", "not"),
        ("nnn", "not"),
    ],
)
def test_a_verdict_counts_the_answers(answers: str, expected: str) -> None:
    intervals = {"y": (0.1, 0.2), "n": (-0.2, -0.1), "o": (-0.1, 0.1)}
    made = [Comparison("", "", 0.0, *intervals[answer], 5) for answer in answers]
    assert verdict(made) == expected


def test_differences_are_paired_by_photograph_with_seeds_averaged() -> None:
    ours = np.array([[0.5, 0.7], [0.4, 0.4], [np.nan, np.nan]])
    others = np.array([[0.2, 0.2], [0.3, np.nan], [0.1, 0.1]])
    found = paired_difference("", "", ours, others)
    assert found is not None
    assert found.difference == pytest.approx((0.4 + 0.1) / 2)
    assert found.count == 2
    assert found.low == pytest.approx(0.1)
    assert found.high == pytest.approx(0.4)
    turned = paired_difference("", "", ours, others, higher_is_better=False)
    assert turned is not None
    assert turned.difference == pytest.approx(-found.difference)
    assert paired_difference("", "", ours * np.nan, others) is None


def test_rates_differ_by_newcombe() -> None:
    # Newcombe 1998, table II, example (a): 56/70 against 48/80 is .2, from .0524 to .3339
    one, two = (np.array([[1.0]] * hits + [[0.0]] * (n - hits)) for hits, n in ((56, 70), (48, 80)))
    found = rate_difference("", "", one, two)
    assert found is not None
    assert (found.difference, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)


def test_a_rate_against_a_level() -> None:
    # Wilson's interval of 18 in 20 is .699 to .972
    fired = np.array([[1.0]] * 18 + [[0.0]] * 2)
    above, below = (rate_against("", "", fired, 0.5, above=above) for above in (True, False))
    assert above is not None
    assert below is not None
    assert (above.low, above.high) == pytest.approx((0.199, 0.472), abs=1e-3)
    assert (above.answer, below.answer) == ("yes", "no")


@pytest.mark.parametrize(("photographs", "held"), [(5, 0.84), (10, 0.90)])
def test_intervals_over_few_photographs_are_as_narrow_as_the_page_says(photographs: int, held: float) -> None:
    differences = np.random.default_rng(0).normal(size=(600, photographs, 1))
    found = [paired_difference("", "", each, np.zeros_like(each)) for each in differences]
    share = np.mean([one is not None and one.low <= 0 <= one.high for one in found])
    assert share == pytest.approx(held, abs=0.03)


# Claims on numbers made up for them


class _Numbers:
    """Numbers of a plan, given for each label and metric; the same on all of its networks."""

    def __init__(self, name: str, given: dict[str, dict[str, list[float]]]) -> None:
        self.plan, self._given = _plans.plan_of(name), given

    def protocols(self, kind: str, metric: str) -> list[str]:
        return ["fei-paper/1"]

    def layers(self, pair: int, kind: str, metric: str, protocol: str) -> list[str]:
        return ["early", "last"]

    def values(self, pair: int, row: int, quantity: object) -> np.ndarray:
        assert getattr(quantity, "layer", "") in ("", "last")
        found = self._given.get(self.plan.methods[row].label, {}).get(quantity.metric)  # type: ignore[attr-defined]
        return np.full((4, 1), np.nan) if found is None else np.array(found)[:, None]


def _verdict(name: str, **study: _Numbers) -> str:
    (hypothesis,) = [each for each in HYPOTHESES if each.name == name]
    return hypothesis.verdict({key.replace("_", "-"): value for key, value in study.items()})


def _around(mean: float) -> list[float]:
    return [mean - 0.02, mean - 0.01, mean + 0.01, mean + 0.02]


def test_reduced_baselines_are_no_comparisons() -> None:
    """What does less than its authors ask for can neither be beaten nor beat."""
    plan = _plans.plan_of("main")
    labels = [row.label for row in plan.methods]
    given = {label: {"mse": _around(2.0), "cosine": _around(0.3)} for label in labels}
    (h3,) = [each for each in HYPOTHESES if each.name == "H3"]
    found = h3.comparisons({"main": _Numbers("main", given)})  # type: ignore[dict-item]
    named = {comparison.what.partition(" against ")[2] for comparison in found}
    assert named == {label for label in labels if label != "FEI-VM" and "[" not in label}
    assert len(named) == len(labels) - 1 - 5  # EP, RISE, Score-CAM, KernelSHAP and FG-VCE are reduced


def test_margins_are_shares_of_the_score_that_is_compared_with() -> None:
    labels = [row.label for row in _plans.plan_of("ablation").methods]
    base = {"insertion": [0.02] * 4, "mse": [100.0] * 4, "cosine": [0.5] * 4}
    more = {"insertion": [0.026] * 4, "mse": [104.0] * 4, "cosine": [0.52] * 4}
    numbers = _Numbers("ablation", dict.fromkeys(labels, base) | {"200 steps": more})
    (h9,) = [each for each in HYPOTHESES if each.name == "H9"]
    found = {each.what.partition(":")[0]: each for each in h9.comparisons({"ablation": numbers})}  # type: ignore[dict-item]
    assert [found[name].margin for name in ("insertion", "MSE", "cosine")] == pytest.approx([0.002, 10.0, 0.05])
    # a third more is not alike, however small both are; 4 % is
    assert [found[name].answer for name in ("insertion", "MSE", "cosine")] == ["no", "yes", "yes"]


def test_claims_about_variants() -> None:
    variants = {f"FEI-{name}": {"insertion": _around(0.5), "mse": _around(1.0)} for name in ("VM", "IVM", "AVM", "IBM")}
    none = {"FEI-NONE": {"insertion": _around(0.8), "mse": _around(3.0)}}
    assert _verdict("H1", twenty=_Numbers("twenty", variants | none)) == "holds"
    assert _verdict("H2", twenty=_Numbers("twenty", variants | none)) == "holds"
    reversed_ = {"FEI-NONE": {"insertion": _around(0.1), "mse": _around(0.2)}}
    assert _verdict("H1", twenty=_Numbers("twenty", variants | reversed_)) == "not"
    assert _verdict("H2", twenty=_Numbers("twenty", variants | reversed_)) == "not"
    assert _verdict("H4", twenty=_Numbers("twenty", variants)) == "not testable here"
    best = variants | {"FEI-IBM": {"insertion": _around(0.7)}}
    assert _verdict("H4", twenty=_Numbers("twenty", best)) == "holds"
    assert _verdict("H4", twenty=_Numbers("twenty", best | {"FEI-AVM": {"insertion": _around(0.9)}})) == "partly"


def test_the_claim_about_vm_is_against_every_method() -> None:
    others = {row.label: {"mse": _around(2.0), "cosine": _around(0.3)} for row in _plans.plan_of("main").methods}
    best = {"FEI-VM": {"mse": _around(1.0), "cosine": _around(0.6)}}
    assert _verdict("H3", main=_Numbers("main", others | best)) == "holds"
    better = {"Occlusion": {"mse": _around(0.5), "cosine": _around(0.9)}}
    assert _verdict("H3", main=_Numbers("main", others | best | better)) == "partly"


def test_claims_about_black_images() -> None:
    always, never = [1.0] * 20, [0.0] * 20
    quiet = {f"FEI-{name}": {"fired": never} for name in ("VM", "IVM", "IBM", "AVM")}
    numbers = _Numbers("black-image", quiet | {"FEI-NONE": {"fired": always}})
    assert _verdict("H5", black_image=numbers) == "holds"
    assert _verdict("H5", black_image=_Numbers("black-image", quiet | {"FEI-NONE": {"fired": never}})) == (
        "not testable here"
    )
    # AVM quiet everywhere: so it should be on two networks, and not on the sequential one
    assert _verdict("H6", black_image=numbers) == "partly"


def test_claims_about_the_ablation() -> None:
    def rows(**given: list[float]) -> dict[str, list[float]]:
        return given

    base = rows(insertion=_around(0.5), mse=_around(1.0), cosine=_around(0.6))
    good = rows(insertion=_around(0.6), mse=_around(0.5), cosine=_around(0.8))
    labels = [row.label for row in _plans.plan_of("ablation").methods]
    all_alike = _Numbers("ablation", dict.fromkeys(labels, base))
    for name in ("H9", "H10"):
        assert _verdict(name, ablation=all_alike) == "holds"
    assert _verdict("H7", ablation=all_alike) == "not testable here"
    early = {label: good for label in labels if label.startswith("first ")}
    assert _verdict("H7", ablation=_Numbers("ablation", dict.fromkeys(labels, base) | early)) == "holds"
    paper = _Numbers("ablation", dict.fromkeys(labels, base) | {"preset=paper": good})
    assert _verdict("H8", ablation=paper) == "holds"
    assert _verdict("H9", ablation=paper) == "not"


# Methods of the study


class _Bright(nn.Module):
    """Two classes: how bright the left half is, and the right."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        nn.init.constant_(self.conv.weight, 0.1)
        nn.init.zeros_(self.conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        values = self.conv(x).relu().mean(1)
        return torch.stack([values[..., :half].mean((1, 2)), values[..., half:].mean((1, 2))], 1) * 10


def test_the_penalty_with_weight_zero_is_fei_without_a_constraint() -> None:
    model, image = _Bright().eval(), torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    expected = fei.FEI(model, "none", steps=4).attribute(image, 0)
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(L2Penalty(weight=0.0, steps=4)(model, image, 0), expected, atol=1e-4, rtol=1e-3)


def test_the_penalty_keeps_activations() -> None:
    model, image = _Bright().eval(), torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    reference = torch.zeros(1, 3, 1, 1)

    def moved(weight: float) -> float:
        alpha = L2Penalty(weight=weight, steps=20)(model, image, 0, reference=reference)
        with torch.no_grad():
            kept, original = (model.conv(x).relu() for x in (alpha * image, image))
        return float((kept - original).square().mean())

    assert moved(1e3) < moved(0.0)


def test_another_reference_is_that_of_the_optimisation() -> None:
    model, image = _Bright().eval(), torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    expected = fei.FEI(model, "vm", steps=3).attribute(image, 1, "blur")
    torch.testing.assert_close(OtherReference(kind="blur", steps=3)(model, image, 1), expected)
    with pytest.raises(fei.errors.InputError, match="Unknown reference 'plaid'"):
        OtherReference(kind="plaid")


# Scores and pages


_NETWORK = """
import torch
from torch import nn

def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return made().eval()

def made():
    body = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 6, 3, 2), nn.ReLU())
    model = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))
    model.input_size, model.feature_layers = 32, ["0.1", "0.3"]
    return model
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scores of a small run of a tiny network, as if it were the ablation."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "network.py").write_text(_NETWORK, encoding="utf-8")
    rows = [{"name": "random", "label": "FEI-VM"}, {"name": "saliency", "label": "preset=paper"}]
    data = str(Path(skimage.__file__).parent / "data" / "c[ho][ef][lf]*.png")
    pair = {"model": f"{folder / 'network.py'}:network", "data": data, "name": "SqueezeNet"}
    plan = Plan.model_validate(
        {"name": "tiny", "pairs": [pair], "methods": rows, "metrics": {"protocols": ["fei-paper", "rise"]}}
    )
    run(plan, folder / "run")
    with Store.open(folder / "run", readonly=True) as store:
        export(store, folder / "export.parquet")
    (folder / "scores").mkdir()
    assert _scores.keep(folder / "run", folder / "export.parquet", folder / "scores" / "ablation")
    return folder


def test_score_cam_with_all_its_channels_is_score_cam(tiny: Path) -> None:
    model = fei.models.load(f"{tiny / 'network.py'}:network")
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    whole = fei.methods.create("scorecam")(model, image)
    torch.testing.assert_close(FewerChannels(channels=6)(model, image), whole)
    assert not torch.allclose(FewerChannels(channels=1)(model, image), whole)


def test_scores_come_back_as_a_run(tiny: Path) -> None:
    with (
        _scores.opened("ablation", tiny / "scores") as store,
        Store.open(tiny / "run", readonly=True) as original,
    ):
        assert store.plan.name == "Ablation"
        ours, theirs = (
            {(r["method"], r["item"], r["metric"], r["protocol"], r["layer"]): r["value"] for r in each.results()}
            for each in (store, original)
        )
        assert ours == theirs
        depths = {(r["layer"], r["depth"]) for r in store.results() if r["layer"]}
        assert depths == {(r["layer"], r["depth"]) for r in original.results() if r["layer"]}
        names = {protocol for (protocol,) in store.rows("SELECT DISTINCT protocol FROM curves")}
        assert names == {"fei-paper/1"}  # the 33 points of RISE's are left out
    assert not _scores.keep(tiny / "run", tiny / "export.parquet", tiny / "scores" / "ablation")  # nothing is new
    assert _scores.counted("ablation", tiny / "scores") == {"SqueezeNet": 2}
    assert _scores.counted("main", tiny / "scores") == {}


def test_the_pages_of_few_scores_show_them(tiny: Path) -> None:
    with page.found_in(tiny / "scores") as found:
        pages = page.results(found)
    assert f"None of the {len(_plans.SECOND)} plans of the second edition has scores yet" in pages[page.RESULTS]
    assert "Not computed yet: steps, main" in pages["results/first-edition.md"]
    assert "Not computed yet: second-paper" in pages["results/what-was-run.md"]
    assert "`python -m studies.run --only second-cub` computes it" in pages["results/birds.md"]
    assert "H9: not testable here" in pages["results/presets.md"]
    text = pages["results/first-edition.md"]
    assert "*n (photographs): SqueezeNet 2 of 5 so far. FEI's preset" in text
    with Store.open(tiny / "run", readonly=True) as store:
        (mean,) = store.rows(
            "SELECT avg(value) FROM results "
            "WHERE metric = 'insertion' AND protocol = 'fei-paper/1' AND method = 'FEI-VM'"
        )[0]
    assert f"{mean:.3f}" in text
    with page.found_in(tiny / "scores") as found:
        assert pages == page.results(found)


def test_the_pages_are_what_the_scores_say() -> None:
    """The pages of the results and the study's numbers in other pages, from the committed scores alone."""
    with page.found_in(_plans.SCORES) as found:
        pages = page.written(found)
    assert {*page.BY_HAND, page.RESULTS, "results/birds.md"} <= set(pages)
    for name, text in pages.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, name
    assert {f"results/{file.name}" for file in (ROOT / "docs" / "results").iterdir()} <= set(pages)
    for name in page.linked_images(pages):
        assert (ROOT / "docs" / name).is_file(), name


def test_check_tells_of_a_page_that_is_old(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in page.BY_HAND:
        shutil.copy(ROOT / "docs" / name, tmp_path)
    folders = ["--scores", str(tiny / "scores"), "--docs", str(tmp_path)]
    assert page.main(folders) == 0
    assert page.main([*folders, "--check"]) == 0
    assert capsys.readouterr().err == ""
    for name in (page.RESULTS, "results/black-images.md"):
        (tmp_path / name).write_text("old", encoding="utf-8")
        assert page.main([*folders, "--check"]) == 1
        assert f"docs/{name} is not what the scores say" in capsys.readouterr().err


def test_the_tables_of_transformers_are_those_of_their_scores() -> None:
    page = transformers.PAGE.read_text(encoding="utf-8")
    assert are_marked(page, transformers.BLOCKS)
    assert written(page, transformers.BLOCKS) == page


def test_the_tables_of_the_flagship_are_those_of_its_scores() -> None:
    page = flagship.PAGE.read_text(encoding="utf-8")
    assert are_marked(page, flagship.BLOCKS)
    assert written(page, flagship.BLOCKS) == page


# Equal fragmentation


def test_maps_are_smoothed_to_the_rank_variation_that_is_asked_for() -> None:
    noise = torch.rand(1, 1, 40, 50, generator=torch.Generator().manual_seed(0))
    found = fragmentation.smoothed(noise, 0.1)
    assert found is not None
    ranks = found[0][0, 0].flatten().argsort(stable=True).argsort(stable=True).view(40, 50).double() / (
        40 * 50 - 1
    )  # by hand
    steps = torch.cat([ranks.diff(dim=0).flatten(), ranks.diff(dim=1).flatten()]).abs()
    assert steps.mean().item() == pytest.approx(0.1, rel=0.01)
    assert fragmentation.smoothed(found[0], 0.2) is None


def test_shuffled_components_keep_their_sizes_and_leave_their_places() -> None:
    mask = np.zeros((40, 50), dtype=bool)
    mask[3:9, 4:12] = mask[20:23, 30:45] = mask[35, 7] = True
    moved, homeless = fragmentation.shuffled(mask, np.random.default_rng(3))
    assert (moved.sum(), homeless) == (mask.sum(), 0)
    assert (moved & mask).sum() < mask.sum() / 2
    wide = np.tile(moved, (2, 2))  # what left on one side came in at the other
    sizes = np.bincount(label(wide)[0].ravel())[1:]
    assert {48, 45, 1} <= set(sizes.tolist())
    every = np.ones((5, 5), dtype=bool)
    every[2, 2] = False
    assert fragmentation.shuffled(every, np.random.default_rng(0))[0].sum() == 24


def test_borders_by_hand() -> None:
    mask = np.array([[1, 0, 0], [1, 1, 0]], dtype=bool)
    assert fragmentation.borders(mask) == pytest.approx(3 / 7)


def test_audits_are_put_beside_the_numbers_of_the_flagship():
    """As docs/flagship.md has them: ρ between seeds 1.00, with a random class .13, Grad-CAM on EfficientNet-Lite0."""
    found = beside.study(beside.FILES["efficientnet_lite0"])["gradcam", "class"]
    assert (found.answer, found.n, round(found.mean, 2)) == ("pass", 16, 0.87)
    cells = {name: {"mark": "✓", "mean": 1.0, "low": 0.5, "high": 1.5, "n": 5} for name in ("class", "weights", "seed")}
    cells |= {name: {"mark": "?", "mean": None, "low": None, "high": None, "n": 0} for name in ("controls", "inside")}
    audit = {"network": {"model": "zoo.py:squeezenet"}, "methods": [{"name": "gradcam", "answers": cells}]}
    rows = list(beside.compared(audit))
    assert [row[:3] for row in rows] == [["squeezenet", "`gradcam`", name] for name in ("class", "weights", "seed")]
    assert rows[0][3] == "✓ 1.00 [0.50, 1.50], 5"
    assert re.fullmatch(r"✓ 0\.72 \[.*\], 16", rows[0][4])  # 1 − .28
