"""Tables and figures of a run: hand-computed numbers, honest marks, and files that repeat byte by byte."""

import csv
import io
import itertools
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from fei.bench.plan import parse_plan
from fei.bench.report import write_report
from fei.bench.report._labels import Point, place_labels
from fei.bench.report._statistics import estimate, holm, paired, places, proportion
from fei.bench.report.figures import figures
from fei.bench.report.style import new_figure
from fei.bench.report.tables import table
from fei.bench.store import Store
from fei.bench.units import Outcome
from fei.common.consent import remembering
from fei.errors import InputError
from fei.metrics import bootstrap_interval, wilson_interval
from fei.models import load

pytestmark = pytest.mark.slow

PROTOCOL = "fei-paper/1"
METHODS = {"Alpha": "saliency", "Beta": "gradcam", "FEI-VM": "fei-vm", "FEI-NONE": "fei-none"}


def run(folder, scores, *, methods=METHODS, groups=None, seeds=(0, 1), failed=(), layout="external", layers=(), **more):
    """A run with these numbers: {(label, item, seed): {metric, (metric, layer) or (kind, metric, layer): value}}."""
    lines = [f'name = "a run"\nseeds = {list(seeds)}\nlayout = "{layout}"', more.get("head", "")]
    for name in more.get("pairs", ("Set, Net",)):
        lines.append(f'[[pairs]]\nmodel = "{more.get("model", "efficientnet_lite0")}"\nname = "{name}"')
        lines.append(f'data = "{more.get("data", folder)}"')
    for label, name in methods.items():
        lines.append(f'[[methods]]\nname = "{name}"\nlabel = "{label}"\ngroup = "{(groups or {}).get(label, "")}"')
    lines.append(more.get("tail", ""))
    plan = parse_plan("\n".join(lines))
    labels = list(methods)
    links, outcomes = [], []
    for (label, item, seed), values in scores.items():
        kinds = {key[0] if isinstance(key, tuple) and len(key) == 3 else "map" for key in values} or {"map"}
        for kind in sorted(kinds):
            unit = f"{kind}-{label}-{item}-{seed}"
            links.append((0, labels.index(label), item, seed, kind, unit))
            rows = []
            for key, value in values.items():
                wide = key if isinstance(key, tuple) else (key, "")
                wide = wide if len(wide) == 3 else ("map", *wide)
                if wide[0] == kind:
                    rows.append((wide[1], PROTOCOL if kind == "map" else "", wide[2], value))
            curves = [(PROTOCOL, m, [0.1, 0.5, 0.9], [v, v / 2, 0.0]) for m, _, _, v in rows if m == "insertion"]
            status = "failed" if (label, item, seed) in failed else "done"
            outcomes.append(
                Outcome(
                    unit, kind, "model", "data", item, methods[label], "{}", seed, status,
                    error="the disk_is full" if status == "failed" else None, seconds=1.0, forwards=10, backwards=5,
                    scores=tuple(rows), curves=tuple(curves), map=more.get("maps", {}).get((kind, label, item, seed)),
                )
            )  # fmt: skip
    store = Store.create(folder / "run", plan)
    store.link([*links, *more.get("links", ())], layers=layers)
    store.commit(outcomes)
    return store


def same(labels, items, seeds, value):
    return {
        (label, item, seed): value(label, item, seed) for label, item, seed in itertools.product(labels, items, seeds)
    }


@pytest.fixture
def small(tmp_path):
    """Two images, two seeds; Alpha's insertion is .2, .4 (a) and .4, .6 (b), all others' are constant."""
    insertion = {"Beta": 0.5, "FEI-VM": 0.6, "FEI-NONE": 0.9}
    deletion = {"Alpha": 0.1, "Beta": 0.3, "FEI-VM": 0.2, "FEI-NONE": 0.05}

    def value(label, item, seed):
        alpha = 0.2 + 0.2 * seed + 0.2 * (item == "b.png")
        inside = {("mse", "layer9"): 2.0 * (1 + deletion[label]), ("mse", "layer10"): 1 + deletion[label]}
        return {"insertion": insertion.get(label, alpha), "deletion": deletion[label], **inside}

    with run(tmp_path, same(METHODS, ["a.png", "b.png"], [0, 1], value), layers=[["layer9", "layer10"]]) as store:
        yield store


