"""The page of a run in a real browser: sorting, filters, and the way from a table down to one image."""

import numpy as np
import pytest
from browsing import DESKTOP, PHONE, Visit, serious_faults
from scipy.stats import spearmanr
from test_bench_page import CORRECT, ITEMS, METHODS, PAIRS, PROTOCOL, attribution, benchmark, insertion, key_of, mse
from test_explorer import HOSTILE

from fei.bench.report.page import write_bench_page
from fei.bench.report.tables import table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with benchmark(tmp_path_factory.mktemp("bench")) as store:
        yield store


@pytest.fixture(scope="module")
def file(store, tmp_path_factory):
    return write_bench_page(tmp_path_factory.mktemp("page") / "report.html", store)


@pytest.fixture
def visit(browser, file):
    with Visit(browser, file) as visit:
        yield visit


def column(visit, heading, table="scores"):
    """The numbers, or dashes, of a column, without their intervals."""
    heads = visit.page.locator(f"#{table} thead th").all_inner_texts()
    place = next(i for i, text in enumerate(heads) if text.split("\n")[0].strip(" ▴▾").startswith(heading))
    cells = visit.page.locator(f"#{table} tbody tr > :nth-child({place + 1})").all_inner_texts()
    return [text.split("\n")[0].rstrip("†") for text in cells]


def numbers(visit, heading, table="scores"):
    return [float(text) for text in column(visit, heading, table)]


def sort(visit, heading, table="scores"):
    visit.page.locator(f"#{table} thead button", has_text=heading).first.click()


def open_images(visit, label, pair=0):
    visit.page.select_option("#pair", str(pair))
    visit.page.locator("#scores tbody tr", has=visit.page.get_by_role("button", name=label, exact=True)).click()


def open_unit(visit, label, item, pair=0):
    open_images(visit, label, pair)
    visit.page.locator(f'#image-table tr[data-item="{item}"] .open').click()


def mean(label, items, pair=0):
    """Over the seeds, of the mean over the images; of units that are all there."""
    return np.mean([np.mean([insertion(label, item, seed, pair) for item in items]) for seed in (0, 7)])


# The table


def test_it_opens_from_disk_and_asks_for_nothing_else(visit, file):
    assert visit.text("h1") == "a run"
    assert "3 methods on 2 pairs of network and data, up to 6 images, 2 seeds" in visit.text("#summary")
    assert "86 units done, 1 failed, 1 not computed yet" in visit.text("#summary")
    visit.page.locator("#scores .open").first.click()
    visit.page.locator("#image-table .open").first.click()
    assert [url for url in visit.requests if not url.startswith("data:")] == [f"file://{file}"]


def test_cells_are_those_of_the_report_with_their_intervals(visit, store):
    external = table(store, "external")
    visit.page.select_option("#pair", "1")
    expected = [
        cells[i].estimate
        for cells in external.cells
        for i, one in enumerate(external.columns)
        if one.pair == 1 and one.quantity.metric == "insertion" and one.quantity.protocol == PROTOCOL
    ]
    assert column(visit, "insertion") == [f"{estimate.mean:.3f}" for estimate in expected]
    intervals = visit.page.locator("#scores tbody td:nth-child(2) .interval").all_inner_texts()
    assert intervals == [f"{estimate.low:.3f} … {estimate.high:.3f}" for estimate in expected]
    assert "95 % bootstrap interval" in visit.text("#table-note")


def test_a_click_sorts_best_first_and_a_second_one_the_other_way(visit):
    assert visit.page.locator("#scores [aria-sort]").count() == 0
    sort(visit, "insertion")
    found = numbers(visit, "insertion")
    assert found == sorted(found, reverse=True)
    assert visit.page.locator("#scores th[aria-sort]").get_attribute("aria-sort") == "descending"
    sort(visit, "insertion")
    assert numbers(visit, "insertion") == sorted(found)
    assert visit.page.locator("#scores th[aria-sort]").get_attribute("aria-sort") == "ascending"
    sort(visit, "MSE")  # lower is better
    found = numbers(visit, "MSE")
    assert found == sorted(found)
    sort(visit, "Black image")
    shares = column(visit, "Black image")
    assert shares == ["0.0 %", "0.0 %", "75.0 %", "75.0 %", "–", "–"]  # what is missing comes last


