"""FEI itself: known optima, every option, repeatability, and the caller's model left alone."""

import gc
import warnings

import pytest
import torch
from networks import Bomb, fingerprint, pictures, small_cnn
from scipy.stats import spearmanr
from torch import nn

import fei
from fei.errors import InputError, ModelError

VARIANTS = ["vm", "ivm", "avm", "ibm", "bm", "abm", "none"]


class LinearSoftmax(nn.Module):
    """Two classes; the logit difference is Σ w·x, so the best mask of any area is the top of the contributions."""

    def __init__(self, weights):
        super().__init__()
        self.register_buffer("weights", weights)

    def forward(self, x):
        z = (x * self.weights).sum((1, 2, 3))
        return torch.stack([z, torch.zeros_like(z)], 1)


def linear_problem():
    generator = torch.Generator().manual_seed(1)
    weights = 0.3 * torch.randn(3, 10, 10, generator=generator)
    x, reference = torch.rand(1, 3, 10, 10, generator=generator), torch.rand(1, 3, 1, 1, generator=generator)
    return LinearSoftmax(weights).eval(), x, reference, (weights * (x - reference)).sum(1)[0]


def top(values, share):
    flat = values.flatten()
    return set(flat.argsort(descending=True, stable=True)[: round(share * len(flat))].tolist())


@pytest.mark.parametrize("nesting", ["independent", "cumulative", "shared", "shared, one by one"])
def test_projection_finds_the_known_optimum_of_a_linear_model(nesting):
    model, x, reference, contribution = linear_problem()
    options = {"nesting": "shared", "tries": 1} if nesting.endswith("one") else {"nesting": nesting}
    explainer = fei.FEI(
        model, "none", constraint="projection", quantiles=[0.3, 0.7], steps=60, lr=20.0, score="logit", **options
    )
    result = explainer.explain(x, 0, reference)
    for mask, kept in zip(result.alphas[0], (0.7, 0.3), strict=True):
        best = top(contribution, kept)
        assert top(mask, kept) == best
        assert mask.flatten()[list(best)].mean() > 0.999  # binary, not a blend that merely ranks right


def test_penalty_finds_the_known_optimum_of_a_linear_model():
    """β between the contributions at the boundary makes the penalised optimum the same set; Adam gets there."""
    model, x, reference, contribution = linear_problem()
    explainer = fei.FEI(
        model, "none", preset="paper", quantiles=[0.5], steps=400, lr=0.05, beta=0.1, init="area", score="logit"
    )
    mask = explainer.explain(x, 0, reference).alphas[0, 0]
    best, got = top(contribution, 0.5), top(mask, 0.5)
    assert len(best & got) >= 48  # of 50


def test_deletion_selects_what_insertion_keeps():
    model, x, reference, contribution = linear_problem()
    explainer = fei.FEI(
        model, "none", constraint="projection", quantiles=[0.3], steps=200, lr=0.05, objective="deletion", score="logit"
    )
    result = explainer.explain(x, 0, reference)
    assert result.alphas.mean().item() == pytest.approx(0.3, abs=1e-6)
    assert top(result.maps, 0.3) == top(contribution, 0.3)
    assert result.trace.phi[0, 0, -1] < result.trace.phi[0, 0, 0]


def test_both_objectives_at_once():
    """Inserting and deleting pull the same way on a linear model: one mask of area 1−q serves both."""
    model, x, reference, contribution = linear_problem()
    explainer = fei.FEI(
        model, "none", constraint="projection", quantiles=[0.6], steps=200, lr=0.05, objective="both", score="logit"
    )
    result = explainer.explain(x, 0, reference)
    assert result.alphas.mean().item() == pytest.approx(0.4, abs=1e-6)
    assert top(result.maps, 0.4) == top(contribution, 0.4)


def test_perturbed_is_the_blend_and_phi_its_score():
    model, x = small_cnn(), pictures()
    result = fei.FEI(model, "vm", steps=3, quantiles=[0.2, 0.6]).explain(x)
    blended = result.alphas * x[:, None] + (1 - result.alphas) * result.reference[:, None]
    torch.testing.assert_close(result.perturbed(), blended)
    probability = model(blended.flatten(0, 1)).softmax(1).view(2, 2, -1)
    expected = probability.gather(2, result.target.view(2, 1, 1).expand(2, 2, 1))[..., 0]
    torch.testing.assert_close(result.trace.phi[..., -1], expected.detach())
    assert torch.equal(result.maps, result.alphas.mean(1))


