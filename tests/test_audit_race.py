"""The race of an audit against a clock of its own: how the time is spent, and what is decided in it."""

import re

import pytest
from racing import CONTROL, GOOD, ITEMS, KINDS, Simulation, on_squeezenet, outcome

from fei.auditing import thresholds
from fei.auditing.questions import BY_NAME, CONTROLS, QUESTIONS
from fei.auditing.recommendation import recommend
from fei.auditing.run import _at_a_time
from fei.bench import LocalEngine
from fei.bench.units import Outcome

pytestmark = pytest.mark.slow

# The budget


@pytest.mark.parametrize(("budget", "seed"), [(40, 0), (120, 1), (600, 2), (3600, 3)])
def test_the_budget_is_kept_and_used(budget, seed):
    done = Simulation({name: KINDS[name] for name in ("good", "better", "slow", "blind")}, budget, seed=seed).run()
    assert done.now <= 1.02 * budget
    race = done.race
    unclear = [name for name in race.begun for q in QUESTIONS if race.sure[name, q.name].answer == "unknown"]
    assert done.now >= 0.85 * budget or not (unclear or race.left_out)  # else all is clear


@pytest.mark.parametrize("budget", [60, 120, 600])
@pytest.mark.parametrize("pass_seconds", [0.1, 0.2, 0.5])
def test_time_in_which_nothing_more_can_be_decided_is_used_for_a_later_audit(budget, pass_seconds):
    methods = {name: KINDS[name] for name in ("good", "blind", "slow")}
    first = Simulation(methods, budget, pass_seconds=pass_seconds, row=2.0).run()
    assert 0.85 * budget <= first.now <= 1.05 * budget
    second = Simulation(methods, 600, pass_seconds=pass_seconds, row=2.0, measured=first.measured).run()
    assert not set(first.steps) & set(second.steps)


def test_scores_that_take_thrice_what_was_guessed_are_ready_all_the_same():
    done = Simulation(
        {name: KINDS[name] for name in ("good", "better", "blind")}, 120, pass_seconds=0.03, row=3.0
    ).run()
    assert done.race.table["better", "score"].answer == "pass"
    scores = [place for place, step in enumerate(done.steps) if step.name == "score"]
    assert scores[0] <= 6 * thresholds.FEWEST  # what it takes is seen before all methods have their quick answers
    first = [step.method for step in done.steps if step.name == "score" and step.method not in CONTROLS]
    assert len(set(first[: thresholds.FEWEST])) == 1  # one method has an answer before the next is scored
    survey = [place for place, step in enumerate(done.steps) if step.name == "survey"]
    assert len(survey) == thresholds.FEWEST
    assert scores[4 * thresholds.FEWEST] < survey[0]


def test_what_makes_the_maps_by_default_begins_before_others_that_are_hardly_cheaper():
    kinds = {"a": 0.2, "b": 1.5, "fei": 5.0, "c": 6.0}
    methods = {name: GOOD | {"seconds": seconds} for name, seconds in kinds.items()}
    for budget, expected in ((600, ["a", "fei", "b", "c"]), (60, ["a", "b"])):
        steps = Simulation(methods, budget).run().steps
        order = list(dict.fromkeys(step.method for step in steps if step.method not in CONTROLS))
        assert order[: len(expected)] == expected


def test_a_method_that_turns_out_slow_does_not_crowd_out_the_scores_of_others():
    methods = {"good": GOOD | {"seconds": 0.1}, "fei": GOOD | {"seconds": 4.0, "really": 17.0}}
    done = Simulation(methods, 600, pass_seconds=0.25).run()
    assert done.images("fei")  # it was begun
    assert done.race.table["good", "score"].answer == "pass"


def test_the_race_knows_how_many_steps_are_computed_at_a_time():
    assert [_at_a_time("local", 0), _at_a_time("local", 3), _at_a_time(LocalEngine(2), 0)] == [1, 3, 2]
    assert _at_a_time("ray", 5) == 5


