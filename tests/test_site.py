"""The documentation site: its table of contents, the API reference and what makes its pages. `make docs` builds it."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from public_names import is_code, public_names

from fei import methods
from fei.protocols import available

ROOT = Path(__file__).parents[1]
DOCS, MADE = ROOT / "docs", ROOT / "docs" / "site"
# Two functions share their name with the module that they are in.
ELSEWHERE = {
    "fei.metrics.black_image": "fei.metrics.black_image.black_image",
    "fei.metrics.reliance": "fei.metrics.reliance.reliance",
}


class Settings(yaml.SafeLoader):
    """Settings as data: what is Python in them is not looked at."""


Settings.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


@pytest.fixture(scope="module")
def settings():
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Settings)


@pytest.fixture
def maker(monkeypatch):
    """What imports a module that makes pages."""
    monkeypatch.syspath_prepend(MADE)
    return importlib.import_module


def pages_in(nav):
    for entry in nav:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else pages_in(value)


def test_the_table_of_contents_has_every_page_once(settings, maker):
    gathered, made = maker("moved"), maker("methods")
    written = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    families = [f"methods/{family}.md" for family in made.TITLES]
    expected = [*written, *gathered.PAGES.values(), *gathered.NOTEBOOKS.values(), *families]
    assert sorted(pages_in(settings["nav"])) == sorted(expected)


def test_what_becomes_a_page_exists(maker):
    gathered = maker("moved")
    moved = gathered.Moved(ROOT)
    for source, uri in gathered.PAGES.items():
        assert moved.page(source, uri).startswith("# ")
    assert all((ROOT / notebook).is_file() for notebook in gathered.NOTEBOOKS)
    assert all((ROOT / needed).is_file() for needed in moved.needed)


def test_the_site_asks_for_nothing_from_elsewhere(settings):
    assert settings["theme"]["font"] is False
    assert not {"repo_url", "extra_javascript"} & settings.keys()
    assert all((DOCS / sheet).is_file() for sheet in settings["extra_css"])
    assert settings["strict"] is True
    assert set(settings["validation"]["links"].values()) == set(settings["validation"]["nav"].values()) == {"warn"}


def test_links_are_led_to_where_things_are_on_the_site(maker):
    moved = maker("moved").Moved(ROOT)
    text = (
        "[a](docs/terms.md#map) [b](https://x.org) `[c](docs/terms.md)` [d](studies/main.toml) [e](README.md#install)"
    )
    assert moved.links(text, "CONTRIBUTING.md", "project/contributing.md") == (
        "[a](../terms.md#map) [b](https://x.org) `[c](docs/terms.md)` [d](../source/studies/main.toml) "
        "[e](../start/install.md)"
    )
    assert moved.needed == {"studies/main.toml"}


def told_of():
    """What the pages of the reference ask to be documented."""
    for page in (DOCS / "reference").glob("*.md"):
        yield from re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_reference_has_every_public_name():
    told, homes = list(told_of()), {}
    for name, value in public_names().items():
        # what several packages offer has one place
        homes.setdefault(id(value) if is_code(value) else name, set()).add(ELSEWHERE.get(name, name))
    places = [names for names in homes.values() if names != {"fei.__version__"}]
    assert [names for names in places if len(names & set(told)) != 1] == []
    assert set(told) <= set().union(*places)
    assert len(told) == len(set(told))


def test_every_method_is_told_when_to_use_it(maker):
    words = tomllib.loads((MADE / "when.toml").read_text(encoding="utf-8"))
    families = {methods.describe(name).family for name in methods.available()}
    assert words["methods"].keys() == set(methods.available())
    assert words["families"].keys() == families == set(maker("methods").TITLES)
    assert all(text.endswith((".", "?")) for text in words["methods"].values())


def test_a_method_has_its_equation_source_cost_and_options(maker):
    made = maker("methods")
    entry = {
        "name": "rise", "summary": "…", "cost": "4000 + 0", "source": "Petsiuk et al.",
        "options": [{"name": "samples", "default": 4000, "help": "N|M"}],
    }  # fmt: skip
    text = made._section(entry, "For a black box.", "rise.jpg", "")
    for part in ("Σ_i s(x⊙m_i", "4000 + 0", "Petsiuk et al.", "For a black box.", "(rise.jpg)", "samples=600", r"N\|M"):
        assert part in text
    assert "Args:" not in text


def test_protocols_are_listed(maker):
    table = maker("protocols").table().splitlines()
    assert [re.match(r"\| `([\w/-]+)`", row)[1] for row in table[2:]] == available()


def test_flow_charts_are_drawn(maker):
    diagram = maker("diagram")
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (chart,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    drawn = diagram.drawn(chart)
    assert drawn.count('<path d="M') == 1 + chart.count("-->")  # the tip of an arrow, and each arrow
    assert "one SQLite file per run" in drawn
    with pytest.raises(ValueError, match="cannot draw 'a ==> b'"):
        diagram.drawn("flowchart LR\n    a ==> b\n")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<a href="b.html#here">fine</a><img src="picture.png"><a href="https://x.org">fine</a>', []),
        ('<a href="gone.html">', ["a.html leads to gone.html, which does not exist"]),
        ('<a href="b.html#there">', ["a.html leads to b.html#there, where there is no such anchor"]),
        ('<a href="/b.html#here">fine</a>', []),
        ('<script src="https://x.org/y.js"></script>', ["a.html loads https://x.org/y.js"]),
        ('<link rel="stylesheet" href="//x.org/y.css">', ["a.html loads //x.org/y.css"]),
        ('<p style="background: url(https://x.org/y.png)">', ["a.html loads https://x.org/y.png"]),
        ("<style>@import 'https://x.org/y.css';</style>", ["a.html loads https://x.org/y.css"]),
        ('<link rel="canonical" href="https://x.org/">', []),
    ],
)
def test_links_of_a_built_site_are_followed(body, expected, tmp_path, maker, capsys):
    check = maker("check")
    (tmp_path / "a.html").write_text(body, encoding="utf-8")
    (tmp_path / "b.html").write_text('<p id="here">', encoding="utf-8")
    (tmp_path / "picture.png").touch()
    assert list(check.problems(tmp_path)) == expected
    assert check.main(tmp_path) == bool(expected)
    assert capsys.readouterr()


def test_style_sheets_of_a_built_site_are_looked_at(tmp_path, maker):
    (tmp_path / "a.css").write_text(
        "a { src: url('https://x.org/font.woff') } b { src: url(own.woff) }", encoding="utf-8"
    )
    assert list(maker("check").problems(tmp_path)) == ["a.css loads https://x.org/font.woff"]