def test_deleted_image_is_perturbed_the_other_way_round():
    result = fei.FEI(small_cnn(), steps=2, objective="deletion").explain(pictures())
    blended = (1 - result.alphas) * result.inputs[:, None] + result.alphas * result.reference[:, None]
    torch.testing.assert_close(result.perturbed(), blended)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("preset", ["paper", "fast"])
def test_every_variant_and_preset_runs_and_reports_itself(variant, preset):
    x = pictures()
    result = fei.FEI(small_cnn(), variant.upper(), preset=preset, steps=4).explain(x)
    assert result.maps.shape == (2, 1, 12, 16)
    assert result.alphas.shape == (2, 5, 1, 12, 16)
    assert result.trace.phi.shape == result.trace.area.shape == (2, 5, 5)
    assert result.alphas.min() >= 0
    assert result.alphas.max() <= 1
    assert result.config["settings"]["variant"] == variant
    assert [site["name"] for site in result.config["sites"]] == ([] if variant == "none" else ["2", "5"])
    assert set(result.trace.clipped) == (set() if variant == "none" else {"2", "5"})
    assert result.target.tolist() == small_cnn()(x).argmax(1).tolist()
    assert result.config["target"] == "predicted"


def test_the_papers_preset_is_the_papers():
    settings = fei.FEI(small_cnn(), preset="paper").settings
    assert settings.quantiles == (0.1, 0.3, 0.5, 0.7, 0.9)
    assert (settings.steps, settings.beta, settings.constraint, settings.reduction) == (100, 0.1, "penalty", "sum")
    assert (settings.init, settings.nesting, settings.objective, settings.score) == (
        "zero",
        "independent",
        "insertion",
        "softmax",
    )


@pytest.mark.parametrize("constraint", ["l1", "none"])
def test_ablation_rows_have_one_mask(constraint):
    result = fei.FEI(small_cnn(), "vm", constraint=constraint, steps=3).explain(pictures())
    assert result.alphas.shape == (2, 1, 1, 12, 16)
    assert torch.equal(result.maps, result.alphas[:, 0])


def test_init():
    def start(**options):
        return fei.FEI(small_cnn(), "none", preset="paper", steps=1, **options).explain(pictures()).trace.area[0, :, 0]

    torch.testing.assert_close(start(), torch.zeros(5))
    torch.testing.assert_close(start(init="area"), torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1]))
    torch.testing.assert_close(start(init=0.25), torch.full((5,), 0.25))


def test_projection_keeps_the_area_at_every_step():
    result = fei.FEI(small_cnn(), constraint="projection", steps=6, lr=0.3).explain(pictures())
    asked = torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1], dtype=torch.float64)
    assert (result.alphas.double().mean((2, 3, 4)) - asked).abs().max() <= 1e-6
    assert (result.trace.area - asked[:, None]).abs().max() <= 1e-5


@pytest.mark.parametrize("constraint", ["penalty", "projection"])
def test_cumulative_masks_are_nested(constraint):
    alphas = fei.FEI(small_cnn(), constraint=constraint, nesting="cumulative", steps=8).explain(pictures()).alphas
    assert (alphas[:, :-1] >= alphas[:, 1:] - 1e-7).all()
    independent = fei.FEI(small_cnn(), constraint=constraint, nesting="independent", steps=8).explain(pictures()).alphas
    assert not (independent[:, :-1] >= independent[:, 1:] - 1e-7).all()


def test_nested_deletion_grows_with_the_quantile():
    options = {"constraint": "projection", "nesting": "cumulative", "objective": "deletion", "steps": 5}
    alphas = fei.FEI(small_cnn(), **options).explain(pictures()).alphas
    assert (alphas[:, 1:] >= alphas[:, :-1] - 1e-7).all()


