"""References: known colours, known statistics, and random draws that depend on image and seed alone."""

import numpy as np
import pytest
import torch
from networks import pictures, small_cnn
from scipy.ndimage import correlate1d
from torch import nn

import fei
from fei.core.randomness import generator_for, image_digest
from fei.data import demo_image
from fei.errors import InputError
from fei.references import Reference, References, another_photograph, blur, clouds


class Pixels(nn.Module):
    """A network whose input space is known."""

    pixel_range = (0.0, 1.0)
    mean = torch.tensor([0.5, 0.25, 0.125]).view(3, 1, 1)


def make(spec, x=None, model=None, seed=0):
    x = pictures(3) if x is None else x
    return References(spec, x, [image_digest(image) for image in x], model or Pixels(), seed)


def test_fixed_colours():
    assert torch.equal(make("black").values, torch.zeros(3, 3, 1, 1))
    assert torch.equal(make("white").values, torch.ones(3, 3, 1, 1))
    assert make("mean").values[0].flatten().tolist() == [0.5, 0.25, 0.125]


def test_one_random_colour_an_image():
    values = make(None).values
    assert values.shape == (3, 3, 1, 1)
    assert values.min() >= 0
    assert values.max() <= 1
    assert len({tuple(colour.flatten().tolist()) for colour in values}) == 3
    many = torch.cat([make("color", seed=seed).values for seed in range(300)])
    assert abs(many.mean().item() - 0.5) < 0.03  # uniform on [0, 1]: mean ½, standard error .006
    assert abs(many.var().item() - 1 / 12) < 0.01


def test_colour_depends_on_image_and_seed_not_on_order_or_batch():
    x = pictures(3)
    values = make(None, x).values
    assert torch.equal(make(None, x.flip(0)).values.flip(0), values)
    assert torch.equal(make(None, x[1:2]).values[0], values[1])
    assert not torch.equal(make(None, x, seed=1).values, values)


def test_bare_module_draws_between_each_channels_extremes():
    x = pictures(3) * torch.tensor([1.0, 10.0, 100.0]).view(1, 3, 1, 1) - 5
    for kind in ("color", "noise"):
        values = make(kind, x, nn.Identity()).values
        assert (values >= x.amin((2, 3), keepdim=True)).all()
        assert (values <= x.amax((2, 3), keepdim=True)).all()
        assert values[:, 2].max() > 6  # the wide channel is drawn from its own range


def test_noise_has_full_resolution():
    values = make("noise").values
    assert values.shape == (3, 3, 12, 16)
    assert values[0, 0].unique().numel() == 12 * 16


def test_blur_against_scipy():
    x = pictures(1, (20, 30))
    kernel = np.exp(-(np.arange(-5, 6) ** 2) / 50)
    kernel /= kernel.sum()
    expected = correlate1d(correlate1d(x.numpy(), kernel, axis=2, mode="nearest"), kernel, axis=3, mode="nearest")
    np.testing.assert_allclose(blur(x).numpy(), expected, atol=1e-6)
    assert torch.equal(make("blur", x).values, blur(x))


def test_tensor_number_and_callable():
    x = pictures(3)
    assert torch.equal(make(torch.full((3, 1, 1), 0.25), x).values, torch.full_like(x, 0.25))
    assert torch.equal(make(0.5, x).values, torch.full_like(x, 0.5))
    assert torch.equal(make(lambda images: images.flip(3), x).values, x.flip(3))
    per_image = torch.rand(3, 3, 1, 1)
    assert torch.equal(make(per_image, x).values, per_image)


def test_resampling_draws_anew_each_step_and_repeats():
    references = make(Reference("color", resample=True))
    assert torch.equal(references.at(0), references.values)
    assert not torch.equal(references.at(1), references.at(2))
    assert torch.equal(references.at(2), make(Reference("color", resample=True)).at(2))
    fixed = make("color")
    assert torch.equal(fixed.at(0), fixed.at(7))


def test_resampling_reaches_the_optimisation():
    model, x = small_cnn(), pictures()
    fixed = fei.FEI(model, steps=5).explain(x)
    fresh = fei.FEI(model, steps=5).explain(x, baselines=Reference("color", resample=True))
    assert torch.equal(fixed.reference, fresh.reference)
    assert not torch.equal(fixed.maps, fresh.maps)
    assert fresh.config["reference"] == {"kind": "color", "resample": True}


def test_refusals():
    with pytest.raises(InputError, match="is not random; resample color, noise, clouds or a mixture"):
        Reference("black", resample=True)
    with pytest.raises(InputError, match=r"The mixture 'color\+blur' needs a draw at each step; give 'color\+blur:res"):
        Reference("color+blur")
    with pytest.raises(InputError, match="Unknown reference 'bluur'"):
        Reference.of("color+bluur:resample")
    with pytest.raises(InputError, match="A reference must be a name, a number, a tensor"):
        make([1, 2, 3])
    with pytest.raises(InputError, match=r"shape \(4, 1, 1\) does not fit inputs of shape \(3, 3, 12, 16\)"):
        make(torch.zeros(4, 1, 1))


