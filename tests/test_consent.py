"""Code that data names runs only if the user agreed to that very code."""

import hashlib
import importlib.util
import json
import os
import pickle
import py_compile
import shutil
import stat
import sys

import commands
import pytest
from commands import furnish
from commands import run as fei

from fei import methods, models
from fei.auditing.memory import Remembered, last_audit, remember
from fei.bench.context import WorkerContext
from fei.bench.plan import parse_plan
from fei.bench.plan.catalog import Catalog
from fei.bench.store import Store
from fei.common.consent import named_by, remembering, trusting
from fei.errors import DataError, InputError

PLAN = """
name = "tiny"
retries = 0
keep_maps = true
[[pairs]]
model = "net.py:net"
data = "photos"
[[methods]]
name = "saliency"
[metrics]
external = false
internal = false
complexity = true
"""
LOADED = "\nopen('loaded', 'a').close()\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder where a run was made."""
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    furnish(folder, commands.NETWORK + LOADED, "photos/a.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FEI_CONFIG", str(folder / "agreed"))
        assert fei("bench", "run", "plan.toml", "--out", "run") == 0
        assert fei("explain", "photos/a.png", "--model", "net.py:net", "--method", "saliency", "--out", "out") == 0
    (folder / "loaded").unlink()
    return folder


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    """What was made by somebody else: nothing of it was agreed to here."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("agreed"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEI_CONFIG", str(tmp_path / "mine"))
    return tmp_path


def key(folder):
    with Store.open(folder, readonly=True) as store:
        return store.rows("SELECT key FROM units")[0][0]


def unfinished(place):
    with Store.open(place / "run") as store:
        store.set_meta(complete="")


def test_a_report_loads_no_network_that_a_run_names(place, capsys):
    assert fei("bench", "report", "run", "--html") == 0
    assert not (place / "loaded").exists()
    digest = hashlib.sha256((place / "net.py").read_bytes()).hexdigest()
    told = (place / "run" / "report" / "report.md").read_text(encoding="utf-8")
    assert digest in told
    assert "add --trust-code" in told
    assert fei("bench", "report", "run", "--trust-code") == 0
    assert (place / "loaded").exists()
    (place / "loaded").unlink()
    assert fei("bench", "report", "run") == 0  # it is remembered
    assert (place / "loaded").exists()
    assert "trust-code" not in (place / "run" / "report" / "report.md").read_text(encoding="utf-8")
    (place / "loaded").unlink()
    (place / "net.py").write_text(commands.NETWORK + LOADED + "# and more", encoding="utf-8")
    assert fei("bench", "report", "run") == 0  # by its content, not by its name
    assert not (place / "loaded").exists()


def commands_that_load(place):
    unfinished(place)
    (place / "unit.json").write_text("{}", encoding="utf-8")
    return {
        "resume": ("bench", "resume", "run"),
        "figure": ("figure", "run", "--out", "f.png"),
        "record": ("reproduce", "out/a.json"),
        "unit": ("reproduce", f"run#{key(place / 'run')}"),
    }


@pytest.mark.parametrize("name", ["resume", "figure", "record", "unit"])
def test_no_command_runs_code_that_a_file_names(place, capsys, name):
    words = commands_that_load(place)[name]
    assert fei(*words) in (1, 2)
    told = capsys.readouterr().err
    assert not (place / "loaded").exists()
    assert "names code that you have not agreed to run, 'net' in 'net.py' with the SHA-256" in told
    assert hashlib.sha256((place / "net.py").read_bytes()).hexdigest() in told
    assert fei(*words, "--trust-code") == 0
    assert (place / "loaded").exists()


def test_what_was_typed_is_agreed_to(place, monkeypatch, capsys):
    assert fei("bench", "run", "plan.toml", "--out", "own") == 0
    unfinished(place)
    assert fei("bench", "resume", "run") == 0
    assert fei("reproduce", "out/a.json") == 0
    monkeypatch.setenv("FEI_CONFIG", str(place / "third"))
    assert fei("bench", "resume", "run", "--plan", "plan.toml") == 0


def test_a_printed_unit_is_data_too(place, capsys):
    assert fei("bench", "show", "run", key(place / "run")) == 0
    (place / "unit.json").write_text(capsys.readouterr().out, encoding="utf-8")
    assert fei("reproduce", "unit.json") == 2
    assert not (place / "loaded").exists()


def test_records_of_a_command_alone_are_data_too(place, capsys):
    record = json.loads((place / "out" / "a.json").read_text(encoding="utf-8"))
    del record["request"]
    (place / "out" / "a.json").write_text(json.dumps(record), encoding="utf-8")
    assert fei("reproduce", "out/a.json") == 2
    assert not (place / "loaded").exists()


@pytest.mark.parametrize("module", ["foreign_one.inner", "foreign_two"])
def test_methods_and_packages_are_treated_alike(tmp_path, monkeypatch, module):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FEI_CONFIG", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    package = tmp_path / module.partition(".")[0]
    package.mkdir()
    maps = "\ndef maps(model, inputs, target):\n    return inputs.sum(1)\n"
    (package / "__init__.py").write_text(LOADED + maps, encoding="utf-8")
    (package / "inner.py").write_text(maps, encoding="utf-8")
    with named_by("The run in 'x'"):
        for load in (methods.create, models.load):
            with pytest.raises(InputError, match="The run in 'x' names code .* 'maps' in .* read that file"):
                load(f"{module}:maps")
        assert not (tmp_path / "loaded").exists()  # not even the package around it
        with trusting():
            methods.create(f"{module}:maps")
        assert (tmp_path / "loaded").exists()
        methods.create(f"{module}:maps")
        with pytest.raises(InputError, match="'other' in"):  # another object of the same file
            methods.create(f"{module}:other")
        with pytest.raises(InputError, match="SHA-256 unknown"):
            models.load("sys:exit")
        with pytest.raises(InputError, match="no Python module 'nowhere_at_all'"):
            models.load("nowhere_at_all:net")


def test_what_is_loaded_without_a_source_is_not_agreed_to(monkeypatch):
    """The program itself is a module, whose names lead to others."""
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with (
        named_by("The run in 'x'"),
        pytest.raises(InputError, match="'sys.exit' in '__main__' with the SHA-256 unknown"),
    ):
        methods.create("__main__:sys.exit")


def test_what_runs_is_what_was_read(tmp_path):
    file = furnish(tmp_path, commands.NETWORK) / "net.py"
    other = tmp_path / "other.py"
    other.write_text("raise SystemExit('not what was read')", encoding="utf-8")
    cached = importlib.util.cache_from_source(str(file))
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(other), cached, dfile=str(file), invalidation_mode=unchecked)
    assert models.load(f"{file}:net").labels == ["dark", "bright", "striped"]


@pytest.mark.skipif(os.name != "posix", reason="there are no such permissions")
def test_only_the_users_own_word_counts(tmp_path, monkeypatch):
    monkeypatch.setenv("FEI_CONFIG", str(tmp_path / "mine"))
    spec = f"{furnish(tmp_path, commands.NETWORK) / 'net.py'}:net"
    remembered = tmp_path / "mine" / "trusted-code"

    def agreed():
        with named_by("The record 'x'"):
            try:
                return models.load(spec) is not None
            except InputError:
                return False

    assert not agreed()
    models.load(spec)  # a call in Python leaves no trace
    assert not remembered.exists()
    with remembering():
        models.load(spec)
    assert stat.S_IMODE(remembered.stat().st_mode) == 0o600
    assert agreed()
    remembered.chmod(0o666)
    assert not agreed()
    remembered.chmod(0o600)
    remembered.rename(tmp_path / "elsewhere")
    remembered.symlink_to(tmp_path / "elsewhere")
    assert not agreed()


def test_a_run_that_shows_another_plan_is_refused(place, capsys):
    beside = place / "run" / "plan.toml"
    beside.write_text("# a remark\n" + PLAN, encoding="utf-8")
    assert fei("bench", "status", "run") == 0
    beside.write_text(PLAN.replace("net.py:net", "efficientnet_lite0"), encoding="utf-8")
    with Store.open(place / "run", readonly=True) as store, pytest.raises(DataError, match="is not the one that the"):
        _ = store.plan
    for command in ("resume", "report", "status"):
        assert fei("bench", command, "run", *(["--trust-code"] if command != "status" else [])) == 1
        assert "is not the one that the run follows" in capsys.readouterr().err
    assert not (place / "loaded").exists()
    assert fei("bench", "resume", "run", "--plan", "plan.toml") == 0  # the user's word: it takes the place of both
    assert fei("bench", "status", "run") == 0


def test_a_method_in_a_file_is_treated_like_a_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEI_CONFIG", str(tmp_path / "mine"))
    maps = "\ndef maps(model, inputs, target):\n    return inputs.sum(1)\n"
    (tmp_path / "method.py").write_text(LOADED + maps, encoding="utf-8")
    with named_by("The run in 'x'"):
        with pytest.raises(InputError, match=r"'maps' in 'method.py' with the SHA-256"):
            methods.create("method.py:maps")
        assert not (tmp_path / "loaded").exists()
        with trusting():
            methods.create("method.py:maps")
        methods.create("method.py:maps")
    assert (tmp_path / "loaded").exists()


def test_a_worker_loads_only_what_was_agreed_to(place, monkeypatch):
    """In another process, and later: the files may be others by then."""
    maps = "\ndef maps(model, inputs, target):\n    return inputs.sum(1)\n"
    (place / "method.py").write_text(maps, encoding="utf-8")
    plan = parse_plan(PLAN.replace("saliency", "method.py:maps"))
    for trusted in (True, False):  # agreed to now, and before
        with named_by("The run in 'x'"), trusting(trusted):
            sent = pickle.dumps(WorkerContext.of(plan, Catalog(plan), "cpu"))
    monkeypatch.setenv("FEI_CONFIG", str(place / "on another machine"))
    context = pickle.loads(sent)
    assert context.worker().prepare(0) is None
    context.method(0)
    (place / "loaded").unlink()
    for file in ("net.py", "method.py"):
        with (place / file).open("a", encoding="utf-8") as stream:
            stream.write(LOADED + "# another one")
    assert "The run in 'x' names code that you have not agreed to run, 'net'" in context.worker().prepare(0)
    with pytest.raises(InputError, match="'maps' in 'method.py'"):
        context.method(0)
    assert not (place / "loaded").exists()
    typed = WorkerContext.of(plan, Catalog(plan), "cpu")  # by a plan that the user named
    assert pickle.loads(pickle.dumps(typed)).worker().prepare(0) is None


def test_an_audit_recommends_the_file_that_was_audited(tmp_path, monkeypatch):
    """Not one of its name where the command is called, which may be a stranger's folder."""
    monkeypatch.setenv("FEI_CONFIG", str(tmp_path / "mine"))
    monkeypatch.chdir(tmp_path)
    for name in ("own.py:maps", "sub/own.py:a.b", "package.module:maps", "gradcam", None):
        remember(Remembered("0f", name, {}, ("a", "b"), "audit.html", "2026-01-02T03:04:05"))
        if name is not None:
            kept = last_audit("0f", "net.py:net").method
            assert kept == (str(tmp_path / name) if ".py" in name else name)
