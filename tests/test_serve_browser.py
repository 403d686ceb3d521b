"""`fei serve` in a real browser: what a visitor does with the page, and what two visitors do at once."""

import io
import json
import re
import zipfile

import numpy as np
import pytest
from browsing import DESKTOP, PHONE, serious_faults
from page_server import page_server
from PIL import Image
from waiting import PATIENCE

import fei

pytestmark = pytest.mark.slow

LIMIT = 300_000
EXPLORED = ("headline", "summary", "chips", "scores", "facts", "sources")
KEY = "JSON.parse(document.getElementById('data').textContent).visit"
# Whatever the server streams reaches the page late, as in a browser that is busy.
LATE = """
const Plain = window.EventSource;
window.EventSource = class extends Plain {
  set onmessage(hear) { super.onmessage = (event) => setTimeout(() => hear(event), 700); }
};
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def address(folder, network_file):
    models = [f"{network_file}:tiny", f"{network_file}:slow"]
    with page_server(folder, models, upload_bytes=LIMIT, pixels=1_000_000, queue=1) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    """Opens the page for another visitor; at the end, nothing may have gone wrong on any."""
    visitors = []

    def open_page(**options):
        visitors.append(Visitor(browser.new_context(**{"viewport": DESKTOP, **options}), address))
        return visitors[-1]

    yield open_page
    for visitor in visitors:
        visitor.context.close()
        assert visitor.outside == []
        assert visitor.complaints == []


class Visitor:
    """A browser with the page open."""

    def __init__(self, context, address):
        self.context, self.page = context, context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.outside, self.complaints = [], []
        self.page.on("request", lambda request: self._note(request.url, address))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on(
            "console", lambda line: self.complaints.append(line.text) if line.type in ("error", "warning") else None
        )
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]")

    def _note(self, url, address):
        if not url.startswith((address, "data:", "blob:", "about:")):
            self.outside.append(url)

    @property
    def run(self):
        return self.page.get_by_role("button", name="Run")

    @property
    def cancel(self):
        return self.page.get_by_role("button", name="Cancel")

    @property
    def download(self):
        return self.page.get_by_role("link", name="Download everything")

    def give(self, content, name="photo.png"):
        file = {"name": name, "mimeType": "image/png", "buffer": content}
        self.page.locator("input[type=file]").set_input_files(file)

    def take(self, example):
        self.page.get_by_role("button", name=f"Example: {example}").click()
        self.page.get_by_alt_text("Your photo").wait_for()

    def choose(self, network):
        self.page.get_by_label("Network", exact=True).select_option(network)

    def open_setup(self):
        if not self.page.evaluate("document.getElementById('setup').open"):
            self.page.locator("summary", has_text="Photo, network and methods").click()

    def only(self, *methods):
        self.open_setup()
        chosen = self.page.locator("#families input:checked")
        while chosen.count():
            chosen.first.uncheck()
        for method in methods:
            self.page.locator(f"#families input[value='{method}']").check()

    def sees(self, text):
        self.page.get_by_text(text).first.wait_for()

    def settled(self):
        """Colours fade in, of a button that may be pressed again for one."""
        self.page.evaluate("() => Promise.all(document.getAnimations().map(each => each.finished))")


def picture(size=(60, 45), seed=0):
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_upload_progress_result_download(visit):
    visitor = visit(accept_downloads=True)
    assert visitor.run.is_disabled()
    visitor.give(picture(), "../../a b<i>.png")
    visitor.page.get_by_alt_text("Your photo").wait_for()
    offered = [label.inner_text().split("\n") for label in visitor.page.locator("#classes label").all()]
    assert len(offered) == 5
    assert all(re.fullmatch(r"\d+\.\d %", share) for _, share in offered)
    odd = {"a<b>bold</b>", "${1 + 1}", "{{value}}"}  # names of classes are shown as they are
    assert odd & {label for label, _ in offered}  # five of the seven are offered
    visitor.page.locator("#classes input").nth(1).check()  # the second of the classes that are offered
    visitor.page.locator("#classes input").nth(0).uncheck()
    visitor.only("fei-vm", "random")
    visitor.page.get_by_label("Seed", exact=True).fill("7")
    visitor.run.click()
    visitor.page.get_by_role("progressbar", name="Progress of the run").wait_for()
    visitor.page.get_by_alt_text("fei-vm: the map so far").wait_for()
    visitor.download.wait_for()
    visitor.sees("Done in")
    # The explorer is in the page itself, and is what the file has that can be downloaded.
    explored = {id: visitor.page.locator(f"#{id}").inner_text() for id in EXPLORED}
    assert "fei-vm" in explored["scores"]
    assert visitor.page.locator("iframe").count() == 0
    kept = {}
    for name in ("Download everything (zip)", "Download explorer.html"):
        with visitor.page.expect_download() as downloading:
            visitor.page.get_by_role("link", name=name).click()
        kept[downloading.value.suggested_filename] = downloading.value.path()
    assert set(kept) == {"fei-results.zip", "explorer.html"}
    with zipfile.ZipFile(kept["fei-results.zip"]) as archive:
        assert archive.testzip() is None
        assert archive.read("photo.png") == picture()
        page = archive.read("explorer.html")
        found = np.load(io.BytesIO(archive.read("random.map.npy")))
        assert found.shape == (24, 24)
        record = json.loads(archive.read("fei-vm.json"))
    assert kept["explorer.html"].read_bytes() == page
    assert record["seed"] == 7
    assert record["target"]["label"] == offered[1][0]
    assert visitor.page.locator("b", has_text="bold").count() == 0
    file = kept["explorer.html"].with_suffix(".html")
    file.write_bytes(page)
    visitor.page.goto(f"file://{file}")  # which opens from disk, and shows the same
    visitor.outside.clear()
    visitor.page.wait_for_selector("html[data-ready]")
    assert {id: visitor.page.locator(f"#{id}").inner_text() for id in EXPLORED} == explored


def test_the_explorer_in_the_page_can_be_used_and_makes_way_for_the_next_run(visit):
    visitor = visit()
    visitor.take("coffee")
    for names in (("saliency", "random"), ("gradcam",)):
        visitor.only(*names)
        if len(names) == 1:
            visitor.page.locator("#classes input").nth(1).check()
        visitor.run.click()
        visitor.page.locator("#chips label", has_text=names[0]).wait_for()
        visitor.download.wait_for()
        several = visitor.page.locator("#class-choice label").count()
        assert several == (2 if len(names) == 1 else 1)  # the first class is chosen anyway
        chips = [label.inner_text() for label in visitor.page.locator("#chips label").all()]
        assert chips == [name for name in fei.methods.available() if name in names]
        assert visitor.page.locator("#pick-a").input_value() in names
        visitor.page.keyboard.press("]")  # a key of the explorer
        visitor.page.keyboard.press("t")
        assert visitor.page.locator("html").get_attribute("data-theme") in ("light", "dark")
    visitor.open_setup()
    visitor.take("rocket")  # another photo, so nothing was found on it
    visitor.page.locator("#chips").wait_for(state="hidden")
    visitor.download.wait_for(state="hidden")
    assert visitor.page.get_by_role("heading", level=1).inner_text() == "Which pixels does the network need?"


def test_the_mask_is_seen_to_form_and_cancelling_ends_it(visit):
    visitor = visit()
    visitor.choose("nets.py:slow")
    visitor.take("coffee")
    visitor.only("fei", "rise")
    assert not visitor.cancel.is_visible()
    visitor.run.click()
    card = visitor.page.locator("#cards figure").first  # a preview comes first, and its place is taken in the same view
    card.get_by_alt_text("fei: a preview").wait_for()
    assert card.locator(".name").inner_text() == "fei (preview)"
    forming = card.get_by_alt_text("fei: the map so far")
    forming.wait_for()
    assert card.locator(".name").inner_text() == "fei"
    assert card.locator("img").count() == 1
    visitor.page.get_by_text(re.compile(r"fei, step \d+ of 20, about \d+ s left")).wait_for()
    first = forming.get_attribute("src")
    card.locator(f"img:not([src='{first}'])").wait_for()
    visitor.cancel.click()
    visitor.sees("The run was cancelled.")
    assert not visitor.download.is_visible()
    visitor.only("saliency")  # and the page still works
    visitor.run.click()
    visitor.download.wait_for()


def test_files_that_cannot_be_used_are_told_and_the_page_goes_on(visit):
    visitor = visit()
    unreadable = "The photo cannot be read as an image: it is damaged, cut short, or in a format other"
    for content, sentence in (
        (b"this is a text", unreadable),
        (b"x" * (LIMIT + 1), "The photo has more than 0.3 MB; save it smaller."),
        (picture((1100, 1000))[:LIMIT], "The photo has more than 1 million pixels; save it smaller."),
        (picture()[:500], unreadable),
    ):
        visitor.give(content, "photo.png")
        visitor.sees(sentence)
        assert visitor.run.is_disabled()
    visitor.give(picture())
    visitor.page.get_by_alt_text("Your photo").wait_for()
    assert visitor.run.is_enabled()
    assert visitor.page.get_by_text(unreadable).count() == 0


def test_a_photo_can_be_dropped(visit):
    visitor = visit()
    visitor.page.evaluate(
        """(bytes) => {
          const files = new DataTransfer();
          files.items.add(new File([new Uint8Array(bytes)], "photo.png", { type: "image/png" }));
          const input = document.elementFromPoint(...(({ x, y, width, height }) => [x + width / 2, y + height / 2])(
            document.getElementById("drop").getBoundingClientRect()));
          input.files = files.files; // as a browser does when files are dropped on an input
          input.dispatchEvent(new Event("change"));
        }""",
        list(picture()),
    )
    visitor.page.get_by_alt_text("Your photo").wait_for()


def test_two_visitors_do_not_disturb_each_other(visit, folder):
    first, second = visit(), visit()
    for visitor, seed in ((first, 1), (second, 2)):
        visitor.give(picture(seed=seed))
        visitor.page.get_by_alt_text("Your photo").wait_for()
    pictures = [
        visitor.page.request.get(visitor.page.get_by_alt_text("Your photo").evaluate("e => e.src")).body()
        for visitor in (first, second)
    ]
    assert pictures[0] != pictures[1]
    first.choose("nets.py:slow")
    first.only("rise")
    second.only("saliency")
    first.run.click()
    first.page.get_by_role("progressbar").wait_for()
    second.run.click()
    second.sees("Waiting: 1 run(s) come first.")
    first.cancel.click()
    first.sees("The run was cancelled.")
    second.download.wait_for()  # which the other one's cancelling did not touch
    assert not first.download.is_visible()
    link = second.download.evaluate("e => e.href")
    assert first.page.request.get(link).status == 200
    key = link.split("/")[4]
    assert len(key) == 32  # who cannot guess it has nothing
    assert first.page.request.get(link.replace(key, "x" * 32)).status == 404
    assert first.page.request.get(link.replace(key, first.page.evaluate(KEY))).status == 404
    (private,) = folder.iterdir()
    assert len(list((private / "visits").iterdir())) >= 2


def test_a_full_queue_is_told(visit):
    visitors = [visit() for _ in range(3)]
    for visitor in visitors:
        visitor.choose("nets.py:slow")
        visitor.take("rocket")
        visitor.only("rise", "extremal-perturbation", "occlusion", "kernel-shap")  # minutes, which nobody waits for
    for visitor, sentence in zip(visitors, ("rise, step", "Waiting: 1 run(s)", "The server is busy"), strict=True):
        visitor.run.click()
        visitor.sees(sentence)
    visitors[2].sees("The server is busy and 1 more run(s) wait already; try again in a few minutes.")
    visitors[1].sees("Waiting: 1 run(s) come first.")
    visitors[0].context.close()  # a visitor who leaves frees the server
    visitors[1].sees("rise, step")
    visitors[1].cancel.click()
    visitors[1].sees("The run was cancelled.")


def test_no_click_is_lost_however_quickly_it_follows_another(visit):
    visitor = visit()
    visitor.context.add_init_script(LATE)
    for _ in range(3):
        visitor.page.reload()
        visitor.page.wait_for_selector("html[data-ready]")
        visitor.choose("nets.py:slow")
        visitor.take("rocket")
    visitor.only("rise")
    for _ in range(3):
        visitor.run.click()
        visitor.cancel.click()
        visitor.sees("The run was cancelled.")
    visitor.only("random")
    for _ in range(2):
        visitor.run.click()
        visitor.cancel.wait_for()
        visitor.download.wait_for()


def test_a_server_that_went_away_is_told(visit):
    visitor = visit()
    visitor.context.route("**/example", lambda route: route.abort())
    visitor.page.get_by_role("button", name="Example: rocket").click()
    visitor.sees("The server does not answer; is it still running?")
    visitor.context.unroute("**/example")
    visitor.take("rocket")
    visitor.complaints = [one for one in visitor.complaints if "net::ERR_FAILED" not in one]


def test_the_page_can_be_used_with_the_keyboard(visit):
    visitor = visit()
    name = (
        "() => { const e = document.activeElement; "
        "return e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || e.type; }"
    )
    reached = set()
    for _ in range(60):
        visitor.page.keyboard.press("Tab")
        reached.add(visitor.page.evaluate(name))
    boxes = [label.inner_text() for label in visitor.page.locator("#families label").all()]
    # no network here has attention
    offered = [name for name in fei.methods.available() if fei.methods.describe(name).family != "attention"]
    assert boxes == [f"{name} (control)" if fei.methods.is_control(name) else name for name in offered]
    assert set(boxes) <= reached
    assert any("Drop a photo here" in str(name) for name in reached)
    assert {"Example: chelsea", "Example: rocket"} <= reached
    example = visitor.page.get_by_role("button", name="Example: astronaut")
    example.focus()
    visitor.page.keyboard.press("Enter")
    visitor.page.get_by_alt_text("Your photo").wait_for()
    visitor.only("saliency")
    visitor.run.focus()
    visitor.page.keyboard.press("Enter")
    visitor.download.wait_for()
    assert visitor.page.evaluate("document.activeElement.id") == "run"  # the focus is not lost on the way
    visitor.open_setup()
    visitor.page.get_by_label("Seed", exact=True).focus()
    visitor.page.keyboard.press("Enter")  # as in any form
    visitor.download.wait_for(state="hidden")
    visitor.download.wait_for()


def test_nothing_serious_stands_in_anyones_way(visit):
    visitor = visit()

    def look(*viewports):
        for viewport in (DESKTOP, PHONE):
            visitor.page.set_viewport_size(viewport)
            visitor.settled()
            fits = "width => document.documentElement.scrollWidth <= width"
            visitor.page.wait_for_function(fits, arg=viewport["width"])
            if viewport in viewports:
                assert serious_faults(visitor.page, {"runOnly": ["wcag2a", "wcag2aa"]}) == {}

    visitor.take("coffee")
    visitor.give(b"no photo")
    visitor.sees("The photo cannot be read")
    look(PHONE)
    visitor.only("fei-vm", "rise", "extremal-perturbation")  # minutes, which nobody waits for
    visitor.choose("nets.py:slow")
    visitor.run.click()
    visitor.page.get_by_alt_text("fei-vm: the map so far").wait_for()
    look(DESKTOP)
    visitor.cancel.click()
    visitor.sees("The run was cancelled.")
    visitor.choose("nets.py:tiny")
    visitor.only("saliency", "random")
    visitor.run.click()
    visitor.download.wait_for()
    visitor.open_setup()
    look(DESKTOP, PHONE)
    visitor.page.emulate_media(color_scheme="dark")
    look(DESKTOP)


def test_any_class_can_be_searched_for_and_methods_are_explained(visit):
    visitor = visit()
    visitor.give(picture(), "a.png")
    visitor.page.get_by_alt_text("Your photo").wait_for()
    seen = {each.get_attribute("value") for each in visitor.page.locator("#classes input").all()}
    other = next(str(index) for index in range(7) if str(index) not in seen)
    search = visitor.page.get_by_label("Any other class")
    search.fill(other)
    search.press("Enter")
    assert visitor.page.locator(f"#classes input[value='{other}']").is_checked()
    assert not visitor.page.locator("#progress").is_visible()
    visitor.page.get_by_text("What each method does").click()
    visitor.sees("the mean score of random masks that show a pixel")
    # what goes on stays in view
    visitor.page.set_viewport_size({"width": 390, "height": 500})
    visitor.page.evaluate("scrollTo(0, 0)")
    box = visitor.page.locator(".go").bounding_box()
    assert box["y"] + box["height"] <= 501
