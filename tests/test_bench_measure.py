"""Score groups of a map: what is stored is what the library measures, and one that fails leaves the others."""

from typing import get_args

import pytest
import torch
from networks import pictures, small_cnn
from test_protocols import maps_for

from fei import metrics
from fei.bench.engine._measure import Subject, measure
from fei.bench.store.outcomes import curve_values, stored_json
from fei.errors import DataError
from fei.metrics.declaration import Need


def subject(**changes):
    x = pictures(1)
    given = {"model": small_cnn(), "inputs": x, "maps": maps_for(x), "target": 1, "boxes": [], "layers": ["5"]}
    return Subject(**given | {"seed": 7, "batch_size": 4} | changes)


def seeded():
    return {"generator": torch.Generator().manual_seed(7)}


def test_confidence_is_that_of_the_library():
    chosen = subject()
    found = measure(chosen, ["confidence"])
    given = (chosen.model, chosen.inputs, chosen.maps, 1)
    numbers = {(name, protocol): value for name, protocol, _, value in found.scores}
    assert numbers["drop", ""] == pytest.approx(metrics.average_drop(*given, **seeded()).item(), abs=1e-6)
    assert numbers["increase", ""] == metrics.average_increase(*given, **seeded()).item()
    curves = {protocol: (name, scores) for protocol, name, _, scores in found.curves}
    for order in ("morf", "lerf"):
        curve = metrics.road(*given, order=order, **seeded())
        assert numbers["road", curve.protocol] == pytest.approx(curve.auc.item(), abs=1e-6)
        assert curves[curve.protocol] == ("road", pytest.approx(curve.scores[0].tolist(), abs=1e-6))
    assert len(numbers) == 4
    assert (found.groups, found.errors) == (["confidence"], [])


def test_what_fails_inside_the_network_need_not_fail_outside():
    outside, inside = "external/fei-paper", "internal/fei-paper"
    found = measure(subject(layers=["no such layer"]), [outside, inside])
    assert found.groups == [outside]
    assert {name for name, *_ in found.scores} == {"insertion", "deletion", "ties"}
    assert len(found.errors) == 1
    assert "no such layer" in str(found.errors[0])
    alone = measure(subject(layers=["no such layer"]), [inside])
    assert (alone.groups, alone.scores, len(alone.errors)) == ([], [], 1)


def test_inside_and_outside_are_measured_together():
    outside, inside = "external/fei-paper", "internal/fei-paper"
    together, alone = measure(subject(), [outside, inside]), measure(subject(), [outside])
    assert set(together.groups) == {outside, inside}
    assert [score for score in together.scores if score[0] in ("insertion", "deletion")] == alone.scores[:2]


def test_what_is_no_content_of_a_database_is_one_sentence():
    assert stored_json("[1, 2]") == [1, 2]
    assert curve_values("[0, 0.5]") == [0.0, 0.5]
    with pytest.raises(DataError, match=r"'\{no' stands where JSON should; restore the run, or begin another one."):
        stored_json("{no")
    for text in ("3", '["a"]', "[[]]"):
        with pytest.raises(DataError, match="stands where a list of numbers should"):
            curve_values(text)


def test_every_declared_metric_of_an_evaluation_is_what_the_library_measures():
    chosen = subject(protocol="fei-fine")
    expected = metrics.evaluate(*chosen.given, layers=["5"], protocol="fei-fine", **seeded())
    declared = metrics.declared()
    for name in ("insertion", "deletion"):  # the last bits of several threads once differed
        curve = declared[name].measure(chosen)
        assert curve.protocol == "fei-fine/1"
        torch.testing.assert_close(curve.scores, getattr(expected, name).scores, rtol=1e-5, atol=0)
    assert torch.equal(declared["ties"].measure(chosen), expected.insertion.ties)
    for name in ("mse", "cosine", "pearson"):
        inside = {layer: values.item() for layer, values in declared[name].measure(chosen).items()}
        own = {layer: getattr(similar, name).item() for layer, similar in expected.internal.items()}
        assert inside == pytest.approx(own, rel=1e-4)


def test_what_a_metric_needs_is_known():
    known = set(get_args(Need))
    for metric in metrics.declared().values():
        assert set(metric.needs) <= known, metric.name
    assert metrics.declared()["insertion"].needs == ("network", "protocol")
    assert metrics.declared()["mse"].needs == ("network", "protocol", "layers")
