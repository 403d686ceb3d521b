"""The contract every registered method keeps, from one table: each new method joins by being registered."""

from functools import partial

import pytest
import torch
from networks import Bomb, fingerprint, pictures, small_cnn
from tiny_vit import tiny_vit
from torch import nn

import fei
from fei.errors import InputError, ModelError

# the cheapest options of methods whose defaults would take long here
OPTIMISATION = [*fei.methods.available("fei*"), "fgvis"]
QUICK = {name: {"steps": 3, "quantiles": [0.3, 0.7]} for name in OPTIMISATION} | {
    "integrated-gradients": {"steps": 3},
    "iia": {"outer": 2, "inner_steps": 2},
    "fgvce": {"permutations": 4},
    "smoothgrad": {"samples": 5},
    "gradient-shap": {"samples": 5},
    "occlusion": {"window": 4},
    "kernel-shap": {"segments": 6, "samples": 40},
    "rise": {"samples": 40},
    "extremal-perturbation": {"steps": 3, "areas": [0.1, 0.3], "cell": 2, "sigma": 4.0},
}
MANY_PASSES = (
    *("smoothgrad", "integrated-gradients", "gradient-shap", "scorecam", "iia", "fgvce"),
    *("rise", "extremal-perturbation", "occlusion", "kernel-shap", "vit-cx"),
)
FAMILIES = {name: fei.methods.describe(name).family for name in fei.methods.available()}
CONTROLS = {name for name, family in FAMILIES.items() if family == "chance"}
FOR_TRANSFORMERS = {name for name, family in FAMILIES.items() if family == "attention"}

every_method = pytest.mark.parametrize("name", fei.methods.available())


def quick(name):
    return fei.methods.create(name, **QUICK.get(name, {}))


def network_for(name):
    return tiny_vit() if name in FOR_TRANSFORMERS else small_cnn()


def test_names_of_the_contract():
    baselines = (
        "saliency smoothgrad integrated-gradients guided-backprop gradcam gradcam++ scorecam liftcam iia rise "
        "extremal-perturbation fgvce fgvis occlusion gradient-shap kernel-shap layercam xgradcam random "
        "smooth-noise centre brightness edges attention-rollout generic-attention legrad libra-fullgrad vit-cx"
    )
    variants = {f"fei-{v}" for v in ("vm", "ivm", "avm", "ibm", "bm", "abm", "none")}
    assert set(fei.methods.available()) == variants | set(baselines.split()) | {"fei"}


@every_method
@pytest.mark.parametrize("make", [small_cnn, tiny_vit])
def test_one_finite_map_an_image(name, make):
    if make is tiny_vit and name == "guided-backprop":
        pytest.skip("the network has no ReLU")
    if make is small_cnn and name in FOR_TRANSFORMERS:
        make = partial(tiny_vit, pool="mean")
    maps = quick(name)(make(), pictures(3))
    assert maps.shape == (3, 1, 12, 16)
    assert maps.isfinite().all()
    assert not maps.requires_grad
    assert all(one.unique().numel() > 1 for one in maps)


@every_method
def test_repeats_in_any_order_and_batch(name):
    method, model, x = quick(name), network_for(name), pictures(3)
    maps = method(model, x)  # one image at a time
    torch.manual_seed(99)
    assert torch.equal(method(model, x.flip(0)).flip(0), maps)
    assert torch.equal(method(model, x[1:2])[0], maps[1])


@every_method
def test_repeats_where_images_share_a_pass(name):
    # on some processors what a row gives depends on its place among the others, by round-off
    method, model, x = quick(name), network_for(name), pictures(3)
    maps = method(model, x, batch_size=4)
    assert torch.equal(method(model, x, batch_size=4), maps)
    near = {"rtol": 1e-4, "atol": 1e-5 * maps.abs().max().item()}
    torch.testing.assert_close(method(model, x.flip(0), batch_size=4).flip(0), maps, **near)
    torch.testing.assert_close(method(model, x[1:2], batch_size=4)[0], maps[1], **near)


