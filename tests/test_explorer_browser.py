"""The explorer in a real browser: it opens from disk, paints what Python paints, and can be used by everybody."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from browsing import DESKTOP, PHONE, Visit, serious_faults
from networks import pictures, small_cnn
from test_explorer import HOSTILE
from tiny_vit import tiny_vit
from waiting import PATIENCE

import fei
from fei.core.evidence import Evidence
from fei.metrics.perturbation import Perturbations, PerturbedRow
from fei.models import Classifier
from fei.report import photo
from fei.report.explorer import write_explorer
from fei.service import Inquiry, collect, look

pytestmark = pytest.mark.slow

SEED = 5
SIZE = (24, 32)


@pytest.fixture(scope="module")
def classifier():
    return Classifier(small_cnn(), labels=["a", "b", "c", "d"], input_size=24).eval()


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(2, 3, *SIZE, generator=generator) * 255).round() / 255


@pytest.fixture(scope="module")
def shown(classifier, images):
    methods = {
        "saliency": fei.methods.create("saliency"),
        "fei-vm": fei.methods.create("fei-vm", steps=3),
        "fei-none": fei.methods.create("fei-none", steps=3),
        "constant": torch.zeros(2, 1, *SIZE),  # nothing but ties
    }
    return collect(classifier, images, methods, seed=SEED, names=["first.png", "second.png"], black_image=2)


@pytest.fixture(scope="module")
def file(shown, tmp_path_factory):
    return write_explorer(tmp_path_factory.mktemp("explorer") / "page.html", shown)


def scrub(visit, fraction):
    visit.page.locator("#fraction").evaluate(
        "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', { bubbles: true })); }", str(fraction)
    )
    visit.settle()


@pytest.fixture
def visit(browser, file):
    with Visit(browser, file) as visit:
        yield visit


def rank_percentiles(shown, method):
    """The share of other pixels that each is more important than, by the protocol's own order."""
    panel = next(panel for panel in shown.panels if panel.method == method)
    order = fei.protocols.jittered(panel.map.flatten(), _digest(shown), SEED, 3)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    return ((len(order) - 1 - places).double() / (len(order) - 1)).view(SIZE).numpy()


def _digest(shown):
    from fei.core.randomness import image_digest

    return image_digest(shown.image)


def test_it_opens_from_disk_and_asks_for_nothing_else(visit, file):
    assert visit.text("h1").startswith(("a,", "b,", "c,", "d,"))
    assert visit.page.locator("#stage canvas").count() == 2 * 5  # two images, a photograph and four methods each
    assert visit.requests == [f"file://{file}"]


@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.851])
def test_scrubbing_paints_what_the_metric_shows_the_network(visit, classifier, images, shown, fraction):
    # an own schedule with this one point: the library's own pictures at any fraction
    protocol = replace(fei.protocols.get("held-out-fine"), name="one", levels=fei.protocols.Quantiles((fraction,)))
    scrub(visit, fraction)
    for slot, method in (("a", "fei-vm"), ("b", "fei-none")):
        maps = next(panel.map for panel in shown[0].panels if panel.method == method)[None]
        library = Perturbations(protocol, classifier, images[:1], maps, None, SEED, ["insertion", "deletion"])
        for curve in ("insertion", "deletion"):
            expected = photo(library.make([PerturbedRow(0, curve, 0, 0)])[0])
            assert (visit.pixels(f"#{curve}-{slot}") == expected).all()


def test_ties_are_painted_in_the_order_of_the_seed(visit, classifier, images):
    """A constant map gives no order at all: what is painted is the protocol's jitter alone."""
    visit.page.select_option("#pick-a", "constant")
    scrub(visit, 0.5)
    library = Perturbations(
        fei.protocols.get("held-out-fine"), classifier, images[:1], torch.zeros(1, *SIZE), None, SEED, ["deletion"]
    )
    assert (visit.pixels("#deletion-a") == photo(library.make([PerturbedRow(0, "deletion", 10, 0)])[0])).all()


