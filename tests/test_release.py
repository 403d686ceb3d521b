"""What a release says of itself agrees in all places, and its contents are looked at."""

import datetime
import importlib.util
import io
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
FILES = {"src/fei/__init__.py", "src/fei/py.typed", "src/fei/data/photographs/chelsea.png"}
ABOUT = {"LICENSE", "README.md", "pyproject.toml"}


@pytest.fixture(scope="module")
def check():
    """The script of `make release`."""
    spec = importlib.util.spec_from_file_location("release_check", ROOT / "release" / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headings():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.findall(r"^## \[(.+?)\](?: - (\S+))?$", text, re.MULTILINE), re.findall(r"^### (.+)$", text, re.MULTILINE)


def test_the_version_is_the_same_everywhere():
    cited = dict(re.findall(r"^([\w-]+): (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE))
    (_, _), (newest, dated), *_ = headings()[0]
    assert newest == cited["version"] == VERSION
    assert dated == cited["date-released"]


def test_the_changelog_keeps_its_form():
    versions, kinds = headings()
    assert versions[0] == ("Unreleased", "")
    assert [len(line) for line in re.findall(r"^## .*", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)] == [
        len(f"## [{name}]" + (f" - {date}" if date else "")) for name, date in versions
    ]
    assert set(kinds) <= KINDS
    dates = [datetime.date.fromisoformat(date) for _, date in versions[1:]]
    assert dates == sorted(dates, reverse=True)
    numbers = [tuple(map(int, name.split("."))) for name, _ in versions[1:]]
    assert numbers == sorted(set(numbers), reverse=True)


def packages(folder, wheel, source):
    """A wheel and a source distribution with files of these names."""
    with zipfile.ZipFile(folder / "fei-1-py3-none-any.whl", "w") as archive:
        for name in wheel:
            archive.writestr(name, "")
    with tarfile.open(folder / "fei-1.tar.gz", "w:gz", encoding="utf-8") as archive:
        for name in source:
            archive.addfile(tarfile.TarInfo(f"fei-1/{name}"), io.BytesIO())
    return folder / "fei-1-py3-none-any.whl", folder / "fei-1.tar.gz"


def test_packages_have_what_they_should_and_nothing_else(check, tmp_path):
    wheel = {name.removeprefix("src/") for name in FILES} | {"fei-1.dist-info/licenses/LICENSE"}
    source = FILES | ABOUT | {"PKG-INFO", "src/fei.egg-info/SOURCES.txt"}
    project = FILES | ABOUT | {"tests/test_a.py", "studies/main.toml", "Makefile"}
    assert check.flaws(*packages(tmp_path, wheel, source), project) == []
    wheel = (wheel - {"fei/py.typed", "fei-1.dist-info/licenses/LICENSE"}) | {"tests/test_a.py"}
    source = (source - {"LICENSE"}) | {"studies/main.toml"}
    assert check.flaws(*packages(tmp_path, wheel, source), project) == [
        "fei-1-py3-none-any.whl has no fei/py.typed",
        "fei-1-py3-none-any.whl has tests/test_a.py",
        "fei-1-py3-none-any.whl has no licence",
        "fei-1.tar.gz has no LICENSE",
        "fei-1.tar.gz has studies/main.toml",
    ]


def test_what_only_looks_like_a_python_is_passed_over(check, tmp_path, monkeypatch):
    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert check.found("3.99") is None


def test_every_file_of_the_slice_is_there(check):
    assert [name for name in check.SLICE if not (ROOT / "tests" / name).is_file()] == []
    assert [name for name in check.BARE if not (ROOT / name).is_file()] == []
