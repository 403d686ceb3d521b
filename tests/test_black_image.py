"""The black-image test: what counts as success, which trials there are, and what is refused."""

import sys
from dataclasses import dataclass

import pytest
import torch
from networks import fingerprint, small_cnn
from scipy.stats import binomtest
from torch import nn

from fei import methods
from fei.errors import InputError, ModelError
from fei.metrics.black_image import black_image, wilson_interval
from fei.models import Classifier

SIDE = 8


class Brightness(nn.Module):
    """Three classes by mean brightness m: the logits 0, 4m − 1 and 12m − 7 cross at m = 1/4 and m = 3/4."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.0, 4.0, 12.0]))

    def forward(self, x):
        return x.mean((1, 2, 3))[:, None] * self.scale + torch.tensor([0.0, -1.0, -7.0])


class Hue(nn.Module):
    """Class 0 for anything dark, else the strongest colour: 1 red, 2 green, 3 blue."""

    def forward(self, x):
        return torch.cat([torch.full((len(x), 1), 0.1), x.mean((2, 3))], 1) * 10


@dataclass
class Ended:
    images: torch.Tensor

    def perturbed(self):
        return self.images


class Fake:
    """Ends with plain images of given brightness, whatever it is asked; keeps the calls."""

    def __init__(self, *levels):
        self.levels, self.calls = levels, []

    def explain(self, model, inputs, target=None, *, reference=None, generator=None, batch_size=None, progress=False):
        self.calls.append((inputs, target, reference, generator, batch_size))
        images = torch.stack([torch.full_like(inputs, level) for level in self.levels], 1)
        progress(1, 1)
        return Ended(images)


def classifier(network):
    return Classifier(network, input_size=SIDE).eval()


# Success


def test_success_is_the_target_as_argmax_for_some_quantile():
    model, white = classifier(Brightness()), torch.ones(1, 3, 1, 1)
    # black is class 0, white class 2; m = 0.5 is class 1
    for levels, rate in (((0.1, 0.2), 0), ((0.1, 0.5), 1), ((0.5, 0.9), 1), ((0.8, 0.9), 0)):
        result = black_image(model, Fake(*levels), trials=3, targets=1, references=white)
        assert result.rate == rate
        assert result.success.tolist() == [bool(rate)] * 3
        assert (result.trials, result.dropped, result.redrawn) == (3, 0, 0)


def test_phi_gain_and_thresholds():
    model = classifier(Brightness())
    result = black_image(model, Fake(0.25, 0.5, 0.75), trials=2, targets=1, references=torch.ones(1, 3, 1, 1))
    # at m = 0.5 the logits are 0, 1 and −1, at black 0, −1 and −7; the highest φ of class 1 is at m = 0.5
    highest = torch.tensor([0.0, 1.0, -1.0]).double().softmax(0)[1].item()
    in_black = torch.tensor([0.0, -1.0, -7.0]).double().softmax(0)[1].item()
    assert highest == pytest.approx(0.665, abs=1e-3)
    assert result.phi.tolist() == pytest.approx([highest] * 2, abs=1e-6)
    assert result.gains.tolist() == pytest.approx([highest - in_black] * 2, abs=1e-6)
    assert result.gain == pytest.approx(highest - in_black, abs=1e-6)
    assert result.thresholds == {0.1: 1.0, 0.5: 1.0, 0.9: 0.0}


def test_a_real_optimisation_where_the_answer_is_known():
    # Masks of area 1 − q leave a share q of R: half of white has the brightness of class 1, any share of a dark grey
    # has not. The network is linear, so no clipping is involved.
    model = classifier(Brightness())
    references = torch.tensor([1.0, 0.2, 1.0, 0.2]).view(4, 1, 1, 1).expand(4, 3, 1, 1)
    result = black_image(
        model, methods.create("fei-none", steps=3, quantiles=[0.1, 0.5]), trials=4, targets=1, references=references
    )
    assert result.success.tolist() == [True, False, True, False]
    assert result.rate == 0.5
    assert result.interval == pytest.approx(wilson_interval(2, 4))
    assert result.method == "fei-none"
    assert result.config["steps"] == 3
    assert torch.equal(result.reference, references)


def test_no_mixture_of_red_and_black_is_green():
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    result = black_image(classifier(Hue()), "fei-none", trials=2, targets=2, references=red)
    assert result.rate == 0
    assert result.interval[0] == 0


def test_wilson_interval_is_scipys():
    for n in (1, 2, 7, 100, 1000):
        for k in {0, 1, n // 3, n - 1, n}:
            for confidence in (0.8, 0.95, 0.99):
                expected = binomtest(k, n).proportion_ci(confidence, method="wilson")
                assert wilson_interval(k, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert wilson_interval(0, 10)[0] == 0.0
    assert wilson_interval(10, 10)[1] == 1.0
    # Wilson's own formula by hand: n = 4, p = 1/2, z² = 3.8415
    assert wilson_interval(2, 4) == pytest.approx((0.1500, 0.8500), abs=1e-4)


# The trials


def test_trials_are_asked_of_a_black_image_with_a_colour_each():
    method = Fake(0.5)
    black_image(classifier(Hue()), method, trials=3, generator=torch.Generator().manual_seed(4), batch_size=2)
    ((inputs, target, reference, generator, batch_size),) = method.calls
    assert inputs.shape == (3, 3, SIDE, SIDE)
    assert not inputs.any()
    assert target.shape == (3,)
    assert reference.shape == (3, 3, 1, 1)
    assert len(reference.unique(dim=0)) == 3
    assert ((reference >= 0) & (reference <= 1)).all()
    assert generator.initial_seed() == 4
    assert batch_size == 2


def test_a_trial_is_the_same_however_many_there_are():
    model = classifier(Hue())

    def run(trials, seed=0):
        return black_image(model, Fake(0.5), trials=trials, generator=torch.Generator().manual_seed(seed))

    few, many, other = run(5), run(80), run(5, seed=1)
    assert torch.equal(few.target, many.target[:5])
    assert torch.equal(few.reference, many.reference[:5])
    assert not torch.equal(few.reference, other.reference)
    assert set(many.target.tolist()) == {1, 2, 3}
    assert torch.equal(black_image(model, Fake(0.5), trials=5).reference, few.reference)  # seed 0


@pytest.mark.parametrize("batch_size", [None, 3, 10])
def test_results_do_not_depend_on_the_chunks_or_on_how_many_there_are(monkeypatch, batch_size):
    model = classifier(small_cnn(seed=1))
    method = methods.create("fei-vm", steps=3)
    whole = black_image(model, method, trials=7, batch_size=batch_size)
    few = black_image(model, method, trials=4, batch_size=batch_size)
    monkeypatch.setattr(sys.modules["fei.metrics.black_image"], "_CHUNK", 3)
    cut = black_image(model, method, trials=7, batch_size=batch_size)
    for name in ("target", "reference", "success", "phi", "gains"):
        assert torch.equal(getattr(whole, name), getattr(cut, name)), name
        assert torch.equal(getattr(whole, name)[:4], getattr(few, name)), name
    assert whole.redrawn == cut.redrawn


def test_the_network_sees_the_target_in_neither_end_of_a_drawn_trial():
    model = classifier(Hue())
    result = black_image(model, Fake(0.5), trials=50)
    assert not (result.target == 0).any()
    assert not (result.target == model(result.reference.expand(-1, -1, SIDE, SIDE)).argmax(1)).any()
    # a quarter of the draws asks for what black is, and a third of the rest for the colour's own class
    assert 20 < result.redrawn < 120
    assert result.dropped == 0


def test_given_targets_that_cannot_be_redrawn_are_dropped_and_counted():
    model = classifier(Hue())
    colours = torch.eye(3).view(3, 3, 1, 1)[[0, 1, 2, 0]]  # red, green, blue, red
    result = black_image(model, Fake(0.5), trials=4, targets=[1, 1, 0, 2], references=colours)
    assert result.number.tolist() == [1, 3]  # red in red, and what black is, are gone
    assert (result.trials, result.dropped, result.redrawn) == (2, 2, 0)
    assert torch.equal(result.reference, colours[[1, 3]])
    with pytest.raises(InputError, match="No trial is left"):
        black_image(model, Fake(0.5), trials=2, targets=0)
    with pytest.raises(InputError, match="No trial is left"):
        black_image(model, Fake(0.5), trials=1, targets=1, references=colours[:1])


def test_given_targets_get_colours_that_do_not_show_them_and_the_reverse():
    model = classifier(Hue())
    result = black_image(model, Fake(0.5), trials=20, targets=1)
    assert (model(result.reference.expand(-1, -1, SIDE, SIDE)).argmax(1) != 1).all()
    assert result.redrawn > 0
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    result = black_image(model, Fake(0.5), trials=20, references=red)
    assert set(result.target.tolist()) == {2, 3}


def test_a_network_of_which_nothing_can_be_asked_is_refused_in_finite_time():
    class Light(nn.Module):
        def forward(self, x):
            light = (x.amax((1, 2, 3)) > 0).float()
            return torch.stack([1 - light, light], 1)

    with pytest.raises(InputError, match="No trial is left"):
        black_image(classifier(Light()), Fake(0.5), trials=2)


def test_a_bare_module_takes_its_own_black_and_references():
    method, black = Fake(-1.0), torch.full((1, 4, 6), -2.0)
    net = small_cnn(channels=1)
    result = black_image(net, method, trials=2, black=black, references=torch.rand(2, 1, 4, 6))
    assert (method.calls[0][0] == -2).all()
    assert result.reference.shape == (result.trials, 1, 4, 6)


def test_the_callers_model_generator_and_global_state_stay_as_they_were():
    model = classifier(small_cnn())
    generator = torch.Generator().manual_seed(3)
    before = fingerprint(model), generator.get_state(), torch.get_rng_state()
    black_image(model, methods.create("fei-ibm", steps=2), trials=2, generator=generator)
    assert fingerprint(model) == before[0]
    assert torch.equal(generator.get_state(), before[1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_it_works_under_inference_mode_and_in_double_precision():
    method = methods.create("fei-vm", steps=2)
    model = classifier(small_cnn())
    plain = black_image(model, method, trials=2)
    with torch.inference_mode():
        assert torch.equal(black_image(model, method, trials=2).phi, plain.phi)
    double = black_image(model.double(), method, trials=2)
    assert torch.equal(double.target, plain.target)
    assert torch.allclose(double.reference, plain.reference.double())


def test_progress_counts_trials():
    seen = []
    model = classifier(small_cnn())
    method = methods.create("fei-vm", steps=4)
    result = black_image(model, method, trials=5, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i + 1, result.trials) for i in range(result.trials)]


# What is refused


@pytest.mark.parametrize("trials", [0, -1, 2.0, True, None])
def test_trials_must_be_a_positive_number(trials):
    with pytest.raises(InputError, match="`trials` must be a whole number of at least 1"):
        black_image(classifier(Hue()), Fake(0.5), trials=trials)


@pytest.mark.parametrize("method", ["saliency", lambda model, inputs, target: inputs[:, :1], methods.create("random")])
def test_a_method_without_perturbed_images_is_refused(method):
    with pytest.raises(InputError, match="shows it through `explain`.*choose one of fei, fei-vm"):
        black_image(classifier(Hue()), method, trials=1)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="did you mean fei-vm"):
        black_image(classifier(Hue()), "fei-wm", trials=1)


def test_a_bare_module_without_black_or_references_is_refused():
    net, method, black = small_cnn(), Fake(0.5), torch.zeros(3, SIDE, SIDE)
    with pytest.raises(InputError, match="What is black to this network is not known"):
        black_image(net, method, trials=1, references=torch.ones(1, 3, 1, 1))
    with pytest.raises(InputError, match="The colours of this network's input space are not known"):
        black_image(net, method, trials=1, black=black)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"references": torch.zeros(1, 3, 1, 1)}, "Reference 0 is as black as the image"),
        ({"references": torch.stack([torch.ones(3, 1, 1), torch.full((3, 1, 1), 1 / 300)])}, "Reference 1 is as black"),
        ({"references": torch.ones(3, 3, 1, 1)}, r"shape \(1 or 2, 3, 1 or 8, 1 or 8\); got \(3, 3, 1, 1\)"),
        ({"references": torch.ones(3, 1, 1)}, "`references` must have the shape"),
        ({"references": torch.ones(2, 1, 1, 1)}, "`references` must have the shape"),
        ({"references": torch.tensor(1.0)}, "`references` must have the shape"),
        ({"references": "white"}, "`references` must be a tensor of shape"),
        ({"references": torch.full((1, 3, 1, 1), float("nan"))}, "`references` holds NaN"),
        ({"targets": 4}, "target 4 is out of range; the network has classes 0 to 3"),
        ({"targets": [1, 2, 3]}, r"`targets` has 3 entries for 2 trial\(s\)"),
        ({"targets": 1.5}, "must be a class index"),
        ({"black": torch.zeros(1, 3, 8, 8)}, r"`black` must be a tensor of one image \(C, H, W\)"),
        ({"black": 0}, r"`black` must be a tensor of one image \(C, H, W\); got int"),
        ({"black": torch.full((3, 8, 8), float("inf"))}, "`black` holds NaN"),
        ({"batch_size": 0}, "batch_size` must be a whole number"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(given, expected):
    with pytest.raises(InputError, match=expected):
        black_image(classifier(Hue()), Fake(0.5), trials=2, **given)


def test_networks_that_cannot_be_tested_are_refused():
    with pytest.raises(InputError, match="call model.eval"):
        black_image(classifier(Hue()).train(), Fake(0.5), trials=1)
    with pytest.raises(InputError, match="at least two classes"):
        black_image(classifier(small_cnn(classes=1)), Fake(0.5), trials=1)
    broken = small_cnn()
    with torch.no_grad():
        broken[-1].weight.fill_(float("nan"))
    with pytest.raises(ModelError, match="NaN or infinite"):
        black_image(classifier(broken), Fake(0.5), trials=1)
    with pytest.raises(ModelError, match=r"The model failed on an input of shape \(1, 1, 8, 8\)"):
        black_image(classifier(small_cnn()), Fake(0.5), trials=1, black=torch.zeros(1, 8, 8), targets=1)


def test_perturbed_images_of_another_shape_are_refused():
    class Odd(Fake):
        def explain(self, model, inputs, target=None, **_):
            return Ended(inputs)

    with pytest.raises(InputError, match=r"The explanation of Odd has .* expected \(2, masks, 3, 8, 8\)"):
        black_image(classifier(Hue()), Odd(), trials=2)


def test_a_method_with_references_of_its_own_is_tried_on_the_trials_colour():
    model, white = classifier(small_cnn()), torch.ones(1, 3, 1, 1)
    x = torch.zeros(1, 3, SIDE, SIDE)
    with torch.no_grad():
        seen = {int(model(image).argmax()) for image in (x, white.expand_as(x))}
    target = min(set(range(5)) - seen)
    method = methods.create("fei", steps=2)
    found = black_image(model, method, trials=2, targets=target, references=white)
    own = method.explain(model, x, target)  # type: ignore[attr-defined]  # with its own references, not with white
    assert own.config["reference"] == {"kind": "color+clouds", "resample": True}
    shown = 1 - own.alphas[0]  # black where the mask is, white elsewhere
    with torch.no_grad():
        logits = model(shown.expand(-1, 3, -1, -1))
    assert found.success.tolist() == [bool((logits.argmax(1) == target).any())] * 2
    assert found.phi.tolist() == pytest.approx([logits.softmax(1)[:, target].max().item()] * 2, rel=1e-5)
    assert found.method == "fei"