# Numbers


def test_the_mean_is_over_images_and_the_deviation_over_the_seeds_means():
    found = estimate(np.array([[0.2, 0.4], [0.4, 0.6]]))
    assert found.mean == pytest.approx(0.4)
    assert found.std == pytest.approx(math.sqrt(2 * 0.1**2))
    assert (found.low, found.high) == pytest.approx(bootstrap_interval([0.3, 0.5]))
    assert (found.images, found.seeds, found.count) == (2, 2, 4)


def test_missing_numbers_are_left_out_of_every_mean():
    found = estimate(np.array([[0.2, math.nan], [0.4, 0.6], [math.nan, math.nan]]))
    assert found.mean == pytest.approx((0.3 + 0.6) / 2)
    assert (found.images, found.seeds, found.count) == (2, 2, 3)
    assert estimate(np.full((2, 2), math.nan)) is None


def test_one_seed_has_no_deviation():
    assert math.isnan(estimate(np.array([[0.2], [0.4]])).std)


def test_a_share_has_wilsons_interval():
    found = proportion(np.array([[0.0] * 10, [0.0] * 10]))
    assert (found.mean, found.low) == (0, 0)
    assert found.high == pytest.approx(0.1611, abs=1e-4)  # z²/(n + z²)
    assert (found.low, found.high) == wilson_interval(0, 20)


def test_places_follow_the_direction_and_are_shared():
    assert places([0.3, None, 0.5, 0.5, 0.1], True) == [2, 0, 1, 1, 0]
    assert places([0.3, None, 0.5, 0.5, 0.1], False) == [2, 0, 0, 0, 1]
    assert places([0.3, 0.5], None) == [0, 0]


def test_wilcoxons_test_is_that_of_the_textbook():
    others = np.zeros((8, 1))
    ahead = np.arange(1.0, 9.0)[:, None]
    assert paired(ahead, others) == (4.5, pytest.approx(2 / 2**8), 8)
    behind_once = ahead * np.where(ahead == 1, -1, 1)  # of all sets of signs only two have a rank sum of at most 1
    assert paired(behind_once, others)[1] == pytest.approx(2 * 2 / 2**8)
    assert paired(others, others) == (0, 1, 8)
    assert paired(ahead[:1], others[:1]) is None


def test_only_images_and_seeds_that_both_methods_have_are_compared():
    difference, _, images = paired(
        np.array([[1.0, 2.0], [3.0, math.nan], [5.0, 5.0]]), np.array([[0.0, math.nan], [1.0, 1.0], [math.nan] * 2])
    )
    assert (difference, images) == (1.5, 2)


def test_holms_correction_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


# Tables


def test_a_table_marks_the_best_and_the_second_but_not_the_control(small):
    lines = table(small, "external").markdown().splitlines()
    assert lines[0] == "| method | Set, Net<br>insertion ↑ | Set, Net<br>deletion ↓ |"
    assert lines[2:] == [
        "| Alpha | 0.400 ± 0.141 | **0.100 ± 0.000** |",
        "| Beta | <u>0.500 ± 0.000</u> | 0.300 ± 0.000 |",
        "| FEI-VM | **0.600 ± 0.000** | <u>0.200 ± 0.000</u> |",
        "| FEI-NONE | 0.900 ± 0.000 | 0.050 ± 0.000 |",
    ]


def test_the_notes_say_how_the_numbers_came_about(small):
    notes = " ".join(table(small, "external").notes)
    assert "Protocol fei-paper/1." in notes
    assert "over 2 seeds, each of 2 images" in notes
    assert "FEI-NONE (no clipping: a control) takes no place" in notes
    assert "(Beta: Set, Net, insertion ↑; Alpha: Set, Net, deletion ↓)" in notes


