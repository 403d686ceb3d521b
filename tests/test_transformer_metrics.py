"""Inside a transformer: tokens apart, attention divergence by hand, and the diagnostics of a method on one."""

import dataclasses
import math

import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from test_token_drop import ORDER, VALUES
from tiny_vit import by_hand, tiny_vit

import fei
from fei import protocols
from fei.errors import InputError, ModelError
from fei.metrics import attention_divergence, describe, evaluate, internal
from fei.metrics.declaration import Subject

HALF = dataclasses.replace(protocols.get("fei-paper"), name="half", levels=protocols.Quantiles((0.5,)))


def image():
    return pictures(1).double()


def half_kept(x, colour):
    """The six most important patches, and the colour in place of the others; which are kept, in raster order."""
    kept = sorted(ORDER[:6])
    shown = torch.full_like(x, colour)
    for patch in kept:
        rows, columns = slice(4 * (patch // 4), 4 * (patch // 4) + 4), slice(4 * (patch % 4), 4 * (patch % 4) + 4)
        shown[..., rows, columns] = x[..., rows, columns]
    return shown, kept


def plain_map():
    """A map that is constant on each patch, so that whole patches are kept."""
    large = torch.tensor(VALUES, dtype=torch.float64).view(1, 1, 3, 4)
    return large.repeat_interleave(4, 2).repeat_interleave(4, 3)


def close(found, expected):
    torch.testing.assert_close(
        torch.as_tensor(found).double(), torch.as_tensor(expected).double(), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_class_token_and_patches_apart_by_hand(pool):
    net, x = tiny_vit(pool=pool, dtype=torch.float64), image()
    shown, _ = half_kept(x, 0.25)
    found = internal(net, x, plain_map(), layers=["blocks.0", "patches"], protocol=HALF, reference=0.25)
    own, other = (by_hand(net, each[0])[1]["outputs"][0].detach() for each in (x, shown))
    first = 1 if pool == "class" else 0
    tokens = found["blocks.0"]
    close(tokens.mse[0], (own - other).square().mean())
    close(tokens.patch_mse[0], (own[first:] - other[first:]).square().mean())
    close(tokens.patch_cosine[0], torch.cosine_similarity(own[first:].flatten(), other[first:].flatten(), 0))
    if pool == "class":
        close(tokens.cls_mse[0], (own[0] - other[0]).square().mean())
        close(tokens.cls_cosine[0], torch.cosine_similarity(own[0], other[0], 0))
    else:
        assert tokens.cls_mse is None
    assert set(found["patches"].numbers) == {"mse", "cosine", "pearson"}


def test_apart_with_weights_and_in_plans():
    net, x = tiny_vit(), pictures(2)
    maps = torch.rand(2, 1, 12, 16, generator=torch.Generator().manual_seed(2))
    result = evaluate(net, x, maps, relevance=True)
    for similar in result.internal.values():
        assert set(similar.numbers) == {field.name for field in dataclasses.fields(similar)}
        assert all(values.shape == (2,) for values in similar.numbers.values())
    subject = Subject(net, x[:1], maps[:1], 0, [], None, 0, None, "fei-paper/1")
    expected = evaluate(
        net, x[:1], maps[:1], 0, protocol="fei-paper/1", generator=torch.Generator().manual_seed(0)
    ).internal
    for name in ("cls_mse", "cls_cosine", "patch_mse", "patch_cosine"):
        measured = describe(name).measure(subject)
        assert list(measured) == list(result.internal)
        assert all(torch.equal(values, expected[layer].numbers[name]) for layer, values in measured.items())
    on_cnn = dataclasses.replace(subject, model=small_cnn())
    assert describe("patch_cosine").measure(on_cnn) == {}
    assert describe("cosine").measure(on_cnn) != {}


def js_by_hand(p, q):
    """Of two rows, entry by entry."""
    total = 0.0
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        middle = (a + b) / 2
        total += (a * math.log(a / middle) + b * math.log(b / middle)) / 2
    return total


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("pool", ["class", "mean"])
def test_attention_divergence_by_hand(pool, fused):
    net, x = tiny_vit(pool=pool, fused=fused, dtype=torch.float64), image()
    shown, kept = half_kept(x, 0.25)
    before = fingerprint(net)
    found = attention_divergence(net, x, plain_map(), protocol=HALF, reference=0.25)
    assert fingerprint(net) == before
    first = 1 if pool == "class" else 0
    patterns = [by_hand(net, each[0])[1]["patterns"] for each in (x, shown)]
    assert len(found) == 2
    for block, one in enumerate(found.values()):
        own, other = patterns[0][block].detach(), patterns[1][block].detach()
        rows = [first + patch for patch in kept]
        expected = [sum(js_by_hand(own[h, r], other[h, r]) for r in rows) / 6 for h in range(2)]
        close(one.kept[0], expected)
        if pool == "class":
            close(one.cls[0], [js_by_hand(own[h, 0], other[h, 0]) for h in range(2)])
        else:
            assert one.cls is None
    assert all(one.kept.min() > 0 and one.kept.max() < math.log(2) for one in found.values())


def test_a_patch_is_kept_if_half_of_its_pixels_are():
    """Seven of sixteen pixels of the first patch are kept, and eight of the second."""
    net, x = tiny_vit(pool="mean", dtype=torch.float64), image()
    maps = torch.zeros(1, 1, 12, 16, dtype=torch.float64)
    maps[..., :4, :4].view(1, 1, 4, 4)[:] = torch.tensor([1.0] * 7 + [0.0] * 9).view(4, 4)
    maps[..., :4, 4:8] = torch.tensor([1.0] * 8 + [0.0] * 8).view(4, 4)
    level = dataclasses.replace(HALF, name="some", levels=protocols.Quantiles((1 - 15 / 192,)))
    found = attention_divergence(net, x, maps, protocol=level, reference=0.5)
    shown = torch.where(maps > 0, x, 0.5)
    for block, one in enumerate(found.values()):
        own, other = (by_hand(net, each[0])[1]["patterns"][block].detach() for each in (x, shown))
        close(one.kept[0], [js_by_hand(own[h, 1], other[h, 1]) for h in range(2)])


def test_mean_over_points_and_replacements():
    net, x = tiny_vit(), pictures(2)
    maps = torch.rand(2, 1, 12, 16, generator=torch.Generator().manual_seed(2))
    fills = (protocols.zeros, protocols.input_minimum)
    levels = protocols.Quantiles((0.0, 0.3, 0.6, 1.0))
    both = dataclasses.replace(HALF, name="both", levels=levels, replacement=protocols.Averaged(fills))
    whole = attention_divergence(net, x, maps, protocol=both, batch_size=3)
    parts = [
        attention_divergence(
            net, x, maps, protocol=dataclasses.replace(HALF, levels=protocols.Quantiles((q,)), replacement=(fill, fill))
        )
        for q in (0.3, 0.6)
        for fill in fills
    ]
    for name, one in whole.items():
        assert one.cls.shape == (2, 2)
        close(one.cls, torch.stack([part[name].cls for part in parts]).mean(0))


def test_divergence_is_nothing_without_a_change_and_a_metric_in_plans():
    net, x = tiny_vit(), pictures(1)
    maps = torch.rand(1, 1, 12, 16)
    for one in attention_divergence(net, x, maps, reference=x, protocol="fei-paper").values():
        assert one.cls.abs().max() < 1e-6
    subject = Subject(net, x, maps, 0, [], None, 0, None, "fei-paper/1")
    found = describe("cls_divergence").measure(subject)
    assert len(found) == 2
    assert all(value.shape == (1,) for value in found.values())
    assert describe("kept_divergence").measure(dataclasses.replace(subject, model=small_cnn())) == {}


def test_what_attention_divergence_refuses():
    x, maps = pictures(1), torch.rand(1, 1, 12, 16)
    with pytest.raises(ModelError, match="no attention between tokens"):
        attention_divergence(small_cnn(), x, maps)
    with pytest.raises(ModelError, match="not over one sequence of patches"):
        attention_divergence(tiny_vit(pool="mean", window=6), x, maps)
    with pytest.raises(InputError, match="token-drop/1 leaves patches out, and their attention with them"):
        attention_divergence(tiny_vit(), x, maps, protocol="token-drop")
    ends = dataclasses.replace(HALF, levels=protocols.Quantiles((0.0, 1.0)))
    with pytest.raises(InputError, match="leaves no point at which to compare attention"):
        attention_divergence(tiny_vit(), x, maps, protocol=ends)


# Diagnostics


def test_black_images():
    net = tiny_vit()
    colours = torch.rand(2, 3, 1, 1, generator=torch.Generator().manual_seed(1))
    method = fei.methods.create("fei-vm", steps=2, quantiles=[0.3, 0.7])
    result = fei.metrics.black_image(net, method, trials=2, black=torch.zeros(3, 12, 16), references=colours)
    assert 0 <= result.rate <= 1
    assert result.trials >= 1


@pytest.mark.parametrize("method", ["generic-attention", "gradcam", "libra-fullgrad"])
def test_weights_are_lost_from_the_logits_down(method):
    net, x = tiny_vit(), pictures(2)
    before = fingerprint(net)
    result = fei.metrics.cascading_randomization(net, method, x)
    assert fingerprint(net) == before
    assert result.layers[:3] == ["head", "blocks.1.fc2", "blocks.1.fc1"]
    # the class token and the position embedding belong to the network itself, and go last with the patch embedding
    assert set(result.layers[-2:]) == {"(root)", "patches"}
    assert not any("norm" in name for name in result.layers)
    assert all(values.isfinite().all() for values in result.similarity.values())
    assert not torch.allclose(result.maps[-1], result.maps[0])
    alone = fei.metrics.classifier_randomization(net, method, x)
    assert alone.correlation.isfinite().all()


def test_rollout_does_not_depend_on_the_head():
    result = fei.metrics.cascading_randomization(tiny_vit(), "attention-rollout", pictures(1), layers=["head"])
    assert torch.equal(result.maps[0], result.maps[1])