def test_ray_takes_all_processors_where_nobody_says_how_many(monkeypatch):
    monkeypatch.setattr("fei.auditing.run.usable_processors", lambda: 7)
    assert [_at_a_time("ray", 0), _at_a_time("local", 0)] == [7, 1]


def test_cheap_methods_come_first_and_slow_ones_are_told_what_they_need():
    done = Simulation({name: KINDS[name] for name in ("slow", "good", "blind")}, 60).run()
    order = list(dict.fromkeys(step.method for step in done.steps if step.method not in CONTROLS))
    assert order == ["blind", "good"]
    assert re.search(r"not begun: about (19|2\d) s per map, so \d+ min more", done.race.left_out["slow"])


def test_with_little_time_there_are_at_least_the_quick_answers():
    done = Simulation({name: KINDS[name] for name in ("good", "blind")}, 60, pass_seconds=0.2).run()
    answers = {name: done.race.table["good", name].answer for name in BY_NAME}
    assert answers["class"] == answers["weights"] == answers["seed"] == "pass"
    assert answers["score"] == "unknown"


def test_a_first_guess_that_is_far_too_high_is_mended():
    simulation = Simulation({name: KINDS[name] for name in ("good", "blind")}, 60)
    simulation.race.costs._pass *= 5  # the machine was busy while the network was looked at
    assert simulation.run().race.table["good", "score"].answer == "pass"


def test_who_fails_is_dropped_and_goes_on_last():
    done = Simulation({name: KINDS[name] for name in ("good", "blind")}, 3600).run()
    assert done.race.dropped["blind"].endswith(", and good fails nothing so far")
    last_of_good = max(place for place, step in enumerate(done.steps) if step.method == "good")
    scored = [place for place, step in enumerate(done.steps) if (step.method, step.name) == ("blind", "score")]
    assert scored
    assert all(place > last_of_good for place in scored)


def test_who_is_worse_and_no_quicker_is_dropped():
    done = Simulation({name: KINDS[name] for name in ("good", "better")}, 300).run()
    assert "better is better" in done.race.dropped["good"]
    assert "better" not in done.race.dropped
    slow = Simulation({name: KINDS[name] for name in ("good", "slow")}, 900).run()
    assert slow.race.dropped == {}  # one is better, the other is quicker


def test_what_is_clear_is_not_measured_on():
    done = Simulation({"good": KINDS["good"]}, 3600).run()
    assert done.images("good", "class") == thresholds.FEWEST
    assert not [step for step in done.steps if step.method in CONTROLS and step.item == ITEMS[-1]]


def test_what_is_there_from_before_is_not_computed_again():
    methods = {name: KINDS[name] for name in ("good", "blind", "slow")}
    first = Simulation(methods, 60).run()
    second = Simulation(methods, 900, measured=first.measured).run()
    assert second.steps
    assert not set(first.steps) & set(second.steps)
    assert second.race.table["slow", "class"].answer == "pass"


def test_a_step_that_fails_twice_is_left_alone():
    simulation = Simulation({"good": KINDS["good"]}, 600)
    race, reason = simulation.race, "The network has no gradient; give another."
    while (step := race.next()) is not None:
        came = outcome(step.method, step.item, step.name, KINDS["good"] | CONTROL, simulation.draw)
        if step.name == "weights":
            came = Outcome(
                **{name: getattr(came, name) for name in ("key", "kind", "model", "data", "item", "method", "config")},
                seed=0, status="failed", error=reason,
            )  # fmt: skip
        simulation.now += 0.1
        simulation.steps.append(step)
        simulation.measured.add(came)
        race.came(came)
    race.look()
    assert simulation.images("good", "weights") == 2
    assert race.table["good", "weights"].why == reason
    assert race.table["good", "class"].answer == "pass"


