"""The grid of tokens, and the layer at which a transformer's patches speak for a class."""

import pytest
import torch
from networks import pictures, small_cnn, tiny_transformer
from torch import nn

import fei
from fei.core.dataflow import trace
from fei.core.focus import find_focus
from fei.core.tokens import Grid, ancestors, grid_of


class Tokens(nn.Module):
    """Patches of 4 × 4 pixels, whatever `join` makes of them."""

    def __init__(self, join):
        super().__init__()
        self.embed, self.join, self.head = nn.Conv2d(3, 8, 4, stride=4), join, nn.Linear(8, 4)
        self.extra = nn.Parameter(torch.zeros(1, 2, 8))

    def forward(self, x):
        maps = self.embed(x)
        tokens = self.join(self, maps.flatten(2).transpose(1, 2), self.extra.expand(len(x), -1, -1))
        return self.head((tokens * 2).flatten(1, -2).mean(1))


def grid_at(model, function="mul", size=(12, 16)):
    flow, _ = trace(model, pictures(1, size))
    return grid_of(flow, [call for call in flow.calls if call.function == function][-1])


@pytest.mark.parametrize(
    ("join", "grid"),
    [
        (lambda self, x, extra: x, Grid(3, 4, "tokens", 0, 12)),
        (lambda self, x, extra: torch.cat([extra[:, :1], x], 1), Grid(3, 4, "tokens", 1, 13)),
        (lambda self, x, extra: torch.cat((extra, x), dim=1), Grid(3, 4, "tokens", 2, 14)),
        (lambda self, x, extra: torch.cat(tensors=(x, extra), dim=1), Grid(3, 4, "tokens", 0, 14)),  # last
        (lambda self, x, extra: torch.cat([extra[:, :1], x, extra], 1), Grid(3, 4, "tokens", 1, 15)),
        (lambda self, x, extra: x.unflatten(1, (3, 4)), Grid(3, 4, "last")),
        (lambda self, x, extra: x[:, 1:], None),  # one is missing
        (lambda self, x, extra: nn.functional.pad(x, (0, 0, 1, 0)), None),  # nobody says where the patches are
    ],
)
def test_the_grid_is_read_off_what_was_computed(join, grid):
    assert grid_at(Tokens(join).eval()) == grid


def test_a_map_and_coarser_tokens():
    coarser = Tokens(lambda self, x, extra: x.unflatten(1, (4, 8))[:, ::2, ::2].flatten(1, 2)).eval()
    assert grid_at(coarser, size=(16, 32)) == Grid(2, 4, "tokens", 0, 8)
    assert grid_at(coarser, "conv2d", (16, 32)) == Grid(4, 8)


def test_the_image_is_the_first_of_all():
    flow, _ = trace(small_cnn(), pictures(1))
    calls = list(ancestors(flow, flow.calls[-1]))
    assert calls[0] is flow.calls[-1]
    assert [calls[-2].function, calls[-1].function] == ["conv2d", "image"]


def test_tokens_become_a_map_and_a_map_tokens():
    values = torch.arange(2 * 7 * 3).view(2, 7, 3).float()
    grid = Grid(2, 3, "tokens", 1, 7)
    maps = grid.to_map(values)
    assert maps.shape == (2, 3, 2, 3)
    assert maps[1, 2, 1, 0] == values[1, 1 + 3, 2]
    back = grid.from_map(maps, fill=-1)
    assert torch.equal(back[:, 1:], values[:, 1:])
    assert (back[:, 0] == -1).all()
    last = Grid(2, 3, "last")
    assert torch.equal(last.to_map(last.from_map(maps)), maps)
    assert last.from_map(maps).shape == (2, 2, 3, 3)
    assert Grid(2, 3).to_map(maps) is maps is Grid(2, 3).from_map(maps)


def focus_of(model, layer, x=None):
    x = pictures(1) if x is None else x
    return find_focus(model, trace(model, x)[0], x, layer, lambda output: output.amax(1))


@pytest.mark.parametrize(
    ("token", "name", "first"), [("first", "blocks.1.norm1", 1), ("last", "blocks.1.norm1", 0), (None, "norm", 0)]
)
def test_evidence_is_read_where_patches_still_matter(token, name, first):
    """Only the class token of the last block's output is read; and what comes before a LayerNorm sums to nothing."""
    model = tiny_transformer(token=token)
    focus = focus_of(model, "blocks.1")
    assert focus.site.name == name
    assert focus.grid == Grid(3, 4, "tokens", first, 12 + (token is not None))


def test_evidence_of_a_convolutional_network_is_read_at_its_feature_layer():
    model = small_cnn()
    focus = focus_of(model, "5")
    assert (focus.site.name, focus.grid) == ("5", Grid(6, 8))


class ChannelsLast(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.head = nn.Conv2d(3, 8, 4, stride=4), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.norm(self.embed(x).permute(0, 2, 3, 1)).mean((1, 2)))


def test_maps_with_channels_last_are_read_too():
    model = ChannelsLast().eval()
    assert focus_of(model, None).grid == Grid(3, 4, "last")
    result = fei.FEI(model, steps=2, quantiles=(0.5,)).explain(pictures(2))
    assert result.config["focus"] == "norm"
    assert result.maps.std() > 0


def test_the_evidence_lies_where_its_patch_does():
    """A network that reads one patch, of a wide image, after a class token that stands last."""

    class OnePatch(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm, self.extra = (
                nn.Conv2d(3, 8, 4, stride=4),
                nn.LayerNorm(8),
                nn.Parameter(torch.ones(1, 1, 8)),
            )
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            x = self.embed(x).flatten(2).transpose(1, 2)
            x = self.norm(torch.cat([x, self.extra.expand(len(x), -1, -1)], 1))
            return self.head(x[:, 6] + 0.01 * x[:, :12].sum(1))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = OnePatch().eval()
    x = pictures(1)
    result = fei.FEI(model, prior=1.0, steps=10).explain(x, 0)
    other = fei.FEI(model, prior=1.0, steps=10).explain(x, 1)
    patch = (slice(4, 8), slice(8, 12))  # the seventh of 3 × 4
    best = max(result.maps[0, 0][patch].mean(), other.maps[0, 0][patch].mean())
    assert best > 0.8


def test_tokens_without_a_grid_are_said():
    class Shuffled(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(8, 4)
            self.one, self.two = (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)) for _ in range(2))

        def forward(self, x):
            x = self.embed(x).flatten(2).transpose(1, 2)[:, :7]
            return self.head(self.two(self.one(x)).mean(1))

    with pytest.warns(UserWarning, match="the tokens of the network form no grid that is known, so nothing is focused"):
        result = fei.FEI(Shuffled().eval(), steps=1, quantiles=(0.5,)).explain(pictures(1))
    assert any("form no grid" in note for note in result.config["notes"])
