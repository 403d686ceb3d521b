"""The explorer's file: what the page is given is what the library computes, and nothing in it can do harm."""

import base64
import html
import json
import re
import shlex
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import NETWORK, furnish, run
from networks import pictures, small_cnn
from one_file_pages import check_policy, data_of
from tiny_vit import tiny_vit
from torch import nn

import fei
from fei.errors import InputError
from fei.metrics.perturbation import Perturbations, PerturbedRow
from fei.models import Classifier
from fei.report import photo
from fei.report.explorer import Panel, Shown, explorer_html, write_explorer
from fei.report.explorer._payload import packed, payload, ranks  # type: ignore[attr-defined]
from fei.service import collect

pytestmark = pytest.mark.slow

METHODS = ("fei-vm", "fei-none", "saliency")


@pytest.fixture(scope="module")
def classifier():
    return Classifier(small_cnn(), labels=["a", "b", "c", "d"], input_size=12).eval()


@pytest.fixture(scope="module")
def images():
    return (pictures() * 255).round() / 255  # 8-bit, as photographs are


@pytest.fixture(scope="module")
def shown(classifier, images):
    methods = {name: fei.methods.create(name, **({"steps": 3} if "fei" in name else {})) for name in METHODS}
    return collect(classifier, images, methods, seed=5)


def unpacked(text, dtype):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return np.ascontiguousarray(planes.reshape(np.dtype(dtype).itemsize, -1).T).view(dtype)[:, 0]


# Arrays


def test_packing_puts_bytes_of_like_meaning_side_by_side():
    packed_text = packed(np.array([1, 258, 3], np.uint16))
    assert zlib.decompress(base64.b64decode(packed_text)) == bytes([1, 2, 3, 0, 1, 0])


def test_ranks_follow_the_map_and_the_protocols_order_of_ties():
    attribution = torch.tensor([[3.0, 1.0], [2.0, 1.0]])
    panel = Panel("x", attribution)
    one = Shown("n", torch.zeros(3, 2, 2), 0, "c", [panel], torch.zeros(3, 1, 1), protocol="torchcam")
    assert ranks(one, panel).tolist() == [0, 2, 1, 3]  # equal values in raster order
    assert ranks(replace(one, protocol="rise"), panel).tolist() == [0, 3, 1, 2]  # the last of them first
    seeds = {tuple(ranks(replace(one, protocol="fei-fine", seed=seed), panel)) for seed in range(20)}
    assert seeds == {(0, 2, 1, 3), (0, 3, 1, 2)}  # as the seed has it