def test_early_stop_says_when_it_acted_and_freezes():
    model, x = small_cnn(), pictures()
    never = fei.FEI(model, steps=40, early_stop=0.0).explain(x)
    assert (never.trace.stopped == -1).all()
    at_once = fei.FEI(model, steps=40, early_stop=10.0).explain(x)
    assert (at_once.trace.stopped == 10).all()
    assert (at_once.trace.area[..., 10:] == at_once.trace.area[..., 10:11]).all()
    assert at_once.trace.phi.shape == (2, 5, 41)
    assert torch.equal(at_once.trace.phi[..., 10], at_once.trace.phi[..., 40])
    assert set(at_once.trace.clipped) == {"2", "5"}


def test_early_stop_of_some_masks_leaves_the_others_alone():
    model, x = small_cnn(), pictures()
    options = {"preset": "paper", "steps": 20, "lr": 0.05}
    full = fei.FEI(model, **options).explain(x)
    first = (
        fei.FEI(model, **(options | {"steps": 10})).explain(x).alphas
    )  # Adam's steps do not depend on how many follow
    moved = first.abs().mean((2, 3, 4))  # from zero
    threshold = moved.flatten().sort().values[3:5].mean().item()
    stopped = fei.FEI(model, early_stop=threshold, **options).explain(x)
    froze = stopped.trace.stopped == 10
    assert froze.sum() == 4
    assert torch.equal(stopped.alphas[froze], first[froze])
    assert torch.equal(stopped.alphas[stopped.trace.stopped != 10], full.alphas[stopped.trace.stopped != 10])


def test_stopped_masks_take_no_more_passes():
    model, x = small_cnn(), pictures()[:1]
    rows = []
    model.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))

    def passes(**options):
        rows.clear()
        explainer = fei.FEI(model, preset="paper", steps=20, lr=0.05, **options)
        result = explainer.explain(x, internal_batch_size=1, evidence=False)
        assert set(rows) == {1}  # the shape of a pass stays, so that the bits do
        return len(rows), result

    all_passes, full = passes()
    first = fei.FEI(model, preset="paper", steps=10, lr=0.05).explain(x, internal_batch_size=1)
    moved = first.alphas.abs().mean((2, 3, 4))[0]
    fewer, stopped = passes(early_stop=moved.sort().values[1:3].mean().item())  # two of five stop at step 10
    froze = stopped.trace.stopped[0] == 10
    assert froze.sum() == 2
    # all but the last step, which measures the clipped shares of every mask; and a look at all masks as two stop
    assert fewer == all_passes - 2 * 9 + 5
    assert torch.equal(stopped.alphas[0, ~froze], full.alphas[0, ~froze])
    assert torch.equal(stopped.alphas[0, froze], first.alphas[0, froze])
    assert torch.equal(stopped.trace.phi[0, froze, 10:], stopped.trace.phi[0, froze, -1:].expand(-1, 11))


def test_masks_can_be_watched_as_they_form():
    seen = []
    result = fei.FEI(small_cnn(), steps=3).explain(
        pictures(), internal_batch_size=5, on_step=lambda step, alphas: seen.append((step, alphas.clone()))
    )
    assert [step for step, _ in seen] == [1, 2, 3, 1, 2, 3]  # one image after the other
    assert torch.equal(seen[2][1], result.alphas[:1])
    assert torch.equal(seen[5][1], result.alphas[1:])
    assert not torch.equal(seen[0][1], seen[1][1])


# Repeatability, definitions D10 and D11


def test_same_bits_whatever_the_order_the_batch_or_the_global_seed():
    model, x = small_cnn(), pictures(5)
    explainer = fei.FEI(model, steps=6)
    together = explainer.attribute(x, internal_batch_size=10)
    torch.manual_seed(123)
    assert torch.equal(explainer.attribute(x.flip(0), internal_batch_size=10).flip(0), together)
    for i in range(5):
        assert torch.equal(explainer.attribute(x[i : i + 1], internal_batch_size=10)[0], together[i])
    default = explainer.attribute(x)
    for i in range(5):
        assert torch.equal(explainer.attribute(x[i : i + 1])[0], default[i])


def test_global_random_state_is_neither_used_nor_moved():
    model, x = small_cnn(), pictures()
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first = fei.FEI(model, steps=2).explain(x)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(8)
    assert torch.equal(fei.FEI(model, steps=2).explain(x).reference, first.reference)


