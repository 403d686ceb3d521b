"""Insertion, deletion and internal faithfulness: hand-computed curves, identities, and a plain numpy re-computation."""

import dataclasses

import numpy as np
import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from test_protocols import maps_for
from torch import nn

import fei
from fei import protocols
from fei.errors import InputError, ModelError
from fei.metrics import deletion, evaluate, insertion, internal
from fei.metrics.perturbation import Perturbations, PerturbedRow, check_maps
from fei.protocols import Quantiles
from fei.references import normalised_zero


class Sum(nn.Module):
    """Logits (Σx, 0): what a pixel adds is its value."""

    def forward(self, x):
        total = x.sum((1, 2, 3))
        return torch.stack([total, torch.zeros_like(total)], 1)


TWO_BY_TWO = torch.tensor([[4.0, 3.0], [2.0, 1.0]]).view(1, 1, 2, 2)


def fine(levels):
    return dataclasses.replace(fei.protocols.get("fei-fine"), name="hand", levels=Quantiles(levels), score="logit")


def test_curves_by_hand_on_a_two_by_two_image():
    """Pixels 4 3 2 1 ranked right: deleting from the top leaves 10 6 3 1 0, inserting keeps 10 9 7 4 0."""
    protocol = fine((0.0, 0.25, 0.5, 0.75, 1.0))
    arguments = (Sum().eval(), TWO_BY_TWO, TWO_BY_TWO, 0)
    removed = deletion(*arguments, protocol=protocol, reference=0.0)
    kept = insertion(*arguments, protocol=protocol, reference=0.0)
    assert removed.scores.tolist() == [[10, 6, 3, 1, 0]]
    assert kept.scores.tolist() == [[10, 9, 7, 4, 0]]
    assert removed.fractions.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert removed.auc.item() == pytest.approx((10 / 2 + 6 + 3 + 1) / 4)
    assert kept.auc.item() == pytest.approx((10 / 2 + 9 + 7 + 4) / 4)
    assert kept.higher_is_better
    assert not removed.higher_is_better


def test_the_papers_protocol_by_hand():
    """q = .1 .3 .5 .7 .9 of four pixels paint round(.4 1.2 2 2.8 3.6) = 0 1 2 3 4; the plain mean of the scores."""
    kept = insertion(Sum().eval(), TWO_BY_TWO, TWO_BY_TWO, 0, reference=0.0, score="logit")
    assert kept.scores.tolist() == [[10, 9, 7, 4, 0]]
    assert kept.auc.item() == pytest.approx(6.0)


def test_half_rounds_to_even():
    assert Quantiles((0.5,))(5, 1)[0] == [2]
    assert Quantiles((0.5,))(7, 1)[0] == [4]


def test_replacement_is_the_reference():
    kept = insertion(Sum().eval(), TWO_BY_TWO, TWO_BY_TWO, 0, protocol=fine((0.5,)), reference=torch.tensor(10.0))
    assert kept.scores.tolist() == [[27]]


@pytest.mark.parametrize("protocol", ["fei-paper", "fei-fine"])
def test_insertion_of_a_map_is_deletion_of_its_opposite(protocol):
    model, x = small_cnn(), pictures(3)
    maps = maps_for(x)
    kept = insertion(model, x, maps, 1, protocol=protocol)
    removed = deletion(model, x, -maps, 1, protocol=protocol)
    torch.testing.assert_close(kept.scores, removed.scores)