def test_the_last_layer_is_the_deepest_and_not_the_last_in_the_alphabet(small):
    internal = table(small, "internal")
    assert {column.quantity.layer for column in internal.columns} == {"layer10"}
    assert "Layer layer10 of Set, Net." in internal.notes
    assert [column.heads for column in table(small, "layerwise").columns] == [("MSE ↓", "layer9"), ("MSE ↓", "layer10")]


def test_scores_under_protocols_that_the_plan_does_not_name_are_not_told(small):
    before = table(small, "external").markdown()
    taken = Outcome(
        "map-Alpha-a.png-0", "map", "model", "data", "a.png", METHODS["Alpha"], "{}", 0, "done",
        scores=(("insertion", "rise/1", "", 0.5), ("insertion", PROTOCOL, "", 0.2)),
    )  # fmt: skip
    small.commit([taken])  # as --reuse leaves a unit whose run had more protocols
    assert ("rise/1",) in small.rows("SELECT protocol FROM scores")
    assert table(small, "external").markdown() == before


def test_one_seed_is_written_without_a_deviation(tmp_path):
    scores = same(
        ["Alpha", "Beta"], ["a", "b"], [0], lambda label, item, _: {"insertion": 0.25 if item == "a" else 0.75}
    )
    with run(tmp_path, scores, methods={"Alpha": "saliency", "Beta": "gradcam"}, seeds=[0]) as store:
        made = table(store, "external")
    assert "| Alpha | **0.500** |" in made.markdown()
    assert "one seed" in " ".join(made.notes)
    assert "| Alpha | **0.500 \\[0.250, 0.750\\]** |" in made.markdown(intervals=True)


def test_a_missing_cell_is_a_dash_and_fewer_numbers_are_marked(tmp_path):
    scores = same(METHODS, ["a", "b"], [0], lambda *_: {"insertion": 0.5, "deletion": 0.5})
    for item in "ab":
        scores["Beta", item, 0] = {"deletion": 0.5}
    scores["Alpha", "b", 0] = {}
    waiting = [(0, 0, "c", 0, "map", "not there")]
    with run(tmp_path, scores, seeds=[0], failed=[("Alpha", "b", 0)], links=waiting) as store:
        made = table(store, "external")
    assert "| Beta | – | **0.500** |" in made.markdown()
    assert "| Alpha | **0.500**<sup>†</sup> | **0.500**<sup>†</sup> |" in made.markdown()
    assert "Failed: 1 unit of Alpha on Set, Net (b, seed 0): the disk_is full" in made.notes
    assert "1 of 9 units are not computed yet." in made.notes
    assert r"the disk\_is full" in made.latex()
    assert "Beta" not in [
        row["method"] for row in csv.DictReader(io.StringIO(made.csv())) if row["metric"] == "insertion"
    ]


def test_numbers_that_are_not_finite_are_left_out_and_counted(tmp_path):
    scores = same(["Alpha"], ["a", "b"], [0], lambda _, item, __: {"insertion": math.inf if item == "a" else 0.5})
    with run(tmp_path, scores, methods={"Alpha": "saliency"}, seeds=[0]) as store:
        made = table(store, "external")
    assert "| Alpha | **0.500** |" in made.markdown()
    assert "1 numbers of insertion are NaN or infinite and were left out." in made.notes


