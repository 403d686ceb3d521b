"""At home beside captum and Quantus: the installed libraries use FEI as one of their own."""

import numpy as np
import pytest
import quantus
import torch
from captum.attr import NoiseTunnel
from captum.metrics import infidelity, sensitivity_max
from networks import fingerprint, pictures, small_cnn

import fei
from fei.compat.quantus import explain_func


@pytest.fixture
def explainer():
    return fei.FEI(small_cnn(), steps=3, quantiles=[0.3, 0.7])


def test_tuples_as_captum_passes_them(explainer):
    x = pictures()
    maps = explainer.attribute(x, 1)
    wrapped = explainer.attribute((x,), 1, (None,))
    assert isinstance(wrapped, tuple)
    assert torch.equal(wrapped[0], maps)


def test_noise_tunnel_averages_maps_of_noisy_images(explainer):
    x = pictures()
    assert torch.equal(
        NoiseTunnel(explainer).attribute(x, nt_samples=2, stdevs=0.0, target=1), explainer.attribute(x, 1)
    )
    noisy = NoiseTunnel(explainer).attribute(x, nt_samples=2, stdevs=0.1, target=1)
    assert noisy.shape == (2, 1, 12, 16)
    assert not torch.equal(noisy, explainer.attribute(x, 1))


def test_sensitivity_max_calls_under_no_grad(explainer):
    x = pictures()
    assert sensitivity_max(explainer.attribute, x, perturb_radius=0.0, target=1).tolist() == [0, 0]
    assert (sensitivity_max(explainer.attribute, x, perturb_radius=0.1, target=1) > 0).all()


def test_infidelity_takes_the_maps(explainer):
    x = pictures()
    maps = explainer.attribute(x, 1)

    def perturb(inputs):
        noise = 0.1 * torch.ones_like(inputs)
        return noise, inputs - noise

    assert infidelity(explainer.model, perturb, x, maps.expand_as(x), target=1).shape == (2,)


def test_explain_func_is_stateless_numpy_in_numpy_out():
    model, x = small_cnn(), pictures()
    before = fingerprint(model)
    maps = explain_func(model, x.numpy(), np.array([1, 2]), steps=3, quantiles=[0.3, 0.7], device="cpu")
    assert fingerprint(model) == before
    assert maps.dtype == np.float32
    expected = fei.FEI(model, steps=3, quantiles=[0.3, 0.7]).attribute(x, [1, 2])
    np.testing.assert_array_equal(maps, expected.numpy())
    other = explain_func(small_cnn(seed=1), x.numpy(), np.array([1, 2]), steps=3, quantiles=[0.3, 0.7])
    assert not np.array_equal(other, maps)


def test_quantus_metrics_call_it():
    model, x = small_cnn(), pictures(size=(12, 12)).numpy()
    targets = np.array([1, 2])
    sparseness = quantus.Sparseness(disable_warnings=True)(
        model=model,
        x_batch=x,
        y_batch=targets,
        a_batch=None,
        device="cpu",
        explain_func=explain_func,
        explain_func_kwargs={"steps": 3},
    )
    assert len(sparseness) == 2
    assert all(0 < value < 1 for value in sparseness)
    stability = quantus.MaxSensitivity(nr_samples=2, disable_warnings=True)(
        model=model,
        x_batch=x,
        y_batch=targets,
        a_batch=None,
        device="cpu",
        explain_func=explain_func,
        explain_func_kwargs={"steps": 2},
    )
    assert len(stability) == 2
