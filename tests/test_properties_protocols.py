"""Properties of references and protocols: what replaces pixels, in which order, how many, and what comes of it."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from networks import varied_cnn
from strategies import FLOATS, LAYOUTS, SIZES, attempt, covers, examples, filled, laid_out, seeds, undisturbed
from torch import nn

import fei
from fei import protocols
from fei.core.randomness import image_digest
from fei.errors import InputError
from fei.references import (
    KINDS,
    Reference,
    References,
    another_photograph,
    blur,
    clouds,
    gaussian_blur,
    mean_colour,
    normalised_zero,
    pixel_range,
    smooth_noise,
)

pytestmark = pytest.mark.slow

shapes = st.tuples(st.integers(1, 3), st.sampled_from([1, 3, 4]), st.sampled_from(SIZES)).map(lambda s: (*s[:2], *s[2]))
specs = (
    st.none()
    | st.sampled_from([*KINDS, "grey", 0, 0.5, -3, True, 10**400, math.nan, math.inf, 1e39, (), (0.5,), (1, 2), b"x"])
    | st.sampled_from([torch.zeros(3, 1, 1), torch.zeros(1, 1, 1, 1), torch.zeros(2, 3, 4), torch.zeros(()).long()])
    | st.sampled_from([torch.full((1,), math.nan), torch.zeros(1, dtype=torch.complex64), torch.zeros(5, 1, 1, 1, 1)])
    | st.sampled_from([lambda x: x.mean(), lambda x: x * 0, lambda x: "black", lambda x: None, lambda x: x[:, :, :1]])
)


@covers("references.References", "references.Reference", "references.mean_colour")
@examples(50)
@given(
    spec=specs,
    shape=shapes,
    kind=st.sampled_from(["uniform", "normal", "huge", "constant"]),
    dtype=st.sampled_from(FLOATS),
    layout=st.sampled_from(LAYOUTS),
    known=st.booleans(),
)
@example(10**400, (1, 1, 2, 2), "uniform", torch.float32, "contiguous", False)
@example(torch.zeros(1, dtype=torch.complex64), (1, 1, 2, 2), "uniform", torch.float32, "contiguous", False)
@example("color", (1, 1, 8, 8), "huge", torch.float32, "contiguous", False)  # a range that is no float
@example("mean", (1, 4, 2, 2), "uniform", torch.float32, "contiguous", True)
def test_references_fit_the_images_or_are_refused(spec, shape, kind, dtype, layout, known):
    x = filled(shape, kind, 3, dtype)
    model = fei.models.Classifier(varied_cnn()) if known else nn.Identity()
    digests = [image_digest(image) for image in x]
    with undisturbed(None, x):
        made = attempt(lambda: References(spec, laid_out(x, layout).detach(), digests, model, 7))
    if isinstance(made, InputError):
        return
    assert made.values.dtype == dtype
    assert made.values.isfinite().all()
    assert made.values.expand_as(x).shape == x.shape
    assert made.at(5) is made.values
    if not callable(spec) and not isinstance(spec, torch.Tensor):  # each image's own, whatever else is in the batch
        last = References(spec, x[-1:], digests[-1:], model, 7).values
        torch.testing.assert_close(last, made.values[-1:])
    if spec in ("color", None) and not known:
        low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
        assert ((low <= made.values) & (made.values <= high)).all()


@examples(20)
@given(kind=st.text(max_size=6) | st.sampled_from(KINDS), resample=st.booleans(), shape=shapes)
def test_resampled_references_change_and_repeat(kind, resample, shape):
    reference = attempt(lambda: Reference(kind, resample))
    assert isinstance(reference, InputError) == (
        kind not in KINDS or (resample and kind not in ("color", "noise", "clouds"))
    )
    if isinstance(reference, Reference) and resample:
        x = filled(shape, "normal", 2)
        made = References(reference, x, [image_digest(image) for image in x], nn.Identity(), 0)
        assert torch.equal(made.at(0), made.values)
        assert torch.equal(made.at(3), made.at(3))
        assert x[0, 0].numel() == 1 or not torch.equal(made.at(3), made.at(4))


@covers("references.blur", "references.gaussian_blur", "references.pixel_range", "protocols.rise_blur",
        "protocols.normalised_zero", "protocols.zeros", "protocols.input_minimum")  # fmt: skip
@examples(30)
@given(
    shape=shapes,
    kind=st.sampled_from(["uniform", "normal", "constant"]),
    seed=seeds,
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(FLOATS[:2]),
)
def test_replacements_keep_shape_range_and_type(shape, kind, seed, layout, dtype):
    x = filled(shape, kind, seed, dtype)
    given = laid_out(x, layout).detach()
    eps = 1e-4 * float(1 + x.abs().max())
    for make in (blur, *(lambda i, f=f: f(i, nn.Identity()) for f in (
        protocols.rise_blur, normalised_zero, protocols.zeros, protocols.input_minimum
    ))):  # fmt: skip
        made = make(given)
        assert made.shape == x.shape
        assert made.dtype == dtype
        assert made.isfinite().all()
        torch.testing.assert_close(made[-1:], make(x[-1:]), rtol=1e-4, atol=eps)
        assert float(made.abs().max()) <= float(x.abs().max()) + eps  # means and zeros go beyond no extreme
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    assert ((blur(x) >= low - eps) & (blur(x) <= high + eps)).all()
    narrow = gaussian_blur(x, 0.8, 3)
    assert ((narrow >= low - eps) & (narrow <= high + eps)).all()
    torch.testing.assert_close(gaussian_blur(x, 5.0, 5), blur(x), rtol=1e-4, atol=eps)
    assert pixel_range(nn.Identity()) is None
    assert pixel_range(fei.models.Classifier(varied_cnn())) == (0.0, 1.0)
    network = fei.models.Classifier(varied_cnn(), mean=(0.1, 0.2, 0.3), std=(1, 1, 1))
    colour = attempt(lambda: mean_colour(x, network))
    assert isinstance(colour, InputError) == (shape[1] != 3)
    if shape[1] == 3:
        assert torch.equal(normalised_zero(x, network)[0, :, 0, 0], colour.flatten())


ORDERS = {
    "jittered": protocols.jittered,
    "reversed_argsort": protocols.reversed_argsort,
    "raster": protocols.raster,
    "numpy_per_value": protocols.numpy_per_value,
    "raster_per_value": protocols.raster_per_value,
}


@covers(*(f"protocols.{name}" for name in ORDERS))
@examples(40)
@given(
    name=st.sampled_from(sorted(ORDERS)),
    kind=st.sampled_from(["uniform", "ties", "constant", "huge", "tiny"]),
    pixels=st.integers(1, 40),
    seed=seeds,
    layout=st.sampled_from(LAYOUTS),
)
def test_orders_put_larger_values_first_and_leave_none_out(name, kind, pixels, seed, layout):
    values = filled((pixels,), kind, seed)
    channels = 3 if name.endswith("_per_value") else 1
    with undisturbed(None, values):
        order = ORDERS[name](laid_out(values, layout).detach(), "digest", seed, channels)
    assert sorted(order.tolist()) == list(range(pixels * channels))
    ranked = values.repeat(channels)[order]
    assert (ranked[:-1] >= ranked[1:]).all()
    if name.startswith("raster"):
        expected = sorted(range(pixels * channels), key=lambda i: (-values[i % pixels].item(), i))
        assert order.tolist() == expected
    if name == "reversed_argsort":
        assert order.tolist() == sorted(range(pixels), key=lambda i: (-values[i].item(), -i))


@covers("protocols.Quantiles", "protocols.Intervals", "protocols.WithoutStart", "protocols.rows")
@examples(50)
@given(
    quantiles=st.lists(st.floats(0, 1) | st.sampled_from([-0.1, 1.5, math.nan, "a", None]), max_size=5),
    steps=st.integers(-2, 30) | st.sampled_from([0, 2.5, None, "3", True]),
    total=st.integers(1, 500),
    width=st.integers(1, 40),
)
@example(["a"], 0, 10, 5)
def test_levels_go_from_few_to_all(quantiles, steps, total, width):
    schedules = [
        protocols.rows,
        protocols.WithoutStart(protocols.rows),
        attempt(lambda: protocols.Quantiles(tuple(quantiles))),
        attempt(lambda: protocols.Intervals(steps)),
    ]
    numeric = all(isinstance(q, float) and 0 <= q <= 1 for q in quantiles) and quantiles
    rising = numeric and all(a < b for a, b in itertools.pairwise(quantiles))
    assert isinstance(schedules[2], InputError) == (not rising)
    assert isinstance(schedules[3], InputError) == (not (type(steps) is int and steps >= 1))
    for schedule in schedules:
        if not isinstance(schedule, InputError):
            for counts in schedule(total, width):
                assert counts == sorted(counts)
                assert all(0 <= n <= total for n in counts)
                assert isinstance(schedule, protocols.Quantiles) or counts[-1] == total


@covers("protocols.plain_mean", "protocols.trapezoid", "protocols.unit_steps")
@examples(40)
@given(seed=seeds, rows=st.integers(1, 3), points=st.integers(1, 12), dtype=st.sampled_from(FLOATS[:2]))
def test_areas_are_those_of_numpy(seed, rows, points, dtype):
    scores = filled((rows, points), "normal", seed, dtype)
    fractions = filled((points,), "uniform", seed + 1, torch.float64).sort().values
    s, f = scores.double().numpy(), fractions.to(dtype).double().numpy()
    for area, expected in (
        (protocols.plain_mean, s.mean(1)),
        (protocols.trapezoid, np.trapezoid(s, f, axis=1)),
        (protocols.unit_steps, np.trapezoid(s, axis=1)),
    ):
        np.testing.assert_allclose(area(scores, fractions), expected, atol=1e-4)


@covers("protocols.get", "protocols.describe", "protocols.available", "protocols.Protocol")
@examples(40)
@given(
    name=st.text(max_size=9) | st.sampled_from([*protocols.available(), "rise", 3, None, []]), score=st.text(max_size=4)
)
def test_protocols_by_name(name, score):
    found = attempt(lambda: protocols.get(name))
    ids = protocols.available()
    known = isinstance(name, str) and (name in ids or any(name == i.partition("/")[0] for i in ids))
    assert isinstance(found, protocols.Protocol) == known
    if known:
        assert found.id.startswith(name)
        assert protocols.get(found) is found
        assert protocols.describe(found)["id"] == found.id
        changed = attempt(lambda: dataclasses.replace(found, score=score))
        assert isinstance(changed, InputError) == (score not in ("softmax", "sigmoid", "logit"))
    else:
        assert isinstance(attempt(lambda: protocols.describe(name)), InputError)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("protocol", [p for p in protocols.available() if not protocols.get(p).drops_tokens])
def test_maps_of_any_real_type_rank_as_their_values_do(protocol, dtype):
    """The negative of an unsigned byte is no negative number: Quantus' order took 0 for the most important."""
    model, x = varied_cnn(), filled((1, 3, 5, 4), "uniform", 2)
    maps = (filled((1, 1, 5, 4), "uniform", 3) * 2).to(dtype)
    for curve in (fei.metrics.insertion, fei.metrics.deletion):
        assert torch.equal(
            curve(model, x, maps, protocol=protocol).scores, curve(model, x, maps.double(), protocol=protocol).scores
        )