def test_ours_are_tested_against_the_best_baseline_with_holms_correction(tmp_path):
    items = [f"{number}.png" for number in range(1, 9)]

    def value(label, item, seed):
        rank = int(item[0]) / 100
        return {
            "insertion": 0.5 + {"FEI-VM": rank, "FEI-IBM": -rank if rank == 0.01 else rank, "Weak": -0.3}.get(label, 0)
        }

    methods = {"Weak": "saliency", "Strong": "gradcam", "FEI-VM": "fei-vm", "FEI-IBM": "fei-ibm"}
    with run(tmp_path, same(methods, items, [0], value), methods=methods, seeds=[0]) as store:
        made = table(store, "external")
    tests = {row.label: cells[0].test for row, cells in zip(made.rows, made.cells, strict=True)}
    assert tests["Weak"] is None
    assert tests["Strong"] is None
    assert tests["FEI-VM"].against == "Strong"
    assert tests["FEI-VM"].p == pytest.approx(2 / 2**8)
    assert tests["FEI-VM"].corrected == pytest.approx(2 * 2 / 2**8)
    assert tests["FEI-IBM"].corrected == pytest.approx(max(4 / 2**8, 4 / 2**8))
    assert tests["FEI-VM"].difference == pytest.approx(0.045)
    assert "| FEI-VM | **0.545**<sup>+</sup> |" in made.markdown()
    assert "Strong, the best baseline of each column" in " ".join(made.notes)
    assert "With so few images" not in " ".join(made.notes)
    row = next(row for row in csv.DictReader(io.StringIO(made.csv())) if row["method"] == "FEI-VM")
    assert float(row["p_holm"]) == tests["FEI-VM"].corrected
    assert (float(row["low"]), float(row["high"])) == pytest.approx(
        bootstrap_interval([0.5 + i / 100 for i in range(1, 9)])
    )
    assert float(row["mean"]) == pytest.approx(0.545)
    assert row["group"] == ""


def test_a_table_of_too_few_images_says_that_nothing_can_be_marked(tmp_path):
    items = [f"{number}.png" for number in range(5)]
    methods = {"Weak": "saliency", "FEI-VM": "fei-vm"}
    scores = same(methods, items, [0], lambda label, *_: {"insertion": 0.9 if label == "FEI-VM" else 0.1})
    with run(tmp_path, scores, methods=methods, seeds=[0]) as store:
        notes = " ".join(table(store, "external").notes)
    assert "With so few images nothing can be marked: it takes 6 at least." in notes


def test_an_ablation_has_blocks_and_is_compared_with_its_first_row(tmp_path):
    methods = dict.fromkeys(["FEI-VM (full method)", "few [*]", "100% & more"], "fei-vm")
    groups = {"few [*]": "Quantile levels", "100% & more": "Area_regulation"}
    scores = same(methods, "abcdefgh", [0], lambda label, item, _: {"insertion": (ord(item) - 96) / 100 * len(label)})
    with run(tmp_path, scores, methods=methods, groups=groups, seeds=[0], layout="ablation") as store:
        made = table(store, "ablation")
    assert made.markdown().splitlines()[3] == r"| *Quantile levels* |  |"
    assert {cell.test.against for (cell,) in made.cells[1:]} == {"FEI-VM (full method)"}
    assert made.cells[0][0].test is None
    latex = made.latex()
    assert r"\multicolumn{2}{l}{\textit{Area\_regulation}} \\" in latex
    assert r"\quad 100\% \& more & " in latex
    assert r"FEI$_{\mathrm{VM}}$ (full method) & " in latex


def test_black_images_have_rates_with_intervals_and_thresholds(tmp_path):
    methods = {"FEI-VM": "fei-vm", "FEI-NONE": "fei-none"}

    def value(label, item, seed):
        fires = label == "FEI-NONE" and item != "3"
        return {("black-image", "fired", ""): float(fires), ("black-image", "phi", ""): 0.8 if fires else 0.1}

    scores = same(methods, "0123", [0], value)
    with run(tmp_path, scores, methods=methods, seeds=[0], tail="[black_image]\ntrials = 4") as store:
        made = table(store, "black-image")
    low, high = wilson_interval(3, 4)
    lines = made.markdown().splitlines()
    assert lines[3] == f"| FEI-NONE | 75.0 % \\[{100 * low:.1f}, {100 * high:.1f}\\] | 100.0 % | 75.0 % | 0.0 % |"
    assert lines[2].startswith("| FEI-VM | **0.0 % \\[0.0, ")
    assert "Share of 4 trials" in " ".join(made.notes)


