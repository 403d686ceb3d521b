"""A real browser for tests: Chromium by Playwright, a page from disk, and what went wrong on it."""

import os
import shutil
import time
from contextlib import contextmanager

import numpy as np
import pytest
from waiting import PATIENCE

# Chromium must not look for anything outside: whatever is asked for would be the page's fault.
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
# The shell has no windows, menus or profile, and takes half of the time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def missing(what):
    message = f"no {what}; the browser tests need Chromium and the packages playwright and axe-playwright-python"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@contextmanager
def launched():
    """A browser; one at a time in a process."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None) or missing("Chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS.split())
        yield browser
        browser.close()


def serious_faults(page, options=None):
    """What axe-core finds, asked with its options, where it is serious: {rule: elements}."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        missing("axe-playwright-python")
    return {
        fault["id"]: [node["html"][:200] for node in fault["nodes"]]
        for fault in Axe().run(page, options=options).response["violations"]
        if fault["impact"] in ("serious", "critical")
    }


class Visit:
    """A page that is open, and what went wrong on it."""

    def __init__(self, browser, file, address="", **options):
        self.context = browser.new_context(**{"viewport": DESKTOP, "color_scheme": "light"} | options)
        self.page = self.context.new_page()
        self.requests, self.problems = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self._hear(message.type, message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog {dialog.message}"))
        self.page.goto(f"file://{file}{address}")
        self.page.wait_for_selector("html[data-ready]", timeout=PATIENCE * 1000)

    def _hear(self, kind, text):
        if kind in ("error", "warning"):
            self.problems.append(text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
        assert self.problems == []

    def settle(self):
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def pixels(self, selector):
        """What is on a canvas, (H, W, 3)."""
        width, height, values = self.page.locator(selector).evaluate(
            "e => [e.width, e.height, [...e.getContext('2d').getImageData(0, 0, e.width, e.height).data]]"
        )
        return np.array(values, dtype=np.uint8).reshape(height, width, 4)[..., :3]

    def wait(self, condition):
        """Until a condition on the page holds; playwright's own waiting would evaluate text, which the page forbids."""
        end = time.monotonic() + PATIENCE
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"never came true: {condition}"
            self.page.wait_for_timeout(50)

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def hash(self):
        return self.page.evaluate("location.hash")
