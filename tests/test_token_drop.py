"""The token-drop protocol: patches that are left out of the sequence, against the short sequence computed by hand."""

import dataclasses

import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from tiny_vit import by_hand, tiny_vit
from torch import nn

from fei import protocols
from fei.core.dropping import Sequencing
from fei.errors import InputError, ModelError
from fei.metrics import deletion, evaluate, insertion
from fei.report.explorer import explorer_html
from fei.service import collect

GRID = (3, 4)
LEVELS = [round(q * 12) for q in (0.1, 0.3, 0.5, 0.7, 0.9)]  # of twelve patches


def image():
    return pictures(1).double()


def patch_map(values):
    """A map (1, 1, 12, 16) whose mean over each patch of 4 × 4 pixels is the given number; within it varies."""
    large = torch.tensor(values, dtype=torch.float64).view(1, 1, *GRID).repeat_interleave(4, 2).repeat_interleave(4, 3)
    within = torch.linspace(-9, 9, 4, dtype=torch.float64)
    return large + within.repeat(3)[:, None] * within.repeat(4)[None]


ORDER = [5, 0, 11, 7, 2, 9, 1, 10, 3, 8, 4, 6]  # the most important patch first
VALUES = [12.0 - ORDER.index(patch) for patch in range(12)]


def probability(net, x, patches, target):
    first = 1 if net.pool == "class" else 0
    keep = [*range(first), *(first + patch for patch in sorted(patches))]
    return by_hand(net, x[0], keep)[0].softmax(0)[target].item()


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("fused", [True, False])
def test_dropping_is_the_short_sequence(pool, fused):
    net, x, target = tiny_vit(pool=pool, fused=fused, dtype=torch.float64), image(), 2
    result = evaluate(net, x, patch_map(VALUES), target, protocol="token-drop")
    kept = [probability(net, x, ORDER[: 12 - n], target) for n in LEVELS]
    left = [probability(net, x, ORDER[n:], target) for n in LEVELS]
    torch.testing.assert_close(result.insertion.scores[0].double(), torch.tensor(kept).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(result.deletion.scores[0].double(), torch.tensor(left).double(), rtol=0, atol=1e-6)
    assert result.insertion.auc.item() == pytest.approx(sum(kept) / 5, abs=1e-6)
    assert result.insertion.fractions.tolist() == [n / 12 for n in LEVELS]
    assert result.insertion.protocol == "token-drop/1"
    assert result.internal == {}
    assert result.forwards == 1 + 10


def test_images_of_a_batch_lose_patches_of_their_own():
    net, x = tiny_vit(), pictures(3)
    maps = torch.rand(3, 1, 12, 16, generator=torch.Generator().manual_seed(5))
    before = fingerprint(net)
    together = insertion(net, x, maps, protocol="token-drop", batch_size=4)
    assert fingerprint(net) == before
    for i in range(3):
        alone = insertion(net, x[i : i + 1], maps[i : i + 1], protocol="token-drop", batch_size=1)
        torch.testing.assert_close(alone.scores[0], together.scores[i], rtol=1e-4, atol=1e-6)
    opposite = deletion(net, x, -maps, protocol="token-drop")
    torch.testing.assert_close(opposite.scores, together.scores, rtol=1e-4, atol=1e-6)


def test_equal_patches_are_taken_in_raster_order():
    net, x, target = tiny_vit(dtype=torch.float64), image(), 1
    flat = torch.zeros(1, 1, 12, 16)
    flat[..., 0, 0], flat[..., 0, 1] = 0.1, -0.1  # which add up to nothing but round-off
    curve = deletion(net, x, flat, target, protocol="token-drop")
    expected = [probability(net, x, range(n, 12), target) for n in LEVELS]
    torch.testing.assert_close(curve.scores[0].double(), torch.tensor(expected).double(), rtol=0, atol=1e-6)


def test_no_reference_and_no_layers():
    net, x = tiny_vit(), pictures(1)
    maps = torch.rand(1, 1, 12, 16)
    with pytest.raises(InputError, match="Protocol token-drop/1 fixes what replaces pixels; leave `reference` out"):
        insertion(net, x, maps, protocol="token-drop", reference="black")
    with pytest.raises(InputError, match="token-drop/1 leaves patches out, so that activations have nothing"):
        evaluate(net, x, maps, protocol="token-drop", layers=["blocks.0"])
    assert protocols.describe("token-drop")["replacement"] == "left out of the sequence"


class Placed(nn.Module):
    """Adds something that depends on a token's place again behind the first block, for any length or for one alone."""

    def __init__(self, any_length):
        super().__init__()
        self.any_length = any_length
        self.places = nn.Parameter(torch.randn(1, 13, 8, generator=torch.Generator().manual_seed(1)))

    def forward(self, x):
        return x + (self.places[:, : x.shape[1]] if self.any_length else self.places)


REFUSED = "patches cannot be left out: .* use a protocol that paints pixels over, such as held-out"


@pytest.mark.parametrize("any_length", [True, False])
def test_places_that_matter_later_are_refused(any_length):
    net = tiny_vit()
    net.blocks.insert(1, Placed(any_length).eval())
    with pytest.raises(ModelError, match=REFUSED):
        insertion(net, pictures(1), torch.rand(1, 1, 12, 16), protocol="token-drop")


@pytest.mark.parametrize("net", [small_cnn(), tiny_vit(pool="mean", window=6)], ids=["cnn", "windows"])
def test_networks_without_one_sequence_are_refused(net):
    with pytest.raises(ModelError, match=REFUSED):
        insertion(net, pictures(1), torch.rand(1, 1, 12, 16), protocol="token-drop")


def test_other_levels_and_all_patches():
    """With every patch left out, the class token alone is there."""
    net, x = tiny_vit(dtype=torch.float64), image()
    ends = dataclasses.replace(
        protocols.get("token-drop"), name="ends", levels=protocols.Quantiles((0.0, 1.0)), score="logit"
    )
    curve = insertion(net, x, patch_map(VALUES), 0, protocol=ends)
    whole, alone = by_hand(net, x[0])[0][0].item(), by_hand(net, x[0], [0])[0][0].item()
    assert curve.scores[0].tolist() == pytest.approx([whole, alone], abs=1e-5)


def test_means_of_patches_by_hand():
    sequence = Sequencing.of(tiny_vit(), pictures(1))
    assert (sequence.grid.height, sequence.grid.width, sequence.grid.first) == (*GRID, 1)
    means = sequence.means(patch_map(VALUES)[:, 0])
    assert means.flatten().argsort(descending=True, stable=True).tolist() == ORDER


def test_the_page_of_a_comparison_can_be_made_under_it():
    comparison = collect(tiny_vit(), pictures(1), ["random", "attention-rollout"], protocol="token-drop", target=1)
    assert [panel.method for panel in comparison[0].panels] == ["random", "attention-rollout"]
    assert "token-drop/1" in explorer_html(comparison)