def test_random_is_at_chance_and_an_oracle_above_it():
    """On a linear model a random map keeps on average its share of the sum; an oracle keeps more at every level."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 1, 30, 30, generator=generator)
    model = Sum().eval()
    protocol = fine((0.25, 0.5, 0.75))
    many = [
        insertion(model, x, torch.rand(1, 1, 30, 30, generator=generator), 0, protocol=protocol, reference=0.0).scores
        for _ in range(40)
    ]
    chance = torch.cat(many).mean(0) / x.sum()
    torch.testing.assert_close(chance, torch.tensor([0.75, 0.5, 0.25]), atol=0.01, rtol=0)
    oracle = insertion(model, x, x, 0, protocol=protocol, reference=0.0).scores[0] / x.sum()
    assert (oracle > chance + 0.1).all()


def test_constant_maps_are_at_chance_and_say_so():
    model, x = small_cnn(), pictures(2)
    curve = insertion(model, x, torch.zeros(2, 1, 12, 16), protocol="fei-fine")
    assert curve.ties.tolist() == [1, 1]
    shuffled = insertion(model, x, torch.ones(2, 1, 12, 16), protocol="fei-fine")
    torch.testing.assert_close(curve.scores, shuffled.scores)  # the same random order for the same image and seed
    other = insertion(
        model, x, torch.ones(2, 1, 12, 16), protocol="fei-fine", generator=torch.Generator().manual_seed(5)
    )
    assert not torch.equal(curve.scores, other.scores)


def test_tie_fraction_counts_pixels_that_share_their_value():
    maps = torch.tensor([[[1.0, 2.0], [3.0, 1.0]], [[3.0, 1.0], [4.0, 2.0]], [[5.0, 6.0], [6.0, 5.0]]])
    curve = insertion(Sum().eval(), TWO_BY_TWO.repeat(3, 1, 1, 1), maps, 0, reference=0.0)
    assert curve.ties.tolist() == [0.5, 0, 1]


def test_batch_order_and_chunk_size_change_nothing_beyond_round_off():
    model, x = small_cnn(), pictures(4)
    maps = maps_for(x)
    whole = evaluate(model, x, maps, batch_size=64)
    for size in (1, 3, 7):
        small = evaluate(model, x, maps, batch_size=size)
        torch.testing.assert_close(small.insertion.scores, whole.insertion.scores, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(small.deletion.scores, whole.deletion.scores, atol=1e-6, rtol=1e-5)
        for layer in whole.internal:
            torch.testing.assert_close(small.internal[layer].mse, whole.internal[layer].mse, atol=1e-6, rtol=1e-4)
    backwards = evaluate(model, x.flip(0), maps.flip(0))
    torch.testing.assert_close(backwards.insertion.scores.flip(0), whole.insertion.scores, atol=1e-6, rtol=1e-5)


def test_the_same_reference_as_the_explanation():
    """With one seed R is the same in optimisation and evaluation, without passing it on."""
    model, x = small_cnn(), pictures(2)
    result = fei.FEI(model, steps=2, seed=3).explain(x)
    given = insertion(model, x, result.maps, reference=result.reference)
    drawn = insertion(model, x, result.maps, protocol="fei-paper", generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(given.scores, drawn.scores)


def features_at(model, layer, images):
    kept = []
    handle = model.get_submodule(layer).register_forward_hook(
        lambda m, a, out: kept.append(out.clone().double().numpy())
    )
    with torch.no_grad():
        model(images)
    handle.remove()
    return kept[0]


def numpy_similarity(a, b):
    a, b = a.ravel(), b.ravel()
    return ((a - b) ** 2).mean(), a @ b / np.linalg.norm(a) / np.linalg.norm(b), np.corrcoef(a, b)[0, 1]


@pytest.mark.needs_assets
def test_internal_metrics_of_resnet50_by_numpy(assets):
    """One layer of the real network: masks, activations and numbers recomputed with numpy from scratch."""
    model = fei.models.load(f"{assets / 'zoo.py'}:resnet50")
    x = model.preprocess(min((assets / "imagenet" / "n02099601").iterdir()))[None]
    maps = maps_for(x)
    reference = torch.tensor([0.2, 0.5, 0.9]).view(1, 3, 1, 1)
    got = internal(model, x, maps, layers=["layer4"], reference=reference)
    original = features_at(model, "network.net.layer4", x)[0]
    order = np.argsort(-maps.numpy().ravel(), kind="stable")
    rows = []
    for q in (0.1, 0.3, 0.5, 0.7, 0.9):
        painted = x.numpy().reshape(3, -1).copy()
        bottom = order[len(order) - round(q * len(order)) :]
        painted[:, bottom] = reference.numpy().reshape(3, 1)
        image = torch.from_numpy(painted.reshape(1, 3, 224, 224))
        rows.append(numpy_similarity(original, features_at(model, "network.net.layer4", image)[0]))
    mse, cosine, pearson = np.mean(rows, 0)
    assert list(got) == ["layer4"]
    assert got["layer4"].mse.item() == pytest.approx(mse, rel=1e-4)
    assert got["layer4"].cosine.item() == pytest.approx(cosine, rel=1e-4)
    assert got["layer4"].pearson.item() == pytest.approx(pearson, rel=1e-4)


@pytest.mark.parametrize(("protocol", "forwards"), [("fei-paper", 11), ("fei-fine", 40)])
def test_every_image_passes_once(protocol, forwards):
    """The original once for its class, its score and its activations; the all-replaced end of both curves once."""
    model, x, rows = small_cnn(), pictures(2), []
    model.register_forward_hook(lambda module, args, output: rows.append(len(args[0])))
    result = evaluate(model, x, maps_for(x), layers=["2", "5"], protocol=protocol)
    assert sum(rows) - 1 == 2 * forwards  # one more row was for finding the layers
    assert result.forwards == forwards
    apart = internal(model, x, maps_for(x), layers=["2", "5"], protocol=protocol)
    torch.testing.assert_close(result.internal["5"].cosine, apart["5"].cosine)
    torch.testing.assert_close(result.internal_curves["5"].mse.mean(1), apart["5"].mse)
    kept = insertion(model, x, maps_for(x), protocol=protocol)
    removed = deletion(model, x, maps_for(x), protocol=protocol)
    torch.testing.assert_close(result.insertion.scores, kept.scores)
    torch.testing.assert_close(result.deletion.scores, removed.scores)


def test_end_points_are_left_out_of_internal():
    model, x = small_cnn(), pictures(1)
    result = evaluate(model, x, maps_for(x), layers=["5"], protocol="fei-fine")
    assert result.insertion.scores.shape == (1, 21)
    assert result.internal_curves["5"].mse.shape == (1, 19)


class InPlace(nn.Module):
    """One in-place ReLU used twice, then overwritten by an in-place addition."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.relu = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.ReLU(inplace=True)

    def forward(self, x):
        first = self.relu(self.a(x))
        second = self.relu(self.b(first))
        second += 1000
        return second.mean((2, 3))