def test_the_marker_follows_the_curve(visit, shown):
    curve = next(panel for panel in shown[0].panels if panel.method == "fei-vm").evaluation.insertion
    fractions, scores = curve.fractions.numpy(), curve.scores[0].numpy()
    for fraction, measured in ((0.25, True), (0.333, False), (1.0, True)):
        scrub(visit, fraction)
        chart = visit.page.locator('[data-curve="insertion"] svg')
        marker = chart.locator("circle.a")
        start, end = (float(chart.get_attribute(name)) for name in ("data-from", "data-to"))
        assert start > end  # insertion is drawn as it is read: it rises to the right, where all pixels are shown
        assert float(marker.get_attribute("cx")) == pytest.approx(start + fraction * (end - start), abs=0.01)
        assert ("measured" in marker.get_attribute("class")) == measured
        told = visit.text("#insertion-a-score")
        assert told.startswith("≈") != measured
        value = float(told.strip("≈ %")) / 100
        assert value == pytest.approx(np.interp(fraction, fractions, scores), abs=6e-4)


def test_layers_follow_the_scrubber(visit, shown):
    layers = next(panel for panel in shown[0].panels if panel.method == "fei-none").evaluation.internal_curves
    scrub(visit, 0.3)
    rows = visit.page.locator('table[data-metric="cosine"] tbody tr')
    assert rows.count() == len(layers)
    for row, similar in zip(rows.all(), layers.values(), strict=True):
        assert float(row.locator("td.b").inner_text()) == pytest.approx(similar.cosine[0, 5].item(), abs=6e-4)
    scrub(visit, 0)  # nothing is replaced: the same activations
    assert {row.locator("td.a").inner_text() for row in rows.all()} == {"1.000"}
    scrub(visit, 1)  # not measured
    assert {row.locator("td.a").inner_text() for row in rows.all()} == {"–"}


@pytest.fixture(scope="module")
def transformed():
    maps = torch.rand(2, 1, 1, 12, 16, generator=torch.Generator().manual_seed(1))
    return collect(tiny_vit(depth=3), pictures(1), {"one": maps[0], "two": maps[1]}, seed=SEED)


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_blocks_of_a_transformer_tell_tokens_and_attention(browser, transformed, tmp_path, viewport):
    file = write_explorer(tmp_path / "page.html", transformed)
    one, two = transformed[0].panels
    with Visit(browser, file, viewport=viewport, bypass_csp=True) as visit:
        figures = visit.page.locator("#blocks figure")
        assert [figure.get_attribute("data-metric") for figure in figures.all()] == [
            *("cls_cosine", "cls_divergence"),
            *("patch_cosine", "kept_divergence"),
        ]
        tokens, attention = figures.nth(0), figures.nth(3)
        places = zip(one.evaluation.internal.items(), one.attention.items(), two.attention.values(), strict=True)
        for block, ((layer, similar), (module, first), second) in enumerate(places):
            name, words, _ = tokens.locator("circle.a").nth(block).text_content().split("\n")
            assert name == layer
            assert float(words.removeprefix("one: ")) == pytest.approx(similar.cls_cosine.item(), abs=6e-4)
            name, *told = attention.locator("circle.b").nth(block).text_content().split("\n")
            assert name == module
            for (method, heads), words in zip({"one": first.kept, "two": second.kept}.items(), told, strict=True):
                mean, low, high = re.fullmatch(rf"{method}: ([\d.]+), heads ([\d.]+) to ([\d.]+)", words).groups()
                expected = [reduce(heads).item() for reduce in (torch.mean, torch.min, torch.max)]
                assert [float(mean), float(low), float(high)] == pytest.approx(expected, abs=6e-5)
        for figure in figures.all():
            assert [figure.locator(f"circle.{slot}").count() for slot in "ab"] == [3, 3]
            heights = [float(point.get_attribute("cy")) for point in figure.locator("circle").all()]
            assert all(0 < height < 190 for height in heights)
        # a larger divergence is drawn higher
        means = [panel.kept.mean().item() for panel in one.attention.values()]
        heights = [float(point.get_attribute("cy")) for point in attention.locator("circle.a").all()]
        assert np.argsort(heights, kind="stable").tolist() == np.argsort(means, kind="stable")[::-1].tolist()
        assert attention.locator("polygon.band").count() == 2
        assert tokens.locator("polygon.band").count() == 0
        visit.page.select_option("#pick-b", "")
        assert visit.page.locator("#blocks circle.b").count() == 0
        assert serious_faults(visit.page) == {}
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_a_cnn_has_no_blocks(visit):
    assert visit.page.locator("#blocks > *").count() == 0


