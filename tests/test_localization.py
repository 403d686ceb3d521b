"""Pointing games: hits and shares counted by hand, tolerances at the edge, and refusals."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import distance_transform_edt

from fei.errors import InputError
from fei.metrics.localization import METRICS, energy_pointing_game, pointing_game


def peak(row, column, size=(20, 30)):
    """A map with its maximum at one pixel."""
    m = torch.zeros(1, 1, *size)
    m[0, 0, row, column] = 1
    return m


BOX = [(10, 5, 14, 8)]  # columns 10 to 13, rows 5 to 7


def test_a_hit_inside_and_at_the_tolerance():
    assert pointing_game(peak(6, 12), BOX, tolerance=0).tolist() == [1]
    assert pointing_game(peak(6, 13), BOX, tolerance=0).tolist() == [1]
    assert pointing_game(peak(6, 14), BOX, tolerance=0).tolist() == [0]  # x1 is the first column outside
    assert pointing_game(peak(8, 12), BOX, tolerance=0).tolist() == [0]
    assert pointing_game(peak(6, 16), BOX, tolerance=3).tolist() == [1]  # column 13 is 3 away
    assert pointing_game(peak(6, 17), BOX, tolerance=3).tolist() == [0]


def test_the_distance_is_euclidean():
    assert pointing_game(peak(10, 17), BOX, tolerance=5).tolist() == [1]  # 3 down, 4 right
    assert pointing_game(peak(11, 17), BOX, tolerance=5).tolist() == [0]


def test_fifteen_pixels_by_default():
    box = [(0, 0, 1, 1)]
    assert pointing_game(peak(0, 15), box).tolist() == [1]
    assert pointing_game(peak(0, 16), box).tolist() == [0]


def test_of_equal_maxima_the_share_that_hits():
    m = peak(6, 12) + peak(2, 29)
    assert pointing_game(m, BOX, tolerance=0).tolist() == [0.5]
    assert pointing_game(m, [(29, 2, 30, 3)], tolerance=0).tolist() == [0.5]
    assert pointing_game(m + peak(0, 0), BOX, tolerance=0).tolist() == [pytest.approx(1 / 3)]
    assert pointing_game(m + 0.5 * peak(0, 0), BOX, tolerance=0).tolist() == [0.5]  # not among the largest
    constant = torch.full((1, 20, 30), -3.0)
    assert pointing_game(constant, [(0, 0, 1, 1)], tolerance=0).tolist() == [1 / 600]
    assert pointing_game(constant, [(1, 0, 30, 20)], tolerance=0).tolist() == [580 / 600]
    assert pointing_game(constant, BOX, tolerance=1).tolist() == [26 / 600]  # 3 × 4 pixels and 14 beside them


def test_the_order_of_the_pixels_does_not_matter():
    """A map with ties scores the same upside down, with its object, which raster order would not give."""
    m = peak(6, 12) + peak(2, 29) + peak(19, 0)
    mask = torch.zeros(1, 20, 30, dtype=torch.bool)
    mask[0, 5:8, 10:14] = True
    turned = pointing_game(m.flip(2, 3), mask.flip(1, 2), tolerance=2)
    assert torch.equal(turned, pointing_game(m, mask, tolerance=2))


def test_boxes_and_masks_are_the_same_object():
    masks = torch.zeros(2, 20, 30, dtype=torch.bool)
    masks[0, 5:8, 10:14] = True
    masks[1, 0:2, 0:2] = masks[1, 18:20, 25:30] = True
    boxes = [BOX[0], [(0, 0, 2, 2), (25, 18, 30, 20)]]
    maps = torch.rand(2, 1, 20, 30, generator=torch.Generator().manual_seed(0))
    for objects in (boxes, [torch.tensor(BOX), torch.tensor(boxes[1])], masks[:, None]):
        assert torch.equal(energy_pointing_game(maps, objects), energy_pointing_game(maps, masks))
        assert torch.equal(pointing_game(maps, objects), pointing_game(maps, masks))
    assert torch.equal(energy_pointing_game(maps[:1], torch.tensor(BOX)), energy_pointing_game(maps[:1], masks[:1]))


def test_a_box_covers_the_pixels_whose_centres_lie_in_it_and_is_cut_at_the_edge():
    ones = torch.ones(1, 4, 4)
    assert energy_pointing_game(ones, [(0.4, 0, 1.4, 4)]).tolist() == [4 / 16]  # column 0 alone
    assert energy_pointing_game(ones, [(0.6, 0, 1.6, 4)]).tolist() == [4 / 16]  # column 1 alone
    assert energy_pointing_game(ones, [(-5, -5, 2, 100)]).tolist() == [8 / 16]


def test_energy_by_hand():
    m = torch.tensor([[[1.0, 2.0], [-4.0, 5.0]]])
    assert energy_pointing_game(m, [(1, 0, 2, 2)]).tolist() == pytest.approx([7 / 8])
    assert energy_pointing_game(m, [(0, 1, 1, 2)]).tolist() == [0]
    assert energy_pointing_game(m, [(0, 0, 2, 2)]).tolist() == [1]
    assert energy_pointing_game(-m.abs(), [(0, 0, 2, 2)]).tolist() == [0]  # no positive energy
    assert energy_pointing_game(m * 0, [(0, 0, 2, 2)]).tolist() == [0]


@given(st.integers(0, 10**6), st.sampled_from([0, 1, 2.5, 4]))
def test_hits_agree_with_a_distance_transform(seed, tolerance):
    source = torch.Generator().manual_seed(seed)
    maps = torch.rand(3, 7, 9, generator=source)
    maps[1], maps[2] = (maps[1] * 3).round(), (maps[2] * 20).round()  # many and few ties
    masks = torch.rand(3, 7, 9, generator=source) > 0.95
    masks[:, 3, 4] = True
    expected = [
        float((distance_transform_edt(~mask.numpy())[m.numpy() == m.numpy().max()] <= tolerance).mean())
        for m, mask in zip(maps, masks, strict=True)
    ]
    assert pointing_game(maps, masks, tolerance).tolist() == pytest.approx(expected)


@given(st.integers(0, 10**6), st.floats(1e-30, 1e30))
def test_energy_is_a_share_whatever_the_scale(seed, scale):
    source = torch.Generator().manual_seed(seed)
    maps = torch.randn(3, 5, 6, generator=source, dtype=torch.float64)
    mask = torch.rand(3, 5, 6, generator=source) > 0.5
    mask[:, 0, 0], mask[:, 4, 5] = True, False
    inside, outside = energy_pointing_game(maps * scale, mask), energy_pointing_game(maps * scale, ~mask)
    torch.testing.assert_close(inside + outside, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(inside, energy_pointing_game(maps, mask))


@pytest.mark.parametrize(
    ("objects", "sentence"),
    [
        ([], "got 0 entries"),
        (torch.zeros(2, 4), "got a torch.float32 tensor of shape"),
        (None, "got NoneType"),
        ("abcd", "got str"),
        ([[]], "The object of image 0 is .*; give one box"),
        ([(1, 2, 3)], "The object of image 0 is .*; give one box"),
        ([(0, 0, float("nan"), 3)], "all finite"),
        ([["a", "b", "c", "d"]], "The object of image 0 is .*; give one box"),
        ([(3, 0, 3, 4)], r"The box \[3.0, 0.0, 3.0, 4.0\] of image 0 covers no pixel of its map, which is 4 wide"),
        ([(2, 0, 1, 4)], "covers no pixel"),
        ([(9, 9, 12, 12)], "covers no pixel"),
        (torch.zeros(1, 4, 4, dtype=torch.bool), "The mask of image 0 is empty"),
        (torch.ones(1, 4, 5, dtype=torch.bool), r"The masks have shape \(1, 4, 5\); expected \(1, 4, 4\)"),
    ],
)
def test_objects_that_cannot_be_used(objects, sentence):
    for metric in (pointing_game, energy_pointing_game):
        with pytest.raises(InputError, match=sentence):
            metric(torch.rand(1, 1, 4, 4), objects)


def test_refused_maps_and_tolerances():
    with pytest.raises(InputError, match="NaN"):
        pointing_game(torch.full((1, 4, 4), float("nan")), [(0, 0, 1, 1)])
    with pytest.raises(InputError, match=r"must have shape \(N, 1, H, W\).*maps\[None\]"):
        pointing_game(torch.rand(4, 4), [(0, 0, 1, 1)])
    with pytest.raises(InputError, match="must be a tensor"):
        energy_pointing_game([[1.0]], [(0, 0, 1, 1)])
    for tolerance in (-1, float("inf"), "15", None):
        with pytest.raises(InputError, match="`tolerance` must be a finite number of at least 0"):
            pointing_game(torch.rand(1, 4, 4), [(0, 0, 1, 1)], tolerance)


def test_directions():
    assert {metric.name: metric.higher_is_better for metric in METRICS} == {
        "pointing_game": True,
        "energy_pointing_game": True,
    }