def test_seed_and_generator_choose_the_reference():
    model, x = small_cnn(), pictures()
    zero, one = (fei.FEI(model, steps=1, seed=seed).explain(x).reference for seed in (0, 1))
    assert not torch.equal(zero, one)
    generator = torch.Generator().manual_seed(1)
    explainer = fei.FEI(model, steps=1, seed=0)
    assert torch.equal(explainer.explain(x, generator=generator).reference, one)
    assert torch.equal(explainer.explain(x, generator=generator).reference, one)  # only its seed is used


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 10])
def test_chunk_shapes_agree_within_tolerance(size):
    model, x = small_cnn(), pictures(3)
    explainer = fei.FEI(model, steps=1)
    reference, other = explainer.explain(x), explainer.explain(x, internal_batch_size=size)
    torch.testing.assert_close(other.alphas, reference.alphas, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other.trace.phi, reference.trace.phi, rtol=1e-4, atol=1e-6)
    assert other.config["chunk_rows"] == {1: 1, 2: 2, 3: 3, 5: 5, 7: 5, 10: 10}[size]
    for site, share in reference.trace.clipped.items():
        torch.testing.assert_close(other.trace.clipped[site], share, atol=2e-2, rtol=0)


def test_masks_that_share_a_field_are_tried_in_turns():
    """Two of five at each step: ten rows backwards in five steps; every mask has been tried, and all are reported."""
    model, x = small_cnn(), pictures(1)
    backwards = []

    def watch(module, given, out):
        if out.requires_grad:
            out.register_hook(lambda gradient: backwards.append(len(gradient)))

    hook = model[0].register_forward_hook(watch)
    options = {"constraint": "projection", "nesting": "shared", "tries": 2}
    result = fei.FEI(model, "vm", steps=5, **options).explain(x, evidence=False)
    hook.remove()
    assert backwards.count(2) == 5
    assert (result.trace.phi > 0).all()
    assert all(share.shape == (1, 5) and (share > 0).any(0).all() for share in result.trace.clipped.values())
    smaller = result.alphas[:, 1:] <= result.alphas[:, :-1] + 1e-6
    assert smaller.all()  # nested
    few = fei.FEI(model, "vm", steps=2, **options).explain(x, evidence=False)  # too few for turns: all at each step
    torch.testing.assert_close(few.maps, fei.FEI(model, "vm", steps=2, **options | {"tries": None}).attribute(x))


def test_turns_give_the_same_bits_whatever_else_is_in_the_batch():
    x = pictures(3)
    explainer = fei.FEI(small_cnn(), "vm", steps=4, constraint="projection", nesting="shared", tries=2)
    together = explainer.explain(x, internal_batch_size=4, evidence=False)
    for i in range(3):
        alone = explainer.explain(x[i : i + 1], internal_batch_size=4, evidence=False)
        assert torch.equal(alone.maps[0], together.maps[i])
        assert torch.equal(alone.trace.phi[0], together.trace.phi[i])


def test_internal_batch_size_bounds_the_rows_of_every_forward():
    model, rows = small_cnn(), []
    model.register_forward_hook(lambda module, args, output: rows.append(len(args[0])))
    fei.FEI(model, steps=2).attribute(pictures(4), internal_batch_size=3)
    assert max(rows) == 3


def test_the_layout_of_the_images_does_not_matter():
    """On a CPU they are computed channels last either way."""
    model, x = small_cnn(), pictures()
    plain = fei.FEI(model, steps=3).explain(x)
    last = fei.FEI(model, steps=3).explain(x.contiguous(memory_format=torch.channels_last))
    assert torch.equal(last.maps, plain.maps)
    assert last.config["channels_last"]
    assert plain.config["channels_last"]


# The caller's model and mode


def test_model_is_unchanged_after_success():
    model = small_cnn()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[4].weight.requires_grad_(False)
    before = fingerprint(model)
    fei.FEI(model, steps=2).attribute(pictures())
    assert fingerprint(model) == before