@every_method
def test_leaves_model_inputs_and_global_random_state_alone(name):
    model, x = network_for(name), pictures()
    before, state, copy = fingerprint(model), torch.random.get_rng_state(), x.clone()
    quick(name)(model, x)
    assert fingerprint(model) == before
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(x, copy)


def broken_network(name):
    """One that fails in its second pass, half way through."""
    bomb = Bomb(KeyError("broken"), 2)
    if name not in FOR_TRANSFORMERS:
        return nn.Sequential(*small_cnn()[:4], bomb, *small_cnn()[4:]).eval()
    net = tiny_vit()
    net.blocks.insert(1, bomb)
    return net.eval()


@pytest.mark.parametrize("name", [name for name in fei.methods.available() if name not in CONTROLS])
def test_leaves_the_model_alone_after_a_failure(name):
    model = broken_network(name)
    before = fingerprint(model)
    with pytest.raises((KeyError, ModelError), match="broken"):  # a ModelError while layers are looked for
        quick(name)(model, pictures())
    assert fingerprint(model) == before


@every_method
def test_depends_on_the_target(name):
    method, model, x = quick(name), network_for(name), pictures(1)
    same = torch.equal(method(model, x, 0), method(model, x, 1))
    assert same == (name in {*CONTROLS, "attention-rollout"})


@every_method
def test_default_target_is_the_top_class(name):
    method, model, x = quick(name), network_for(name), pictures(3)
    assert torch.equal(method(model, x), method(model, x, model(x).argmax(1)))


@every_method
def test_works_under_no_grad_and_on_frozen_models(name):
    method, model, x = quick(name), network_for(name), pictures(1)
    expected = method(model, x, 1)
    with torch.no_grad():
        assert torch.equal(method(model.requires_grad_(False), x, 1), expected)


@every_method
def test_reports_progress(name):
    seen = []
    quick(name)(network_for(name), pictures(), progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize("name", [*OPTIMISATION, *MANY_PASSES])
def test_progress_moves_while_an_image_is_worked_on(name):
    model, calls, seen = network_for(name), [], set()
    for module in model.modules():
        module.register_forward_hook(lambda *_: calls.append(1))
    quick(name)(model, pictures(1), 0, batch_size=2, progress=lambda *_: seen.add(len(calls)))
    assert len(seen) > 1


@every_method
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda x: (x[0], None), "must have shape"),
        (lambda x: (x[:0], None), "is empty"),
        (lambda x: (x * float("nan"), None), "NaN or infinite"),
        (lambda x: (x, 17), "target 17 is out of range"),
        (lambda x: (x, [0, 1, 2]), "3 entries for 2 image"),
    ],
)
def test_refuses_bad_input(name, change, text):
    inputs, target = change(pictures())
    with pytest.raises(InputError, match=text):
        quick(name)(network_for(name), inputs, target)


@every_method
def test_refuses_a_model_in_training_mode_and_a_wrong_channel_count(name):
    with pytest.raises(InputError, match="evaluation mode"):
        quick(name)(network_for(name).train(), pictures())
    with pytest.raises(ModelError, match="The model failed on an input of shape|network fails on an image of 12 × 16"):
        quick(name)(network_for(name), pictures()[:, :2])


@pytest.mark.parametrize("name", OPTIMISATION)
def test_optimisation_methods_explain(name):
    result = quick(name).explain(small_cnn(), pictures(), 1)
    assert result.alphas.shape == (2, 2, 3 if name == "fgvis" else 1, 12, 16)
    assert result.perturbed().shape == (2, 2, 3, 12, 16)
    assert torch.equal(result.maps, quick(name)(small_cnn(), pictures(), 1))


def test_unknown_names_and_options():
    with pytest.raises(InputError, match=r"Unknown method 'fei-mv'; did you mean fei-"):
        fei.methods.create("fei-mv")
    with pytest.raises(InputError, match="method 'fei-vm' has no option 'step'; it takes preset, quantiles, steps"):
        fei.methods.create("fei-vm", step=3)
    with pytest.raises(InputError, match="`steps` must be a whole number"):
        fei.methods.create("fei-vm", steps=0)
