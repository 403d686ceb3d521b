"""``fei audit`` as its users meet it, its report in a browser, and what ``fei explain --method auto`` makes of it."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import audited
import pytest
from browsing import DESKTOP, PHONE, Visit, serious_faults

from fei.auditing.costs import short
from fei.auditing.verdicts import MARKS
from fei.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    return audited.make(tmp_path_factory.mktemp("nets"))


@pytest.fixture
def run(monkeypatch, capsys, nets):
    """Run a command where the networks are; exit code, standard output, standard error."""
    monkeypatch.chdir(nets)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("FEI_CONFIG", str(nets / "config"))

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main(list(words))
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return call


def audit(run, *words, network="seeing"):
    common = ("--model", f"nets.py:{network}", "--data", "imagefolder:pictures", "--budget", "10m", "--device", "cpu")
    return run("audit", *common, *words)


@pytest.fixture
def whole(run, nets):
    """An audit of two methods; the same folder for all tests, so that it is measured once."""
    code, out, err = audit(run, "--methods", "gradcam,guided-backprop")
    (folder,) = (nets / "fei-out").glob("audit-*")
    return code, out, err, folder


def test_it_says_what_to_use_and_writes_a_report(whole):
    code, out, _, folder = whole
    assert code == 0
    assert out.startswith("Use gradcam on this network: it passes ")
    assert "guided-backprop, which hardly depends on the" in out
    assert re.search(r"method +class +weights +seed +controls +score +inside +black +per map +images", out)
    assert re.search(r"guided-backprop +✗ +✗ +✓ ", out)
    assert {"audit.html", "audit.json", "audit.md", "explorer.html", "run.sqlite"} <= {f.name for f in folder.iterdir()}
    document = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert document["recommended"] == "gradcam"
    cell = document["methods"][0]["answers"]["class"]
    assert cell["low"] < cell["mean"] < cell["high"]
    text = (folder / "audit.md").read_text(encoding="utf-8")
    assert text.startswith("# Audit of `nets.py:seeing`\n\nUse gradcam on this network")
    assert "| `guided-backprop` | ✗ | ✗ | ✓ |" in text


def test_progress_says_what_has_been_decided(run):
    _, _, err = audit(run, "--methods", "saliency", "--require", "seed", "--out", "other")
    assert re.search(r"looking at the first of 16 images", err)
    assert re.search(r"\d+ s +saliency: seed ✓", err)


def test_requirements_are_kept_by_an_exit_code_and_a_junit_file(run, whole):
    *_, folder = whole
    report = (folder / "audit.html").read_bytes()
    code, out, err = audit(run, "--require", "class,weights", "--method", "guided-backprop")
    assert code == 1
    assert (folder / "audit.html").read_bytes() == report  # that of the whole audit
    assert "/required.html" in out
    assert "not met: guided-backprop, class: hardly depends on the class" in err
    root = ElementTree.parse(folder / "audit.junit.xml").getroot()
    cases = {case.get("name"): [part.tag for part in case] for case in root.iter("testcase")}
    assert cases == {"class": ["failure"], "weights": ["failure"]}
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "2", "0")
    code, out, _ = audit(run, "--require", "class,weights,black", "--method", "gradcam", "--json")
    assert code == 0
    assert json.loads(out)["unmet"] == {}
    root = ElementTree.parse(folder / "audit.junit.xml").getroot()
    cases = {case.get("name"): [part.tag for part in case] for case in root.iter("testcase")}
    assert cases == {"class": [], "weights": [], "black": ["skipped"]}


def test_explain_follows_the_last_audit_of_the_network(run, whole):
    picture = "pictures/red/002.png"
    code, out, _ = run("explain", picture, "--model", "nets.py:seeing", "--method", "auto", "--out", "explained")
    assert code == 0
    assert re.search(r"method +gradcam, seed 0", out)
    record = json.loads(Path("explained/002.json").read_text(encoding="utf-8"))
    assert record["method"] == "gradcam"
    assert re.match(r"The method was chosen by the audit of this network of 20\d\d-", record["notes"][0])
    assert record["request"]["methods"] == {"gradcam": {}}
    code, _, err = run("explain", picture, "--model", "nets.py:stamped", "--method", "auto", "--out", "explained")
    assert code == 2
    assert "make one with: fei audit --model nets.py:stamped --data DIR" in err


def test_what_others_could_have_written_is_not_followed(run, whole, nets):
    (kept,) = (nets / "config").glob("audit-*.json")
    kept.chmod(0o666)
    code, _, err = run("explain", "pictures/red/002.png", "--model", "nets.py:seeing", "--method", "auto")
    kept.chmod(0o600)
    assert code == 2
    assert "There is no audit of this network" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", "soon"), "such as 90s, 10m or 1h"),
        (("--budget", "3s", "--out", "short"), "was over before anything could be measured; give at least"),
        (("--methods", "gradcam", "--method", "saliency"), "contradict each other"),
        (("--option", "steps=3"), "add --methods or --method"),
        (("--require", "beauty"), "There is no question 'beauty'"),
        (("--data", "nowhere"), "no file or folder"),
    ],
)
def test_mistakes_are_told_in_a_sentence(run, words, said):
    code, out, err = audit(run, *words)
    assert code == 2
    assert said in err
    assert out == ""


def test_a_network_at_chance(run):
    code, _, err = audit(run, network="untrained")
    assert code == 2
    assert "which is chance for 4 classes" in err


# The report in a browser


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_report_opens_from_disk_and_asks_for_nothing_else(browser, whole, viewport):
    *_, folder = whole
    document = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    file = folder / "audit.html"
    with Visit(browser, file, viewport=viewport) as visit:
        assert visit.text("h1") == document["sentences"][0]
        assert visit.text("#summary") == document["sentences"][1]
        marks = visit.page.locator("#verdicts tbody tr").first.locator(".mark").all_inner_texts()
        assert marks == [MARKS[each["answer"]] for each in document["methods"][0]["answers"].values()]
        assert visit.page.locator("#verdicts tr.best th").inner_text().startswith("gradcam")
        assert visit.page.locator("#apart .case").count() == 3
        assert visit.page.locator("#worst img").count() == 3  # the photograph and two maps
        assert visit.page.locator("details[open]").count() == 0
        assert visit.page.locator("#apart a").get_attribute("href") == "explorer.html"
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        table = visit.page.locator("#verdicts")  # all columns are seen at once
        assert table.evaluate("each => each.parentElement.scrollWidth <= each.parentElement.clientWidth")
        assert serious_faults(visit.page) == {}
        assert [url for url in visit.requests if not url.startswith("data:")] == [f"file://{file}"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.000074, "74 µs"),
        (0.00074, "740 µs"),
        (0.0034, "3.4 ms"),
        (0.0999, "100 ms"),
        (0.123, "0.12 s"),
        (86, "86 s"),
        (340, "6 min"),
    ],
)
def test_the_table_fits_a_phone_on_machines_of_any_speed(browser, whole, tmp_path, seconds, told):
    page = (whole[-1] / "audit.html").read_text(encoding="utf-8")
    changed, count = re.subn(r'"seconds":[\d.e-]{6,}', f'"seconds":{seconds:f}', page)
    assert count == 2  # one for each method; that of the whole audit is rounded
    (tmp_path / "audit.html").write_text(changed, encoding="utf-8")
    with Visit(browser, tmp_path / "audit.html", viewport=PHONE) as visit:
        table = visit.page.locator("#verdicts")
        assert table.locator("tbody .number").first.inner_text() == told
        assert table.evaluate("each => each.parentElement.scrollWidth <= each.parentElement.clientWidth")
    if seconds < 10:
        assert short(seconds) == told


def test_a_mark_shows_its_numbers(browser, whole):
    *_, folder = whole
    with Visit(browser, folder / "audit.html") as visit:
        visit.page.locator('.mark[data-method="guided-backprop"][data-question="weights"]').click()
        assert "Fails: hardly depends on the weights" in visit.text("#cell")
        assert "it passes above 0.3" in visit.text("#cell")
        assert "cell=guided-backprop" in visit.hash()
        visit.page.keyboard.press("Escape")
        assert visit.page.locator("#cell").inner_text() == ""


def test_a_method_that_was_not_measured_is_told_beside_the_table(browser, whole, tmp_path):
    *_, folder = whole
    page = (folder / "audit.html").read_text(encoding="utf-8")
    assert '"left_out":{}' in page
    (tmp_path / "audit.html").write_text(page.replace('"left_out":{}', '"left_out":{"rise":"not begun"}'), "utf-8")
    for file, told in ((folder / "audit.html", False), (tmp_path / "audit.html", True)):
        with Visit(browser, file) as visit:
            assert ("rise is not in the table: not begun." in visit.text("#legend")) == told
    many = ",".join(f'"m{number}":"not begun, for reason {number}"' for number in range(5))
    (tmp_path / "audit.html").write_text(page.replace('"left_out":{}', f'"left_out":{{{many}}}'), "utf-8")
    with Visit(browser, tmp_path / "audit.html") as visit:  # the reasons of many are folded away
        assert "5 methods are not in the table (m0, m1, m2, m3, m4)" in visit.text("#legend")
        assert "for reason 3" not in visit.text("#legend")
        visit.page.locator("#schedule summary").click()
        assert "for reason 3" in visit.text("#schedule")


def test_the_explorer_has_the_photographs(browser, whole):
    *_, folder = whole
    with Visit(browser, folder / "explorer.html") as visit:
        assert "gradcam" in visit.page.locator("main").inner_text()
