"""Plug-ins: methods and metrics of other packages, found by their entry points, used and read like our own.

The packages here are folders on the path with the metadata that an installation writes, which is all that Python looks
at; `make release` installs the example for real.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from commands import NETWORK, furnish, run
from networks import small_cnn

import fei
from fei.bench import Store
from fei.bench.plan import _plan
from fei.errors import InputError
from fei.methods import _registry
from fei.metrics import declaration

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_method"
PLAN = """
name = "standard"
[[pairs]]
model = "net.py:net"
data = "photos"
name = "Photos"
[[methods]]
name = "{method}"
[metrics]
measure = {metrics}
"""


def install(folder, name, points, code, *, called=None, version="1.2", summary="a test"):
    """Lay out a package as an installer does: its module, and its metadata beside it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    told = {"Metadata-Version": "2.1", "Name": called or name, "Version": version, "Summary": summary}
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in told.items()), encoding="utf-8")
    lines = [line for group, of in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in of.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / f"{name}.py").write_text(code, encoding="utf-8")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder on the path whose packages are the plug-ins, asked for anew."""
    before = set(sys.modules)
    for plugins in (_registry._PLUGINS, declaration._PLUGINS):
        fresh = {"_found": {}, "_broken": {}, "_loaded": False}
        for name, value in fresh.items():
            monkeypatch.setattr(plugins, name, value)
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(folder) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def example(place):
    """The template of examples/own_method, with the entry points that its pyproject.toml states."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = {"called": project["name"], "version": project["version"], "summary": project["description"]}
    install(place, "own_method", project["entry-points"], "", **facts)
    (place / "own_method.py").unlink()
    shutil.copytree(EXAMPLE / "src" / "own_method", place / "own_method")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photos/a.png", "photos/b.png"))
    Path("theirs.toml").write_text(PLAN.format(method="standing-out", metrics='["insertion", "peak-share"]'), "utf-8")
    Path("ours.toml").write_text(PLAN.format(method="saliency", metrics='["insertion"]'), "utf-8")
    return tmp_path


def bench(*words):
    assert run("bench", *words) == 0


@pytest.mark.usefixtures("example")
def test_the_template_is_listed_run_merged_and_shown(folder, capsys):
    assert run("methods") == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert "plug-in" in listed
    assert "standing-out ? how much a pixel stands out" in listed
    assert run("methods", "standing-out") == 0
    assert "Width of the surroundings in pixels" in " ".join(capsys.readouterr().out.split())
    for name in ("theirs", "ours"):
        bench("run", f"{name}.toml", "--out", name)
    bench("merge", "ours", "theirs", "--out", "both")
    bench("resume", "both")  # each is measured by what the other was asked for
    bench("report", "both", "--html")
    with Store.open(Path("both"), readonly=True) as store:
        rows = store.results("map")
    assert {(row["method"], row["metric"]) for row in rows} >= {
        (method, metric) for method in ("saliency", "standing-out") for metric in ("insertion", "peak-share")
    }
    assert {'"package":"own-method 0.1.0"' in row["config"] for row in rows if row["method"] == "standing-out"} == {
        True
    }
    page = Path("both/report/report.html").read_text(encoding="utf-8")
    assert "standing-out" in page
    assert "share of the peak" in page
    assert "share of the peak" in Path("both/report/report.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("example")
def test_its_own_tests_pass(place):
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(place), *sys.path])}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, encoding="utf-8", env=environment, cwd=place
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


@pytest.mark.usefixtures("folder")
def test_what_a_plug_in_found_is_read_where_it_is_not_installed(example, place, capsys):
    for name in ("theirs", "ours"):
        bench("run", f"{name}.toml", "--out", name)
    for part in place.iterdir():
        shutil.rmtree(part)
    for plugins in (_registry._PLUGINS, declaration._PLUGINS):
        plugins._found, plugins._broken, plugins._loaded = {}, {}, False
    _plan.parse_plan.cache_clear()
    assert "standing-out" not in fei.methods.available()
    bench("merge", "ours", "theirs", "--out", "both")
    bench("report", "both", "--html")
    assert "peak-share" in Path("both/report/report.md").read_text(encoding="utf-8")
    capsys.readouterr()
    assert run("bench", "resume", "both") == 2
    assert "There is no metric 'peak-share'" in capsys.readouterr().err
    assert run("bench", "run", "theirs.toml", "--out", "again") == 2
    assert "Unknown method 'standing-out'" in capsys.readouterr().err