def test_enter_sorts_and_keeps_the_focus(visit):
    visit.page.locator('#scores [data-sort="method"]').focus()
    visit.page.keyboard.press("Enter")
    assert column(visit, "Method")[:2] == ["FEI-NONE", "FEI-NONE"]
    assert visit.page.evaluate("document.activeElement.dataset.sort") == "method"
    visit.page.keyboard.press("Enter")
    assert column(visit, "Method")[:2] == ["Saliency", "Saliency"]


def test_the_best_of_each_pair_is_bold_and_the_control_takes_no_place(visit):
    best = visit.page.locator("#scores tbody tr:has(td:nth-child(3).best)").all_inner_texts()
    assert [text.split("\n")[0].split("\t")[0] for text in best] == ["FEI-VM", "Saliency"]  # FEI-NONE is higher on both


def test_predictions_filter_and_means_are_recomputed(visit):
    visit.page.select_option("#pair", "1")
    for truth, items in (("wrong", [1, 3]), ("right", [0, 2, 4, 5])):
        assert [i for i, correct in enumerate(CORRECT) if correct == (truth == "right")] == items
        visit.page.locator(f"input[value={truth}]").check()
        assert numbers(visit, "insertion") == pytest.approx([mean(label, items, 1) for label in METHODS], abs=6e-4)
        assert column(visit, "Images") == [str(len(items))] * 3
        assert visit.page.locator("#scores td:nth-child(2) .interval").count() == 0
        assert f"{len(items)} of 6 images pass the filters" in visit.text("#table-note")
        assert "recomputed in this page" in visit.text("#table-note")
    assert column(visit, "Black image") == ["–", "0.0 %", "75.0 %"]  # trials are no images
    visit.page.locator("input[value=all]").check()
    assert visit.page.locator("#scores td:nth-child(2) .interval").count() == 3


def test_class_method_pair_and_protocol_filters(visit):
    page = visit.page
    page.select_option("#class", label="dog (6)")  # three on each pair
    page.select_option("#pair", "1")
    assert numbers(visit, "insertion") == pytest.approx([mean(label, [2, 3, 4], 1) for label in METHODS], abs=6e-4)
    page.locator("#chips label", has_text="Saliency").click()
    assert column(visit, "Method") == ["FEI-VM", "FEI-NONE"]
    assert page.evaluate("document.activeElement.value") == "Saliency"
    page.select_option("#protocol", "rise/1")  # .3 more
    expected = [mean(label, [2, 3, 4], 1) + 0.3 for label in ("FEI-VM", "FEI-NONE")]
    assert numbers(visit, "insertion") == pytest.approx(expected, abs=6e-4)
    page.locator("input[value=right]").check()
    assert column(visit, "Images") == ["2", "2"]
    page.locator("#clear").click()
    assert len(column(visit, "Method")) == 6
    assert page.locator("#clear").is_disabled()


def test_fewer_numbers_are_marked(visit):
    visit.page.select_option("#pair", "0")
    visit.page.select_option("#class", label="owl (1)")  # of Saliency one of two seeds failed: the other counts
    assert numbers(visit, "insertion")[0] == pytest.approx(insertion("Saliency", 5, 0), abs=6e-4)


# Images


def test_a_row_leads_to_its_images_worst_first(visit):
    open_images(visit, "FEI-VM", 1)
    assert visit.text("#images-title") == "Images of FEI-VM"
    assert visit.page.evaluate("document.activeElement.id") == "images-title"
    assert column(visit, "Image", "image-table") == ITEMS  # insertion grows with the number
    expected = [mean("FEI-VM", [item], 1) for item in range(6)]
    assert numbers(visit, "insertion", "image-table") == pytest.approx(expected, abs=6e-4)
    assert column(visit, "Prediction", "image-table") == ["right", "wrong", "right", "wrong", "right", "right"]
    sort(visit, "insertion", "image-table")
    assert column(visit, "Image", "image-table") == ITEMS[::-1]
    sort(visit, "MSE", "image-table")  # worst first: the highest
    assert column(visit, "Image", "image-table") == ITEMS[::-1]
    sort(visit, "Image", "image-table")
    assert column(visit, "Image", "image-table") == ITEMS
    visit.page.locator("input[value=wrong]").check()
    assert column(visit, "Image", "image-table") == ["1.png", "3.png"]