def test_layers_with_reused_and_overwritten_modules():
    model, x = InPlace().eval(), pictures(1)
    maps = maps_for(x)
    got = internal(model, x, maps, layers=["relu#0", "relu#1", "b"], reference=0.3, protocol=fine((0.5,)))
    rank = maps.flatten().argsort(descending=True, stable=True).argsort(stable=True).view(1, 1, 12, 16)
    perturbed = torch.where(rank < 96, x, torch.tensor(0.3))

    def values(images):
        with torch.no_grad():
            a = model.a(images).clamp(min=0)
            b = model.b(a)
            return {"relu#0": a, "b": b, "relu#1": b.clamp(min=0)}

    before, after = values(x), values(perturbed)
    for layer in got:
        mse, cosine, pearson = numpy_similarity(before[layer].double().numpy(), after[layer].double().numpy())
        assert got[layer].mse.item() == pytest.approx(mse, rel=1e-4)
        assert got[layer].cosine.item() == pytest.approx(cosine, rel=1e-4)
        assert got[layer].pearson.item() == pytest.approx(pearson, rel=1e-3)


def test_zero_activations_are_guarded():
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 12 * 16, 2)).eval()
    nn.init.constant_(model[0].bias, -100)
    got = internal(model, pictures(1), maps_for(pictures(1)), layers=["1"])["1"]
    assert (got.mse.item(), got.cosine.item(), got.pearson.item()) == (0, 0, 0)


