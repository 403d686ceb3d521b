"""The grid pointing game: mosaics whose cells are known, an oracle, and controls."""

import itertools

import pytest
import torch
from networks import fingerprint, pictures, small_cnn
from torch import nn

from fei.errors import InputError
from fei.metrics.grid import _groups, grid_pointing_game


class Colours(nn.Module):
    """Its classes are its channels: the one that there is most of."""

    def forward(self, x):
        return 200 * x.mean((2, 3))


def plain(classes, channels=None, size=(8, 12), share=1.0):
    """For each class a picture in its colour alone."""
    x = torch.zeros(len(classes), channels or max(classes) + 1, *size)
    for image, kind in zip(x, classes, strict=True):
        image[kind] = share
    return x


def oracle(model, inputs, target):
    """Where the colour of the class is."""
    return inputs[range(len(inputs)), target][:, None]


def play(method, classes=range(4), **options):
    return grid_pointing_game(Colours().eval(), method, plain(list(classes)), **options)


@pytest.mark.parametrize(("size", "shape"), [(2, (8, 12)), (2, (7, 9)), (3, (9, 12)), (3, (10, 11))])
def test_an_oracle_has_one_and_its_negative_none(size, shape):
    x = plain(list(range(size**2)), size=shape)
    found = grid_pointing_game(Colours().eval(), oracle, x, size=size)
    assert found.energy.tolist() == found.rank.tolist() == [[1] * size**2]
    assert found.chance == 1 / size**2
    worst = grid_pointing_game(Colours().eval(), lambda *call: -oracle(*call), x, size=size)
    assert worst.energy.tolist() == [[0] * size**2]
    assert worst.rank.max() < 1e-9


def test_energy_and_rank_by_hand():
    found = play(lambda *call: 1 + 2 * oracle(*call))  # 3 in the cell and 1 in the three others
    assert found.energy.flatten().tolist() == pytest.approx([0.5] * 4)
    assert found.rank.tolist() == [[1] * 4]

    def left(model, inputs, target):  # the left half is important
        return (torch.arange(12) < 6).float().expand(len(inputs), 1, 8, 12)

    found = play(left)
    assert found.energy.tolist() == [[0.5, 0, 0.5, 0]]
    assert found.rank[0, 0::2].sum() == pytest.approx(1, abs=0.5)  # which half of the tied ones is drawn
    assert found.rank[0, 1::2].tolist() == [0, 0]


@pytest.mark.parametrize("method", ["centre", "random", "smooth-noise", lambda model, x, target: x[:, :1] * 0 + 1])
def test_what_does_not_know_the_class_is_at_chance(method):
    found = grid_pointing_game(Colours().eval(), method, plain([0, 1, 2, 3] * 3, size=(64, 64)))
    assert found.rank.shape == (3, 4)
    # the same map for all classes of a mosaic, of which each pixel is in one cell
    assert found.energy.sum(1).tolist() == pytest.approx([1] * 3)
    assert found.rank.mean().item() == pytest.approx(0.25, abs=0.02)


def test_every_photograph_is_in_its_cell():
    x = plain([0, 1, 2, 3], channels=5)
    found = grid_pointing_game(Colours().eval(), oracle, x)
    (mosaic,), (numbers,) = found.mosaics, found.photographs
    assert torch.equal(found.classes, found.photographs)  # photograph n is of class n
    corners = [mosaic[:, row, column].argmax().item() for row in (0, 7) for column in (0, 11)]
    assert corners == numbers.tolist()
    assert mosaic.sum(0).unique().tolist() == [1]
    halves = torch.cat([x[:, :4] * 0.9, x[:, 4:] + 0.1], 1)
    halves[..., :6] = 0  # cells are whole photographs, made smaller
    small = grid_pointing_game(Colours().eval(), oracle, halves).mosaics[0]
    assert small[:, :, 0].max() == small[:, :, 6].max() == 0
    assert small[:, :, 5].max() == small[:, :, 11].max() == pytest.approx(0.9)


def test_places_and_ties_depend_on_the_seed():
    places = {tuple(play(oracle, generator=torch.Generator().manual_seed(s)).photographs[0].tolist()) for s in range(9)}
    assert len(places) > 3
    assert torch.equal(play("random").rank, play("random").rank)


def test_only_confident_photographs_are_used():
    faint = plain([4], channels=5, share=0.005)  # e^1 against four times e^0
    x = torch.cat([faint, plain([0, 1, 2, 3], channels=5)])
    assert sorted(grid_pointing_game(Colours().eval(), oracle, x).photographs.flatten().tolist()) == [1, 2, 3, 4]
    more = torch.cat([x, plain([0, 1, 2], channels=5)])
    found = grid_pointing_game(Colours().eval(), oracle, more, confidence=0.3)
    assert sorted(found.photographs.flatten().tolist()) == list(range(8))
    assert all(len(set(row)) == 4 for row in found.classes.tolist())


@pytest.mark.parametrize(
    ("kinds", "count", "expected"),
    [("aaabcde", 2, 3), ("aaaa", 2, 0), ("abcdabcd", 4, 2), ("aabbccd", 4, 1), ("aaabbbccc", 3, 3), ("", 2, 0)],
)
def test_as_many_mosaics_as_there_can_be(kinds, count, expected):
    groups = _groups([(number, ord(kind)) for number, kind in enumerate(kinds)], count)
    assert len(groups) == expected
    used = list(itertools.chain(*groups))
    assert len(used) == len(set(used)) == expected * count
    assert all(len({kinds[number] for number in group}) == count for group in groups)


def test_the_network_is_left_alone_and_progress_is_told():
    model, x, seen = nn.Sequential(Colours(), nn.Linear(4, 4)).eval(), plain([0, 1, 2, 3] * 2), []
    model[1].weight.data, model[1].bias.data = torch.eye(4), torch.zeros(4)
    before = fingerprint(model)
    with torch.no_grad():
        grid_pointing_game(model, "saliency", x, progress=lambda done, total: seen.append((done, total)))
    assert fingerprint(model) == before
    assert seen == [(i + 1, 200) for i in range(200)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"size": 1}, "`size` must be a whole number of at least 2"),
        ({"size": 20}, "A grid of 20 × 20 does not fit images"),
        ({"confidence": 1}, "`confidence` must be a number strictly between 0 and 1"),
        ({"size": 3}, r"A mosaic needs 9 photographs of distinct classes.* 4 photograph\(s\) have 4; give more"),
        ({"classes": [0, 1, 2, 2, 1]}, r"A mosaic needs 4 .* 5 photograph\(s\) have 3; give more"),
    ],
)
def test_what_makes_no_mosaic_is_refused(options, expected):
    with pytest.raises(InputError, match=expected):
        play(oracle, **options)
    with pytest.raises(InputError, match="A mosaic needs 4 photographs"):
        grid_pointing_game(small_cnn(), "edges", pictures(8), confidence=0.999999)