@pytest.mark.parametrize("protocol", ["fei-fine", "fei-paper", "rise", "torchcam"])
def test_the_page_can_paint_the_very_pictures_that_were_scored(classifier, images, protocol):
    made = collect(classifier, images[:1], ["saliency"], protocol=protocol, seed=3)
    data = payload(made)["images"][0]
    picture = unpacked(data["photo"], np.uint8).reshape(-1, 3)
    places = unpacked(data["panels"][0]["ranks"], np.uint32)
    maps = fei.methods.create("saliency")(classifier, images[:1])[:, 0]
    expected = Perturbations(
        fei.protocols.get(protocol), classifier, images[:1], maps, None, 3, ["insertion", "deletion"]
    )
    for curve, counts in expected.counts.items():
        reference = data["reference"][curve]
        fill = reference["color"] if "color" in reference else unpacked(reference["pixels"], np.uint8).reshape(-1, 3)
        for point in (1, len(counts) // 2, len(counts) - 1):
            count = counts[point]
            gone = places < count if curve == "deletion" else places >= len(places) - count
            painted = np.where(gone[:, None], fill, picture)
            scored = photo(expected.make([PerturbedRow(0, curve, point, 0)])[0].clamp(0, 1)).reshape(-1, 3)
            assert (painted == scored).all()


def test_values_are_exact_and_the_photograph_is_the_photograph(shown, images):
    data = payload(shown)["images"]
    for number, image in enumerate(data):
        assert (unpacked(image["photo"], np.uint8).reshape(12, 16, 3) == photo(images[number])).all()
        for panel, sent in zip(shown[number].panels, image["panels"], strict=True):
            assert (unpacked(sent["values"], np.float32).reshape(12, 16) == panel.map.numpy()).all()


def test_a_normalised_image_is_stretched_together_with_its_reference():
    image = torch.tensor([-2.0, 0.0, 2.0]).view(1, 1, 3).expand(3, 1, 3).clone()
    one = Shown("n", image, 0, "c", [Panel("x", torch.rand(1, 3))], torch.tensor([1.0, -2.0, 9.0]).view(3, 1, 1))
    data = payload([one])["images"][0]
    assert unpacked(data["photo"], np.uint8).tolist() == [0, 0, 0, 128, 128, 128, 255, 255, 255]
    assert data["reference"]["deletion"] == {"color": [191, 0, 255]}  # (1 + 2) / 4 of 255; what is beyond is cut


# Numbers


def test_curves_layers_and_masks_are_those_of_the_library(classifier, images, shown):
    generator = torch.Generator().manual_seed(5)
    explanation = fei.FEI(classifier, "vm", steps=3).explain(images[1:], generator=generator)
    expected = fei.metrics.evaluate(classifier, images[1:], explanation.maps, protocol="held-out-fine")
    sent = payload(shown)["images"][1]["panels"][0]
    assert sent["method"] == "fei-vm"
    for curve in ("insertion", "deletion"):
        measured = getattr(expected, curve)
        assert sent[curve]["fractions"] == measured.fractions.tolist()
        assert sent[curve]["scores"] == pytest.approx(measured.scores[0].tolist(), abs=1e-5)
        assert sent[curve]["auc"] == pytest.approx(measured.auc.item(), abs=1e-5)
    assert sent["layers"]["names"] == [name.removeprefix("network.") for name in classifier.feature_layers]
    assert len(sent["layers"]["fractions"]) == 19
    for layer, similar in enumerate(expected.internal_curves.values()):
        assert sent["layers"]["cosine"][layer] == pytest.approx(similar.cosine[0].tolist(), abs=1e-4)
        assert sent["layers"]["mse"][layer] == pytest.approx(similar.mse[0].tolist(), rel=1e-3)
    masks = sent["masks"]
    assert masks["quantiles"] == [0.1, 0.3, 0.5, 0.7, 0.9]
    grey = unpacked(masks["alphas"], np.uint8).reshape(5, 12, 16)
    np.testing.assert_allclose(grey / 255, explanation.alphas[0, :, 0], atol=0.51 / 255)
    assert masks["phi"][2] == pytest.approx(explanation.trace.phi[0, 2].tolist(), abs=1e-5)
    assert masks["area"][2] == pytest.approx(explanation.trace.area[0, 2].tolist(), abs=1e-5)
    for share, expected_share in zip(masks["clipped"], explanation.trace.clipped.values(), strict=True):
        assert share == pytest.approx(expected_share[0].tolist(), abs=1e-5)


@pytest.mark.parametrize("pool", ["class", "mean"])
def test_a_transformer_is_shown_block_by_block(pool):
    net, x = tiny_vit(pool=pool, depth=3), pictures(1)
    maps = torch.rand(1, 1, 12, 16, generator=torch.Generator().manual_seed(1))
    net.feature_layers = ["blocks.2"]  # what the network names for CAMs is not all there is to see
    (made,) = collect(net, x, {"own": maps}, protocol="fei-fine", seed=5)
    panel = payload([made])["images"][0]["panels"][0]
    blocks, attending = [f"blocks.{i}" for i in range(3)], [f"blocks.{i}.attn" for i in range(3)]
    assert panel["layers"]["names"] == blocks
    asked = {"protocol": "fei-fine", "generator": torch.Generator().manual_seed(5)}
    alike = fei.metrics.internal(net, x, maps, layers=blocks, **asked)
    apart = fei.metrics.attention_divergence(net, x, maps, **asked)
    charts = {chart["metric"]: chart for chart in panel["blocks"]}
    with_class = ["cls_cosine", "cls_divergence"] if pool == "class" else []
    assert list(charts) == [*with_class, "patch_cosine", "kept_divergence"]
    for metric, chart in charts.items():
        if metric.endswith("cosine"):
            assert chart["names"] == blocks
            assert chart["mean"] == pytest.approx([one.numbers[metric].item() for one in alike.values()], abs=1e-5)
            continue
        heads = [getattr(one, metric.removesuffix("_divergence"))[0].tolist() for one in apart.values()]
        assert chart["names"] == attending
        assert chart["heads"] == [pytest.approx(two, abs=1e-5) for two in heads]
        assert chart["mean"] == pytest.approx([sum(two) / 2 for two in heads], abs=1e-5)


def test_a_block_that_runs_twice_is_two_blocks():
    net = tiny_vit()
    net.blocks[1] = net.blocks[0]
    (made,) = collect(net, pictures(1), {"own": torch.rand(1, 1, 12, 16)})
    assert list(made.panels[0].evaluation.internal) == ["blocks.0#0", "blocks.0#1"]
    assert len(made.panels[0].attention) == 2


def unwrapped():
    """A transformer whose blocks are arithmetic of the network itself."""

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.feature_layers = tiny_vit(), ["patches"]

        def forward(self, x):
            tokens = self.inner.patches(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.inner.cls_token.expand(len(x), -1, -1), tokens], 1) + self.inner.pos_embed
            for block in self.inner.blocks:
                tokens = tokens + block.attn(block.norm1(tokens))
                tokens = tokens + block.fc2(block.fc1(block.norm2(tokens)).relu())
            return self.inner.head(tokens[:, 0])

    return Plain().eval()


