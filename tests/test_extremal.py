"""Extremal Perturbation: its parts against closed forms and scipy, and the whole on planted squares."""

import math

import numpy as np
import pytest
import torch
from networks import pictures
from scipy.ndimage import gaussian_filter
from torch import nn

from fei.errors import InputError
from fei.methods.extremal import ExtremalPerturbation, SmoothMasks, SmoothMaximum, blur_levels, blurred, perturb
from fei.models import Classifier

pytestmark = pytest.mark.slow

SQUARES = {0: (slice(4, 12), slice(8, 16)), 1: (slice(20, 28), slice(8, 16)), 2: (slice(0, 8), slice(8, 16))}


class Squares(nn.Module):
    """Logit of a class: brightness of its square, which is its own mirror image."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.eval()

    def forward(self, x):
        self.seen.append(x.detach().clone())
        return 30 * torch.stack([x[:, :, rows, columns].mean((1, 2, 3)) for rows, columns in SQUARES.values()], 1)


def white_squares(*classes):
    x = torch.zeros(1, 3, 32, 24)
    for c in classes:
        x[:, :, SQUARES[c][0], SQUARES[c][1]] = 1
    return x


@pytest.mark.parametrize(("target", "distractor"), [(0, 1), (1, 0), (2, 1)])
def test_finds_the_planted_square(target, distractor):
    """Also at the edge of the image (class 2), and not the square that looks the same but counts for another class."""
    method = ExtremalPerturbation(areas=[1 / 24, 1 / 12, 1 / 6], steps=150, cell=2, sigma=4)
    saliency = method(Squares(), white_squares(target, distractor), target)[0, 0]
    inside, other = (saliency[SQUARES[c]].mean() for c in (target, distractor))
    assert inside > 2 * saliency.mean()
    assert inside > 10 * other
    row, column = divmod(saliency.argmax().item(), 24)
    assert row in range(32)[SQUARES[target][0]]
    assert column in range(24)[SQUARES[target][1]]


def test_masks_get_the_area_they_are_asked_for():
    """A share of the mask with its margin of 3 pixels on each side, of which the square needs no part."""
    for area in (1 / 18, 1 / 9):
        method = ExtremalPerturbation(areas=[area], steps=400, cell=2, sigma=3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fei.methods.extremal.blurred", lambda images, sigma: images)
            mask = method(Squares(), white_squares(0), 0)
        assert mask.sum().item() == pytest.approx(area * (32 + 6) * (24 + 6), rel=0.2)


def test_sum_over_areas_is_what_single_areas_give():
    model, x = Squares(), white_squares(0)
    both, *single = (
        ExtremalPerturbation(areas=areas, steps=20, cell=4, sigma=8)(model, x, 0)
        for areas in ([0.1, 0.3], [0.1], [0.3])
    )
    torch.testing.assert_close(both, sum(single), atol=1e-5, rtol=1e-4)


def test_image_is_mirrored_in_even_steps():
    model, x = Squares(), torch.zeros(1, 3, 32, 24)
    x[..., :12] = 1
    ExtremalPerturbation(areas=[0.1], steps=3, cell=4, sigma=8)(model, x, 0)
    left = [seen[..., :12].mean() > seen[..., 12:].mean() for seen in model.seen[-3:]]
    assert left == [False, True, False]


def test_areas_and_images_share_the_rows_of_a_pass():
    model, x = Squares(), torch.cat([white_squares(0), white_squares(1), white_squares(2)])
    method = ExtremalPerturbation(areas=[0.1, 0.2], steps=4, cell=4, sigma=8)
    for batch_size, rows in ((None, 2), (1, 2), (5, 4), (8, 8)):
        model.seen.clear()
        maps = method(model, x, [0, 1, 2], batch_size=batch_size)
        assert {len(seen) for seen in model.seen} == {1, rows}
        torch.testing.assert_close(maps, method(model, x, [0, 1, 2]), atol=1e-4, rtol=1e-3)


# masks


def masks_of(cells, size=(24, 30), cell=4, sigma=6.0):
    smooth = SmoothMasks(size, cell, sigma, like=torch.ones(1))
    grid = torch.zeros(1, 1, *smooth.grid)
    for (row, column), value in cells.items():
        grid[0, 0, row, column] = value
    mask = smooth(grid)[0]
    top, left = smooth.margin
    return mask, mask[top : top + size[0], left : left + size[1]]


def kernel(distance, sigma):
    return math.exp(-2 * max(0, distance / sigma - 0.5) ** 2)


def test_kernel_by_hand():
    """With cells of one pixel and one cell at 1, a mask is f·e^{20f}/(n − 1 + e^{20f}), n cells being in reach."""
    smooth = SmoothMasks((41, 41), 1, 10.0, like=torch.ones(1, dtype=torch.double))
    grid = torch.zeros(1, 1, 41, 41, dtype=torch.double)
    grid[..., 20, 20] = 1
    row = smooth(grid)[0, 30, 30:]  # ten pixels of margin on each side
    assert smooth.margin == [10, 10]
    known = {0: 1.0, 5: 1.0, 7: 0.9231163, 10: 0.6065307, 11: 0.4867523}  # exp(−2·(d − ½)²) at d = 0, .5, .7, 1, 1.1
    for pixels, k in known.items():
        others = 23**2 - 1  # 1 + 10 cells on each side of a pixel
        assert row[pixels].item() == pytest.approx(k * math.exp(20 * k) / (others + math.exp(20 * k)), rel=1e-4)
    assert row[12] == 0  # out of reach


def test_mask_of_the_usual_image_has_260_pixels_a_side():
    for side, whole in ((224, 260), (227, 267)):
        smooth = SmoothMasks((side, side), 7, 21.0, like=torch.ones(1))
        assert smooth(torch.ones(1, 1, *smooth.grid)).shape == (1, whole, whole)
        assert smooth.margin == [(whole - side) // 2] * 2


def test_around_the_image_is_the_networks_mean_colour():
    """An image of that colour has no edge: blurring leaves it alone, to the border."""
    network = Squares()
    model = Classifier(network, mean=(0.2, 0.5, 0.8), std=(1.0, 1.0, 1.0), input_size=32).eval()
    x = torch.tensor([0.2, 0.5, 0.8]).view(1, 3, 1, 1).expand(1, 3, 32, 24).contiguous()
    ExtremalPerturbation(areas=[0.1], steps=3, cell=4, sigma=8)(model, x, 0)
    assert model.normalizes
    for seen in network.seen:
        torch.testing.assert_close(seen, torch.zeros_like(seen), atol=1e-6, rtol=0)


def test_mask_of_a_cell_is_the_kernel_around_its_centre():
    _, mask = masks_of({(2, 3): 1.0})
    # 30 columns are 8 cells of 4 with one left over at each side, so that column 3's centre is at 3·4 + 1.5 − 1
    for row, column in ((9, 12), (9, 14), (12, 12), (5, 10)):
        expected = kernel(math.hypot(row - 9.5, column - 12.5), 6)
        # the smooth maximum lies below the maximum, less so the higher it is
        assert expected - 0.06 < mask[row, column].item() <= expected + 1e-6
    assert mask[0, 28] == 0  # five cells away
    torch.testing.assert_close(mask[2:18, 5:21], mask[2:18, 5:21].flip(0, 1))


def test_smooth_maximum_by_hand():
    """Two cells at the distance of a pixel they both reach: Σ f·e^{20f} / Σ e^{20f} over all cells around."""
    smooth = SmoothMasks((8, 8), 8, 8.0, like=torch.ones(1))
    (mask,) = smooth(torch.full((1, 1, 1, 1), 0.5))
    top, left = smooth.margin
    around = [(8 * i, 8 * j) for i in range(-2, 3) for j in range(-2, 3)]
    for row, column in ((0, 0), (3, 3), (3, 7)):
        values = [0.5 * kernel(math.hypot(row - 3.5, column - 3.5), 8) if at == (0, 0) else 0.0 for at in around]
        expected = sum(f * math.exp(20 * f) for f in values) / sum(math.exp(20 * f) for f in values)
        assert mask[top + row, left + column].item() == pytest.approx(expected, rel=1e-4)


def test_smooth_maximum_and_its_gradient_are_those_of_a_softmax():
    generator = torch.Generator().manual_seed(0)
    around = torch.rand(2, 5, 3, generator=generator, dtype=torch.double).requires_grad_()
    weights = torch.rand(4, 5, generator=generator, dtype=torch.double)
    values = weights[None, :, :, None] * around[:, None]
    expected = (values * (20 * values).softmax(2)).sum(2)
    found = SmoothMaximum.apply(around, weights)
    torch.testing.assert_close(found, expected)
    direction = torch.rand(found.shape, generator=generator, dtype=torch.double)
    gradients = [torch.autograd.grad((out * direction).sum(), around)[0] for out in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_full_grid_shows_all_and_an_empty_one_nothing():
    every = {(i, j): 1.0 for i in range(6) for j in range(8)}
    assert masks_of(every)[1].min() > 0.95
    assert masks_of({})[0].max() == 0


def test_cell_at_the_edge_has_as_much_area_as_any_other():
    corner, middle = (masks_of({at: 1.0})[0].sum().item() for at in ((0, 0), (3, 4)))
    assert corner == pytest.approx(middle, rel=0.05)  # all but what lies more than σ outside


def test_what_a_cell_of_the_usual_masks_covers():
    mask, _ = masks_of({(16, 16): 1.0}, size=(224, 224), cell=7, sigma=21.0)
    radius = 21 * (0.5 + math.sqrt(math.log(2) / 2))  # where the kernel is at half its height
    assert (mask > 0.5).sum().item() == pytest.approx(math.pi * radius**2, rel=0.02)
    assert (mask > 0.5).sum().item() / 224**2 == pytest.approx(0.033, abs=0.0005)


# blur


@pytest.mark.parametrize("sigma", [0.7, 3.0, 20.0])
def test_blur_agrees_with_scipy(sigma):
    x = pictures(2)
    expected = gaussian_filter(x.double().numpy(), (0, 0, sigma, sigma), mode="constant", truncate=4)
    np.testing.assert_allclose(blurred(x, sigma).numpy(), expected, atol=1e-5)


def test_mask_chooses_the_blur_pixel_by_pixel():
    x = pictures(1)
    levels = blur_levels(x)
    assert levels.shape == (1, 8, 3, 12, 16)
    masks = torch.zeros(1, 2, 12, 16)
    masks[:, 0, :6] = 1
    masks[:, 1] = 1 - 2.5 / 7
    first, second = perturb(levels, masks)[0]
    assert torch.equal(first[:, :6], x[0, :, :6])
    torch.testing.assert_close(first[:, 6:], blurred(x, 20.0)[0, :, 6:])
    between = (blurred(x, 20 * 2 / 7) + blurred(x, 20 * 3 / 7))[0] / 2
    torch.testing.assert_close(second, between, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"areas": []}, "`areas` must be a non-empty sequence of numbers"),
        ({"areas": "0.1"}, "`areas` must be a non-empty sequence of numbers"),
        ({"areas": [0.1, 1.0]}, r"`areas` must lie strictly between 0 and 1; got \[0.1, 1.0\]"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1; got 0"),
        ({"cell": 2.5}, "`cell` must be a whole number of at least 1; got 2.5"),
        ({"sigma": 0}, "`sigma` must be a finite number above 0; got 0"),
        ({"score": "loss"}, "Unknown score 'loss'"),
    ],
)
def test_refusals(options, text):
    with pytest.raises(InputError, match=text):
        ExtremalPerturbation(**options)
