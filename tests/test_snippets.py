"""What the pages tell to type works: Python is run, commands are read as the command line reads them."""

import itertools
import re
import shlex
import sqlite3
import tomllib
from pathlib import Path

import captum.attr
import duckdb
import pandas
import pytest
import torch
import typer
from commands import NETWORK, furnish, run
from tiny_vit import tiny_vit
from torch import nn

import fei
from fei.bench.plan import parse_plan
from fei.cli._app import app
from fei.core.clipgrad import RULES
from fei.models import Classifier
from fei.models.sources import import_torchvision

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
# Pages that need more than a network and images: a test of their own, here or where their networks are trained.
OWN_TEST = ("audit.md", "bench.md", "beyond-one-label.md")
PLAN = """
name = "tiny"
[[pairs]]
model = "net.py:net"
data = "photos"
[[methods]]
name = "saliency"
[metrics]
protocols = ["fei-paper"]
internal = false
"""


class Net(nn.Module):
    """A network with as many classes as ImageNet and a layer4, as the pages speak of it."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer4 = nn.Sequential(nn.Conv2d(3, 12, 3, stride=2), nn.ReLU())
            self.fc = nn.Linear(12, 1000)

    def forward(self, x):
        return 1000 * self.fc(self.layer4(x - 0.5).mean((2, 3)))  # sure of every picture


class Wrapped(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def blocks(page, kind):
    found = re.finditer(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [match[1] for match in found]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python") and page.name not in OWN_TEST], ids=lambda page: page.name
)
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = [f"class {number}" for number in range(1000)]
    labels[207] = "golden retriever"
    model = Classifier(Wrapped(Net()).eval(), input_size=24, labels=labels)
    monkeypatch.setattr(fei.models, "load", lambda spec: model)
    known = dict(RULES)
    images = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    colours = torch.tensor(list(itertools.product((0.0, 0.5, 1.0), repeat=3)))
    transformer = {
        "model": Classifier(Wrapped(tiny_vit(depth=6)).eval()), "images": torch.rand(2, 3, 12, 16),
        "maps": torch.rand(2, 1, 12, 16),
    }  # fmt: skip
    names = {
        "photographs": colours[:, :, None, None].expand(-1, -1, 24, 24),
        "fei": fei, "model": model, "images": images, "target": None,
        "maps": torch.rand(2, 1, 24, 24), "method": "random", "captum": captum, "quantus_metric": lambda *_, **__: 0,
        "NoiseTunnel": captum.attr.NoiseTunnel, "Saliency": captum.attr.Saliency,
    }  # fmt: skip
    import_torchvision()  # of the README's network, in a way that does not ask for its compiled part
    try:
        for number, code in enumerate(blocks(page, "python")):
            scope = names | transformer if "of a transformer" in code else names
            exec(compile(code, f"{page.name}, block {number + 1}", "exec"), scope)
    finally:
        for name in RULES.keys() - known:
            del RULES[name]


def test_the_python_of_the_page_on_experiments_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "photos/a.png"))
    Path("plan.toml").write_text(PLAN, encoding="utf-8")
    names = {"pandas": pandas, "duckdb": duckdb, "sqlite3": sqlite3}
    database, exported, python = blocks(PROJECT / "docs" / "bench.md", "python")
    exec(python.replace("workers=2", "workers=0"), names)  # which would start two more processes
    assert {row["metric"] for row in names["rows"]} >= {"insertion", "deletion"}
    Path("runs/first").rename("RUN")
    assert run("bench", "export", "RUN", "run.parquet") == 0
    for code in (database, exported):
        exec(code, names)


def test_the_plan_on_the_page_on_experiments_is_one():
    (text,) = blocks(PROJECT / "docs" / "bench.md", "toml")
    assert parse_plan(text).name == "mine"


def test_the_recipe_for_a_network_of_ones_own(tmp_path, monkeypatch, capsys):
    """The README's file and command, on a smaller picture, with a method that takes one pass."""
    monkeypatch.chdir(furnish(tmp_path, NETWORK, "dog.jpg", size=(48, 64)))
    (code,) = [code for code in blocks(PROJECT / "README.md", "python") if code.startswith("# mynet.py")]
    Path("mynet.py").write_text(code, encoding="utf-8")
    Path("names.txt").write_text("cat\ndog\nfox\n", encoding="utf-8")
    import_torchvision()
    torch.save({"model_state_dict": fei.models.load("mynet.py:build").network.state_dict()}, "weights.pt")
    (line,) = [line for page, line in commands() if page == "README.md" and "--labels names.txt" in line]
    words = shlex.split(line.replace("224", "32"))[1:]
    assert run(*words, "--method", "gradcam") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the central 32 × 32" in said
    assert "normalised by mean 0.485, 0.456, 0.406" in said
    assert re.search(r"explained (cat|dog|fox)", said)
    assert "note" not in said


def commands():
    for page in PAGES:
        for block in blocks(page, "console"):
            lines = re.sub(r"\\\n\s*", " ", block).splitlines()
            yield from ((page.name, line[2:]) for line in lines if line.startswith("$ fei "))


def test_commands_are_such_as_the_command_line_takes():
    told = list(commands())
    assert len(told) > 20
    for page, line in told:
        for part in re.split(r"; |&&", re.sub(r"\s#.*", "", line)):
            words = shlex.split(part)[1:]
            command, context = typer.main.get_command(app), None
            while words and hasattr(command, "commands"):
                name = words.pop(0)
                assert name in command.commands, f"{page}: {line}"
                command = command.commands[name]
            if words != ["--help"]:
                context = command.make_context(command.name, words)
                assert context.params, f"{page}: {line}"


def test_the_install_comes_first_and_names_things_as_they_are():
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    headings = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert headings[0] == "Install"
    assert headings.count("Install") == 1
    section = text.partition("## Install")[2].partition("\n## ")[0]
    table = [row for row in section.splitlines() if row.startswith("| `")]
    told = {name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert told == set(project["optional-dependencies"]) - {"test", "dev", "docs"}
    for extras in re.findall(r"\[([\w,]+)\]\"", section):
        assert set(extras.split(",")) <= told
    assert set(re.findall(r"fei-[\w.]+-py3-none-any.whl", section)) == {f"fei-{project['version']}-py3-none-any.whl"}
    assert "constraints.txt" in section
    assert (PROJECT / "constraints.txt").is_file()