def test_clipped_units_masks_and_traces(visit, shown):
    vm = next(panel for panel in shown[0].panels if panel.method == "fei-vm").explanation
    columns = visit.page.locator("#clipped rect.a")
    assert columns.count() == len(vm.trace.clipped)
    shares = [f"{100 * share[0].mean():.1f} %" for share in vm.trace.clipped.values()]
    assert [column.text_content().split(": ")[1] for column in columns.all()] == shares
    assert "nothing is clipped" in visit.text("#clipped figure:nth-child(2)")
    scrub(visit, 0.72)
    marked = visit.page.locator(".film.a .frame.marked")
    assert marked.get_attribute("data-quantile") == "0.7"
    assert f"φ {vm.trace.phi[0, 3, -1]:.2f}, area {vm.trace.area[0, 3, -1]:.2f}" in marked.inner_text()
    grey = visit.pixels(".film.a .frame.marked canvas")
    np.testing.assert_allclose(grey[..., 0] / 255, vm.alphas[0, 3, 0], atol=0.51 / 255)
    assert visit.page.locator(".film.a .courses svg").count() == 2


def test_the_overlay_is_the_librarys(visit, shown):
    from fei.report import overlay
    from fei.report.comparison import _without_tails

    panel = shown[0].panels[0]
    expected = overlay(photo(shown[0].image), _without_tails(panel.map.numpy()))
    painted = visit.pixels('.cell[data-image="0"][data-method="saliency"] canvas')
    assert np.abs(painted.astype(int) - expected).max() <= 2  # one step of the palette, where float32 rounds otherwise
    visit.page.locator("#opacity").fill("0")
    assert (visit.pixels('.cell[data-image="0"][data-method="saliency"] canvas') == photo(shown[0].image)).all()


def test_scales(visit, shown):
    from fei.report import colorize

    visit.page.locator("#opacity").fill("1")
    visit.page.locator("input[value=rank]").check()
    painted = visit.pixels('.cell[data-image="0"][data-method="fei-vm"] canvas')
    assert np.abs(painted.astype(int) - colorize(rank_percentiles(shown[0], "fei-vm"))).max() <= 4
    visit.page.locator("input[value=shared]").check()
    low = min(np.quantile(panel.map, 0.01) for one in shown for panel in one.panels)
    high = max(np.quantile(panel.map, 0.99) for one in shown for panel in one.panels)
    said = visit.text("#ramp-text").removeprefix("all maps from ").split(" to ")
    assert [float(number) for number in said] == pytest.approx([low, high], rel=6e-3)


def test_pointing_at_a_pixel_reads_it_in_every_map(visit, shown):
    x, y = 20, 7
    canvas = visit.page.locator('.cell[data-image="0"][data-method="fei-vm"] .view')
    box = canvas.bounding_box()
    visit.page.mouse.move(box["x"] + box["width"] * (x + 0.5) / SIZE[1], box["y"] + box["height"] * (y + 0.5) / SIZE[0])
    red, green, blue = photo(shown[0].image)[y, x]
    assert visit.text('.cell[data-image="0"] .reading') == f"x {x}, y {y}\nRGB {red} {green} {blue}"
    for panel in shown[0].panels:
        reading = visit.text(f'.cell[data-image="0"][data-method="{panel.method}"] .reading')
        value, above = reading.split("\n")
        assert float(value.removeprefix("value ")) == pytest.approx(panel.map[y, x].item(), rel=6e-3, abs=1e-9)
        expected = 100 * rank_percentiles(shown[0], panel.method)[y, x]
        assert float(above.removeprefix("above ").removesuffix(" % of pixels")) == pytest.approx(expected, abs=0.051)
    visit.page.mouse.click(box["x"] + 5, box["y"] + 5)
    visit.page.mouse.move(0, 0)
    assert visit.text("#pixel") == "pixel x 0, y 0"  # pinned
    visit.page.keyboard.press("Shift+ArrowRight")
    visit.page.keyboard.press("Shift+ArrowDown")
    assert visit.text("#pixel") == "pixel x 1, y 1"
    visit.page.keyboard.press("Escape")
    assert visit.text("#pixel") == ""


