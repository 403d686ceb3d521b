"""Properties of metrics that run the network: curves, internal faithfulness, confidence, sensitivity, sanity checks."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from networks import varied_cnn
from strategies import (
    FLOATS,
    KINDS,
    LAYOUTS,
    attempt,
    covers,
    examples,
    filled,
    images_for,
    laid_out,
    networks,
    seeds,
    undisturbed,
)
from torch import nn

import fei
from fei import protocols
from fei.core.scoring import logits_of, relative_score
from fei.errors import FEIError, InputError, ModelError
from fei.metrics.black_image import optimisation_method
from fei.metrics.similarity import Similarity, relevance_weighted

pytestmark = pytest.mark.slow

SIZES = ((1, 1), (1, 9), (2, 2), (7, 13), (9, 8))
CURVES = {"insertion": fei.metrics.insertion, "deletion": fei.metrics.deletion}


def probability(net, image, target):
    with torch.no_grad():
        return logits_of(net(image[None].clone()), 1).softmax(1)[0, target].item()


# the others need a transformer
PIXELS = [name for name in protocols.available() if not protocols.get(name).drops_tokens]


@covers("metrics.insertion", "metrics.deletion")
@examples(25)
@given(
    net=networks(),
    size=st.sampled_from(SIZES),
    count=st.integers(1, 3),
    curve=st.sampled_from(sorted(CURVES)),
    protocol=st.sampled_from(PIXELS),
    kind=st.sampled_from(KINDS),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    batch_size=st.sampled_from([None, 1, 3, 64]),
    seed=seeds,
)
def test_curves(net, size, count, curve, protocol, kind, layouts, batch_size, seed):
    x, maps = images_for(net, size, count), filled((count, 1, *size), kind, seed)
    measure = CURVES[curve]
    given = laid_out(x, layouts[0]), laid_out(maps, layouts[1])
    with undisturbed(net, *given):
        got = measure(net, *given, protocol=protocol, batch_size=batch_size)
    assert got.scores.shape == (count, len(got.fractions))
    assert got.scores.isfinite().all()
    assert got.auc.shape == got.ties.shape == (count,)
    assert got.protocol == protocol
    plain = measure(net, x, maps, protocol=protocol)
    torch.testing.assert_close(got.scores, plain.scores, rtol=1e-3, atol=1e-4)
    single = measure(net, x[-1:], maps[-1:], protocol=protocol)
    torch.testing.assert_close(single.scores, plain.scores[-1:], rtol=1e-3, atol=1e-4)
    if protocols.get(protocol).score == "softmax":
        assert ((got.scores >= 0) & (got.scores <= 1 + 1e-6)).all()


@examples(20)
@given(
    net=networks(),
    size=st.sampled_from(SIZES[1:]),
    seed=seeds,
    target=st.none() | st.integers(0, 1),
    colour=st.floats(-1, 2),
)
@example(varied_cnn(), (1, 9), 0, None, 0.5)  # several points replace all nine pixels; all but one were left at 0
def test_curves_begin_at_the_image_and_end_at_the_reference(net, size, seed, target, colour):
    x, maps = images_for(net, size, 2), filled((2, 1, *size), "normal", seed)
    result = fei.metrics.evaluate(net, x, maps, target, protocol="fei-fine", reference=colour, layers=[])
    for number, (image, chosen) in enumerate(zip(x, result.target, strict=True)):
        for curve in (result.insertion, result.deletion):
            assert curve.scores[number, 0].item() == pytest.approx(probability(net, image, chosen), abs=1e-4)
            end = probability(net, torch.full_like(image, colour), chosen)
            assert curve.scores[number, -1].item() == pytest.approx(end, abs=1e-4)
    # a strictly monotone change of the map changes nothing, and the negative map swaps the curves
    for change in (lambda m: 5 * m.double() - 3, lambda m: m.double().arctan()):
        again = fei.metrics.deletion(net, x, change(maps), target, protocol="fei-fine", reference=colour)
        torch.testing.assert_close(again.scores, result.deletion.scores, rtol=1e-3, atol=1e-5)
    negative = fei.metrics.insertion(net, x, -maps, target, protocol="fei-fine", reference=colour)
    torch.testing.assert_close(negative.scores, result.deletion.scores, rtol=1e-3, atol=1e-4)


@covers("metrics.internal", "metrics.evaluate")
@examples(20)
@given(
    net=networks(),
    size=st.sampled_from(SIZES),
    count=st.integers(1, 2),
    seed=seeds,
    layers=st.none() | st.sampled_from([["stem"], ["body", "stem"], [], "stem", 3, [3], ["relu"], ["nowhere"]]),
    layout=st.sampled_from(LAYOUTS),
)
@example(varied_cnn(), (1, 1), 1, 0, ["stem"], "contiguous")  # no point between none and all: the mean of nothing
def test_internal_faithfulness(net, size, count, seed, layers, layout):
    x, maps = images_for(net, size, count), filled((count, 1, *size), "normal", seed)
    with undisturbed(net, x, maps):
        found = attempt(lambda: fei.metrics.internal(net, laid_out(x, layout), maps, layers=layers))
        result = attempt(lambda: fei.metrics.evaluate(net, laid_out(x, layout), maps, layers=layers))
    assert type(found) is type(result) if isinstance(found, FEIError) else not isinstance(result, FEIError)
    if isinstance(found, FEIError):
        return
    for name, similar in found.items():
        for values, others in zip(similar.numbers.values(), result.internal[name].numbers.values(), strict=True):
            assert values.shape == (count,)
            assert values.isfinite().all()
            torch.testing.assert_close(values, others, rtol=1e-3, atol=1e-4)
        assert (similar.mse >= 0).all()
        assert (similar.cosine.abs() <= 1 + 1e-4).all()
    same = fei.metrics.evaluate(net, x, maps, reference=x, layers=layers)  # nothing changes, so all is alike
    for similar in same.internal.values():
        assert similar.mse.max() <= 1e-9
    assert torch.allclose(same.insertion.scores, same.insertion.scores[:, :1], atol=1e-5)


broken = st.sampled_from(
    [
        ("inputs", torch.rand(3, 9, 8)),
        ("inputs", torch.rand(0, 3, 9, 8)),
        ("inputs", torch.rand(1, 3, 0, 8)),
        ("inputs", torch.rand(1, 2, 9, 8)),
        ("inputs", torch.full((1, 3, 9, 8), math.nan)),
        ("inputs", torch.ones(1, 3, 9, 8, dtype=torch.uint8)),
        ("inputs", torch.rand(1, 3, 9, 8).double()),
        ("inputs", None),
        ("maps", torch.rand(1, 1, 8, 9)),
        ("maps", torch.rand(2, 1, 9, 8)),
        ("maps", torch.full((1, 1, 9, 8), math.nan)),
        ("maps", torch.ones(1, 1, 9, 8, dtype=torch.complex64)),
        ("maps", torch.ones(1, 1, 9, 8).to_sparse()),
        ("maps", "map"),
        ("target", 4),
        ("target", -1),
        ("target", "cat"),
        ("target", [[1], [1, 2]]),
        ("target", 2**70),
        ("target", lambda output: None),
        ("generator", 3),
        ("batch_size", 0),
        ("batch_size", 2.5),
        ("score", "loss"),
        ("model", varied_cnn().train()),
        ("model", varied_cnn(output="tuple")),
        ("model", varied_cnn(output="dict")),
        ("model", nn.Sequential(varied_cnn(), nn.Flatten(0)).eval()),
        ("model", nn.Sequential(varied_cnn(), nn.Threshold(1e9, math.nan)).eval()),
    ]
)
METRICS = {
    "insertion": fei.metrics.insertion,
    "deletion": fei.metrics.deletion,
    "evaluate": fei.metrics.evaluate,
    "average_drop": fei.metrics.average_drop,
    "average_increase": fei.metrics.average_increase,
    "road": fei.metrics.road,
    "infidelity": lambda *args, **options: fei.metrics.infidelity(*args, samples=2, **options),
}


@examples(60)
@given(name=st.sampled_from(sorted(METRICS)), change=broken)
@example("average_drop", ("inputs", torch.rand(1, 3, 9, 8).double()))
@example("insertion", ("generator", 3))
def test_metrics_refuse_in_a_sentence(name, change):
    arguments = {
        "model": varied_cnn(),
        "inputs": torch.rand(1, 3, 9, 8),
        "maps": torch.rand(1, 1, 9, 8),
        "target": None,
    }
    arguments[change[0]] = change[1]
    model, inputs, maps, target = (arguments.pop(part) for part in ("model", "inputs", "maps", "target"))
    with undisturbed(model):
        result = attempt(lambda: METRICS[name](model, inputs, maps, target, **arguments))
    assert isinstance(result, (InputError, ModelError))


@covers("metrics.average_drop", "metrics.average_increase", "metrics.infidelity", "metrics.confidence.average_drop")
@examples(20)
@given(
    net=networks(),
    size=st.sampled_from(SIZES),
    count=st.integers(1, 2),
    kind=st.sampled_from([*KINDS]),
    seed=seeds,
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(FLOATS),
)
@example(varied_cnn(), (2, 2), 1, "huge", 0, "contiguous", torch.float64)  # the range of the map is no float
def test_confidence_under_a_map(net, size, count, kind, seed, layout, dtype):
    x, maps = images_for(net, size, count), filled((count, 1, *size), kind, seed, dtype)
    with undisturbed(net, x, maps):
        drop = fei.metrics.average_drop(net, laid_out(x, layout), laid_out(maps, layout))
        rise = fei.metrics.average_increase(net, x, maps)
    assert ((drop >= 0) & (drop <= 1)).all()
    assert ((rise == 0) | (rise == 1)).all()
    assert not ((drop > 1e-4) & (rise == 1)).any()  # it does not fall and rise
    if kind in ("uniform", "normal", "ties", "constant"):
        with undisturbed(net, x, maps):
            error = attempt(lambda: fei.metrics.infidelity(net, x, laid_out(maps.float(), layout), samples=3))
        assert error.shape == (count,)
        assert ((error >= 0) & error.isfinite()).all()


@covers("metrics.road")
@examples(25)
@given(
    net=networks(),
    size=st.sampled_from(SIZES),
    kind=st.sampled_from(["uniform", "ties", "constant", "huge"]),
    percentiles=st.lists(st.sampled_from([0, 10, 50.0, 100]), min_size=1, max_size=3)
    | st.sampled_from([[], [101], [math.nan], ["a"], 5, None, torch.tensor([20.0, 80.0])]),
    order=st.sampled_from(["morf", "lerf", "random"]),
    noise=st.sampled_from([0, 0.01, -1, math.inf, 10**400, "x"]),
)
@example(varied_cnn(), (7, 13), "uniform", ["a"], "morf", 0.01)
@example(varied_cnn(), (7, 13), "uniform", [50], "morf", 10**400)
def test_road(net, size, kind, percentiles, order, noise):
    x, maps = images_for(net, size, 2), filled((2, 1, *size), kind, 1)
    with undisturbed(net, x, maps):
        curve = attempt(lambda: fei.metrics.road(net, x, maps, percentiles=percentiles, order=order, noise=noise))
    if isinstance(curve, FEIError):
        assert isinstance(curve, InputError)
        return
    assert curve.scores.shape == (2, len(percentiles))
    assert ((curve.scores >= 0) & (curve.scores <= 1 + 1e-6)).all()
    for point, percentile in enumerate(percentiles):
        if percentile == 0:  # nothing is removed
            expected = [probability(net, image, logits_of(net(image[None]), 1).argmax()) for image in x]
            assert curve.scores[:, point].tolist() == pytest.approx(expected, abs=1e-4)


@covers("metrics.max_sensitivity")
@examples(8)
@given(net=networks(), size=st.sampled_from(SIZES[2:]), radius=st.sampled_from([0.0, 0.02, -1, "x"]), seed=seeds)
def test_max_sensitivity(net, size, radius, seed):
    x = images_for(net, size, 2, seed)
    method = fei.methods.create("saliency")
    with undisturbed(net, x):
        found = attempt(lambda: fei.metrics.max_sensitivity(net, method, x, radius=radius, samples=2))
    if radius in (-1, "x"):
        assert isinstance(found, InputError)
    else:
        assert found.shape == (2,)
        assert ((found >= 0) & found.isfinite()).all()
        assert radius or found.max() <= 1e-5


@covers("metrics.cascading_randomization", "metrics.Randomization")
@examples(8)
@given(
    net=networks(),
    size=st.sampled_from([(7, 7), (7, 13), (3, 9)]),
    method=st.sampled_from(["saliency", "random", "gradcam", lambda model, x, target: x.mean(1, keepdim=True)]),
    layers=st.sampled_from([None, 1, ["head"], 0, "head", ["nowhere"]]),
    mode=st.sampled_from(["cascading", "independent", "both"]),
)
def test_randomisation_works_on_a_copy(net, size, method, layers, mode):
    x = images_for(net, size, 2)
    with undisturbed(net, x):
        found = attempt(lambda: fei.metrics.cascading_randomization(net, method, x, layers=layers, mode=mode))
    if isinstance(found, FEIError):
        assert mode == "both" or min(size) < 7 or layers in (0, "head", ["nowhere"])
        return
    assert found.maps.shape == (len(found.layers) + 1, 2, 1, *size)
    assert found.layers[0] == "head"
    for values in found.similarity.values():
        assert values.shape == (len(found.layers), 2)
        assert ((values >= -1 - 1e-6) & (values <= 1 + 1e-6)).all()
        if not isinstance(method, str) or method == "random":  # what does not look at the network stays
            torch.testing.assert_close(values, torch.ones_like(values))


TRUST = {
    "class_sensitivity": lambda found: (found.random.correlation, found.runner_up.correlation),
    "stability": lambda found: (found.correlation,),
    "classifier_randomization": lambda found: (found.correlation,),
    "emprt": lambda found: (found.rise.clamp(-1, 1),),
    "weight_sensitivity": lambda found: (found.classifier.correlation, found.cascade.correlation),
    "grid_pointing_game": lambda found: (found.energy[0, :2], found.rank[0, :2]),
}


@covers(*(f"metrics.{name}" for name in TRUST))
@examples(25)
@given(
    test=st.sampled_from(sorted(TRUST)),
    net=networks(),
    size=st.sampled_from(SIZES),
    method=st.sampled_from(["saliency", "centre", "random", "nothing", 3, lambda model, x, target: x[:, :1]]),
    layout=st.sampled_from(LAYOUTS),
    rows=st.sampled_from([None, 1, 3, 0]),
)
@example("emprt", varied_cnn(), (7, 13), "saliency", "inference", None)
@example("grid_pointing_game", varied_cnn(channels=3, classes=1000), (8, 8), "saliency", "leaf", 3)
def test_trust_in_any_method(test, net, size, method, layout, rows):
    x = laid_out(images_for(net, size, 2), layout)
    options = {"confidence": 1e-4} if test == "grid_pointing_game" else {}
    with undisturbed(net, x):
        found = attempt(lambda: getattr(fei.metrics, test)(net, method, x, batch_size=rows, **options))
    if isinstance(found, FEIError):
        assert isinstance(found, InputError)
        assert rows == 0 or method in ("nothing", 3) or test == "grid_pointing_game"
        return
    for values in TRUST[test](found):
        assert values.shape == (2,)
        assert ((values >= -1 - 1e-6) & (values <= 1 + 1e-6)).all()


@covers("metrics.black_image", "metrics.black_image.optimisation_method")
@examples(10)
@given(
    net=networks(),
    size=st.sampled_from(SIZES[1:]),
    trials=st.sampled_from([1, 3, 0, 2.5]),
    method=st.sampled_from(["fei-vm", "FEI-none", "fgvis", "saliency", "nothing", 3]),
    targets=st.sampled_from([None, 1, [0, 1, 1], "cat", 5000, True]),
)
@example(varied_cnn(), (7, 13), 1, "fei-vm", "cat")
def test_black_images(net, size, trials, method, targets):
    black, references = torch.zeros(net.channels, *size), torch.full((1, net.channels, 1, 1), 0.7)
    options = {"steps": 1, "quantiles": [0.5]}
    made = fei.methods.create(method, **options) if method in ("fei-vm", "FEI-none", "fgvis") else method
    with undisturbed(net, black, references):
        found = attempt(
            lambda: fei.metrics.black_image(
                net, made, trials=trials, targets=targets, black=black, references=references
            )
        )
    if isinstance(found, FEIError):
        assert isinstance(found, InputError)
        return
    assert optimisation_method(made)[0].startswith("f")
    assert found.trials + found.dropped == trials
    assert found.rate == found.success.double().mean().item()
    low, high = found.interval
    assert 0 <= low <= found.rate <= high <= 1
    assert ((found.phi >= 0) & (found.phi <= 1 + 1e-6)).all()


@covers("metrics.measure_cost", "metrics.Cost")
@examples(20)
@given(net=networks(), rows=st.lists(st.integers(1, 4), max_size=3), backward=st.booleans(), fails=st.booleans())
def test_cost_counts_rows(net, rows, backward, fails):
    def work():
        for count in rows:
            x = images_for(net, (4, 5), count).requires_grad_()
            score = logits_of(net(x), count).sum()
            if backward:
                torch.autograd.grad(score, x)
        if fails:
            raise InputError("stop")
        return rows

    with undisturbed(net):
        result = attempt(lambda: fei.metrics.measure_cost(net, work))
    if fails:
        assert isinstance(result, InputError)
    else:
        assert result[0] is rows
        assert (result[1].forwards, result[1].backwards) == (sum(rows), sum(rows) * backward)
        assert result[1].seconds >= 0


@covers("metrics.Similarity", "metrics.similarity.relevance_weighted")
@examples(20)
@given(rows=st.integers(1, 4), units=st.integers(1, 9), seed=seeds, weighed=st.sampled_from(["uniform", "zero", "one"]))
def test_relevance_weights_between_all_and_one(rows, units, seed, weighed):
    original, perturbed = filled((units,), "normal", seed), filled((rows, units), "normal", seed + 1)
    weights = torch.ones(units) if weighed == "uniform" else torch.zeros(units)
    weights[0] = weights[0] if weighed == "zero" else 1.0
    mse, cosine = relevance_weighted(original, perturbed, weights)
    expected = (perturbed - original).double().square()
    torch.testing.assert_close(mse, expected[:, 0] if weighed == "one" else expected.mean(1), rtol=1e-5, atol=1e-6)
    assert (cosine.abs() <= 1 + 1e-9).all()
    found = Similarity(mse, cosine, cosine)
    assert set(found.numbers) == {"mse", "cosine", "pearson"}


@covers("core.scoring.relative_score")
@examples(20)
@given(classes=st.integers(2, 6), seed=seeds, chosen=st.integers(0, 1))
def test_the_relative_score_has_the_direction_of_the_softmax(classes, seed, chosen):
    logits = filled((1, classes), "normal", seed).double().requires_grad_()
    index = torch.tensor([chosen])
    (own,) = torch.autograd.grad(relative_score(logits, None, index, "softmax").sum(), logits)
    (softmax,) = torch.autograd.grad(logits.softmax(1)[0, chosen], logits)
    torch.testing.assert_close(own / own.norm(), softmax / softmax.norm())
    (logit,) = torch.autograd.grad(relative_score(logits, None, index, "softmax", 0.0).sum(), logits)
    assert logit[0, chosen] == 1
    assert logit.count_nonzero() == 1


@covers("metrics.reliance")
@examples(25)
@given(
    net=networks(),
    size=st.sampled_from(SIZES),
    layout=st.sampled_from(LAYOUTS),
    cells=st.sampled_from([1, 2, 4, 50, 0]),
    rows=st.sampled_from([None, 1, 3, 0]),
)
def test_what_any_network_relies_on(net, size, layout, cells, rows):
    x = laid_out(images_for(net, size, 2), layout)
    with undisturbed(net, x):
        found = attempt(lambda: fei.metrics.reliance(net, x, cells=cells, batch_size=rows))
    if isinstance(found, FEIError):
        assert cells in (0, 50) or cells > min(size) or rows == 0 or not isinstance(found, InputError)
        return
    assert found.lost.shape == found.moved.shape == (2, cells, cells)
    assert found.interaction.shape == (2,)
    assert (found.lost <= 1 + 1e-6).all()
    assert (found.moved >= 0).all()
