"""``fei figure``: the paper's layouts on paper, from images and from a run."""

import json
import re

import numpy as np
import pytest
from commands import furnish
from commands import run as fei
from PIL import Image
from test_bench_page import METHODS, PAIRS, benchmark
from test_cli_bench import NETWORK

from fei.bench.report.grids import MapGrid, figure_1, visual_comparison
from fei.bench.report.style import picture
from fei.report import overlay

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return furnish(tmp_path, NETWORK, "a.png", "b.png")


@pytest.fixture
def run(tmp_path):
    with benchmark(tmp_path) as store:
        return store.folder


def words(figure):
    return [text.get_text() for text in figure.texts]


def panel(methods, images=2, side=8, **more):
    draw = np.random.default_rng(1)
    photographs = [draw.integers(0, 255, (side, side, 3), dtype=np.uint8) for _ in range(images)]
    maps = [[draw.random((side, side)) for _ in methods] for _ in range(images)]
    return MapGrid("", methods, photographs, maps, **more)


# The drawing


def test_a_visual_comparison_has_the_photograph_first_and_names_on_top():
    one = panel(["first", "second"])
    made = visual_comparison([one])
    assert words(made) == ["photograph", "first", "second"]
    cells = [axes.images[0] for axes in made.axes]
    assert len(cells) == 2 * 3
    assert (cells[3].get_array() == one.photographs[1]).all()
    assert (cells[5].get_array() == overlay(one.photographs[1], one.maps[1][1])).all()
    top = max(axes.get_position().y1 for axes in made.axes)
    assert all(text.get_position()[1] >= top for text in made.texts)


def test_many_methods_are_folded_and_each_band_begins_with_the_photographs():
    made = visual_comparison([panel([f"method {i}" for i in range(10)], images=1)])
    names = [f"method {i}" for i in range(10)]
    assert words(made) == ["photograph", *names[:5], "photograph", *names[5:]]


def test_figure_1_has_letters_below_and_the_scores_of_each_map():
    scores = [["insertion 0.91\nMSE 8", "insertion 0.72\nMSE 0.5"]]
    made = figure_1([panel(["FEI-NONE", "FEI-VM"], images=1, scores=scores, foot="net, fei-paper/1")])
    assert [text for text in words(made) if text] == [
        *scores[0], "(a) original", "(b) FEI-NONE", "(c) FEI-VM", "net, fei-paper/1",
    ]  # fmt: skip
    bottom = min(axes.get_position().y0 for axes in made.axes)
    assert all(text.get_position()[1] <= bottom for text in made.texts)


def test_a_map_that_is_missing_leaves_its_place_empty():
    one = panel(["first", "second"], images=1)
    made = visual_comparison([MapGrid("", one.names, one.photographs, [[None, one.maps[0][1]]])])
    assert [bool(axes.images) for axes in made.axes] == [True, False, True]
    assert [text.get_text() for text in made.axes[1].texts] == ["–"]


@pytest.mark.parametrize(("form", "begin"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_files_repeat_byte_by_byte(form, begin):
    one, other = (picture(visual_comparison([panel(["first"])]), form) for _ in range(2))
    assert one.startswith(begin)
    assert one == other


# The command


@pytest.mark.parametrize("layout", ["figure-1", "visual-comparison"])
def test_images_become_a_figure(place, capsys, layout):
    methods = "fei-none,saliency,fei-vm"
    code = fei(
        "figure", "a.png", "b.png", "--methods", methods, "--layout", layout, "--steps", 2, "--model", "net.py:net",
        "--out", "grid.png", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1, "figure": "grid.png", "layout": layout, "methods": ["fei-none (control)", "saliency", "fei-vm"],
    }  # fmt: skip
    pixels = np.asarray(Image.open("grid.png").convert("L"), dtype=float)
    assert pixels.shape[1] > 4 * 150
    assert pixels.std() > 20
    assert sorted(file.name for file in place.glob("*grid*")) == ["grid.png"]


def test_a_run_becomes_a_figure_with_a_panel_for_each_pair_that_can_be_shown(run, capsys, monkeypatch):
    drawn = []
    from fei.bench.report import grids as _grids

    monkeypatch.setattr(_grids, "figure_1", lambda panels: drawn.append(panels) or figure_1(panels))
    out = run.parent / "grid.svg"
    assert fei("figure", run, "--layout", "figure-1", "--methods", "FEI-NONE,saliency", "--out", out) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"  # what the network prints is no result
    assert f"Maps of {PAIRS[1]} are not shown" in printed.err  # its photographs are nowhere
    ((shown,),) = drawn
    assert (shown.title, list(shown.names)) == (PAIRS[0], ["FEI-NONE", "Saliency"])  # as they were named
    assert shown.scores[1] == ["insertion 0.45\nMSE 16", "insertion 0.15\nMSE 4"]
    assert len(shown.photographs) == 6
    assert re.search(rb"<image ", out.read_bytes())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["a.png", "--layout", "figure-9"],
            "There is no layout 'figure-9'; choose one of figure-1, visual-comparison.",
        ),
        (["a.png", "--out", "x.jpg"], "The figure's file 'x.jpg' ends in none of svg, pdf, png; give one that does."),
        (["a.png", "--out", "nowhere/x.svg"], "There is no folder 'nowhere' for the figure; make it first."),
        (["gone.png"], "There is no image file 'gone.png'; check the path."),
        (["a.png", "--methods", "gradcamel"], "gradcamel"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_a_sentence(place, capsys, words, told):
    assert fei("figure", *words) == 2
    assert told in capsys.readouterr().err


def test_what_a_run_cannot_give_is_told_in_a_sentence(run, tmp_path_factory, capsys):
    assert fei("figure", run, "--steps", 3, "--model", "x") == 2
    assert "The maps of a run are there already; leave --model, --steps away." in capsys.readouterr().err
    assert fei("figure", run, "--methods", "rise") == 2
    assert f"The run has no method 'rise'; it has {', '.join(METHODS)}." in capsys.readouterr().err
    other = tmp_path_factory.mktemp("other")
    with benchmark(other, keep_maps=False) as store:
        folder = store.folder
    assert fei("figure", folder) == 1
    assert "the plan does not keep them; set keep_maps = true" in capsys.readouterr().err