def test_what_is_shown_of_blocks_where_there_is_less_to_see(shown):
    assert "blocks" not in payload(shown)["images"][0]["panels"][0]  # a CNN
    maps = torch.rand(1, 1, 12, 16, generator=torch.Generator().manual_seed(1))

    def metrics(net, **options):
        (made,) = collect(net, pictures(1), {"own": maps}, **options)
        return [chart["metric"] for chart in payload([made])["images"][0]["panels"][0].get("blocks", [])]

    assert metrics(tiny_vit(pool="mean", window=6)) == ["patch_cosine"]  # attends within windows
    assert metrics(unwrapped()) == ["cls_divergence", "kept_divergence"]  # no module returns a block's tokens
    assert metrics(tiny_vit(), layers=[]) == []
    assert metrics(tiny_vit(), protocol="token-drop") == []
    assert metrics(tiny_vit(), layers=["patches"]) == ["cls_divergence", "kept_divergence"]  # no tokens there
    # single pixels of each patch are kept, and never half of one
    scattered = torch.zeros(1, 1, 12, 16)
    scattered[..., ::4, ::4] = 1
    late = replace(fei.protocols.get("fei-paper"), name="late", levels=fei.protocols.Quantiles((1 - 12 / 192,)))
    (made,) = collect(tiny_vit(), pictures(1), {"own": scattered}, protocol=late)
    assert made.panels[0].attention["blocks.0.attn"].kept.isnan().all()
    found = [chart["metric"] for chart in payload([made])["images"][0]["panels"][0]["blocks"]]
    assert found == ["cls_cosine", "cls_divergence", "patch_cosine"]
    assert explorer_html(made)  # JSON has no NaN


def test_the_best_classes_at_a_point_are_those_of_the_picture_there(shown):
    """The curve and the classes come from one pass: the target's probability is the curve's score."""
    for one in shown:
        for panel in one.panels:
            for curve in ("insertion", "deletion"):
                scores = getattr(panel.evaluation, curve).scores[0].tolist()
                for guesses, score in zip(panel.top[curve], scores, strict=True):
                    assert sum(guess.probability for guess in guesses) == pytest.approx(1, abs=1e-5)  # all four classes
                    values = {guess.index: guess.probability for guess in guesses}
                    assert values[one.target] == pytest.approx(score, abs=1e-6)
                    assert [guess.label for guess in guesses] == ["abcd"[guess.index] for guess in guesses]


def test_agreement_is_spearmans(shown):
    from scipy.stats import spearmanr

    matrix = payload(shown)["images"][0]["agreement"]
    maps = [panel.map.flatten().numpy() for panel in shown[0].panels]
    for i, first in enumerate(maps):
        for j, second in enumerate(maps):
            assert matrix[i][j] == pytest.approx(spearmanr(first, second).statistic, abs=1e-5)