@pytest.mark.parametrize("error", [KeyError("broken"), KeyboardInterrupt()])
@pytest.mark.parametrize("when", [1, 3, 5, 7])  # while tracing, folding, recording, optimising
def test_model_is_unchanged_after_failure(error, when):
    model = nn.Sequential(*small_cnn()[:4], Bomb(error, when), *small_cnn()[4:]).eval()
    before = fingerprint(model)
    with pytest.raises(type(error)):
        fei.FEI(model, steps=4).attribute(pictures())
    assert fingerprint(model) == before


def test_frozen_models_no_grad_and_inference_mode():
    model, x = small_cnn(), pictures()
    expected = fei.FEI(model, steps=3).attribute(x)
    with torch.no_grad():
        assert torch.equal(fei.FEI(model, steps=3).attribute(x), expected)
    with torch.inference_mode():
        made_inside = x * 1
        assert torch.equal(fei.FEI(model, steps=3).attribute(made_inside), expected)
    assert torch.equal(fei.FEI(model, steps=3).attribute(made_inside), expected)
    assert torch.equal(fei.FEI(model.requires_grad_(False), steps=3).attribute(x), expected)
    assert not expected.requires_grad


def test_model_made_under_inference_mode_is_refused():
    with torch.inference_mode():
        model = small_cnn()
    with pytest.raises(ModelError, match=r"made under torch.inference_mode\(\)"):
        fei.FEI(model, steps=1).attribute(pictures())


def test_half_precision_forward_keeps_the_mask_in_float32():
    model = small_cnn().bfloat16()
    result = fei.FEI(model, steps=3).explain(pictures().bfloat16())
    assert result.alphas.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = fei.FEI(small_cnn(), steps=3).explain(pictures())
    full = fei.FEI(small_cnn(), steps=3).explain(pictures())
    assert mixed.maps.dtype == torch.float32
    assert (mixed.config["dtype"], mixed.config["autocast"]) == ("float32", "bfloat16")
    assert "autocast" not in full.config
    assert not torch.equal(mixed.maps, full.maps)
    assert spearmanr(mixed.maps.flatten(), full.maps.flatten()).statistic > 0.9


def test_double_precision():
    assert fei.FEI(small_cnn().double(), steps=2).explain(pictures().double()).alphas.dtype == torch.float64


def test_calls_do_not_grow_memory():
    model, x = small_cnn(), pictures(1, (8, 8))
    explainer = fei.FEI(model, steps=1, quantiles=[0.5])

    def live_tensors():
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    for _ in range(5):
        explainer.attribute(x)
    before = live_tensors()
    for _ in range(20):
        explainer.attribute(x)
    assert live_tensors() <= before


def test_inputs_are_left_alone():
    x = pictures().requires_grad_()
    copy = x.detach().clone()
    fei.FEI(small_cnn(), steps=2).attribute(x)
    assert torch.equal(x.detach(), copy)
    assert x.grad is None


# Targets, scores, progress


def test_targets():
    model, x = small_cnn(), pictures()
    explainer = fei.FEI(model, "vm", steps=2)
    by_int = explainer.explain(x, 1)
    assert by_int.target.tolist() == [1, 1]
    assert by_int.config["target"] == "given"
    for target in ([1, 1], torch.tensor([1, 1]), torch.tensor(1), [1]):
        assert torch.equal(explainer.explain(x, target).maps, by_int.maps)
    assert not torch.equal(explainer.explain(x, [1, 2]).maps[1], by_int.maps[1])
    own = explainer.explain(x, lambda output: output.softmax(1)[:, 1])
    torch.testing.assert_close(own.maps, by_int.maps)
    assert own.config["target"] == "callable"


def test_scores():
    model, x = small_cnn(), pictures()

    def phi(score):
        return fei.FEI(model, "none", steps=1, score=score).explain(x, 2).trace.phi[..., 0]

    blended = torch.lerp(fei.FEI(model, steps=1).explain(x).reference[:, None], x[:, None], 1 - 0.1)
    logits = model(blended[:, 0])
    torch.testing.assert_close(phi("logit")[:, 0], logits[:, 2].detach())
    torch.testing.assert_close(phi("sigmoid")[:, 0], logits.sigmoid()[:, 2].detach())
    torch.testing.assert_close(phi("softmax")[:, 0], logits.softmax(1)[:, 2].detach())
    torch.testing.assert_close(phi(lambda z, c: 2 * z[range(len(c)), c])[:, 0], 2 * logits[:, 2].detach())