def test_default_layers_are_the_networks_stages():
    assert list(internal(small_cnn(), pictures(1, (16, 16)), maps_for(pictures(1, (16, 16))))) == ["2", "5"]


def test_models_are_left_alone():
    model, x = small_cnn(), pictures(2)
    before, state = fingerprint(model), torch.random.get_rng_state()
    evaluate(model, x, maps_for(x))
    assert fingerprint(model) == before
    assert torch.equal(torch.random.get_rng_state(), state)


def test_batches_are_no_larger_than_asked():
    """Ten perturbed rows an image, twenty in a batch: originals pass two at a time, and the last one alone."""
    model, x, rows = small_cnn(), pictures(3), []
    model.register_forward_hook(lambda module, args, output: rows.append(len(args[0])))
    evaluate(model, x, maps_for(x), layers=[], protocol="fei-paper", batch_size=20)
    assert rows == [2, 20, 1, 10]
    rows.clear()
    evaluate(model, x, maps_for(x), layers=[], protocol="fei-paper", batch_size=7)
    assert rows == [1, 7, 3] * 3
    rows.clear()
    insertion(model, x, maps_for(x), protocol=fine((0.5,)), batch_size=2)
    assert rows == [2, 2, 1, 1]


def test_a_curve_may_be_the_image_alone():
    assert insertion(Sum().eval(), TWO_BY_TWO, TWO_BY_TWO, 0, protocol=fine((0.0,))).scores.tolist() == [[10]]


@pytest.mark.parametrize(
    ("protocol", "forwards"), [("rise", 1 + 12 + 12), ("torchcam", 1 + 20 + 19), ("quantus-pixelflipping", 1 + 36 + 35)]
)
def test_curves_measured_together_are_those_measured_apart(protocol, forwards):
    """Where both curves end in the same image it passes once; RISE's end in two, one blurred and one grey."""
    model, x = small_cnn(), pictures(2)
    both = evaluate(model, x, maps_for(x), layers=[], protocol=protocol)
    assert both.forwards == forwards
    torch.testing.assert_close(both.insertion.scores, insertion(model, x, maps_for(x), protocol=protocol).scores)
    torch.testing.assert_close(both.deletion.scores, deletion(model, x, maps_for(x), protocol=protocol).scores)


def test_curves_need_not_have_the_same_points():
    """Deletion goes to the end, insertion does not."""
    protocol = dataclasses.replace(fine((0.5,)), levels=lambda total, width: ([0, 2], [1, 4]))
    both = evaluate(Sum().eval(), TWO_BY_TWO, TWO_BY_TWO, 0, layers=[], protocol=protocol, reference=1.0)
    assert both.insertion.scores.tolist() == [[10, 9]]
    assert both.deletion.scores.tolist() == [[7, 4]]


def test_a_protocol_may_fix_the_reference():
    protocol = dataclasses.replace(fine((0.5,)), replacement=5.0)
    assert insertion(Sum().eval(), TWO_BY_TWO, TWO_BY_TWO, 0, protocol=protocol).scores.tolist() == [[17]]


def test_nothing_is_printed_unless_asked(capsys):
    model, x = small_cnn(), pictures(1)
    for metric in (insertion, deletion, internal, evaluate):
        metric(model, x, maps_for(x))
    assert capsys.readouterr() == ("", "")


def test_results_cannot_be_changed():
    result = evaluate(small_cnn(), pictures(1), maps_for(pictures(1)), layers=[])
    for part, name in ((result, "target"), (result.insertion, "auc"), (PerturbedRow(0, "insertion", 1, 0), "point")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, name, None)