def test_digest_sees_values_shape_and_nothing_else():
    x = torch.rand(3, 4, 6)
    assert image_digest(x) == image_digest(x.clone())
    assert image_digest(x) == image_digest(x.permute(1, 2, 0).contiguous().permute(2, 0, 1))  # layout is not content
    assert image_digest(x) != image_digest(x.reshape(3, 6, 4))
    changed = x.clone()
    changed[2, 3, 5] += 1e-6
    assert image_digest(x) != image_digest(changed)


def test_sub_seeds_differ_by_purpose():
    draws = {
        torch.rand(1, generator=generator_for(seed, digest, purpose)).item()
        for seed in (0, 1)
        for digest in ("a", "b")
        for purpose in ("color/0", "color/1", "ties")
    }
    assert len(draws) == 12


def test_names_of_references():
    for name in ("color", "mean", "color:resample", "color+blur+noise:resample"):
        assert str(Reference.of(name)) == name
    assert Reference.of("color+blur:resample") == Reference("color+blur", resample=True)
    assert make("noise:resample").resample


def test_a_mixture_draws_each_of_its_kinds():
    x = pictures()
    drawn = References("black+blur+color:resample", x, [image_digest(i) for i in x], Pixels(), 0)
    masks = [(0, mask) for mask in range(60)]
    rows = drawn.of_rows(0, masks)
    assert rows.shape == (60, *x.shape[1:])
    black = (rows == 0).flatten(1).all(1)
    blurred = torch.tensor([torch.equal(row, blur(x)[0]) for row in rows])
    flat = (rows == rows[:, :, :1, :1]).flatten(1).all(1) & ~black
    assert (black | blurred | flat).all()
    for kind in (black, blurred, flat):
        assert 10 <= kind.sum() <= 30
    assert torch.equal(rows, drawn.of_rows(0, masks))
    assert not torch.equal(rows, drawn.of_rows(1, masks))


def test_another_photograph_is_never_the_image_itself_and_depends_on_no_seed():
    shown = torch.from_numpy(np.array(demo_image("coffee").resize((48, 32)))).permute(2, 0, 1)[None] / 255
    for image in (shown, shown * 0.9, torch.zeros(1, 3, 32, 48)):
        digests = [image_digest(image[0])]
        found, again = (References("photo", image, digests, Pixels(), seed).values for seed in (0, 1))
        assert torch.equal(found, again)
        assert found.shape == image.shape
        assert 0 <= found.min() < found.max() <= 1
        if image.any():
            assert torch.corrcoef(torch.stack([found.flatten(), image.flatten()]))[0, 1] < 0.8


def test_another_photograph_in_an_unknown_space_has_the_images_mean_and_spread():
    x = torch.randn(2, 4, 20, 30, generator=torch.Generator().manual_seed(0)) * 7 + 3
    found = another_photograph(x, small_cnn())
    for drawn, image in zip(found, x, strict=True):
        torch.testing.assert_close(torch.std_mean(drawn, (1, 2)), torch.std_mean(image, (1, 2)), rtol=1e-3, atol=1e-3)
    assert another_photograph(torch.ones(1, 3, 1, 1), small_cnn()).flatten().tolist() == [1, 1, 1]


def test_clouds_have_the_spectrum_of_photographs():
    """Power falls with the square of the frequency; deviation and correlation of channels are as documented."""
    side = 64
    drawn = torch.stack([clouds((3, side, side), torch.Generator().manual_seed(seed)) for seed in range(60)]).double()
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    around = drawn - drawn.mean((2, 3), keepdim=True)
    assert around.std((2, 3)).mean().item() == pytest.approx(0.22, abs=0.02)
    correlation = torch.stack([torch.corrcoef(one.flatten(1))[0, 1] for one in around]).mean().item()
    assert correlation == pytest.approx(0.6, abs=0.06)
    power = torch.fft.rfft2(around).abs().square().mean((0, 1))[0, 1:]
    frequency = torch.fft.rfftfreq(side, dtype=torch.float64)[1:]
    few = slice(1, 16)  # what is cut off adds a little of high frequencies
    slope = torch.linalg.lstsq(
        torch.stack([frequency[few].log(), torch.ones(15, dtype=torch.float64)], 1), power[few].log()[:, None]
    ).solution[0]
    assert slope.item() == pytest.approx(-2, abs=0.25)
    assert clouds((1, 1, 1), torch.Generator().manual_seed(0)).shape == (1, 1, 1)


def test_a_few_pixels_that_are_like_every_photograph_get_one_all_the_same():
    """Two pixels correlate perfectly with whatever there is."""
    images = torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)
    assert another_photograph(images, torch.nn.Identity()).shape == images.shape