def test_what_was_found_before_is_not_found_again(classifier, images, shown):
    explanation = fei.FEI(classifier, "vm", steps=3).explain(images, generator=torch.Generator().manual_seed(5))
    saliency = fei.methods.create("saliency")(classifier, images)
    again = collect(classifier, images, {"fei-vm": explanation, "saliency": saliency}, seed=5, names=["x", "y"])
    assert [one.name for one in again] == ["x", "y"]
    for one, other in zip(again, shown, strict=True):
        assert one.panels[0].explanation.trace.phi.shape == (1, 5, 4)
        for mine, theirs in zip(one.panels, (other.panels[0], other.panels[2]), strict=True):
            torch.testing.assert_close(mine.map, theirs.map)
            torch.testing.assert_close(mine.evaluation.insertion.scores, theirs.evaluation.insertion.scores)
            assert mine.cost is None
            assert theirs.cost.forwards > 0


def test_the_black_image_test_runs_for_methods_that_can_be_tested(classifier, images):
    methods = {"fei-none": fei.methods.create("fei-none", steps=2), "saliency": fei.methods.create("saliency")}
    (one,) = collect(classifier, images[:1], methods, black_image=3, layers=[])
    tested, untested = payload([one])["images"][0]["panels"]
    direct = fei.metrics.black_image(classifier, methods["fei-none"], trials=3)
    assert tested["blackImage"] == {"rate": direct.rate, "interval": list(direct.interval), "trials": 3}
    assert untested["blackImage"] is None
    assert tested["layers"] is None


# The file


def noise_shown(side=224, methods=6):
    """Maps and masks without any structure: nothing compresses worse."""
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(3, side, side, generator=generator)
    classifier = Classifier(small_cnn(), input_size=side).eval()
    explanation = fei.FEI(classifier, steps=1).explain(torch.rand(1, 3, 8, 8, generator=generator))
    panels = []
    for number in range(methods):
        alphas = torch.rand(1, 5, 1, side, side, generator=generator)
        one = replace(explanation, alphas=alphas, maps=alphas.mean(1))
        panels.append(Panel(f"m{number}", one.maps[0, 0], explanation=one))
    return Shown("noise", image, 0, "x", panels, torch.rand(3, 1, 1, generator=generator))


def test_one_image_and_six_methods_stay_below_5_mb(tmp_path):
    file = write_explorer(tmp_path / "worst.html", noise_shown())
    assert file.stat().st_size < 5_000_000


def test_it_stands_alone_and_says_so(shown):
    page = explorer_html(shown)
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?!data:)[^"'>\s]+""", page.split('id="data"')[0])
    assert "@import" not in page
    assert not re.search(r"\son\w+\s*=", page.split('id="data"')[0])  # no inline handlers
    check_policy(page)


HOSTILE = "</script><script>alert(1)</script><!--{{script}}\u2028\"'&.png"


def test_a_hostile_name_stays_a_name(shown):
    one = replace(shown[0], name=HOSTILE, label="</title><img src=x onerror=alert(1)>", command=HOSTILE)
    page = explorer_html(one)
    assert page.lower().count("<script") == page.lower().count("</script") == 2
    sent = data_of(page)["images"][0]
    assert (sent["name"], sent["target"]["label"], sent["command"]) == (HOSTILE, one.label, HOSTILE)
    (title,) = re.findall("<title>(.*?)</title>", page, re.S)
    assert html.unescape(title).startswith(HOSTILE)


def test_the_same_findings_make_the_same_file(shown):
    assert explorer_html(shown) == explorer_html(list(shown))