def test_what_was_decided_is_told():
    told = Simulation({name: KINDS[name] for name in ("good", "blind")}, 600).run().told
    assert "good: class ✓" in told
    assert "blind: class ✗" in told
    assert any(text.startswith("blind is dropped: it fails") for text in told)


# What the time goes to, with the costs and numbers of SqueezeNet


@pytest.fixture(scope="module")
def hour():
    """Three quick methods, `fei`, and two that take most of a minute per map."""
    return on_squeezenet(60, ["saliency", "gradcam", "liftcam", "fei", "fgvce", "rise"])


def test_in_an_hour_a_slow_method_waits_for_the_questions_about_those_that_lead(hour):
    before = hour.steps[: next(place for place, step in enumerate(hour.steps) if step.method == "fgvce")]
    scores = {
        method: sum((step.method, step.name) == (method, "score") for step in before)
        for method in ("gradcam", "liftcam", "fei")
    }
    told = {m: all(hour.race.table[m, q.name].answer != "unknown" for q in QUESTIONS) for m in scores}
    assert all(told[method] or count >= 40 for method, count in scores.items()), (scores, told)


def test_an_hour_tells_all_that_can_be_told_of_the_one_it_recommends(hour):
    standing = hour.race.standing()
    advice = recommend(hour.measured, hour.race.table, standing, QUESTIONS, hour.race.items, hour.race.left_out)
    answers = {name: hour.race.table[advice.method, name].answer for name in BY_NAME}
    assert advice.method == "fei"  # its gain is the largest, and it is the only one that keeps the inside
    assert set(answers.values()) == {"pass"}
    essential = [name for name in BY_NAME if BY_NAME[name].essential and name != "black"]
    for method in ("gradcam", "liftcam"):
        assert all(hour.race.table[method, name].answer == "pass" for name in essential)


def test_a_slow_method_goes_on_only_where_nothing_else_is_left(hour):
    first_round = 5 * thresholds.FEWEST * 42 * 1.25
    assert hour.spent["fgvce"] <= first_round
    assert hour.images("gradcam", "score") == len(hour.race.items)


@pytest.mark.parametrize("photographs", range(2))
def test_two_minutes_tell_whether_the_leader_carries_the_score(photographs):
    done = on_squeezenet(2, photographs=photographs)
    race = done.race
    advice = recommend(done.measured, race.table, race.standing(), QUESTIONS, race.items, race.left_out)
    answers = [race.table[advice.method, name].answer for name in ("class", "weights", "seed", "score")]
    assert set(answers) == {"pass"}
    assert race.table["guided-backprop", "class"].answer == "fail"


def test_a_minute_has_quick_answers_about_the_quick_methods_and_first_scores():
    done = on_squeezenet(1)
    assert sum(done.images(method) >= thresholds.FEWEST for method in done.methods) >= 6
    assert sum(done.images(method, "score") >= thresholds.FEWEST for method in done.methods) >= 3


def test_an_answer_that_wavers_is_told_once():
    simulation = Simulation({"good": KINDS["good"]}, 600).run()
    race, told = simulation.race, simulation.told
    rows = [simulation.measured.scores["good", item] for item in ITEMS[: thresholds.FEWEST]]
    kept = [row["random_class"] for row in rows]
    for values in ([9.0, -9.0, 9.0, -9.0, 0.0], kept):
        for row, value in zip(rows, values, strict=True):
            row["random_class"] = value
        race.look()
    assert told.count("good: class ✓") == 1
    assert told[0] == "good begins, about 0.5 s per map"


def test_methods_that_were_begun_have_their_quick_answers_where_not_all_can_be_scored():
    names = ("saliency", "gradcam", "gradcam++", "layercam", "xgradcam", "liftcam")
    done = on_squeezenet(2, names, slower=3)  # a busy machine
    assert all(done.images(method, "class") >= thresholds.FEWEST for method in names)
    assert any(done.images(method, "score") >= thresholds.FEWEST for method in names)
