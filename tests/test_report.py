"""Pictures of maps: right colours, nothing rescaled but the picture."""

import io

import matplotlib
import numpy as np
import pytest
import torch
from networks import pictures, small_cnn
from PIL import Image

import fei
from fei.errors import InputError
from fei.report import colorize, figure, map_image, overlay, panel, photo

pytestmark = pytest.mark.slow

# The ends of inferno in matplotlib's own table, as 8-bit RGB.
DARKEST, BRIGHTEST = (0, 0, 3), (252, 254, 164)


@pytest.fixture(scope="module")
def explanation():
    return fei.FEI(small_cnn(), steps=2, quantiles=(0.25, 0.5)).explain(pictures(), target=[1, 3])


def test_the_lowest_and_highest_values_get_the_ends_of_the_colour_map():
    colours = colorize(np.array([[-3.0, 1.0], [5.0, 5.0]]))
    assert colours.dtype == np.uint8
    assert colours.shape == (2, 2, 3)
    np.testing.assert_allclose(colours[0, 0], DARKEST, atol=1)
    np.testing.assert_allclose(colours[1, 0], BRIGHTEST, atol=1)
    assert (colours[0, 1] == matplotlib.colormaps["inferno"](0.5, bytes=True)[:3]).all()


def test_shifting_and_scaling_a_map_does_not_change_its_colours():
    values = np.random.default_rng(0).random((5, 7))
    assert (colorize(values) == colorize(values * 1024 - 512)).all()
    assert (colorize(values.astype(np.float32) * np.float32(3e38)) == colorize(values.astype(np.float32))).mean() > 0.99


def test_brighter_means_higher_all_the_way():
    ramp = colorize(np.linspace(0, 1, 256)[None])[0].astype(float)
    luminance = ramp @ (0.2126, 0.7152, 0.0722)
    assert (np.diff(luminance) > -0.5).all()  # 8-bit rounding aside


def test_a_constant_map_has_the_lowest_colour():
    for value in (0.0, 0.7, -5.0):
        assert (colorize(np.full((2, 3), value)) == colorize(np.array([[0.0, 1.0]]))[0, 0]).all()


@pytest.mark.parametrize(
    ("attribution", "words"),
    [
        (np.zeros((1, 2, 2)), r"shape \(1, 2, 2\); give one map \(H, W\)"),
        (np.zeros((0, 2)), r"shape \(0, 2\)"),
        (np.array([[np.nan, 1]]), "NaN or infinite"),
        (np.array([[np.inf, 1]]), "NaN or infinite"),
    ],
)
def test_what_is_no_map_is_refused(attribution, words):
    with pytest.raises(InputError, match=words):
        colorize(attribution)


def test_overlay_goes_from_the_photograph_to_the_colours():
    image = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    values = np.random.default_rng(1).random((4, 5))
    assert (overlay(image, values, 0) == image).all()
    assert (overlay(image, values, 1) == colorize(values)).all()
    middle = overlay(image, values, 0.5).astype(float)
    assert np.abs(middle - (image.astype(float) + colorize(values)) / 2).max() <= 0.5


def test_overlay_refuses_what_does_not_fit():
    image = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(InputError, match=r"\(4, 5, 3\) and the map has the shape \(5, 4\)"):
        overlay(image, np.zeros((5, 4)))
    with pytest.raises(InputError, match="float64"):
        overlay(image.astype(float), np.zeros((4, 5)))
    with pytest.raises(InputError, match=r"opacity is 1\.5"):
        overlay(image, np.zeros((4, 5)), 1.5)


def test_map_image_is_the_colours():
    values = np.random.default_rng(0).random((3, 6))
    image = map_image(values)
    assert image.size == (6, 3)
    assert (np.asarray(image) == colorize(values)).all()


def test_photo_shows_colours_as_they_are():
    pixels = torch.tensor([0.0, 51 / 255, 1.0]).view(3, 1, 1).expand(3, 2, 4)
    assert photo(pixels).shape == (2, 4, 3)
    assert (photo(pixels) == [0, 51, 255]).all()