def transforms(visit):
    style = "getComputedStyle(e).transform.split(',')[0]"  # its first entry is the scale
    return set(visit.page.locator(".view canvas").evaluate_all(f"all => all.map(e => {style})"))


def test_all_pictures_zoom_and_pan_together(visit):
    before = transforms(visit)
    visit.page.locator("#stage").focus()
    visit.page.keyboard.press("+")
    assert len(transforms(visit)) == 1
    assert transforms(visit) != before
    assert visit.text("#zoom-reset") == "150 %"
    for _ in range(20):
        visit.page.keyboard.press("ArrowRight")
    x = visit.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--left')")
    assert float(x.strip("%")) == pytest.approx(-50)  # at the right edge: 150 % wide, 50 % beyond the left
    visit.page.keyboard.press("0")
    assert visit.text("#zoom-reset") == "100 %"
    view = visit.page.locator(".cell .view").first
    view.hover()
    visit.page.keyboard.down("Control")
    visit.page.mouse.wheel(0, -400)
    visit.page.keyboard.up("Control")
    visit.wait("document.getElementById('zoom-reset').textContent !== '100 %'")
    visit.page.locator("#zoom-reset").click()
    assert visit.text("#zoom-reset") == "100 %"


def test_dragging_pans_when_zoomed(visit):
    visit.page.locator("#zoom-in").click()
    visit.page.locator("#zoom-in").click()
    visit.page.locator(".cell .view").nth(1).hover()
    box = visit.page.locator(".cell .view").nth(1).bounding_box()
    left = "getComputedStyle(document.documentElement).getPropertyValue('--left')"
    start = float(visit.page.evaluate(left).strip("%"))
    visit.page.mouse.move(box["x"] + 50, box["y"] + 50)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 50 + box["width"] / 4, box["y"] + 50, steps=4)
    visit.page.mouse.up()
    assert float(visit.page.evaluate(left).strip("%")) == pytest.approx(start + 25, abs=0.5)


def test_two_fingers_zoom(browser, file):
    with Visit(browser, file, viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        box = visit.page.locator(".cell .view").first.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        session = visit.context.new_cdp_session(visit.page)

        def touch(kind, *apart):
            points = [{"x": x + sign * gap, "y": y, "id": i} for gap in apart for i, sign in enumerate((-1, 1))]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 15)
        for gap in (18, 22, 26, 30):
            touch("touchMove", gap)
        touch("touchEnd")
        visit.wait("document.getElementById('zoom-reset').textContent === '200 %'")