def test_what_a_larger_number_means():
    known = {name: fei.metrics.HIGHER_IS_BETTER[name] for name in ("insertion", "deletion", "mse", "cosine", "pearson")}
    assert known == {"insertion": True, "deletion": False, "mse": False, "cosine": True, "pearson": True}


def test_double_precision_is_measured_as_single_is():
    model, x = small_cnn(), pictures(2)
    single = evaluate(model, x, maps_for(x), reference=0.5)
    double = evaluate(small_cnn().double(), x.double(), maps_for(x).double(), reference=0.5)
    torch.testing.assert_close(single.insertion.scores, double.insertion.scores, atol=1e-5, rtol=0)
    torch.testing.assert_close(single.internal["5"].mse, double.internal["5"].mse, atol=1e-5, rtol=1e-4)
    assert single.insertion.fractions.dtype == torch.float64


def test_classes_are_those_scored():
    model, x = small_cnn(), pictures(3)
    with torch.no_grad():
        top = model(x).argmax(1)
    assert torch.equal(evaluate(model, x, maps_for(x), batch_size=10).target, top)
    result = evaluate(model, x, maps_for(x), [3, 0, 2], batch_size=2, protocol=fine((0.0, 0.5)))
    assert result.target.tolist() == [3, 0, 2]
    for i, c in enumerate([3, 0, 2]):
        assert result.deletion.scores[i, 0].item() == pytest.approx(model(x)[i, c].item(), abs=1e-5)


def test_a_callable_target_scores_the_output_itself():
    model, x = small_cnn(), pictures(2)
    result = evaluate(model, x, maps_for(x), lambda output: output.sum(1), protocol=fine((0.0, 0.5)))
    assert result.target.tolist() == [-1, -1]
    torch.testing.assert_close(result.insertion.scores[:, 0], model(x).sum(1).detach(), atol=1e-5, rtol=0)


def test_progress_counts_forwards():
    seen = []
    model, x = small_cnn(), pictures(2)
    evaluate(model, x, maps_for(x), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)  # five points, two curves, two references and two images


@pytest.mark.parametrize(
    ("given", "taken"),
    [(torch.float32, torch.float32), (torch.float64, torch.float64), (torch.float16, torch.float64)],
)
def test_maps_are_ranked_in_single_or_double_precision_without_a_graph(given, taken):
    maps = torch.rand(2, 1, 4, 4).to(given).requires_grad_()
    flat = check_maps(maps, torch.zeros(2, 3, 4, 4))
    assert (flat.shape, flat.dtype, flat.requires_grad) == ((2, 4, 4), taken, False)
    assert torch.equal(flat, maps.detach()[:, 0].to(taken))


def one_nan():
    maps = torch.rand(2, 1, 12, 16)
    maps[1, 0, 3, 4] = float("nan")
    return maps


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"maps": torch.rand(2, 1, 6, 8)}, InputError, r"`maps` has shape \(2, 1, 6, 8\); expected \(2, 1, 12, 16\)"),
        ({"maps": torch.rand(3, 1, 12, 16)}, InputError, r"expected \(2, 1, 12, 16\) for inputs of"),
        ({"maps": torch.full((2, 1, 12, 16), float("nan"))}, InputError, "`maps` holds NaN or infinite values"),
        (
            {"maps": torch.rand(2, 3, 12, 16)},
            InputError,
            r"`maps` has shape \(2, 3, 12, 16\); expected \(2, 1, 12, 16\)",
        ),
        ({"maps": one_nan()}, InputError, "`maps` holds NaN or infinite values"),
        ({"maps": [1, 2]}, InputError, "`maps` must be a tensor"),
        ({"score": "prob", "target": lambda output: output[:, 0]}, InputError, "Unknown score 'prob'"),
        ({"layers": "5"}, InputError, "`layers` is '5'; give a list of module names, or None"),
        ({"layers": 5}, InputError, "`layers` is 5; give a list of module names, or None"),
        ({"target": 9}, InputError, "target 9 is out of range"),
        ({"protocol": "rice"}, InputError, "Unknown protocol 'rice'; did you mean rise"),
        ({"layers": ["6.conv"]}, InputError, "The network ran no module named '6.conv'"),
        ({"score": "prob"}, InputError, "Unknown score 'prob'"),
        ({"batch_size": 0}, InputError, "must be a whole number of at least 1"),
    ],
)
def test_bad_input(change, error, text):
    x = pictures(2)
    arguments = {"maps": maps_for(x)} | change
    with pytest.raises(error, match=text):
        evaluate(small_cnn(), x, **arguments)