def test_photo_stretches_what_is_not_colour():
    assert (photo(torch.tensor([-2.0, 0.0, 2.0]).view(3, 1, 1)) == [0, 128, 255]).all()
    assert (photo(torch.full((3, 1, 1), 7.0)) == 0).all()
    assert (photo(torch.full((1, 2, 2), 0.2)) == 51).all()
    with pytest.raises(InputError, match=r"\(1, 3, 2, 2\)"):
        photo(torch.zeros(1, 3, 2, 2))


def rendered(picture):
    file = io.BytesIO()
    picture.savefig(file)
    return np.asarray(Image.open(file).convert("RGB"))


@pytest.mark.parametrize("values", [np.linspace(0, 1, 24), np.full(24, 0.5), np.linspace(-1e-9, 1e-9, 24)])
def test_panel_draws_any_map(values, fine_pictures):
    image = np.full((4, 6, 3), 200, np.uint8)
    drawn = rendered(panel(image, values.reshape(4, 6), headline="Predicted: $a_{b$, 1%", details="x" * 500))
    assert 1500 < drawn.shape[1] < 1700
    assert (drawn == 200).all(-1).any()  # the photograph is there


def test_panel_scales_the_bar_by_the_map_and_leaves_the_map_alone():
    values = np.linspace(2, 3, 6).reshape(2, 3)
    before = values.copy()
    picture = panel(np.zeros((2, 3, 3), np.uint8), values, headline="a", details="b")
    assert (values == before).all()
    assert picture.axes[-1].get_ylim() == (2, 3)
    texts = [text.get_text() for text in picture.texts]
    assert texts == ["a", "b"]


def test_panel_on_a_fixed_scale_does_not_stretch_the_map():
    values = np.array([[0.4, 0.5], [0.5, 0.6]])
    picture = panel(np.zeros((2, 2, 3), np.uint8), values, headline="a", details="b", span=(0.0, 1.0), opacity=0.25)
    assert picture.axes[-1].get_ylim() == (0, 1)
    drawn = picture.axes[2].images[0].get_array()
    assert (drawn == matplotlib.colormaps["inferno"](values, bytes=True)[..., :3]).all()
    blended = np.asarray(picture.axes[1].images[0].get_array())
    assert np.abs(blended - 0.25 * drawn).max() <= 0.5
    assert (colorize(np.array([[-1.0, 2.0]]), (0.0, 1.0)) == colorize(np.array([[0.0, 1.0]]))).all()


def test_figure_has_a_row_an_image_and_a_frame_a_mask(explanation):
    picture = figure(explanation, labels=["a", "b", "c", "d" * 50])
    titles = [axes.get_title() for axes in picture.axes]
    assert len(titles) == 2 * (2 + 2)
    assert titles[:2] == ["input", "b"]
    assert titles[5] == "d" * 21 + "…"
    phi, area = explanation.trace.phi[0, 0, -1], explanation.trace.area[0, 0, -1]
    assert titles[2] == f"q = 0.25\nφ {phi:.2f}, area {area:.2f}"
    assert rendered(picture).size


def test_figure_names_classes_by_number_where_they_have_no_name(explanation):
    assert figure(explanation).axes[1].get_title() == "class 1"
    assert figure(explanation, labels=["only one"]).axes[1].get_title() == "class 1"


def test_figure_of_one_mask_without_an_area_and_of_a_callable_target():
    result = fei.FEI(small_cnn(), constraint="none", steps=1).explain(pictures(1), lambda logits: logits[:, 0])
    titles = [axes.get_title() for axes in figure(result).axes]
    assert titles[1] == "map"
    assert titles[2].startswith("α\nφ ")


def test_show_gives_a_figure_that_notebooks_can_draw_without_pyplot(explanation):
    picture = explanation.show()
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert explanation.maps.min() >= 0


def test_no_global_state_of_pyplot_is_used():
    import subprocess
    import sys

    code = "import sys, fei.report; print('matplotlib.pyplot' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8").stdout
        == "False\n"
    )
