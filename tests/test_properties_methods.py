"""Properties of FEI and of every other method on networks and images of all kinds."""

import inspect
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import strategies
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from networks import ModelOutput, varied_cnn
from strategies import FLOATS, LAYOUTS, SIZES, attempt, covers, examples, filled, images_for, laid_out, networks, seeds
from test_methods import CONTROLS, FOR_TRANSFORMERS, QUICK
from torch import nn

import fei
from fei.compat.quantus import explain_func
from fei.core.clipgrad import RULES
from fei.core.scoring import logits_of
from fei.errors import FEIError, InputError, ModelError
from fei.methods._options import options_of
from fei.models.layers import feature_layers
from fei.progress import part, reporter

pytestmark = pytest.mark.slow

METHODS = [name for name in fei.methods.available() if name not in FOR_TRANSFORMERS]
TINY = QUICK | {name: {"steps": 2, "quantiles": [0.3, 0.7]} for name in [*fei.methods.available("fei-*"), "fgvis"]}
TINY |= {
    "rise": {"samples": 8},
    "kernel-shap": {"segments": 4, "samples": 20},
    "occlusion": {},
    "fgvce": {"permutations": 2},
}


def quick(name):
    return fei.methods.create(name, **TINY.get(name, {}))


@covers("FEI", "Explanation", "core.attribution.FEI", "core.optimization.Optimization")
@examples(25)
@given(
    net=networks(),
    size=st.sampled_from(SIZES),
    count=st.integers(1, 3),
    variant=st.sampled_from(sorted(RULES)),
    options=st.fixed_dictionaries(
        {},
        optional={
            "preset": st.sampled_from(["paper", "fast"]),
            "quantiles": st.lists(st.sampled_from([0.1, 0.5, 0.8]), min_size=1, unique=True).map(sorted),
            "constraint": st.sampled_from(["penalty", "projection", "l1", "none"]),
            "objective": st.sampled_from(["insertion", "deletion", "both"]),
            "nesting": st.sampled_from(["independent", "cumulative", "shared"]),
            "residual": st.sampled_from(["branch", "post_add", "both"]),
            "score": st.sampled_from(["softmax", "sigmoid", "logit"]),
            "sites": st.sampled_from(["activation", "conv", "nonlinearity", "first:1/2", ["body"], "block"]),
            "early_stop": st.just(0.01),
        },
    ),
    layout=st.sampled_from(LAYOUTS),
    target=st.none() | st.integers(0, 1),
    rows=st.sampled_from([None, 1, 4]),
)
def test_masks_of_any_network(net, size, count, variant, options, layout, target, rows):
    x = images_for(net, size, count)
    given = laid_out(x, layout)

    def explain(images):
        explainer = fei.FEI(net, variant, steps=2, **options)
        with torch.no_grad():
            return explainer.explain(images, target, internal_batch_size=rows)

    with strategies.undisturbed(net, given):
        result = attempt(lambda: explain(given))
    if isinstance(result, FEIError):
        one_mask, nesting = options.get("constraint") in ("l1", "none"), options.get("nesting")
        projected = options.get("constraint", "penalty" if options.get("preset") == "paper" else "projection")
        shared = nesting == "shared" and (projected != "projection" or "early_stop" in options)
        assert (one_mask and nesting == "cumulative") or shared or options.get("sites") == "block"
        return
    assert result.maps.shape == (count, 1, *size)
    assert ((result.alphas >= 0) & (result.alphas <= 1)).all()
    assert result.perturbed().shape == (count, result.alphas.shape[1], *x.shape[1:])
    assert result.perturbed().isfinite().all()
    top = logits_of(net(x.clone()), count).argmax(1)
    assert torch.equal(result.target, top if target is None else torch.full_like(top, target))
    settings = result.config["settings"]
    if settings["constraint"] == "projection":
        areas = settings["quantiles"] if settings["objective"] == "deletion" else [1 - q for q in settings["quantiles"]]
        got = result.alphas.double().flatten(2).mean(-1)
        torch.testing.assert_close(got, torch.tensor(areas).double().expand_as(got), atol=2e-6, rtol=0)
    with tempfile.TemporaryDirectory() as folder:  # whatever was found can be kept
        loaded = fei.Explanation.load(result.save(Path(folder) / "explanation.safetensors"))
    assert torch.equal(loaded.alphas, result.alphas)
    assert loaded.config == result.config
    # the same image alone, laid out in another way, to the bit: computed in one format
    assert torch.equal(explain(x[-1:].contiguous()).maps, result.maps[-1:])