def test_maps_without_a_channel_will_do_even_one_pixel_high():
    model, x = small_cnn(), pictures(2, (2, 16))
    torch.testing.assert_close(
        insertion(model, x, maps_for(x)[:, 0]).scores, insertion(model, x, maps_for(x)).scores, rtol=0, atol=0
    )
    line = TWO_BY_TWO.view(1, 1, 1, 4)
    kept = insertion(Sum().eval(), line, line[:, 0], 0, reference=0.0, score="logit")
    assert kept.scores.tolist() == [[10, 9, 7, 4, 0]]


def test_a_model_that_trains_is_refused():
    with pytest.raises(InputError, match="`model` must be in evaluation mode; call model.eval\\(\\) first"):
        insertion(small_cnn().train(), pictures(1), maps_for(pictures(1)))


def test_a_softmax_of_one_logit_is_refused():
    with pytest.raises(InputError, match="The softmax of a single logit is always 1"):
        insertion(small_cnn(classes=1), pictures(1), maps_for(pictures(1)))


def test_images_too_small_for_a_curve_inside_the_network_are_refused():
    """One pixel: nothing or everything is replaced."""
    x = pictures(1, (1, 1))
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)).eval()
    text = r"Protocol held-out/1 replaces none or all of the 1 value\(s\) of these images"
    with pytest.raises(InputError, match=text):
        internal(model, x, maps_for(x), layers=["1"])
    assert evaluate(model, x, maps_for(x), layers=[]).internal == {}
    two = pictures(1, (1, 2))
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()
    assert internal(model, two, maps_for(two), layers=["1"])["1"].mse.shape == (1,)  # one of two pixels is a point


def test_bad_layers_name_the_close_ones():
    with pytest.raises(InputError, match=r"layer 'relu' runs 2 times; name one call as relu#0 to relu#1"):
        internal(InPlace().eval(), pictures(1), maps_for(pictures(1)), layers=["relu"])
    with pytest.raises(InputError, match="did you mean relu"):
        internal(InPlace().eval(), pictures(1), maps_for(pictures(1)), layers=["relo"])


def test_a_network_that_breaks_on_perturbed_images_is_reported():
    class Fragile(nn.Module):
        def forward(self, x):
            return torch.where(x.amin((1, 2, 3), keepdim=True)[..., 0, 0] < 0, float("nan"), x.mean((2, 3)))

    with pytest.raises(ModelError, match="The score on a perturbed image is NaN or infinite"):
        insertion(Fragile().eval(), pictures(1), maps_for(pictures(1)), reference=-5.0, protocol=fine((0.0, 0.5)))

    class Corner(nn.Module):
        def forward(self, x):
            return torch.where(x[:, :, 0, 0] < 0, float("nan"), x.mean((2, 3)))

    maps = maps_for(pictures(1))
    maps[..., 0, 0] = 100  # deletion takes the corner first, insertion leaves it
    with pytest.raises(ModelError, match="The score on a perturbed image is NaN or infinite"):
        evaluate(Corner().eval(), pictures(1), maps, layers=[], reference=-5.0, protocol=fine((0.0, 0.5)))