@covers("references.clouds")
@examples(20)
@given(shape=shapes, seed=seeds)
def test_clouds_are_pixels(shape, seed):
    drawn, again = (clouds(shape[1:], torch.Generator().manual_seed(seed)) for _ in range(2))
    assert drawn.shape == shape[1:]
    assert torch.equal(drawn, again)
    assert 0 <= drawn.min() <= drawn.max() <= 1


@covers("references.smooth_noise")
@examples(20)
@given(shape=shapes, seed=seeds)
def test_smooth_noise_fits_any_image(shape, seed):
    drawn, again = (smooth_noise(shape[2:], torch.Generator().manual_seed(seed)) for _ in range(2))
    assert drawn.shape == shape[2:]
    assert drawn.isfinite().all()
    assert torch.equal(drawn, again)


@covers("references.normalised_zero", "references.another_photograph")
@examples(20)
@given(shape=shapes, kind=st.sampled_from(["uniform", "normal", "constant"]), dtype=st.sampled_from(FLOATS))
def test_held_out_replacements_fit_any_image(shape, kind, dtype):
    x = filled(shape, kind, 3).to(dtype)
    for replace in (normalised_zero, another_photograph):
        made = replace(x, nn.Identity())
        assert (made.shape, made.dtype) == (x.shape, dtype)
        assert made.isfinite().all()
        assert torch.equal(made, replace(x, nn.Identity()))


@covers("protocols.default_protocol")
@examples(5)
@given(reference=st.sampled_from([None, "color", 0.5]))
def test_the_default_protocol_takes_the_reference_it_is_for(reference):
    chosen = protocols.get(protocols.default_protocol(reference))
    assert (chosen.replacement == "reference") == (reference is not None)