def test_the_address_restores_everything_and_back_goes_back(browser, file, visit):
    page = visit.page
    page.locator('#stage .image-name[data-image="1"]').click()
    page.select_option("#pick-a", "saliency")
    page.select_option("#pick-b", "fei-vm")
    page.locator("#chips label", has_text="fei-none").click()
    page.locator("input[value=rank]").check()
    page.locator("#opacity").fill("0.3")
    page.locator("#theme").click()
    page.locator("#theme").click()
    scrub(visit, 0.123)
    page.locator("#zoom-in").click()
    visit.wait("location.hash.includes('q=0.123') && location.hash.includes('view=1.5')")
    address = visit.hash()

    def state(visit):
        inputs = {
            name: visit.page.locator(f"#{name}").input_value() for name in ("fraction", "opacity", "pick-a", "pick-b")
        }
        words = ("#theme", "#zoom-reset", "#ramp-text", ".image-name[aria-pressed=true]")
        return inputs, visit.page.locator("#stage .cell").count(), [visit.text(word) for word in words]

    with Visit(browser, file, address) as again:
        assert state(again) == state(visit)
        assert (again.pixels("#insertion-a") == visit.pixels("#insertion-a")).all()
        assert state(again)[0] == {"fraction": "0.123", "opacity": "0.3", "pick-a": "saliency", "pick-b": "fei-vm"}
        assert state(again)[1] == 2 * 4
        assert state(again)[2] == ["Theme: dark", "150 %", "rank, least to most important", "second.png"]
    for _ in range(20):  # back to the start, whatever the number of steps
        if visit.text(".image-name[aria-pressed=true]") == "first.png":
            break
        page.go_back()
    assert page.locator("#pick-a").input_value() == "fei-vm"
    page.go_forward()
    assert visit.text(".image-name[aria-pressed=true]") == "second.png"


@pytest.mark.parametrize("address", ["#image=9&q=7&view=x,y&a=nobody&b=&theme=pink&scale=", "#%", "#hide=nobody"])
def test_a_wrong_address_does_no_harm(browser, file, address):
    with Visit(browser, file, address) as visit:
        assert visit.page.locator("#pick-a").input_value() in {"fei-vm", "saliency"}


def background(visit):
    return visit.page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_themes(browser, file, visit):
    light = background(visit)
    visit.page.keyboard.press("t")
    assert background(visit) == light  # chosen, no longer the system's
    visit.page.keyboard.press("t")
    dark = background(visit)
    assert dark != light
    with Visit(browser, file, color_scheme="dark") as other:
        assert background(other) == dark
        other.page.locator("#theme").click()
        assert background(other) == light


def test_keys(visit):
    page = visit.page
    page.keyboard.press("]")
    visit.settle()
    assert visit.text("#fraction-text") == "54.9 %"  # the next point is 0.55: 422 of 768 pixels
    page.keyboard.press("[")
    page.keyboard.press("[")
    visit.settle()
    assert visit.text("#fraction-text") == "45.1 %"  # 346 of 768
    page.keyboard.press("x")
    assert (page.locator("#pick-a").input_value(), page.locator("#pick-b").input_value()) == ("fei-none", "fei-vm")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.locator("#fraction").focus()
    page.keyboard.press("Home")
    visit.settle()
    assert visit.text("#fraction-text") == "0.0 %"
    page.keyboard.press("p")
    visit.wait("document.getElementById('fraction').value > 0.01")
    page.keyboard.press("p")


def test_every_control_can_be_reached_with_tab(visit):
    wanted = {"theme", "link", "ask", "stage", "opacity", "zoom-in", "fraction", "play", "pick-a", "swap", "pick-b"}
    reached = set()
    for _ in range(150):
        visit.page.keyboard.press("Tab")
        name, outlined = visit.page.evaluate(
            "() => [document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle !== 'none']"
        )
        reached.add(name)
        if name in wanted:
            assert outlined, f"{name} shows no focus"
        if wanted <= reached:
            break
    assert wanted <= reached


def test_choosing_a_pair_shows_their_difference_and_keeps_the_focus(visit, shown):
    visit.page.locator('#matrix button[data-a="saliency"][data-b="fei-none"]').focus()
    visit.page.keyboard.press("Enter")
    assert (visit.page.locator("#pick-a").input_value(), visit.page.locator("#pick-b").input_value()) == (
        "saliency",
        "fei-none",
    )
    assert visit.page.evaluate("document.activeElement.dataset.b") == "fei-none"
    difference = rank_percentiles(shown[0], "saliency") - rank_percentiles(shown[0], "fei-none")
    red, _, blue = np.moveaxis(visit.pixels("#difference").astype(int), -1, 0)
    assert (red > blue)[difference > 0.2].all()
    assert (blue > red)[difference < -0.2].all()


