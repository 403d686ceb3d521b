"""The parts of an audit without a network: verdicts against known numbers, and what is said of them."""

import math

import numpy as np
import pytest
from racing import GOOD, ITEMS, KINDS, Simulation
from scipy import stats

from fei.auditing import thresholds
from fei.auditing.costs import Costs, passes
from fei.auditing.measured import Measured
from fei.auditing.page import _shares
from fei.auditing.questions import BY_NAME, CONTROLS, QUESTIONS, named
from fei.auditing.recommendation import disagreement, recommend
from fei.auditing.run import budget_seconds
from fei.auditing.verdicts import judge
from fei.errors import InputError

pytestmark = pytest.mark.slow

# Verdicts


def known(values, method="m", metric="stability", **more):
    """Numbers of one metric, one per image; others as given."""
    found = Measured()
    for item, value in zip(ITEMS, values, strict=False):
        found.scores[method, item] |= {metric: float(value)} | more
    return found


def test_an_interval_is_students_and_an_answer_leaves_the_limit_out():
    values = np.array([0.95, 0.97, 0.99, 0.96, 0.98, 0.99])
    verdict = judge(known(values), ["m"], named("seed"), ITEMS)["m", "seed"]
    expected = stats.t.interval(0.95, 5, values.mean(), stats.sem(values))
    assert (verdict.low, verdict.high) == pytest.approx(expected)
    assert (verdict.answer, verdict.n, verdict.mean) == ("pass", 6, pytest.approx(values.mean()))
    wide = judge(known([0.5, 1, 0.7, 1, 0.9]), ["m"], named("seed"), ITEMS)["m", "seed"]
    assert wide.answer == "unknown"
    assert wide.low < 0.9 < wide.high
    few = judge(known([1, 1, 1, 1]), ["m"], named("seed"), ITEMS)["m", "seed"]
    assert few.answer == "unknown"
    assert "needs 5" in few.why


def test_the_correction_is_benjamini_and_hochbergs():
    draw = np.random.default_rng(0)
    found, chances = Measured(), {}
    for number in range(40):
        values = draw.normal(0.9 + 0.001 * number, 0.03, 8)
        chances[f"m{number}"] = stats.ttest_1samp(values, 0.9).pvalue
        for item, value in zip(ITEMS, values, strict=False):
            found.scores[f"m{number}", item] |= {"stability": float(value)}
    table = judge(found, list(chances), named("seed"), ITEMS)
    answered = {method for method in chances if table[method, "seed"].answer != "unknown"}
    adjusted = stats.false_discovery_control(list(chances.values()))
    assert answered == {method for method, p in zip(chances, adjusted, strict=True) if p <= 0.05}
    assert 0 < len(answered) < 40
    for method in chances:
        verdict = table[method, "seed"]
        assert (verdict.low < 0.9 < verdict.high) == (verdict.answer == "unknown")


def test_how_many_images_would_tell_at_best():
    values = np.array([0.88, 0.96, 0.90, 0.94, 0.97, 0.86, 0.99])
    verdict = judge(known(values), ["m"], named("seed"), ITEMS)["m", "seed"]
    mean = values.mean() + stats.sem(values)  # one standard error further from the limit
    needed = next(n for n in range(2, 200) if (mean - 0.9) / (values.std(ddof=1) / math.sqrt(n)) >= 3)
    assert (verdict.answer, verdict.needed) == ("unknown", needed)
    assert judge(known([0.9] * 6), ["m"], named("seed"), ITEMS)["m", "seed"].needed > thresholds.LADDER[-1]
    assert judge(known([1.0] * 4), ["m"], named("seed"), ITEMS)["m", "seed"].needed == thresholds.FEWEST


def test_class_and_weights_are_read_against_the_methods_own_seeds():
    noisy = known([0.3] * 8, random_class=0.3, classifier_randomization=0.3)
    same = known([1.0] * 8, random_class=1.0, classifier_randomization=1.0)
    sharp = known([1.0] * 8, random_class=0.2, classifier_randomization=-0.1)
    for found, answer in ((noisy, "fail"), (same, "fail"), (sharp, "pass")):
        table = judge(found, ["m"], named("class,weights"), ITEMS)
        assert {verdict.answer for verdict in table.values()} == {answer}


def test_the_strongest_control_counts():
    found = Measured()
    for number, item in enumerate(ITEMS[:6]):
        found.scores["m", item] |= {"insertion": 0.6 + 0.01 * number, "deletion": 0.1}
        for control, gain in zip(CONTROLS, (0.1, 0.3, 0.2, 0.0), strict=True):
            found.scores[control, item] |= {"insertion": gain, "deletion": 0.0}
    verdict = judge(found, ["m"], named("controls"), ITEMS)["m", "controls"]
    assert (verdict.answer, verdict.against) == ("pass", CONTROLS[1])
    assert verdict.mean == pytest.approx(0.525 - 0.3)


def test_the_share_of_the_score_is_that_of_all_images_together():
    found, gains, scores = Measured(), [0.5, 0.3, 0.4, 0.2, 0.01], [0.9, 0.8, 0.7, 0.6, 0.001]
    for item, gain, score in zip(ITEMS, gains, scores, strict=False):
        found.scores["m", item] |= {"insertion": gain + 0.1, "deletion": 0.1, "probability": score}
    verdict = judge(found, ["m"], named("score"), ITEMS)["m", "score"]
    assert verdict.mean == pytest.approx(sum(gains) / sum(scores))
    assert verdict.answer == "pass"


