"""What the pages tell to type works: Python is run, commands are read as the command line reads them."""

import re
import shlex
import tomllib
from pathlib import Path

import captum.attr
import pytest
import torch
import typer
from torch import nn

import fei
from fei.cli._app import app
from fei.core.clipgrad import RULES
from fei.models import Classifier

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
OWN_TEST = "beyond-one-label.md"  # whose networks are trained in tests/test_beyond_one_label.py
# These need a run, a cluster, a transformer, photographs or a package of their own, and are tested where these are.
ELSEWHERE = ("pandas.", "duckdb.", "load_plan", "import torchvision", "blocks.5.attn", "fei.audit(")


class Net(nn.Module):
    """A network with as many classes as ImageNet and a layer4, as the pages speak of it."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer4 = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.ReLU())
            self.fc = nn.Linear(6, 1000)

    def forward(self, x):
        return self.fc(self.layer4(x).mean((2, 3)))


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)


def blocks(page, kind):
    found = re.finditer(rf"^```{kind}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [match[1] for match in found]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python") and page.name != OWN_TEST], ids=lambda page: page.name
)
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = [f"class {number}" for number in range(1000)]
    labels[207] = "golden retriever"
    model = Classifier(Wrapped().eval(), input_size=24, labels=labels)
    monkeypatch.setattr(fei.models, "load", lambda spec: model)
    known = dict(RULES)
    images = torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    names = {
        "fei": fei, "model": model, "images": images, "target": None,
        "maps": torch.rand(2, 1, 24, 24), "method": "random", "captum": captum, "quantus_metric": lambda *_, **__: 0,
        "NoiseTunnel": captum.attr.NoiseTunnel, "Saliency": captum.attr.Saliency,
    }  # fmt: skip
    ran = 0
    try:
        for number, code in enumerate(blocks(page, "python")):
            if not any(word in code for word in ELSEWHERE):
                code = re.sub(r".*grid_pointing_game.*", "", code)  # which needs nine confident photographs
                exec(compile(code, f"{page.name}, block {number + 1}", "exec"), names)
                ran += 1
    finally:
        for name in RULES.keys() - known:
            del RULES[name]
    assert ran or page.name in ("audit.md", "bench.md")


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
    assert told == set(project["optional-dependencies"]) - {"test", "dev"}
    for extras in re.findall(r"\[([\w,]+)\]\"", section):
        assert set(extras.split(",")) <= told
    assert set(re.findall(r"fei-[\w.]+-py3-none-any.whl", section)) == {f"fei-{project['version']}-py3-none-any.whl"}
    assert "constraints.txt" in section
    assert (PROJECT / "constraints.txt").is_file()