def test_units_without_numbers_say_why(visit):
    open_images(visit, "Saliency")
    assert "failed: the disk is full" in visit.text('#image-table tr[data-item="5"] th')
    visit.page.locator("#scores tr.link .open", has_text="FEI-VM").click()
    assert "not computed yet" in visit.text('#image-table tr[data-item="4"] th')


# One image


def test_an_image_leads_to_its_unit(visit, store):
    open_unit(visit, "FEI-VM", 3)
    assert visit.text("#unit-title") == "3.png"
    assert "Explained: dog, 65.0 %; the prediction is wrong." in visit.text("#unit-about")
    assert f"fei reproduce '{store.folder}#{key_of(0, 'FEI-VM', 3, 0)[:16]}'" == visit.text("#source-reproduce")
    assert "steps = 3" in visit.text("#unit-facts")
    visit.page.select_option("#seed", label="7")
    assert key_of(0, "FEI-VM", 3, 7)[:16] in visit.text("#source-reproduce")


def test_the_curves_of_a_unit(visit):
    open_unit(visit, "FEI-NONE", 2)
    chart = visit.page.locator('#unit-curves [data-curve="insertion"] svg')
    assert chart.locator("polyline.other").count() == 2
    points = [[float(v) for v in p.split(",")] for p in chart.locator("polyline.a").get_attribute("points").split()]
    ticks = {
        float(tick.text_content()): float(tick.get_attribute("y")) - 4 for tick in chart.locator("text.end").all()[:-1]
    }
    (low, bottom), (high, top) = sorted(ticks.items())[0], sorted(ticks.items())[-1]
    scores = [low + (y - bottom) / (top - bottom) * (high - low) for _, y in points]
    level = insertion("FEI-NONE", 2, 0)
    assert scores == pytest.approx([level, level / 2, 0], abs=2e-3)


def test_the_layers_of_a_unit_from_shallow_to_deep(visit):
    open_unit(visit, "FEI-NONE", 2)
    rows = visit.page.locator('table[data-metric="mse"] tbody tr').all()
    assert [row.locator("th").inner_text() for row in rows] == ["layer9", "layer10"]
    here, every = (rows[1].locator("td.number").nth(i).inner_text() for i in (0, 1))
    assert float(here) == pytest.approx(mse("FEI-NONE", 2))
    assert float(every) == pytest.approx(np.mean([mse("FEI-NONE", item) for item in range(6)]))


def shown_pixels(visit, selector):
    """What an image holds, drawn once more."""
    width, height, values = visit.page.locator(selector).evaluate(
        "e => { const c = document.createElement('canvas'); c.width = e.naturalWidth; c.height = e.naturalHeight;"
        " const x = c.getContext('2d'); x.drawImage(e, 0, 0);"
        " return [c.width, c.height, [...x.getImageData(0, 0, c.width, c.height).data]]; }"
    )
    return np.array(values, dtype=np.uint8).reshape(height, width, 4)[..., :3]


def test_the_map_lies_over_the_photograph(visit):
    open_unit(visit, "FEI-VM", 3)
    colours = shown_pixels(visit, "#picture img.map").astype(float)
    brightness = colours @ (0.2126, 0.7152, 0.0722)
    expected = attribution("FEI-VM", 3)
    assert spearmanr(brightness.ravel(), expected.ravel()).statistic > 0.99
    visit.page.locator("#opacity").fill("0.25")
    assert visit.page.locator("#picture img.map").evaluate("e => e.style.opacity") == "0.25"
    assert visit.page.locator("#strip .thumb").count() == 3
    visit.page.locator("#strip .thumb", has_text="Saliency").click()
    assert visit.page.locator("#unit-method").input_value() == "0"
    assert visit.page.locator("#strip .thumb[aria-pressed=true]").inner_text().startswith("Saliency")