def test_a_table_that_is_not_there_is_refused_in_a_sentence(small):
    with pytest.raises(InputError, match="There is no table 'outer'; choose one of external, internal"):
        table(small, "outer")
    with pytest.raises(InputError, match="The run has no numbers for the table 'sanity'"):
        table(small, "sanity")
    with pytest.raises(InputError, match="There is no pair 1; the plan has 1"):
        table(small, "layerwise", pair=1)


# LaTeX


def test_latex_is_balanced_and_every_row_is_as_wide_as_the_table(small):
    for layout, width in (("external", 3), ("layerwise", 3)):
        text = table(small, layout).latex()
        plain = re.sub(r"\\[{}&]", "", text)
        assert plain.count("{") == plain.count("}")
        assert plain.count("$") % 2 == 0
        open_ones = []
        for word, name in re.findall(r"\\(begin|end)\{(.*?)\}", plain):
            if word == "begin":
                open_ones.append(name)
            else:
                assert open_ones.pop() == name
        assert not open_ones
        body = plain[plain.index(r"\hline") : plain.rindex(r"\hline")]
        for line in (line for line in body.splitlines() if r"\\" in line):
            spanned = sum(int(size) - 1 for size in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert line.count("&") + 1 + spanned == width, line


def test_two_data_sets_stand_over_their_networks(tmp_path):
    scores = same(["Alpha"], ["a"], [0], lambda *_: {"insertion": 0.5, "deletion": 0.2})
    pairs = ("Birds, VGG16", "Birds, ResNet50")
    with run(tmp_path, scores, methods={"Alpha": "saliency"}, seeds=[0], pairs=pairs) as store:
        store.link(
            [(pair, 0, "a", 0, "map", "map-Alpha-a-0") for pair in (0, 1)]  # both rows of the plan share the unit
        )
        text = table(store, "external").latex()
    assert r"\begin{tabular}{l|cc|cc}" in text
    assert r" & \multicolumn{4}{c}{Birds} \\ \cline{2-5}" in text
    assert r" & \multicolumn{2}{c|}{VGG16} & \multicolumn{2}{c}{ResNet50} \\ \cline{2-3} \cline{4-5}" in text
    assert text.count(r"\textbf{0.500} & \textbf{0.200}") == 2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(small, tmp_path):
    write_report(small, tmp_path / "out")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(
        command, cwd=tmp_path / "out" / "tables", capture_output=True, text=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout[-2000:]


# Figures and the whole report


@pytest.fixture(scope="module")
def complete(tmp_path_factory, coarse_reports):
    """A run with all parts, whose maps were kept."""
    tmp_path = tmp_path_factory.mktemp("complete")
    network = tmp_path / "net.py"
    network.write_text(
        "from torch import nn\n"
        "def make():\n"
        "    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
        "    net.input_size = 16\n"
        "    return net\n",
        encoding="utf-8",
    )
    with remembering():
        load(f"{network}:make")
    (tmp_path / "photos").mkdir()
    generator = np.random.default_rng(0)
    for name in ("a.png", "b.png"):
        Image.fromarray(generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(tmp_path / "photos" / name)
    stages = ["01 fc", "02 conv"]

    def value(label, item, seed):
        level = 0.2 + 0.2 * list(METHODS).index(label) + 0.01 * generator.random()
        found = {"insertion": level, "deletion": 1 - level}
        found |= {(metric, layer): level for metric in ("mse", "cosine") for layer in ("early", "late")}
        found |= {("sanity", metric, stage): level for metric in ("ssim", "spearman") for stage in stages}
        if label.startswith("FEI"):
            found |= {("black-image", "fired", ""): float(level > 0.7), ("black-image", "phi", ""): level}  # type: ignore[dict-item]
        return found

    scores = same(METHODS, ["a.png", "b.png"], [0, 1], value)
    maps = {("map", *key): generator.random((16, 16), dtype=np.float32) for key in scores}
    del maps["map", "Beta", "a.png", 0]
    maps |= {("sanity", *key): generator.random((3, 16, 16), dtype=np.float32) for key in scores}
    with run(
        tmp_path,
        scores,
        head="keep_maps = true",
        tail="[black_image]\ntrials = 2\n[sanity]\nimages = 2\nlayers = 2",
        model=f"{network}:make",
        data=tmp_path / "photos",
        layers=[["early", "late"]],
        maps=maps,
    ) as store:
        yield store


@pytest.fixture(scope="module")
def report(complete, tmp_path_factory):
    """The files of its report."""
    return write_report(complete, tmp_path_factory.mktemp("report"))


def test_a_report_holds_all_tables_and_figures(report):
    folder = report[0].parent
    names = [file.relative_to(folder).as_posix() for file in report]
    assert names[0] == "report.md"
    assert {"tables/external.tex", "tables/external.csv", "tables/internal.csv", "tables/layerwise.tex"} < set(names)
    assert {"tables/black-image.tex", "tables/sanity.csv", "tables/plain.csv", "tables/all.tex"} < set(names)
    pictures = {"faithfulness", "curves", "black-image", "cost", "sanity", "sanity-maps", "layerwise", "visual"}
    assert {f"figures/{name}.{form}" for name in pictures for form in ("png", "svg")} < set(names)
    assert sorted(names) == sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    for file in report:
        if file.suffix == ".png":
            pixels = np.asarray(Image.open(file).convert("L"), dtype=float)
            assert min(pixels.shape) > 100
            assert pixels.std() > 5, f"{file.name} is blank"


def test_a_report_repeats_byte_by_byte(report, complete, tmp_path):
    for file, twin in zip(report, write_report(complete, tmp_path / "again"), strict=True):
        assert file.read_bytes() == twin.read_bytes(), file.name


def test_the_page_begins_with_the_plans_layout_and_says_what_was_run(report):
    page = report[0].read_text(encoding="utf-8")
    headings = re.findall(r"^#+ .*", page, re.MULTILINE)
    assert headings[:2] == ["# a run", "## External faithfulness"]
    assert headings[-1] == "## What was run"
    assert "| FEI-VM | fei-vm | – | – |" in page
    assert "- Seeds: 0, 1." in page
    assert "- Protocols: fei-paper/1." in page
    assert re.search(r"- Versions: fei .*torch", page)
    assert "| map | 16 | 0 | 0 |" in page
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (report[0].parent / link).is_file()


def test_where_maps_cannot_be_shown_a_sentence_says_so(small, complete):
    def sentences(store):
        return [text for text in figures(store) if isinstance(text, str)]

    assert sentences(small) == [
        "Maps of Set, Net are not shown, since the plan does not keep them; set keep_maps = true to see them."
    ]
    photos = complete.folder.parent / "photos"
    photos.rename(photos.with_name("elsewhere"))
    (sentence,) = sentences(complete)
    photos.with_name("elsewhere").rename(photos)
    assert sentence.startswith("Maps of Set, Net are not shown, since they cannot be laid over their photographs: ")


def test_a_run_without_numbers_has_a_report_too(tmp_path):
    with run(tmp_path, {}, links=[(0, 0, "a", 0, "map", "waiting")]) as store:
        files = write_report(store, tmp_path / "out")
    page = files[0].read_text(encoding="utf-8")
    assert "1 units: 0 done, 0 failed, 1 not computed yet." in page
    assert "There are no numbers yet." in page


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(small, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"The report cannot be written to '.*file' \(.*\); choose another folder with --out\."
    ):
        write_report(small, tmp_path / "file")


def test_names_beside_crowded_points_do_not_cover_each_other():
    figure = new_figure(3.0)
    axes = figure.subplots()
    places = [(0.5 + 0.02 * i, 0.5 + 0.01 * (i % 3)) for i in range(10)]
    axes.scatter(*zip(*places, strict=True))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    place_labels(figure, [Point(axes, (x, x, x), (y, y, y), f"method {i}", "black") for i, (x, y) in enumerate(places)])
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts if text.get_text()]
    assert len(boxes) == 10
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