def test_single_logit_networks_and_model_outputs_with_logits():
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = small_cnn(classes=1)

        def forward(self, x):
            return type("Output", (), {"logits": self.net(x)})()

    maps = fei.FEI(Wrapped().eval(), steps=1, score="sigmoid").attribute(pictures())
    assert torch.equal(maps, fei.FEI(small_cnn(classes=1), steps=1, score="sigmoid").attribute(pictures()))
    with pytest.raises(InputError, match="The softmax of a single logit is always 1; pass score='sigmoid'"):
        fei.FEI(small_cnn(classes=1), steps=1).attribute(pictures())


def test_progress_counts_every_step_and_can_cancel():
    seen = []
    fei.FEI(small_cnn(), steps=3).attribute(pictures(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 6) for i in range(1, 7)]

    def cancel(done, total):
        if done == 2:
            raise InterruptedError("enough")

    model = small_cnn()
    before = fingerprint(model)
    with pytest.raises(InterruptedError):
        fei.FEI(model, steps=3).attribute(pictures(), progress=cancel)
    assert fingerprint(model) == before


def test_progress_bar_goes_to_standard_error(capsys):
    fei.FEI(small_cnn(), steps=2).attribute(pictures(1), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "2/2" in err


def test_binary_rules_note_sites_without_activation():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)).eval()
    assert (
        "1 of 1 clip sites have no activation" in fei.FEI(model, "ibm", steps=1).explain(pictures()).config["notes"][0]
    )
    assert fei.FEI(model, "vm", steps=1).explain(pictures()).config["notes"] == []


def test_hidden_code_is_said_aloud():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()).eval())
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), scripted, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    with pytest.warns(UserWarning, match="not covered by clip sites") as said:
        result = fei.FEI(model, steps=1).explain(pictures())
    assert "not covered by clip sites" in result.config["notes"][0]
    assert said[0].filename == __file__  # where the user called


# Bad input: one sentence each