@covers("methods.create", "methods.describe", "methods.available", "methods.Baseline", "methods.Task", "methods.Entry")
@examples(52)
@given(
    name=st.sampled_from(METHODS),
    net=networks(),
    size=st.sampled_from(SIZES),
    layout=st.sampled_from(LAYOUTS),
    target=st.none() | st.integers(0, 1),
    seed=seeds,
    mode=st.sampled_from(["plain", "no_grad", "inference"]),
)
@pytest.mark.filterwarnings("ignore:no feature layer was found")  # in an image of one pixel
def test_methods_on_any_network(name, net, size, layout, target, seed, mode):
    x = images_for(net, size, 2, seed)
    given = laid_out(x, layout)
    modes = {"plain": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}
    generator = torch.Generator().manual_seed(seed % 1000)
    method = quick(name)
    assert fei.methods.describe(name).name == name
    with strategies.undisturbed(net, given), modes[mode]():
        maps = attempt(lambda: method(net, given, target, generator=generator))
    if isinstance(maps, FEIError):  # what some methods cannot do with very small images
        assert name in (
            "kernel-shap",
            "liftcam",
            "gradcam",
            "gradcam++",
            "layercam",
            "xgradcam",
            "scorecam",
            "iia",
            "fgvce",
        )
        return
    assert maps.shape == (2, 1, *size)
    assert maps.dtype == torch.float32
    assert maps.isfinite().all()
    assert not maps.requires_grad
    flipped = method(net, x.contiguous().flip(0), target, generator=generator).flip(0)
    torch.testing.assert_close(flipped, maps, rtol=1e-3, atol=2e-3 if name.startswith(("fei", "fgvis")) else 1e-4)


@examples(25)
@given(
    name=st.sampled_from(METHODS),
    dtype=st.sampled_from(FLOATS),
    same=st.booleans(),
    kind=st.sampled_from(["uniform", "normal", "huge", "tiny", "zero"]),
)
@example("saliency", torch.float32, True, "huge")  # gradients of infinite activations came out as NaN
def test_methods_on_any_precision_and_extreme_images(name, dtype, same, kind):
    net = varied_cnn()
    net = net.to(dtype) if same else net
    x = filled((1, 3, 8, 9), kind, 1, dtype)
    with strategies.undisturbed(net.float() if dtype == torch.bfloat16 and not same else None, x):
        maps = attempt(lambda: quick(name)(net, x))
    if isinstance(maps, FEIError):
        assert not same or kind == "huge" or dtype in (torch.float16, torch.bfloat16) or name == "kernel-shap"
    else:
        assert maps.isfinite().all()
        assert maps.shape == (1, 1, 8, 9)
        assert maps.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


broken = st.sampled_from(
    [
        {"inputs": torch.rand(3, 8, 9)},
        {"inputs": torch.rand(0, 3, 8, 9)},
        {"inputs": torch.rand(1, 3, 8, 0)},
        {"inputs": torch.rand(1, 0, 8, 9)},
        {"inputs": torch.rand(1, 2, 8, 9)},
        {"inputs": torch.full((1, 3, 8, 9), math.inf)},
        {"inputs": torch.ones(1, 3, 8, 9).long()},
        {"inputs": torch.rand(1, 3, 8, 9).to(torch.float8_e5m2)},
        {"inputs": torch.rand(1, 3, 8, 9).to_sparse()},
        {"inputs": "image"},
        {"target": 4},
        {"target": "cat"},
        {"target": [0, 1]},
        {"target": 1.5},
        {"target": [[0], [1, 2]]},
        {"target": lambda output: output.sum()},
        {"generator": 3},
        {"batch_size": 0},
        {"reference": "grey"},
        {"reference": math.nan},
        {"reference": 10**400},
        {"reference": torch.zeros(2, 1, 1)},
        {"reference": torch.zeros(1, dtype=torch.complex64)},
        {"model": varied_cnn().train()},
        {"model": varied_cnn(output="tuple")},
        {"model": varied_cnn(output="dict")},
        {"model": varied_cnn(output="none")},
        {"model": nn.Sequential(varied_cnn(), nn.Flatten(0)).eval()},
    ]
)