BROKEN = {
    "fei.methods": {
        "absent": "no_such_module:Method",
        "ending": "broken_end:Method",
        "number": "works:NUMBER",
        "gradcam": "works:dim",
        "Loud": "works:dim",
        "dim": "works:dim",
    },
    "fei.metrics": {"nothing": "works:NUMBER", "other": "works:DARKEST", "darkest": "works:DARKEST"},
}
CODE = """
import fei
from fei.metrics import Metric

NUMBER = 3
DARKEST = Metric("darkest", "darkest pixel", False, measure=lambda subject: subject.maps.amin((1, 2, 3)))
KNOWN = fei.methods.available("grad*")  # asks for plug-ins while they are loaded


def dim(model, inputs, target, *, factor=0.5):
    \"\"\"Half of what is there.

    Args:
        factor: How much is left.
    \"\"\"
    return factor * inputs.mean(1, keepdim=True)
"""


@pytest.fixture
def works(place):
    """A package of which some works."""
    (place / "broken_end.py").write_text("raise SystemExit(3)", encoding="utf-8")
    install(place, "works", BROKEN, CODE)


def sentence(kind, name, why):
    return f"The {kind} '{name}' of the package works 1.2 cannot be used ({why}); update that package, or uninstall it."


@pytest.mark.usefixtures("works")
def test_what_is_broken_is_told_and_the_rest_works():
    with pytest.warns(UserWarning, match="cannot be used") as told:
        assert fei.methods.available()[-1] == "dim"
    expected = {
        "absent": "ModuleNotFoundError: No module named 'no_such_module'",
        "ending": "SystemExit: 3",
        "number": "TypeError: it is neither a class derived from Baseline nor a function (model, inputs, target)",
        "gradcam": "fei has one of that name",
        "Loud": "its name is not of small letters, digits and -_+.",
    }
    assert {str(one.message) for one in told} == {sentence("method", name, why) for name, why in expected.items()}
    with pytest.raises(InputError, match="The method 'absent' of the package works 1.2 cannot be used"):
        fei.methods.create("absent")
    assert fei.methods.describe("gradcam").family == "activation"
    with pytest.warns(UserWarning, match="cannot be used") as told:
        assert "darkest" in fei.metrics.declared()
    assert {str(one.message) for one in told} == {
        sentence("metric", "nothing", "TypeError: it is no Metric('nothing', …)"),
        sentence("metric", "other", "TypeError: it is no Metric('other', …)"),
    }
    with pytest.raises(InputError, match="The metric 'nothing' of the package works 1.2 cannot be used"):
        fei.metrics.group_of("nothing")
    assert fei.metrics.group_of("darkest") == "darkest"


@pytest.mark.usefixtures("works")
def test_a_function_is_a_method_with_its_options():
    entry = fei.methods.describe("dim")
    assert (entry.family, entry.source, entry.summary) == ("plug-in", "works 1.2", "a test")
    assert [(option.name, option.default, option.help) for option in entry.options] == [
        ("factor", 0.5, "How much is left.")
    ]
    images = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    method = fei.methods.create("dim", factor=0.25)
    torch.testing.assert_close(method(small_cnn(), images), 0.25 * images.mean(1, keepdim=True))
    assert method.config["package"] == "works 1.2"  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="The method 'dim' has no option 'facter'; it takes factor."):
        fei.methods.create("dim", facter=1)


def test_nothing_of_a_plug_in_is_loaded_for_what_is_ours(place):
    install(place, "loud", {"fei.methods": {"loud": "loud:x"}, "fei.metrics": {"loud-2": "loud:x"}}, "raise OSError")
    fei.methods.create("saliency")
    fei.metrics.describe("insertion")
    assert not _registry._PLUGINS._loaded
    assert not declaration._PLUGINS._loaded
    with pytest.raises(InputError, match="The method 'loud' of the package loud 1.2 cannot be used"):
        fei.methods.create("loud")


def test_two_packages_with_one_name(place):
    for name in ("first", "second"):
        install(place, name, {"fei.methods": {"same": f"{name}:same"}}, "def same(model, inputs, target): ...")
    with pytest.warns(UserWarning, match="another package has one of that name"):
        assert fei.methods.available("same") == ["same"]
