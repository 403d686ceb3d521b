"""Properties of the classifier that every network is put behind, and of data sets as values."""

import math
from pathlib import Path

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from networks import OUTPUTS, varied_cnn
from PIL import Image
from strategies import (
    LAYOUTS,
    SIZES,
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

import fei
from fei.data import Dataset, Item, check_spec
from fei.errors import FEIError, InputError, ModelError

odd = st.none() | st.floats() | st.integers(-3, 300) | st.text(max_size=3) | st.just(10**400)


@covers("models.Classifier")
@examples(20)
@given(
    net=networks(channels=3),
    size=st.sampled_from(SIZES),
    count=st.integers(1, 2),
    mean=st.tuples(*[st.floats(-1, 1)] * 3),
    std=st.floats(0.1, 2),
    layout=st.sampled_from(LAYOUTS),
    output=st.sampled_from(sorted(OUTPUTS)),
)
def test_classifiers_normalise_and_take_the_logits(net, size, count, mean, std, layout, output):
    net.output = output
    classifier = fei.models.Classifier(net, mean=mean, std=(std,) * 3).eval()
    x = images_for(net, size, count)
    given = laid_out(x, layout)
    with undisturbed(net, given):
        logits = attempt(lambda: classifier(given))
    if output in ("tuple", "dict", "none"):
        assert isinstance(logits, ModelError)
        return
    net.output = "tensor"
    expected = net((x - torch.tensor(mean).view(3, 1, 1)) / std)
    torch.testing.assert_close(logits.detach(), expected.detach(), rtol=1e-3, atol=1e-4)


@examples(40)
@given(
    options=st.fixed_dictionaries(
        {},
        optional={
            "mean": st.lists(odd, max_size=4) | odd,
            "std": st.lists(odd, max_size=4) | odd,
            "input_size": odd,
            "resize": odd,
            "interpolation": st.sampled_from(["bicubic", "bilinear", "nearest", None, 3]),
            "labels": st.lists(st.text(max_size=3), max_size=3) | odd | st.just([3]),
            "feature_layers": st.sampled_from([["stem"], ["relu#1"], ["nothing"], "stem", [3], 3]),
        },
    )
)
@example({"mean": "abc", "std": "abc"})
def test_classifiers_are_made_or_refused(options):
    made = attempt(lambda: fei.models.Classifier(varied_cnn(), **options))
    assert isinstance(made, (InputError, fei.models.Classifier))
    if isinstance(made, fei.models.Classifier):
        assert made.mean.isfinite().all()
        assert (made.std > 0).all()


@examples(40)
@given(
    name=odd
    | st.sampled_from(["tabby", "Tab", "cat", "dog, hound", "hound", "1", "9" * 5000, " 2 ", "²", "٣", True, [1]])
)
@example("9" * 5000)
@example(3.5)
def test_classes_by_name_or_index(name):
    classifier = fei.models.Classifier(varied_cnn(), labels=["tabby, cat", "tiger cat", "dog, hound"])
    index = attempt(lambda: classifier.index(name))
    if not isinstance(index, InputError):
        assert index in range(3)
        assert classifier.index(classifier.label(index)) == index


@examples(30)
@given(
    shape=st.sampled_from([(5, 7), (1, 1), (3, 40), (9, 8, 3), (2, 2, 4), (4, 4, 2), (0, 3), (3,), (1, 300)]),
    dtype=st.sampled_from([np.uint8, np.float32, np.float64, np.float16, np.int64, bool]),
    way=st.sampled_from(["plain", "backwards", "strided", "read-only"]),
    bad=st.sampled_from([None, math.nan, 1.5, -0.1]),
    squash=st.booleans(),
    seed=seeds,
)
def test_arrays_are_preprocessed_or_refused(shape, dtype, way, bad, squash, seed):
    values = filled(shape, "uniform", seed).numpy()
    array = values.astype(dtype) if np.issubdtype(dtype, np.floating) else (values * 255).astype(dtype)
    if bad is not None and array.size and np.issubdtype(dtype, np.floating):
        array.flat[0] = bad
    laid = {"backwards": array[::-1].copy()[::-1], "strided": np.repeat(array, 2, 0)[::2]}.get(way, array)
    laid.setflags(write=way != "read-only")
    classifier = fei.models.Classifier(varied_cnn(), input_size=8, squash=squash)
    pixels = attempt(lambda: classifier.preprocess(laid))
    proper = len(shape) in (2, 3) and 0 not in shape and (len(shape) == 2 or shape[2] in (3, 4))
    usable = proper and (dtype is np.uint8 or (np.issubdtype(dtype, np.floating) and bad is None))
    assert isinstance(pixels, InputError) == (not usable)
    if usable:
        assert pixels.shape == (3, 8, 8)
        assert ((pixels >= 0) & (pixels <= 1)).all()
        assert torch.equal(pixels, classifier.preprocess(array.copy()))


@examples(30)
@given(
    box=st.lists(odd, max_size=5),
    size=st.tuples(odd, odd) | st.tuples(st.integers(1, 90), st.integers(1, 90)) | odd,
    squash=st.booleans(),
)
@example(["a", 1, 2, 3], (10, 10), False)
@example([0, 0, 5, 10**400], (10, 10), False)
@example([0, 0, 5, 5], None, False)
@example([0, 0, 5, 5], (1, 10**400), False)
def test_boxes_are_placed_inside_or_refused(box, size, squash):
    classifier = fei.models.Classifier(varied_cnn(), input_size=8, squash=squash)
    placed = attempt(lambda: classifier.place_boxes([box], size))
    if not isinstance(placed, InputError) and placed[0] is not None:
        left, top, right, bottom = placed[0]
        assert 0 <= left < right <= 8
        assert 0 <= top < bottom <= 8


@examples(10)
@given(width=st.integers(1, 60), height=st.integers(1, 60))
def test_the_box_of_the_whole_image_is_the_whole_input(width, height):
    classifier = fei.models.Classifier(varied_cnn(), input_size=8)
    assert classifier.place_boxes([(0, 0, width, height)], (width, height)) == [(0.0, 0.0, 8.0, 8.0)]
    assert classifier.preprocess(Image.new("RGB", (width, height), "white")).min() == 1


@covers("data.check_spec")
@examples(60)
@given(
    spec=st.text(max_size=20)
    | st.sampled_from(["imagenet:", "imagenet:x", "imagnet:x", "C:x", "cub:a@b", "*.jpg"])
    | st.integers()
)
def test_a_specification_is_looked_at_or_refused(spec):
    found = attempt(lambda: check_spec(spec))
    if isinstance(found, FEIError):
        assert "give" in str(found) or "did you mean" in str(found) or "the form is" in str(found)
    else:
        kind, rest = found
        assert spec == (f"{kind}:{rest}" if kind else rest)


@covers("data.Dataset", "data.Item")
@examples(40)
@given(
    ids=st.lists(st.text(min_size=1, max_size=4), max_size=8),
    count=st.integers(-1, 10) | st.sampled_from([2.5, None, True]),
    seed=st.integers() | st.sampled_from([1.5, None, True]),
)
def test_samples_depend_on_ids_and_seed_alone(ids, count, seed):
    items = tuple(Item(Path("x"), name, None) for name in ids)
    made = attempt(lambda: Dataset("spec", items, None))
    assert isinstance(made, InputError) == (len(set(ids)) < len(ids))
    if isinstance(made, InputError):
        return
    assert [item.id for item in made] == sorted(ids)
    drawn = attempt(lambda: made.sample(count, seed))
    proper = type(count) is int and count >= 1 and type(seed) is int
    assert isinstance(drawn, InputError) == (not proper)
    if proper:
        assert len(drawn) == min(count, len(ids))
        assert set(drawn) <= set(made.sample(count + 1, seed))
        backwards = Dataset("spec", items[::-1], None)
        assert backwards.sample(count, seed).items == drawn.items
        assert len(made[:2]) == min(2, len(ids))