@examples(60)
@given(name=st.sampled_from(METHODS), change=broken)
@example("saliency", {"target": "cat"})
@example("fei-vm", {"generator": 3})
@example("gradcam", {"inputs": torch.rand(1, 3, 8, 9).to(torch.float8_e5m2)})
def test_methods_refuse_in_a_sentence(name, change):
    assume(name not in CONTROLS or not callable(change.get("target")))  # it asks the network nothing
    arguments = {"model": varied_cnn(), "inputs": torch.rand(1, 3, 8, 9)} | change
    with strategies.undisturbed(arguments["model"]):
        result = attempt(lambda: quick(name)(**arguments))
    assert isinstance(result, (InputError, ModelError))


@examples(40)
@given(name=st.sampled_from(METHODS), data=st.data())
@example("gradcam", None)
def test_options_of_methods_are_usable_or_refused(name, data):
    odd = st.sampled_from([None, -1, 0, 2, 2.5, math.nan, 10**400, "x", "stem", [3], [0.5], True, "logit"])
    if data is None:
        given = {"layer": 3}
    else:
        known = [option.name for option in fei.methods.describe(name).options]
        names = data.draw(st.sets(st.sampled_from([*known, "nothing"]), max_size=2))
        given = {option: data.draw(odd) for option in sorted(names)}
    options = {"steps": 1} if name.startswith("f") and name != "fgvce" else dict(TINY.get(name, {}))
    result = attempt(lambda: fei.methods.create(name, **(options | given))(varied_cnn(), torch.rand(1, 3, 8, 9)))
    assert isinstance(result, FEIError) or result.isfinite().all()


@pytest.mark.parametrize("name", METHODS)
def test_a_network_of_nan_weights_gives_no_map(name):
    if name in CONTROLS:
        return
    net = varied_cnn()
    net.head.weight.data.fill_(math.nan)
    assert isinstance(attempt(lambda: quick(name)(net, torch.rand(1, 3, 8, 9))), FEIError)


@examples(20)
@given(name=st.sampled_from(METHODS), output=st.sampled_from(["tuple", "dict", "model output"]))
@example("fei-vm", "dict")
def test_callable_targets_score_any_output(name, output):
    def score(made):
        return (made[0] if isinstance(made, tuple) else made["logits"])[:, 1]

    x = images_for(varied_cnn(), (8, 9), 1)
    maps = quick(name)(varied_cnn(output=output), x, score)
    plain = quick(name)(varied_cnn(output="tensor"), x, lambda logits: logits[:, 1])
    assert torch.equal(maps, plain)


def test_the_output_of_these_tests_is_like_that_of_transformers():
    made = ModelOutput(logits=torch.rand(1, 2))
    assert made.logits is made["logits"]
    assert not hasattr(made, "loss")


@covers("methods.as_method")
@examples(20)
@given(
    net=networks(),
    size=st.sampled_from(SIZES[3:]),
    result=st.sampled_from(["map", "channels", "array", "small", "nan", "nothing", "text"]),
    layout=st.sampled_from(LAYOUTS),
)
def test_functions_as_methods(net, size, result, layout):
    def foreign(model, inputs, target):
        model.train()
        torch.rand(3)
        np.random.rand()
        maps = inputs.mean(1, keepdim=True)
        return {
            "map": lambda: maps,
            "channels": lambda: inputs / inputs.shape[1],
            "array": lambda: maps.numpy()[..., ::-1][..., ::-1],
            "small": lambda: maps[..., 1:],
            "nan": lambda: maps * math.nan,
            "nothing": lambda: None,
            "text": lambda: "map",
        }[result]()

    x = images_for(net, size, 2)
    with strategies.undisturbed(net, x):
        maps = attempt(lambda: fei.methods.as_method(foreign)(net, laid_out(x, layout), 0))
    if result in ("map", "channels", "array"):
        torch.testing.assert_close(maps, x.mean(1, keepdim=True))
    else:
        assert isinstance(maps, InputError)


@examples(30)
@given(obj=st.sampled_from([None, 3, "x", ":", "os:", "os:nothing", "nowhere:x", int, lambda: None, [], nn.Conv2d]))
def test_what_is_no_method_is_refused(obj):
    assert isinstance(attempt(lambda: fei.methods.as_method(obj)), InputError)
    assert isinstance(attempt(lambda: fei.methods.create(obj)), (InputError, TypeError))