def test_activations_that_cannot_be_compared_are_reported():
    """Too large to be squared in the middle, of ordinary size at the end; the cosine alone would be finite."""

    class Spike(nn.Module):
        def forward(self, x):
            return self.end(self.spike(x))

        def __init__(self):
            super().__init__()
            self.spike, self.end = Overflow(), End()

    class Overflow(nn.Module):
        def forward(self, x):
            return torch.where(x < 0, 1e25, x)

    class End(nn.Module):
        def forward(self, x):
            return x.clamp(max=1).mean((2, 3))

    x = pictures(1)
    with pytest.raises(ModelError, match="Activations of 'spike' are NaN, infinite or too large to compare"):
        internal(Spike().eval(), x, maps_for(x), layers=["spike"], reference=-5.0, protocol=fine((0.0, 0.5)))
    assert insertion(Spike().eval(), x, maps_for(x), reference=-5.0).scores.isfinite().all()


def test_a_point_under_several_replacements_is_their_mean():
    model, x = small_cnn(), pictures(2)
    paper = protocols.get("fei-paper")
    fills = normalised_zero, protocols.input_minimum
    together = dataclasses.replace(paper, name="both", replacement=protocols.Averaged(fills))
    apart = [dataclasses.replace(paper, name="one", replacement=(fill, fill)) for fill in fills]
    found = evaluate(model, x, maps_for(x), layers=["5"], protocol=together)
    parts = [evaluate(model, x, maps_for(x), layers=["5"], protocol=each) for each in apart]
    for curve in ("insertion", "deletion"):
        expected = torch.stack([getattr(part, curve).scores for part in parts]).mean(0)
        torch.testing.assert_close(getattr(found, curve).scores, expected)
        assert not torch.allclose(getattr(parts[0], curve).scores, getattr(parts[1], curve).scores)
    for name in ("mse", "cosine", "pearson"):
        expected = torch.stack([getattr(part.internal["5"], name) for part in parts]).mean(0)
        torch.testing.assert_close(getattr(found.internal["5"], name), expected)
    ends = dataclasses.replace(protocols.get("fei-fine"), replacement=protocols.Averaged(fills))
    whole = evaluate(model, x, maps_for(x), layers=[], protocol=ends)
    assert torch.equal(whole.insertion.scores[:, -1], whole.deletion.scores[:, -1])
    assert torch.equal(whole.insertion.scores[:, 0], whole.deletion.scores[:, 0])
    replaced = [int((getattr(whole, curve).fractions > 0).sum()) for curve in ("insertion", "deletion")]
    assert whole.forwards == 1 + len(fills) * (sum(replaced) - 1)  # what both curves end with passes once


def test_the_first_of_several_replacements_is_the_one_that_is_shown():
    model, x = small_cnn(), pictures(2)
    fills = protocols.input_minimum, normalised_zero
    protocol = dataclasses.replace(protocols.get("fei-paper"), replacement=protocols.Averaged(fills))
    shown = Perturbations(protocol, model, x, maps_for(x)[:, 0], None, 0, ["insertion", "deletion"])
    assert shown.fills == 2
    for curve in ("insertion", "deletion"):
        assert torch.equal(shown.reference[curve].expand_as(x), fills[0](x, model).expand_as(x))
        assert not torch.equal(shown.reference[curve].expand_as(x), fills[1](x, model).expand_as(x))


def test_held_out_is_what_is_measured_under_unless_told_otherwise():
    model, x = small_cnn(), pictures(1)
    found = insertion(model, x, maps_for(x))
    assert found.protocol == "held-out/1"
    assert torch.equal(
        found.scores, insertion(model, x, maps_for(x), generator=torch.Generator().manual_seed(5)).scores
    )
    assert insertion(model, x, maps_for(x), reference=0.5).protocol == "fei-paper/1"
    with pytest.raises(InputError, match="Protocol held-out/1 fixes what replaces pixels"):
        insertion(model, x, maps_for(x), protocol="held-out", reference=0.5)
