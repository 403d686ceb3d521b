"""Properties of what is computed from maps and plain numbers: metrics, statistics, pictures."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from strategies import (
    FLOATS,
    KINDS,
    LAYOUTS,
    attempt,
    covers,
    examples,
    filled,
    laid_out,
    map_batches,
    seeds,
    undisturbed,
)

import fei
from fei.bench.plan.keys import canonical, key_of
from fei.bench.report import _statistics as statistics
from fei.bench.units import storable
from fei.errors import InputError
from fei.metrics.similarity import similarity
from fei.report import colorize, map_image, overlay, panel, photo

pytestmark = pytest.mark.slow

MEASURES = {
    "gini": fei.metrics.gini,
    "rank_total_variation": fei.metrics.rank_total_variation,
    "rank_correlation": lambda maps: fei.metrics.rank_correlation(maps, maps.flip(-1)),
    "rank_correlation absolute": lambda maps: fei.metrics.rank_correlation(maps, maps.flip(-1), absolute=True),
    "iou_at": lambda maps: fei.metrics.iou_at(maps, maps.flip(-1), 1.0),
    "agreement_matrix": lambda maps: fei.metrics.agreement_matrix({"a": maps, "b": maps.flip(-1)})[:, 0, 1],
    "pointing_game": lambda maps: fei.metrics.pointing_game(maps, [(0, 0, 1, 1)] * len(maps), tolerance=1),
    "energy_pointing_game": lambda maps: fei.metrics.energy_pointing_game(maps, [(0, 0, 1, 1)] * len(maps)),
}


@covers(
    "metrics.gini",
    "metrics.rank_total_variation",
    "metrics.rank_correlation",
    "metrics.iou_at",
    "metrics.agreement_matrix",
    "metrics.pointing_game",
    "metrics.energy_pointing_game",
)
@examples(40)
@given(name=st.sampled_from(sorted(MEASURES)), maps=map_batches(), layout=st.sampled_from(LAYOUTS))
@example("energy_pointing_game", torch.tensor([[[[0.0342, 0.2871], [0.7734, 0.1748]]]]), "transposed")  # last bits
def test_measures_of_maps_are_finite_and_read_values_alone(name, maps, layout):
    measure = MEASURES[name]
    with undisturbed(None, maps):
        values = measure(maps)
    assert values.shape == (len(maps),)
    assert values.dtype == torch.float64
    assert ((values >= -1 - 1e-9) & (values <= 1 + 1e-9)).all()
    assert torch.equal(measure(laid_out(maps, layout)), values)
    assert torch.equal(measure(maps[:, 0]), values)  # without the channel
    assert torch.equal(measure(maps.flip(0)), values.flip(0))
    torch.testing.assert_close(measure(maps[-1:]), values[-1:], rtol=1e-12, atol=1e-12)


@examples(30)
@given(maps=map_batches(kinds=("uniform", "normal", "ties", "constant", "spike"), dtypes=FLOATS[:2]), seed=seeds)
def test_ranks_are_all_that_counts_where_only_order_does(maps, seed):
    other = filled(maps.shape, "normal", seed)
    for change in (lambda m: 3 * m.double() + 7, lambda m: m.double().arctan(), lambda m: m.double() ** 3):
        changed = change(maps)
        assert torch.equal(changed.flatten(1).argsort(dim=1, stable=True), maps.flatten(1).argsort(dim=1, stable=True))
        for measure in (
            fei.metrics.rank_total_variation,
            lambda m: fei.metrics.rank_correlation(m, other),
            lambda m: fei.metrics.iou_at(m, other, 1.0),
            lambda m: fei.metrics.pointing_game(m, [(0, 0, 1, 1)] * len(m), 2),
        ):
            torch.testing.assert_close(measure(changed), measure(maps))


@examples(30)
@given(maps=map_batches(kinds=KINDS[:5], dtypes=FLOATS[:2]), seed=seeds)
def test_rank_correlation_is_that_of_scipy(maps, seed):
    other = filled(maps.shape, "ties", seed)
    for one, two, got in zip(maps, other, fei.metrics.rank_correlation(maps, other), strict=True):
        constant = one.unique().numel() == 1 or two.unique().numel() == 1
        expected = 0.0 if constant else stats.spearmanr(one.flatten(), two.flatten()).statistic
        assert got.item() == pytest.approx(expected, abs=1e-9)


@examples(40)
@given(maps=map_batches(kinds=("uniform", "normal", "spike", "tiny"), dtypes=(torch.float64,)))
def test_gini_by_its_pairwise_definition(maps):
    for one, got in zip(maps, fei.metrics.gini(maps), strict=True):
        c = one.flatten().abs().numpy()
        c = c / c.max() if c.max() else np.ones_like(c)
        assert got.item() == pytest.approx(np.abs(c[:, None] - c).sum() / (2 * c.size * c.sum()), abs=1e-9)


broken_maps = st.sampled_from(
    [
        None,
        3.0,
        [[1.0]],
        np.ones((1, 1, 2, 2)),
        torch.rand(4),
        torch.rand(2, 2),
        torch.rand(1, 2, 3, 3),
        torch.rand(0, 1, 3, 3),
        torch.rand(1, 1, 0, 3),
        torch.full((1, 1, 3, 3), math.nan),
        torch.full((1, 1, 3, 3), math.inf),
        torch.ones(1, 1, 3, 3, dtype=torch.complex64),
        torch.rand(1, 1, 3, 3).to_sparse(),
    ]
)


@examples(30)
@given(name=st.sampled_from(sorted(MEASURES)), maps=broken_maps)
def test_measures_refuse_what_is_no_batch_of_maps(name, maps):
    measure = {
        "rank_correlation": lambda m: fei.metrics.rank_correlation(m, m),
        "rank_correlation absolute": lambda m: fei.metrics.rank_correlation(m, m, absolute=True),
        "iou_at": lambda m: fei.metrics.iou_at(m, m, 0.5),
        "agreement_matrix": lambda m: fei.metrics.agreement_matrix({"a": m}),
        "pointing_game": lambda m: fei.metrics.pointing_game(m, [(0, 0, 1, 1)]),
        "energy_pointing_game": lambda m: fei.metrics.energy_pointing_game(m, [(0, 0, 1, 1)]),
    }.get(name, MEASURES[name])
    assert isinstance(attempt(lambda: measure(maps)), InputError)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
@pytest.mark.parametrize("name", sorted(MEASURES))
def test_maps_of_whole_numbers_are_maps(name, dtype):
    maps = (filled((2, 1, 5, 6), "uniform", 3) * 2).to(dtype)
    assert torch.equal(MEASURES[name](maps), MEASURES[name](maps.double()))


numbers = st.floats() | st.integers(-5, 40) | st.just(10**400) | st.none() | st.text(max_size=2)


@examples(40)
@given(box=st.lists(numbers, max_size=5) | numbers, tolerance=numbers, fraction=numbers)
@example([0, 0, 3, 3], 1e200, 0.5)  # its square is no float
@example([0, 0, 3, 10**400], 1, 0.5)
@example([0, 0, 3, 3], 10**400, 0.5)
def test_boxes_tolerances_and_fractions_are_numbers_or_refused(box, tolerance, fraction):
    maps = filled((1, 1, 6, 7), "normal", 1)
    for call in (
        lambda: fei.metrics.pointing_game(maps, [box], tolerance),
        lambda: fei.metrics.energy_pointing_game(maps, [box]),
        lambda: fei.metrics.iou_at(maps, maps, fraction),
    ):
        result = attempt(call)
        assert isinstance(result, InputError) or 0 <= result.item() <= 1 + 1e-9


@covers("metrics.map_similarity")
@examples(25)
@given(
    maps=map_batches(sizes=((7, 7), (7, 13), (33, 31)), dtypes=FLOATS[:2]),
    seed=seeds,
    kind=st.sampled_from(KINDS),
    layout=st.sampled_from(LAYOUTS),
)
@example(filled((1, 1, 7, 7), "huge", 0, torch.float64), 1, "huge", "contiguous")  # their range is no float
def test_similarities_of_maps(maps, seed, kind, layout):
    other = filled(maps.shape, kind, seed, maps.dtype)
    with undisturbed(None, maps, other):
        alike = fei.metrics.map_similarity(maps, other)
    for values in alike.values():
        assert values.shape == (len(maps),)
        assert ((values >= -1 - 1e-6) & (values <= 1 + 1e-6)).all()
    again = fei.metrics.map_similarity(laid_out(other, layout), maps)
    for name, values in again.items():
        torch.testing.assert_close(values, alike[name])
    for values in fei.metrics.map_similarity(maps, maps).values():
        torch.testing.assert_close(values, torch.ones_like(values))


@examples(30)
@given(a=broken_maps | map_batches(), b=broken_maps | map_batches(sizes=((7, 7), (2, 3))))
def test_similarities_refuse_maps_that_cannot_be_compared(a, b):
    result = attempt(lambda: fei.metrics.map_similarity(a, b))
    assert isinstance(result, InputError) or all(value.isfinite().all() for value in result.values())


activation_kinds = st.sampled_from(["uniform", "normal", "ties", "constant", "zero", "spike", "tiny", "large"])


@covers("metrics.similarity.similarity")
@examples(40)
@given(
    kinds=st.tuples(
        *[st.sampled_from(["uniform", "normal", "ties", "constant", "zero", "spike", "tiny", "large"])] * 2
    ),
    seed=seeds,
    rows=st.integers(1, 3),
    shape=st.sampled_from([(4, 3, 3), (5, 1, 1), (2, 7, 5), (6,)]),
    dtype=st.sampled_from(FLOATS),
    layout=st.sampled_from(LAYOUTS),
)
def test_activations_are_compared_as_numpy_does(kinds, seed, rows, shape, dtype, layout):
    def made(shape, kind, seed):
        scale, kind = (1e25, "normal") if kind == "large" else (1, kind)
        return (filled(shape, kind, seed).double() * scale).to(dtype)

    original, perturbed = made(shape, kinds[0], seed), made((rows, *shape), kinds[1], seed + 1)
    if not (original.isfinite().all() and perturbed.isfinite().all()):
        return
    perturbed = laid_out(perturbed, layout).detach()
    with undisturbed(None, original, perturbed):
        got = similarity(original, perturbed)
    a, b = original.double().numpy().ravel(), perturbed.double().numpy().reshape(rows, -1)
    mse = ((b - a) ** 2).mean(1)
    np.testing.assert_allclose(got.mse.double(), mse, rtol=1e-4, atol=1e-30)
    norms = np.linalg.norm(a) * np.linalg.norm(b, axis=1)
    cosine = np.divide(b @ a, norms, out=np.zeros(rows), where=norms > 0)
    np.testing.assert_allclose(got.cosine, cosine, atol=1e-5)
    centred, others = a - a.mean(), b - b.mean(1, keepdims=True)
    spread = np.linalg.norm(centred) * np.linalg.norm(others, axis=1)
    steady = (spread <= 1e-3 * norms) | (norms == 0)  # nearly constant: rounding decides
    pearson = np.divide(others @ centred, spread, out=np.zeros(rows), where=spread > 0)
    np.testing.assert_allclose(np.where(steady, 0, got.pearson), np.where(steady, 0, pearson), atol=1e-3)
    assert (got.pearson.abs() <= 1 + 1e-3).all()


# Plain numbers


@covers("metrics.wilson_interval", "metrics.black_image.wilson_interval")
@examples(30)
@given(
    successes=st.integers(-1, 60) | st.floats() | st.none(),
    trials=st.integers(0, 60) | st.floats() | st.none(),
    confidence=st.floats(-0.2, 1.2),
)
@example(0, 0, 0.95)
@example(2, 1, 0.95)  # came out as complex numbers
@example(1, 2, 1.0)
def test_wilson_interval_holds_the_rate_or_is_refused(successes, trials, confidence):
    result = attempt(lambda: fei.metrics.wilson_interval(successes, trials, confidence))
    if isinstance(result, InputError):
        whole = isinstance(successes, int) and isinstance(trials, int) and 0 <= successes <= trials and trials > 0
        assert not (whole and 0 < confidence < 1)
        return
    low, high = result
    assert 0 <= low <= successes / trials <= high <= 1
    if 1e-6 < confidence < 1 - 1e-6:
        expected = stats.binomtest(successes, trials).proportion_ci(confidence, "wilson")
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)


values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


@covers("metrics.bootstrap_interval", "metrics.Mean", "metrics.Summary")
@examples(30)
@given(values=values, level=st.floats(0.01, 0.99), seed=st.integers(0, 2**40), parts=st.integers(1, 3))
def test_summaries_of_numbers(values, level, seed, parts):
    mean = fei.metrics.Mean(level, 50, seed)
    with undisturbed():
        for first in range(parts):
            mean.update(values[first::parts])
        summary = mean.compute()
        low, high = fei.metrics.bootstrap_interval(torch.tensor(values, dtype=torch.float64), level, 50, seed)
    assert summary.n == len(values)
    assert summary.mean == pytest.approx(np.mean(values), abs=1e-6)
    if len(values) == 1:
        assert all(map(math.isnan, (summary.std, summary.low, low, high)))
    else:
        assert summary.std == pytest.approx(np.std(values, ddof=1), abs=1e-6)
        slack = 1e-9 * max(map(abs, values))
        assert min(values) - slack <= low <= high <= max(values) + slack
        assert parts > 1 or (low, high) == (summary.low, summary.high)


@examples(30)
@given(
    values=st.lists(numbers, max_size=3) | numbers | st.just(torch.rand(2, 2)) | st.just([1e308, 1e308]),
    level=numbers,
    resamples=numbers,
    seed=numbers,
)
@example("abc", 0.9, 10, 0)
@example([1e308, 1e308], 0.9, 10, 0)
@example([1.0, 2.0], 0.9, 10, -1)
def test_summaries_refuse_what_has_no_mean(values, level, resamples, seed):
    resamples = min(resamples, 50) if isinstance(resamples, (int, float)) else resamples
    result = attempt(lambda: fei.metrics.bootstrap_interval(values, level, resamples, seed))
    assert isinstance(result, InputError) or len(values) == 1 or all(map(math.isfinite, result))
    mean = fei.metrics.Mean()
    result = attempt(lambda: (mean.update(values), mean.compute()))
    assert isinstance(result, InputError) or math.isfinite(result[1].mean)


@covers("bench.report._statistics.estimate", "bench.report._statistics.proportion")
@examples(30)
@given(seed=seeds, images=st.integers(0, 5), runs=st.integers(0, 3), missing=st.floats(0, 1))
def test_estimates_over_images_and_seeds(seed, images, runs, missing):
    rng = np.random.default_rng(seed)
    table = np.where(rng.random((images, runs)) < missing, np.nan, rng.normal(size=(images, runs)))
    known = np.isfinite(table)
    found = statistics.estimate(table)
    hits = statistics.proportion(np.where(known, table > 0, np.nan))
    assert (found is None) == (hits is None) == (not known.any())
    if found is not None:
        assert found.mean == pytest.approx(np.mean([np.nanmean(column) for column in table.T[known.any(0)]]))
        assert (found.images, found.seeds, found.count) == (known.any(1).sum(), known.any(0).sum(), known.sum())
        assert hits.low <= hits.mean <= hits.high
        assert hits.mean == pytest.approx((table[known] > 0).mean())


@covers("bench.report._statistics.places", "bench.report._statistics.holm", "bench.report._statistics.paired")
@examples(30)
@given(
    means=st.lists(st.none() | st.floats(-5, 5), max_size=6),
    better=st.sampled_from([True, False, None]),
    p=st.lists(st.floats(0, 1), max_size=6),
    seed=seeds,
)
def test_places_and_tests(means, better, p, seed):
    places = statistics.places(means, better)
    assert len(places) == len(means)
    known = [m for m in means if m is not None]
    if better is not None and known:
        best = max(known) if better else min(known)
        assert all((place == 1) == (mean == best) for place, mean in zip(places, means, strict=True))
    else:
        assert not any(places)
    corrected = statistics.holm(p)
    assert all(before <= after <= 1 for before, after in zip(p, corrected, strict=True))
    order = sorted(range(len(p)), key=p.__getitem__)
    assert all(corrected[a] <= corrected[b] for a, b in itertools.pairwise(order))
    rng = np.random.default_rng(seed)
    one, two = rng.normal(size=(2, 6, 2))
    difference, chance, images = statistics.paired(one, two)
    assert images == 6
    assert (difference, chance) == pytest.approx(((one - two).mean(), stats.wilcoxon(one.mean(1) - two.mean(1)).pvalue))
    assert statistics.paired(two, one)[:2] == pytest.approx((-difference, chance))
    assert statistics.paired(one, one) == (0.0, 1.0, 6)


@covers("bench.report._statistics.images_needed")
@examples(30)
@given(tests=st.integers(1, 2000), level=st.floats(0.001, 0.2))
def test_fewer_images_than_needed_cannot_be_significant(tests, level):
    def least(images):  # all differences of one sign: nothing speaks louder
        p = stats.wilcoxon(np.arange(1.0, images + 1), method="exact").pvalue
        return min(statistics.holm([p] + [1.0] * (tests - 1)))

    needed = statistics.images_needed(tests, level)
    assert least(needed) < level <= least(needed - 1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@covers("bench.plan.keys.canonical", "bench.plan.keys.key_of", "bench.units.storable")
@examples(30)
@given(content=st.dictionaries(st.text(min_size=1, max_size=3), json_values, max_size=4), text=json_values)
def test_keys_are_those_of_the_content(content, text):
    backwards = dict(reversed(content.items()))
    assert canonical(content) == canonical(backwards)
    assert key_of("kind", content=content) == key_of("kind", content=backwards)
    assert key_of("kind", content=content) != key_of("other", content=content)
    storable(text).encode()


# Pictures


arrays = st.builds(
    lambda shape, kind, seed, dtype: filled(shape, kind, seed).numpy().astype(dtype),
    st.lists(st.integers(0, 5), max_size=4),
    st.sampled_from(["uniform", "normal", "ties", "constant", "tiny", "spike"]),
    seeds,
    st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, bool, np.complex64]),
)


@covers("report.colorize", "report.map_image", "report.overlay")
@examples(40)
@given(
    attribution=arrays | st.sampled_from(["map", None, [[1, 2]], np.array([[np.nan]]), np.array([[1e308, -1.7e308]])]),
    opacity=st.floats(-0.2, 1.2) | st.sampled_from([math.nan, 0, 1]),
)
@example(np.array([[1e308, -1.7e308]]), 0.5)
@example("map", 0.5)
def test_pictures_of_maps(attribution, opacity):
    colours = attempt(lambda: colorize(attribution))
    if isinstance(colours, InputError):
        assert isinstance(attempt(lambda: map_image(attribution)), InputError)
        return
    shape = np.shape(attribution)
    assert colours.shape == (*shape, 3)
    assert colours.dtype == np.uint8
    assert map_image(attribution).size == shape[::-1]
    photograph = np.full((*shape, 3), 200, np.uint8)
    blend = attempt(lambda: overlay(photograph, attribution, opacity))
    assert isinstance(blend, InputError) == (not 0 <= opacity <= 1)
    if opacity in (0, 1):
        assert (blend == (photograph if opacity == 0 else colours)).all()
    assert isinstance(attempt(lambda: overlay(photograph[:, 1:], attribution)), InputError)


@covers("report.photo")
@examples(30)
@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(FLOATS),
    layout=st.sampled_from(LAYOUTS),
    bad=st.sampled_from([None, math.nan, math.inf]),
)
@example([3, 0, 2], "uniform", torch.float32, "contiguous", None)
@example([3, 2, 2], "uniform", torch.float32, "contiguous", math.nan)
@example([3, 2, 2], "huge", torch.float64, "contiguous", None)
def test_pictures_of_inputs(shape, kind, dtype, layout, bad):
    image = filled(shape, kind, 4, dtype)
    if bad is not None and image.numel():
        image.view(-1)[0] = bad
    picture = attempt(lambda: photo(laid_out(image, layout)))
    usable = len(shape) == 3 and image.numel() and bad is None
    assert isinstance(picture, InputError) == (not usable)
    if usable:
        assert picture.shape == (*shape[1:], 3)
        if kind == "uniform" and shape[0] == 3:
            assert np.abs(picture / 255 - image.double().permute(1, 2, 0).numpy()).max() <= 0.502 / 255


@covers("report.panel")
@examples(2)
@given(size=st.sampled_from([(1, 1), (7, 13)]), kind=st.sampled_from(["uniform", "constant", "tiny"]), text=st.text())
def test_panels_take_any_map_and_any_words(size, kind, text):
    photograph = np.zeros((*size, 3), np.uint8)
    figure = panel(photograph, filled(size, kind, 1).numpy(), headline=text, details=text)
    assert len(figure.axes) == 4


@covers(
    "metrics.Metric",
    "metrics.Subject",
    "metrics.declared",
    "metrics.describe",
    "metrics.group_of",
    "metrics.groups",
)
@examples(40)
@given(name=st.sampled_from([*fei.metrics.declared(), *fei.metrics.groups()]) | st.text(max_size=12), seed=seeds)
def test_a_name_is_that_of_a_metric_or_is_refused(name, seed):
    known, groups = fei.metrics.declared(), fei.metrics.groups()
    names = {each for metric in known.values() for each in (metric.name, metric.score)}
    measured = {each for some in groups.values() for metric in some for each in (metric.name, metric.score)}
    if name in names:
        assert name in (fei.metrics.describe(name).name, fei.metrics.describe(name).score)
    else:
        with pytest.raises(InputError, match="There is no metric"):
            fei.metrics.describe(name)
    if name in measured or name in groups:
        assert fei.metrics.group_of(name) in groups
    else:
        with pytest.raises(InputError, match="There is no metric"):
            fei.metrics.group_of(name)
    subject = fei.metrics.Subject(None, None, None, 0, (), None, seed, None)
    calls = []
    assert subject.once(calls.append) is subject.once(calls.append) is None
    assert len(calls) == 1
    assert subject.options["generator"].initial_seed() == seed
    assert fei.metrics.Metric(name, name, None).score == name