def test_a_failed_write_leaves_the_old_file(shown, tmp_path, monkeypatch):
    file = write_explorer(tmp_path / "page.html", shown[0])
    before = file.read_bytes()

    def broken(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(fei.errors.DataError, match="cannot be written .* \\(No space left on device\\)"):
        write_explorer(file, shown)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_refusals(classifier, images, shown, tmp_path):
    ready = shown[0]
    with pytest.raises(InputError, match="nothing to explore; give at least one image"):
        explorer_html([])
    with pytest.raises(InputError, match="folder .* does not exist; make it first"):
        write_explorer(tmp_path / "no" / "page.html", ready)
    with pytest.raises(InputError, match=r"map of x has the shape \(2, 2\) and its image \(3, 12, 16\)"):
        replace(ready, panels=[Panel("x", torch.zeros(2, 2))])
    with pytest.raises(InputError, match="map of x holds NaN"):
        replace(ready, panels=[Panel("x", torch.full((12, 16), float("nan")))])
    with pytest.raises(InputError, match="same method name"):
        replace(ready, panels=[ready.panels[0]] * 2)
    with pytest.raises(InputError, match="at least one panel"):
        replace(ready, panels=[])
    with pytest.raises(InputError, match="paints whole pixels"):
        explorer_html(replace(ready, protocol="quantus-pixelflipping"))
    with pytest.raises(InputError, match="No method was given"):
        collect(classifier, images, [])
    with pytest.raises(InputError, match="1 names for 2 images"):
        collect(classifier, images, ["saliency"], names=["x"])
    with pytest.raises(InputError, match="one path; give a list"):
        collect(classifier, "cat.png", ["saliency"])
    with pytest.raises(InputError, match="does not say how it takes files"):
        collect(small_cnn(), ["cat.png"], ["saliency"])
    with pytest.raises(InputError, match="1 maps of x and more images"):
        collect(classifier, images, {"x": torch.rand(1, 1, 12, 16)})
    with pytest.raises(InputError, match=r"explanation is of 1 image\(s\) and more are given"):
        collect(classifier, images, {"x": fei.FEI(classifier, steps=1).explain(images[:1])})


# Made again


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return furnish(tmp_path, NETWORK, "a b.png", "c.png")


def essence(page):
    """Everything that must come out the same again: not the time it took."""
    data = data_of(page)
    for image in data["images"]:
        for key in ("command", "code"):
            image.pop(key)
        for panel in image["panels"]:
            panel.pop("cost")
    return data


def test_the_code_and_the_command_on_the_page_make_it_again(place):
    model = fei.models.load("net.py:net")
    options = {"fei-vm": {"steps": 2, "quantiles": (0.2, 0.6)}, "rise": {"samples": 20}, "saliency": {}}
    methods = {name: fei.methods.create(name, **given) for name, given in options.items()}
    shown = collect(model, ["a b.png"], methods, target=1, seed=4)
    original = explorer_html(shown)
    exec(shown[0].code, {})
    assert essence((place / "explorer.html").read_text(encoding="utf-8")) == essence(original)
    words = shlex.split(shown[0].command)
    assert words[0] == "fei"
    assert run(*words[1:], "--out", "again") == 0
    assert essence((place / "again" / "explorer.html").read_text(encoding="utf-8")) == essence(original)


def test_what_cannot_be_said_in_a_command_is_not(classifier, images, place):
    (one,) = collect(classifier, images[:1], {"mine": fei.methods.create("saliency")}, reference="black")
    assert one.command is None
    assert "images = ...  # the network's input" in one.code
    assert "reference='black'" in one.code
    compile(one.code, "page", "exec")


def test_compare_writes_one_page_of_all_images(place, capsys):
    words = ("a b.png", "c.png", "--model", "net.py:net", "--methods", "fei-none,saliency", "--steps", 2)
    assert run("compare", *words, "--html", "--black-image", 2, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    page = data_of((place / document["page"]).read_text(encoding="utf-8"))
    assert [image["name"] for image in page["images"]] == ["a b.png", "c.png"]
    assert page["images"][0]["protocol"] == "held-out/1"
    for image, result in zip(page["images"], document["results"], strict=True):
        for panel, row in zip(image["panels"], result["methods"], strict=True):
            assert panel["insertion"]["auc"] == pytest.approx(row["insertion"], rel=1e-6)
    assert page["images"][1]["panels"][0]["blackImage"]["trials"] == 2
    assert run("compare", "c.png", *words[2:], "--html") == 0
    assert "Explore: fei-out/explorer.html" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["fei-vm", "saliency"])
def test_explain_measures_what_it_found_for_the_page(place, capsys, method):
    steps = ("--steps", 2) if method == "fei-vm" else ()
    words = ("a b.png", "--model", "net.py:net", "--method", method, *steps, "--target", "bright")
    assert run("explain", *words, "--reference", "blur", "--html", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (image,) = data_of((place / document["page"]).read_text(encoding="utf-8"))["images"]
    assert image["target"]["label"] == "bright"
    panel = image["panels"][0]
    found = np.load(place / "fei-out" / "a b.map.npy")
    assert (unpacked(panel["values"], np.float32).reshape(16, 16) == found).all()
    assert "color" in image["reference"]["insertion"]  # that of the protocol, whatever the map was made with
    assert (panel["masks"] is not None) == (method == "fei-vm")
    assert shlex.split(image["command"])[-1] == "--html"
    assert run(*shlex.split(image["command"])[1:], "--out", "again") == 0
    again = data_of((place / "again" / "explorer.html").read_text(encoding="utf-8"))["images"][0]
    assert again["panels"][0]["values"] == panel["values"]
    assert run("explain", *words, "--json") == 0
    assert json.loads(capsys.readouterr().out.split("Explore")[-1].partition("\n")[2])["page"] is None


# Notebooks


def frame_of(text):
    (page,) = re.findall(r'srcdoc="([^"]*)"', text)
    return html.unescape(page)


def test_a_comparison_shows_itself(shown, tmp_path):
    text = shown._repr_html_()
    assert text.startswith('<img alt="image 1, image 2"')
    assert data_of(frame_of(text)) == json.loads(json.dumps(payload(shown)))
    assert 'sandbox="allow-scripts"' in text
    assert shown.show()._repr_png_().startswith(b"\x89PNG")
    assert shown.save(tmp_path / "page.html").read_text(encoding="utf-8") == explorer_html(shown)


def test_any_image_of_a_comparison_is_drawn_with_its_maps_curves_and_layers(shown):
    for number, one in enumerate(shown):
        drawn = shown.show(number)
        assert drawn.get_suptitle().startswith(f"image {number + 1}: {one.label}")
        titles = [axes.get_title() for axes in drawn.get_axes()]
        told = [f"{name} (control)" if name == "fei-none" else name for name in METHODS]
        assert titles == ["photograph", *told, "insertion ↑", "deletion ↓", "cosine inside ↑", "MSE inside ↓"]
        curve = next(axes for axes in drawn.get_axes() if axes.get_title() == "insertion ↑").lines[0]
        assert curve.get_ydata().tolist() == one.panels[0].evaluation.insertion.scores[0].tolist()
    with pytest.raises(InputError, match="There is no image 2; the comparison has 2, counted from 0"):
        shown.show(2)


def test_an_explanation_shows_itself(classifier, images):
    explanation = fei.FEI(classifier, steps=2).explain(images, target=[2, 0])
    data = data_of(frame_of(explanation._repr_html_()))
    assert [image["target"]["label"] for image in data["images"]] == ["class 2", "class 0"]
    assert [image["panels"][0]["method"] for image in data["images"]] == ["fei", "fei"]
    assert data["images"][0]["panels"][0]["insertion"] is None  # there is no network to ask
    colour = (explanation.reference[1].flatten() * 255).round().int().tolist()
    assert data["images"][1]["reference"]["insertion"] == {"color": colour}


def test_an_explanation_of_a_callable_shows_itself(images):
    explanation = fei.FEI(small_cnn(), steps=1, constraint="l1").explain(images[:1] * 4 - 2, lambda out: out[:, 0])
    image = data_of(frame_of(explanation._repr_html_()))["images"][0]
    assert image["target"]["label"] == "score"
    assert image["panels"][0]["masks"]["quantiles"] == [None]


def test_of_many_images_a_notebook_shows_the_first(classifier):
    explanation = fei.FEI(classifier, steps=1).explain(pictures(6))
    text = explanation._repr_html_()
    assert "Explore the first 4 of 6 images" in text
    assert len(data_of(frame_of(text))["images"]) == 4