def test_badges(visit, shown):
    none = next(panel for panel in shown[0].panels if panel.method == "fei-none").black_image
    badge = visit.page.locator('.cell[data-image="0"][data-method="fei-none"] .badge')
    assert badge.inner_text() == f"black image {round(none.rate * 2)} of 2"
    assert ("bad" in badge.get_attribute("class")) == (none.rate > 0)
    assert visit.page.locator('.cell[data-method="saliency"] .badge').count() == 0


def test_copying(visit, shown):
    visit.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visit.page.get_by_role("button", name="Copy as code").click()
    visit.wait("document.getElementById('toast').textContent === 'Copied'")
    assert visit.page.evaluate("navigator.clipboard.readText()") == shown[0].code


@pytest.mark.parametrize(("scheme", "viewport"), [("light", DESKTOP), ("dark", PHONE)], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious(browser, file, scheme, viewport):
    # axe itself is put into the page, which the page's policy rightly forbids
    with Visit(browser, file, color_scheme=scheme, viewport=viewport, bypass_csp=True) as visit:
        visit.page.locator("details summary").click()
        assert serious_faults(visit.page) == {}


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_is_wider_than_the_window(browser, file, width):
    with Visit(browser, file, viewport={"width": width, "height": 844}) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


# Classes of one photograph, evidence, stability


@pytest.fixture(scope="module")
def classes(classifier, images):
    """Two photographs, and two classes of each; the first class of the first has no evidence, and is made again."""
    inquiry = Inquiry(classifier, {"fei-vm": fei.methods.create("fei-vm", steps=2)}, SEED, layers=[])
    found = []
    for number, name in enumerate(("first.png", "second.png")):
        seen = replace(look(classifier, images[number : number + 1]), name=name)
        panels = inquiry.repeat(seen, inquiry.find_classes("fei-vm", seen, [2, 0]), [2, 0])
        for target, panel, kept in zip((2, 0), panels, (0.1, 0.9), strict=True):
            evidence = Evidence(torch.full((1, 5), kept), torch.full((1, 5), 0.1), torch.ones(1))
            weighed = replace(panel, explanation=replace(panel.explanation, evidence=evidence))  # type: ignore[type-var]
            found.append(replace(inquiry, target=target).shown(seen, [weighed]))
    return found


@pytest.fixture
def choice(browser, classes, tmp_path):
    with Visit(browser, write_explorer(tmp_path / "page.html", classes)) as visit:
        yield visit


def test_classes_of_a_photograph_are_chosen_by_keyboard_and_kept_in_the_address(choice, browser, tmp_path):
    page = choice.page
    assert page.locator("#stage .row").count() == 2
    assert page.get_by_role("group", name="Class explained").get_by_role("radio").count() == 2
    assert choice.text("h1").startswith("c,")
    page.locator("#class-choice input").first.focus()
    page.keyboard.press("ArrowRight")
    assert choice.text("h1").startswith("a,")
    assert "image=1" in choice.hash()
    assert page.evaluate("document.activeElement.value") == "1"  # the focus stays
    words = [row.inner_text() for row in page.locator("#stage h3").all()]
    assert [word.split()[-1] for word in words] == ["a", "a"]  # the other photograph follows
    with Visit(browser, tmp_path / "page.html", choice.hash()) as again:
        assert again.text("h1") == choice.text("h1")
    page.keyboard.press("c")
    assert choice.text("h1").startswith("c,")
    page.keyboard.press("n")
    assert "image=2" in choice.hash()
    assert choice.text("#summary").startswith("second.png")
    page.locator('#class-choice label:has-text("a")').click()
    assert "image=3" in choice.hash()
    page.go_back()
    assert choice.text("h1").startswith("c,")


def test_one_class_needs_no_choice(visit):
    assert not visit.page.locator("#class-choice").is_visible()


def test_evidence_is_told_and_a_map_without_it_is_on_the_scale_of_masks(choice, classes):
    from fei.report import colorize

    cell = '.cell[data-image="{}"][data-method="fei-vm"]'
    told = choice.text(f"{cell.format(0)} .evidence")
    assert told == f"Nothing in this picture speaks for 'c' ({classes[0].probability:.1%})."
    choice.page.locator("#opacity").fill("1")
    painted = choice.pixels(f"{cell.format(0)} canvas")
    photo = 255 * classes[0].image.permute(1, 2, 0).numpy()
    expected = 0.4 * colorize(classes[0].panels[0].map.numpy(), (0.0, 1.0)) + 0.6 * photo  # faint at full opacity
    assert np.abs(painted.astype(int) - expected).max() <= 4  # one step of the palette
    assert "0 to 1, and faint, where nothing was found" in choice.text("#ramp-text")
    choice.page.keyboard.press("c")
    told = choice.text(f"{cell.format(1)} .evidence")
    assert told == "90% of the pixels keep 0.90 of its score 1.00 (random masks: 0.10)."


def test_what_changes_with_the_seed_has_a_map_of_its_own(choice, classes):
    from scipy.stats import rankdata

    from fei.report import colorize

    cell = '.cell[data-image="0"][data-changes="fei-vm"]'
    panel = classes[0].panels[0]
    moved = np.abs(rankdata(panel.map.numpy()) - rankdata(panel.repeated.map.numpy())).reshape(SIZE) / (24 * 32 - 1)
    choice.page.locator("#opacity").fill("1")
    choice.page.locator("input[value=rank]").check()  # it has no ranks of its own
    assert np.abs(choice.pixels(f"{cell} canvas").astype(int) - colorize(moved, (0.0, 1.0))).max() <= 6
    text = choice.text(cell)
    assert "changes with the seed" in text
    assert f"rank correlation {panel.repeated.correlation:.2f}" in text
    assert f"with seed {SEED + 1}." in text
    choice.page.locator("#chips label", has_text="fei-vm").click()
    assert choice.page.locator(cell).count() == 0


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious_in_a_choice_of_classes(browser, classes, tmp_path, viewport):
    file = write_explorer(tmp_path / "page.html", classes)
    with Visit(browser, file, viewport=viewport, bypass_csp=True) as visit:
        assert serious_faults(visit.page) == {}
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_a_hostile_name_is_only_text(browser, shown, tmp_path):
    panels = [replace(shown[0].panels[0], method=HOSTILE), shown[0].panels[1]]
    hostile = replace(shown[0], name=HOSTILE, label=HOSTILE, panels=panels, command=HOSTILE, code=HOSTILE)
    with Visit(browser, write_explorer(tmp_path / "page.html", hostile)) as visit:
        assert HOSTILE.replace("\u2028", "") in visit.page.locator("h1").text_content().replace("\u2028", "")
        visit.page.select_option("#pick-a", HOSTILE)
        assert visit.page.evaluate("document.scripts.length") == 2
        assert visit.page.locator("img").count() == 0


def test_a_damaged_file_says_so(browser, file, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text(file.read_text(encoding="utf-8").replace('"schema":1', '"schema":2', 1), encoding="utf-8")
    page = browser.new_page()
    page.goto(f"file://{broken}")
    page.get_by_text("The data has schema 2; this page reads 1.").wait_for()
    page.close()


def test_it_works_inside_a_notebook(browser, classifier, images, tmp_path):
    explanation = fei.FEI(classifier, steps=2).explain(images)
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><body>{explanation._repr_html_()}</body>", encoding="utf-8")
    page = browser.new_page()
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(f"file://{notebook}")
    page.locator("summary").first.click()
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached", timeout=PATIENCE * 1000)
    assert frame.locator("h1").inner_text() == f"class {explanation.target[0]}"
    assert not frame.locator("#curves").is_visible()  # nothing was measured
    assert not frame.locator("#link").is_visible()  # a frame has no address
    frame.locator("#zoom-in").click()
    assert frame.locator("#zoom-reset").inner_text() == "150 %"
    assert frame.locator(".film .frame").count() == 5
    assert problems == []
    page.close()
