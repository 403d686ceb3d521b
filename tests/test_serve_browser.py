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
# Whatever the server streams reaches the page late, as in a browser that is busy.
LATE = """
const send = window.fetch;
window.fetch = async (...asked) => {
  const answer = await send(...asked);
  if (!answer.headers.get('content-type')?.startsWith('text/event-stream')) return answer;
  const wait = async (part, out) => { await new Promise((done) => setTimeout(done, 2000)); out.enqueue(part); };
  return new Response(answer.body.pipeThrough(new TransformStream({transform: wait})), answer);
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
        self.page.on("console", lambda line: self.complaints.append(line.text) if line.type == "error" else None)
        self.page.goto(address)
        self.run.wait_for()

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

    def choose(self, network):
        self.page.get_by_label("Network").click()
        self.page.get_by_role("option", name=network).click()

    def only(self, *methods):
        chosen = self.page.locator("input[type=checkbox]:checked")
        while chosen.count():
            chosen.first.uncheck()
        for method in methods:
            self.page.get_by_role("checkbox", name=method, exact=True).check()

    def sees(self, text):
        self.page.get_by_text(text).first.wait_for()


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
    offered = [label.inner_text() for label in visitor.page.locator("label:has(input[type=radio])").all()][:5]
    assert all(re.fullmatch(r".+ \(\d+\.\d%\)", text) for text in offered)
    odd = {"a<b>bold</b>", "${1 + 1}", "{{value}}"}  # names of classes are shown as they are
    assert odd & {text.rpartition(" (")[0] for text in offered}  # five of the seven are offered
    visitor.page.get_by_role("radio", name="(").nth(1).check()  # the second of the classes that are offered
    visitor.only("fei-vm", "random")
    visitor.page.get_by_label("Seed").fill("7")
    visitor.run.click()
    visitor.page.get_by_role("progressbar", name="Progress of the run").wait_for()
    visitor.page.get_by_alt_text("fei-vm: the map so far").wait_for()
    visitor.download.wait_for()
    visitor.sees("Done in")
    explorer = visitor.page.frame_locator("iframe[title='Explorer of the results']")
    explorer.get_by_text("fei-vm").first.wait_for()
    frame = visitor.page.locator("iframe[title='Explorer of the results']")
    assert frame.get_attribute("sandbox") == "allow-scripts allow-downloads"
    with visitor.page.expect_download() as downloading:
        visitor.download.click()
    assert downloading.value.suggested_filename == "fei-results.zip"
    with zipfile.ZipFile(downloading.value.path()) as archive:
        assert archive.testzip() is None
        assert archive.read("photo.png") == picture()
        assert b"<html" in archive.read("explorer.html")
        found = np.load(io.BytesIO(archive.read("random.map.npy")))
        assert found.shape == (24, 24)
        record = json.loads(archive.read("fei-vm.json"))
    assert record["seed"] == 7
    assert record["target"]["label"] == offered[1].rpartition(" (")[0]
    assert visitor.page.locator("b", has_text="bold").count() == 0


def test_the_mask_is_seen_to_form_and_cancelling_ends_it(visit):
    visitor = visit()
    visitor.choose("nets.py:slow")
    visitor.page.get_by_role("button", name="Example: coffee").click()
    visitor.page.get_by_alt_text("Your photo").wait_for()
    visitor.only("fei-vm", "rise")
    assert visitor.cancel.is_disabled()
    visitor.run.click()
    forming = visitor.page.get_by_alt_text("fei-vm: the map so far")
    forming.wait_for()
    first = forming.get_attribute("src")
    visitor.page.wait_for_function(
        "(first) => document.querySelector('img[alt^=fei-vm]')?.getAttribute('src') !== first", arg=first
    )
    visitor.cancel.click()
    visitor.sees("The run was cancelled.")
    assert visitor.download.count() == 0
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


def test_two_visitors_do_not_disturb_each_other(visit, folder):
    first, second = visit(), visit()
    for visitor, seed in ((first, 1), (second, 2)):
        visitor.give(picture(seed=seed))
        visitor.page.get_by_alt_text("Your photo").wait_for()
    pictures = [visitor.page.get_by_alt_text("Your photo").get_attribute("src") for visitor in (first, second)]
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
    assert first.download.count() == 0
    link = second.download.get_attribute("href")
    stolen = first.page.request.get(second.page.url.rstrip("/") + link.replace(link.split("/")[2], "x" * 32))
    assert stolen.status == 404
    (private,) = folder.iterdir()
    assert len(list((private / "sessions").iterdir())) >= 2


def test_a_full_queue_is_told(visit):
    visitors = [visit() for _ in range(3)]
    for visitor in visitors:
        visitor.choose("nets.py:slow")
        visitor.page.get_by_role("button", name="Example: rocket").click()
        visitor.page.get_by_alt_text("Your photo").wait_for()
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
        visitor.run.wait_for()
        visitor.choose("nets.py:slow")
        visitor.page.get_by_role("button", name="Example: rocket").click()
        visitor.page.get_by_alt_text("Your photo").wait_for()
    visitor.only("rise")
    for _ in range(3):
        visitor.run.click()
        visitor.cancel.click()
        visitor.sees("The run was cancelled.")
    visitor.only("random")
    for _ in range(2):
        visitor.run.click()
        visitor.page.get_by_role("progressbar").wait_for()
        visitor.download.wait_for()


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
    boxes = [label.inner_text() for label in visitor.page.locator("label:has(input[type=checkbox])").all()]
    assert boxes == fei.methods.available()
    assert set(boxes) <= reached
    assert any("Drop a photo here" in str(name) for name in reached)
    assert {"Example: chelsea", "Example: rocket"} <= reached
    example = visitor.page.get_by_role("button", name="Example: astronaut")
    example.focus()
    visitor.page.keyboard.press("Enter")
    visitor.page.get_by_alt_text("Your photo").wait_for()
    visitor.run.focus()
    visitor.only("saliency")
    visitor.run.focus()
    visitor.page.keyboard.press("Enter")
    visitor.download.wait_for()


def test_nothing_serious_stands_in_anyones_way(visit):
    visitor = visit()
    visitor.page.get_by_role("button", name="Example: coffee").click()
    visitor.page.get_by_alt_text("Your photo").wait_for()
    visitor.only("saliency")
    visitor.run.click()
    visitor.download.wait_for()
    options = {"runOnly": ["wcag2a", "wcag2aa"], "iframes": False}  # the explorer has a test of its own
    for viewport in (DESKTOP, PHONE):
        visitor.page.set_viewport_size(viewport)
        # colours fade in, of a button that may be pressed again for one
        visitor.page.evaluate("() => Promise.all(document.getAnimations().map(each => each.finished))")
        assert serious_faults(visitor.page, options) == {}
        assert visitor.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