def linear_net():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 16, 4)).eval()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m, x: m.attribute(x[0]), InputError, r"must have shape \(N, C, H, W\); got \(3, 12, 16\); add a batch"),
        (lambda m, x: m.attribute(x[:0]), InputError, "`inputs` is empty"),
        (lambda m, x: m.attribute(x * float("nan")), InputError, "`inputs` holds NaN or infinite pixels"),
        (lambda m, x: m.attribute(x / 0), InputError, "`inputs` holds NaN or infinite pixels"),
        (lambda m, x: m.attribute((255 * x).byte()), InputError, r"must be floating point; got torch.uint8"),
        (lambda m, x: m.attribute([1, 2]), InputError, r"must be a tensor \(N, C, H, W\); got list"),
        (lambda m, x: m.attribute((x, x)), InputError, "`inputs` must be one tensor or a 1-tuple; got a tuple of 2"),
        (lambda m, x: m.attribute(x[:, :2]), ModelError, r"The model failed on an input of shape \(1, 2, 12, 16\)"),
        (lambda m, x: m.attribute(x, 4), InputError, "target 4 is out of range; the network has classes 0 to 3"),
        (lambda m, x: m.attribute(x, [0, -1]), InputError, "target -1 is out of range"),
        (lambda m, x: m.attribute(x, [0, 1, 2]), InputError, r"`target` has 3 entries for 2 image\(s\)"),
        (lambda m, x: m.attribute(x, 1.5), InputError, "`target` must be a class index"),
        (lambda m, x: m.attribute(x, lambda o: o), InputError, r"must return one number per row, shape \(1,\)"),
        (
            lambda m, x: m.attribute(x, internal_batch_size=0),
            InputError,
            "`internal_batch_size` must be a whole number",
        ),
        (lambda m, x: m.attribute(x, baselines="grey"), InputError, "Unknown reference 'grey'; choose one of color"),
        (lambda m, x: m.attribute(x, baselines="black"), InputError, "'black' needs a network on RGB"),
        (lambda m, x: m.attribute(x, baselines=torch.zeros(5, 5)), InputError, r"shape \(5, 5\) does not fit"),
        (lambda m, x: m.attribute(x, baselines=float("nan")), InputError, "The reference holds NaN"),
    ],
)
def test_bad_calls(call, error, text):
    with pytest.raises(error, match=text):
        call(fei.FEI(small_cnn(), steps=1), pictures())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"variant": "wm"}, "Unknown clipping rule 'wm'"),
        ({"preset": "quick"}, "Unknown preset 'quick'; choose one of fei, preview, fast, paper"),
        ({"quantiles": [0, 0.5]}, "must lie strictly between 0 and 1"),
        ({"quantiles": [0.5, 1.0]}, "must lie strictly between 0 and 1"),
        ({"quantiles": [0.5, 0.1]}, "increasing order without repeats"),
        ({"quantiles": [0.5, 0.5]}, "increasing order without repeats"),
        ({"quantiles": []}, "non-empty sequence of numbers"),
        ({"quantiles": "half"}, "non-empty sequence of numbers"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1"),
        ({"steps": 1.5}, "`steps` must be a whole number of at least 1"),
        ({"lr": float("nan")}, "`lr` must be a finite number"),
        ({"beta": -1}, "`beta` must be a finite number of at least 0"),
        ({"constraint": "lasso"}, "Unknown constraint 'lasso'; choose one of penalty, projection, l1, none"),
        ({"reduction": "max"}, "Unknown reduction 'max'"),
        ({"init": "ones"}, "Unknown init 'ones'"),
        ({"init": 2.0}, "`init` must be 'zero', 'area' or a number"),
        ({"nesting": "both"}, "Unknown nesting 'both'"),
        ({"coarse": 4.0, "smooth": 0.0}, "`coarse` is where the smoothing starts; give `smooth`"),
        ({"sites": "relu"}, "Unknown sites 'relu'; choose one of auto, activation, attention, mlp, conv, block"),
        ({"residual": "skip"}, "Unknown residual 'skip'; choose one of branch, post_add, both"),
        ({"objective": "insert"}, "Unknown objective 'insert'"),
        ({"score": "prob"}, "Unknown score 'prob'"),
        ({"constraint": "l1", "nesting": "cumulative"}, "needs several masks"),
        ({"constraint": "none", "init": "area"}, "`init='area'` needs an area"),
        ({"constraint": "penalty", "nesting": "shared"}, "`nesting='shared'` needs constraint='projection'; got 'pena"),
        ({"nesting": "shared", "early_stop": 0.1}, "`early_stop` freezes masks one by one"),
        ({"nesting": "shared", "tries": 0}, "`tries` must be a whole number of at least 1"),
        ({"nesting": "independent", "tries": 2}, "`tries` needs nesting='shared'"),
    ],
)
def test_bad_options(options, text):
    with pytest.raises(InputError, match=text):
        fei.FEI(small_cnn(), **options)


def test_bad_models():
    x = pictures()
    with pytest.raises(InputError, match=r"must be a torch.nn.Module; got function"):
        fei.FEI(lambda x: x)
    with pytest.raises(InputError, match=r"evaluation mode; .*call model.eval\(\) first"):
        fei.FEI(small_cnn().train()).attribute(x)
    half = small_cnn()
    half[1].train()
    with pytest.raises(InputError, match="module '1' is in training mode"):
        fei.FEI(half).attribute(x)
    with pytest.raises(ModelError, match="No clip site was found: the network shows no convolution"):
        fei.FEI(linear_net(), "vm", steps=1).attribute(x)
    assert fei.FEI(linear_net(), "none", steps=1).attribute(x).shape == (2, 1, 12, 16)
    with pytest.raises(ModelError, match=r"output has shape \(1, 8, 12, 16\); expected \(N, classes\)"):
        fei.FEI(small_cnn()[:1].eval(), steps=1).attribute(x)
    tuples = nn.Sequential(small_cnn(), type("Pair", (nn.Module,), {"forward": lambda self, y: (y, y)})()).eval()
    with pytest.raises(ModelError, match="The model returned tuple; expected a tensor of logits"):
        fei.FEI(tuples, steps=1).attribute(x)
    broken = small_cnn()
    broken[0].weight.data.fill_(float("nan"))
    with pytest.raises(ModelError, match="The model's output holds NaN or infinite values"):
        fei.FEI(broken, steps=1).attribute(x)