@covers("compat.quantus.explain_func")
@examples(15)
@given(
    net=networks(),
    size=st.sampled_from(SIZES),
    way=st.sampled_from(["plain", "backwards", "read-only", "double", "torch"]),
)
def test_arrays_of_any_layout_for_quantus(net, size, way):
    x = images_for(net, size, 2)
    array = x.numpy().copy()
    if way == "backwards":
        array = array[..., ::-1].copy()[..., ::-1]
    elif way == "read-only":
        array.setflags(write=False)
    elif way == "double":
        array = array.astype(np.float64)
    targets = np.array([0, 1])
    targets.setflags(write=way != "read-only")
    got = explain_func(net, x if way == "torch" else array, targets, method="saliency")
    expected = fei.methods.create("saliency")(net, x, [0, 1])
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-7)
    assert got.dtype == np.float32


@covers("methods.Option")
@examples(150)
@given(
    text=st.text(max_size=12) | st.from_regex(r"[-+0-9.,eE \[\]]{1,12}", fullmatch=True),
    kind=st.sampled_from(["int", "str | None", "Sequence[float]", "Any"]),
)
@example("9" * 5000, "int")
@example("[" * 100_000, "Any")
@example("1,1e999", "Any")
def test_texts_become_values(text, kind):
    option = fei.methods.Option("x", kind, None, "")
    value = option.parse(text)
    assert value is None or isinstance(value, (bool, int, float, str, list, dict))


@covers("methods.called_with", "methods.checked", "methods.MethodCall")
@examples(20)
@given(depth=st.integers(-2, 3), progress=st.booleans())
def test_a_method_of_ones_own_takes_what_a_call_takes_and_checks_its_options(depth, progress):
    def check(name, value):
        if value < 0:
            raise InputError(f"`{name}` is {value}; give 0 or more.")

    @dataclass(eq=False, kw_only=True)
    class Own(fei.methods.Baseline):
        depth: int = fei.methods.checked(1, check)

        def maps(self, task):
            return task.images.sum(1) + self.depth

        @fei.methods.called_with(fei.methods.MethodCall)
        def told(self, call):
            return call

    made = attempt(lambda: Own(depth=depth))
    assert isinstance(made, InputError) == (depth < 0)
    if depth >= 0:
        x = torch.rand(1, 3, 8, 9)
        assert made.config == {"depth": depth}
        assert torch.equal(made(varied_cnn(), x, 0), x.sum(1, keepdim=True) + depth)
        call = made.told("model", x, progress=progress)
        assert (call.model, call.target, call.batch_size, call.progress) == ("model", None, None, progress)
        names = list(inspect.signature(fei.methods.MethodCall).parameters)
        assert list(inspect.signature(made.told).parameters) == list(inspect.signature(made).parameters) == names
        with pytest.raises(TypeError):
            made.told("model", x, None, None)


def test_options_are_read_off_constructors():
    assert all(option.name for name in METHODS for option in fei.methods.describe(name).options)
    assert [option.name for option in options_of(nn.ReLU)] == ["inplace"]


@covers("models.layers.feature_layers")
@examples(15)
@given(net=networks(), size=st.sampled_from(SIZES[3:]))
def test_feature_layers_are_modules(net, size):
    x = images_for(net, size, 2)
    with strategies.undisturbed(net, x):
        names = feature_layers(net, x)
    assert names
    assert all(net.get_submodule(name.partition("#")[0]) is not None for name in names)


@covers("progress.part")
@examples(20)
@given(units=st.integers(0, 7), steps=st.integers(0, 9), done=st.integers(0, 9))
def test_a_part_comes_to_its_units(units, steps, done):
    seen = []
    with part(lambda: seen.append(1), units) as report:
        for step in range(min(steps, done)):
            report(step + 1, steps)
            assert len(seen) == units * (step + 1) // steps
    assert len(seen) == units


@covers("progress.reporter")
@examples(20)
@given(total=st.integers(0, 5))
def test_progress_counts(total):
    seen = []
    with reporter(lambda done, of: seen.append((done, of)), total) as tick:
        for _ in range(total):
            tick()
    assert seen == [(i + 1, total) for i in range(total)]