@pytest.mark.parametrize(("fired", "answer"), [([0] * 24, "pass"), ([1] * 6, "fail"), ([0] * 6, "unknown")])
def test_black_images_are_counted(fired, answer):
    found = Measured()
    found.fired["m"] = {str(number): float(value) for number, value in enumerate(fired)}
    verdict = judge(found, ["m"], named("black"), ITEMS, with_masks=["m"])["m", "black"]
    assert verdict.answer == answer
    interval = stats.binomtest(sum(fired), len(fired)).proportion_ci(0.95)
    assert (verdict.low, verdict.high) == pytest.approx((interval.low, interval.high))


def test_black_images_do_not_apply_without_masks():
    verdict = judge(known([1.0] * 6), ["m"], named("black"), ITEMS)["m", "black"]
    assert (verdict.answer, verdict.mark) == ("none", "–")
    assert "masks" in verdict.why


def test_a_method_that_is_noise_fails_whatever_applies():
    race = Simulation({name: KINDS[name] for name in ("good", "noise")}, 3600).run().race
    answers = {name: race.table["noise", name].answer for name in BY_NAME}
    assert answers.pop("black") == "none"
    assert set(answers.values()) == {"fail"}


# What is said


def test_the_recommendation_is_two_sentences():
    race = Simulation({name: KINDS[name] for name in ("good", "better", "blind", "slow")}, 100).run().race
    advice = recommend(race.measured, race.table, race.standing(), QUESTIONS, ITEMS, race.left_out)
    assert advice.method == "better"
    assert advice.sentences[0].startswith("Use better on this network: it passes 6 of 6 questions on ")
    assert "do not trust blind, which hardly depends on the class" in advice.sentences[1].lower()
    assert advice.by_question["score"][0] == "better"
    assert advice.by_question["black"] is None
    for sentence in advice.sentences:
        assert sentence.endswith(".")


def test_what_was_not_measured_is_told_apart_from_what_cannot_be_told():
    kinds = {"good": GOOD | {"seconds": 0.5, "gain": 0.25}}  # hardly better than a control
    race = Simulation(kinds, 600, items=ITEMS[:6]).run().race
    advice = recommend(race.measured, race.table, race.standing(), QUESTIONS, ITEMS[:6], race.left_out)
    assert advice.sentences[1] == "6 images cannot tell whether it is better than every control."
    race = Simulation(kinds, 60, pass_seconds=0.5, items=ITEMS[:6]).run().race
    advice = recommend(race.measured, race.table, race.standing(), QUESTIONS, ITEMS[:6], race.left_out)
    assert advice.sentences[1].startswith(
        "There was no time to see whether it is better than every control, ranks the "
    )


def test_nothing_is_recommended_where_all_fail():
    race = Simulation({name: KINDS[name] for name in ("blind", "noise")}, 600).run().race
    advice = recommend(race.measured, race.table, race.standing(), QUESTIONS, ITEMS, race.left_out)
    assert advice.method is None
    assert "None of the methods" in advice.sentences[0]
    assert "The nearest is blind, which hardly depends on the class" in advice.sentences[1]


def test_the_worst_case_is_that_of_the_smallest_share_of_the_score():
    found = Measured()
    for item, gain, score in zip(ITEMS, [0.3, 0.1, 0.2], [0.9, 0.12, 0.8], strict=False):
        found.scores["m", item] |= {"insertion": gain, "deletion": 0.0, "probability": score}
    shares = _shares(found, "m", ITEMS[:3])
    assert min(shares, key=shares.get) == ITEMS[2]  # a quarter of its score; .1 is most of .12
    assert shares[ITEMS[2]] == pytest.approx(0.25)


def test_maps_that_are_alike_do_not_disagree():
    maps = np.random.default_rng(0).random((3, 8, 8))
    assert disagreement([maps[0], 2 * maps[0] + 1]) == pytest.approx(0)
    assert disagreement([maps[0], -maps[0]]) == pytest.approx(2)
    pairs = [stats.spearmanr(maps[a].ravel(), maps[b].ravel()).statistic for a, b in ((0, 1), (0, 2), (1, 2))]
    assert disagreement(list(maps)) == pytest.approx(1 - np.mean(pairs))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("1.5h", 5400), ("10 min", 600), (30, 30), (2.5, 2.5)]
)
def test_budgets(text, seconds):
    assert budget_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3m", "0", "10 weeks", "1e3s", math.inf, "99999h"])
def test_what_is_no_budget(text):
    with pytest.raises(InputError, match="such as 90s, 10m or 1h"):
        budget_seconds(text)


def test_questions_by_name():
    assert [question.name for question in named("weights, class")] == ["class", "weights"]
    with pytest.raises(InputError, match="did you mean class"):
        named("clas")


def test_costs_are_guessed_then_learned():
    measured = Measured()
    costs = Costs(0.1, {"fei": {"steps": 10}, "gradcam": {}}, measured)
    assert passes("fei", {}) == 202
    assert passes("liftcam", {}) < 10 < passes("iia", {}) < 200  # by what they took on SqueezeNet, docs/methods.md
    assert passes("fgvce", {}) >= 1000
    assert costs.of_map("fei") == pytest.approx(10.1)
    assert costs.of("gradcam", "class") == pytest.approx(0.4)
    costs.learn("gradcam", "class", 0.8)  # twice as long as was guessed
    assert costs.of("gradcam", "class") == pytest.approx(0.8)
    assert costs.of_map("fei") == pytest.approx(20.2)


def test_every_limit_has_a_reason():
    limits = [value for value in vars(thresholds).values() if isinstance(value, thresholds.Limit)]
    assert len(limits) >= 10
    assert all(len(limit.reason.split()) >= 8 for limit in limits)
    assert all(question.limit in limits for question in QUESTIONS)
