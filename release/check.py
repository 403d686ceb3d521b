"""Build the package, look at what is in it, and try it where nothing of this tree is.

    python release/check.py                        every Python that is at hand
    python release/check.py --pythons 3.11         this one alone
    python release/check.py --contents             build and look, install nothing

Source distribution and wheel are built from what git tracks, into `dist`. Each is installed into an empty environment
of Python 3.11, 3.12 and 3.13, with the versions of `constraints.txt`: first alone, where the library must work and the
command must say what it lacks, then with the extras, where the demo, a slice of the tests and the template of
`examples/own_method` are run. All of it happens in a folder outside the tree. Pythons that are not there are named and
left out; the exit code is 1 if anything that was tried fails, or if nothing could be tried.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13")
EXTRAS = "cli,serve"
BESIDE = ("pytest", "hypothesis")  # what the slice of the tests needs
SLICE = ("test_clipgrad.py", "test_contrast.py", "test_declaration.py", "test_explanation.py")
# What is in a source distribution besides the package itself.
BARE = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "MANIFEST.in", "constraints.txt", "pyproject.toml"}
WRITTEN = {"PKG-INFO", "setup.cfg"}  # by the build
LIBRARY = """
import torch
from torch import nn

import fei

torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
model, images = fei.models.Classifier(network.eval(), input_size=32), torch.rand(2, 3, 32, 32)
maps = fei.FEI(model, steps=2).attribute(images)
insertion, deletion = fei.metrics.insertion(model, images, maps), fei.metrics.deletion(model, images, maps)
print(f"fei {fei.__version__} from {fei.__file__}: insertion {insertion.auc.mean():.3f}, {deletion.auc.mean():.3f}")
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Build the package and try it in empty environments.")
    parser.add_argument("--pythons", default=",".join(VERSIONS), help="versions or paths, comma-separated")
    parser.add_argument("--contents", action="store_true", help="build and look at the contents, install nothing")
    options = parser.parse_args(arguments)
    wheel, source = build()
    wrong, tried = flaws(wheel, source, tracked()), 0
    for word in () if options.contents else options.pythons.split(","):
        python = found(word)
        if python is None:
            print(f"Python {word} is not here and was not tried.", flush=True)
            continue
        for package in (wheel, source):
            tried += 1
            wrong += [f"Python {word}, {package.name}: {what}" for what in attempts(python, package)]
    if not options.contents and not tried:
        wrong.append("No Python was found to try the packages with; install one, or name it with --pythons.")
    print("\n".join(wrong) or f"{wheel.name} and {source.name} are as they should be ({tried} environments).")
    return int(bool(wrong))


def tracked() -> set[str]:
    """The files that git knows, as they lie in the tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S607
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def build() -> tuple[Path, Path]:
    """The wheel and the source distribution, made of a copy: what earlier builds left in the tree must not get in."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="fei-release-") as made:
        for name in tracked():
            if name.startswith("src/") or name in BARE:
                copy = Path(made) / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy)
        _run(sys.executable, "-m", "build", "--outdir", DIST, made)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, source


def flaws(wheel: Path, source: Path, files: set[str]) -> list[str]:
    """What is missing from the packages, or should not be in them.

    Args:
        wheel: The wheel: the package, its data and its licence, and nothing else.
        source: The source distribution: the same, and what it takes to build it.
        files: The files of the project.
    """
    code = {name for name in files if name.startswith("src/fei/")}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    wrong = list(_compared(wheel, names - about, {name.removeprefix("src/") for name in code}))
    if not any(name.endswith("/licenses/LICENSE") for name in about):
        wrong.append(f"{wheel.name} has no licence")
    with tarfile.open(source) as archive:
        inside = {member.name.partition("/")[2] for member in archive if member.isfile()}
    inside -= {name for name in inside if name.startswith("src/fei.egg-info/")} | WRITTEN
    return [*wrong, *_compared(source, inside, code | (BARE & files))]


def _compared(package: Path, names: set[str], expected: set[str]) -> Iterator[str]:
    yield from (f"{package.name} has no {name}" for name in sorted(expected - names))
    yield from (f"{package.name} has {name}" for name in sorted(names - expected))


def attempts(python: str, package: Path) -> Iterator[str]:
    """What goes wrong where a package is installed and used: alone, then with its extras."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fei-release-") as made:
        folder = Path(made)
        print(f"{package.name} with {python} in {folder}", flush=True)
        _run(python, "-m", "venv", folder / "venv")
        own = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        install = (own / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        pinned = (*install, "--constraint", ROOT / "constraints.txt")
        if not _passes(folder, *pinned, package):
            yield "it cannot be installed"
            return
        installed = (folder / "venv").glob("[lL]ib/**/site-packages/*.dist-info")
        brought = sorted(info.name.split("-")[0] for info in installed)
        print(f"alone it brings {len(brought)} packages: {' '.join(brought)}", flush=True)
        if not _passes(folder, own / "python", "-c", LIBRARY):
            yield "the library does not work without extras"
        said = _said(folder, own / "fei", "demo")
        if 'run pip install "fei[cli]".' not in said:
            yield f"the command without its extra says: {said}"
        if not _passes(folder, *pinned, f"{package}[{EXTRAS}]", *BESIDE):
            yield "its extras cannot be installed"
            return
        if not _passes(folder, own / "fei", "demo", "--steps", "2", "--out", "out"):
            yield "the demo fails"
        if not _passes(folder, own / "python", *_pytest(_tests(folder))):
            yield "tests fail"
        template = shutil.copytree(ROOT / "examples" / "own_method", folder / "own_method")
        if not _passes(folder, *install, "--no-deps", template):
            yield "the template cannot be installed"
        elif not _passes(folder, own / "python", *_pytest(template / "tests")):
            yield "the tests of the template fail"
        elif "standing-out" not in _said(folder, own / "fei", "methods"):
            yield "the template is not listed"
    print(f"that took {time.monotonic() - started:.0f} s", flush=True)


def found(word: str) -> str | None:
    """A Python that works, by its version or path: on the PATH, or one that pyenv has."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [f"python{word}", word, *map(str, sorted(folder.glob(f"{word}.*/bin/python"), reverse=True))]
    return next((place for place in places if shutil.which(place) and _works(place)), None)


def _works(python: str) -> bool:
    """Version managers leave commands on the PATH that only fail."""
    return subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode == 0


def _tests(folder: Path) -> Path:
    """A slice of the tests, with what they share, away from the tree."""
    tests = folder / "tests"
    tests.mkdir()
    for file in (ROOT / "tests").glob("*.py"):
        if file.name in SLICE or not file.name.startswith("test_"):
            shutil.copy(file, tests)
    return tests


def _pytest(tests: Path) -> tuple[object, ...]:
    return "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestUnknownMarkWarning", tests


def _environment() -> dict[str, str]:
    """Without what would let Python find this tree."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _passes(folder: Path, *words: object) -> bool:
    return subprocess.run(list(map(str, words)), cwd=folder, env=_environment(), check=False).returncode == 0


def _said(folder: Path, *words: object) -> str:
    done = subprocess.run(
        list(map(str, words)), cwd=folder, env=_environment(), check=False, capture_output=True, text=True
    )
    return (done.stdout + done.stderr).strip()


def _run(*words: object) -> None:
    subprocess.run(list(map(str, words)), env=_environment(), check=True)


if __name__ == "__main__":
    sys.exit(main())