def test_a_photograph_that_is_gone_is_told_and_the_map_is_shown(visit):
    open_unit(visit, "FEI-VM", 3, 1)
    assert visit.page.locator("#picture img").count() == 1
    assert "The photographs cannot be read" in visit.text("#picture")
    assert not visit.page.locator("#opacity-control").is_visible()


def test_keys(visit):
    page = visit.page
    open_unit(visit, "FEI-VM", 2)
    page.keyboard.press("j")
    assert visit.text("#unit-title") == "3.png"
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert visit.text("#unit-title") == "1.png"
    page.keyboard.press("m")
    assert page.locator("#unit-method").input_value() == "2"
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    assert page.locator("#unit").is_visible()  # one key, one thing
    page.keyboard.press("Escape")
    assert not page.locator("#unit").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#images").is_visible()


def test_every_control_can_be_reached_with_tab(visit):
    open_unit(visit, "FEI-VM", 2)
    visit.page.locator("#skip").focus()
    wanted = {"theme", "link", "ask", "pair", "protocol", "class", "unit-method", "seed", "opacity", "previous", "next"}
    reached = set()
    for _ in range(120):
        visit.page.keyboard.press("Tab")
        name, outlined = visit.page.evaluate(
            "() => [document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle !== 'none']"
        )
        reached.add(name)
        assert outlined or name not in wanted, f"{name} shows no focus"
        if wanted <= reached:
            break
    assert wanted <= reached


def test_a_link_restores_what_is_seen(browser, file, visit):
    page = visit.page
    open_unit(visit, "FEI-NONE", 3)
    page.locator("input[value=wrong]").check()
    page.select_option("#protocol", "rise/1")
    page.select_option("#seed", label="7")
    sort(visit, "MSE")
    sort(visit, "insertion", "image-table")
    page.locator("#opacity").fill("0.3")
    page.keyboard.press("t")
    visit.wait("location.hash.includes('opacity=0.3')")
    parts = ("#table-note", "#images-title", "#unit-title", "#unit-about", "#source-reproduce", "#theme")
    seen = [visit.text(part) for part in parts]
    with Visit(browser, file, visit.hash()) as again:
        assert [again.text(part) for part in parts] == seen
        assert column(again, "MSE") == column(visit, "MSE")
        assert column(again, "Image", "image-table") == column(visit, "Image", "image-table")
        assert again.page.locator("#protocol").input_value() == "rise/1"
    page.go_back()
    assert visit.text("#theme") == "Theme: auto"


@pytest.mark.parametrize(
    "address", ["#pair=none&sort=x,y&on=a&method=b&image=c&seed=z&theme=pink", "#%", "#on=Set, Net"]
)
def test_a_wrong_address_does_no_harm(browser, file, address):
    with Visit(browser, file, address) as visit:
        assert len(column(visit, "Method")) == 6
        assert not visit.page.locator("#images").is_visible()


@pytest.mark.parametrize(("scheme", "viewport"), [("light", DESKTOP), ("dark", PHONE)], ids=["desktop", "phone"])
def test_axe_finds_nothing_serious(browser, file, scheme, viewport):
    # axe itself is put into the page, which the page's policy rightly forbids
    with Visit(browser, file, color_scheme=scheme, viewport=viewport, bypass_csp=True) as visit:
        sort(visit, "insertion")
        open_unit(visit, "FEI-VM", 2)
        visit.page.locator("details summary").click()
        assert serious_faults(visit.page) == {}


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_nothing_is_wider_than_the_window(browser, file, width):
    with Visit(browser, file, viewport={"width": width, "height": 844}) as visit:
        open_unit(visit, "FEI-VM", 2)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_hostile_name_is_only_text(browser, tmp_path):
    name = HOSTILE.replace("\u2028", "")
    with benchmark(tmp_path, pairs=(name, PAIRS[1]), keep_maps=False) as store:
        file = write_bench_page(tmp_path / "page.html", store)
    with Visit(browser, file) as visit:
        open_unit(visit, "FEI-VM", 2)
        assert name in visit.page.locator("#unit-about").text_content()
        assert visit.text("#picture").startswith("The plan does not keep maps")
        assert visit.page.evaluate("document.scripts.length") == 2
        assert visit.page.locator("img").count() == 0
