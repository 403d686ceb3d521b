"""Damaged files given to the commands: all the way from the words typed to the words printed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from _fuzz_data import Data
from _fuzz_exports import Exports
from _fuzz_images import Images, seeds
from _fuzz_mutate import json_text, mutate_bytes, mutate_json
from _fuzz_plans import Plans
from _fuzz_runs import PLAN, Stores, run_files
from _fuzz_tensors import NETWORK, Checkpoints
from _fuzz_worker import Case, wrong_words

from fei.cli._app import run
from fei.data import read_image

_EXPLAIN = "explain {0}/image --model {0}/net.py:tiny{1} --method saliency --out {0}/out"
_KINDS = ("image", "checkpoint", "plan", "run", "run", "run", "report", "export", "data", "record", "record")


class Commands:
    """The commands, in this process; their answers are judged as a terminal shows them."""

    name = "commands"
    max_bytes = Images.max_bytes

    def valid(self) -> Sequence[Case]:
        """Whole files for the commands that can work on them at once."""
        files = self._beside()
        return [
            Case({**files, "image": _photo()}, "image", (_EXPLAIN.format("{0}", ""),)),
            Case({**files, **_run()}, "run/run.sqlite", ("bench status {0}/run",)),
            Case({**files, **_run()}, "run/run.sqlite", ("bench report {0}/run --html",)),
            Case({**files, **_record()}, "fei-out/r.json", ("reproduce {0}/fei-out/r.json",)),
        ]

    def make(self, rng: Random) -> Case:
        """A case of another target, or the record of a result, with a command that reads such a file."""
        kind, files = rng.choice(_KINDS), self._beside()
        if kind == "image":
            return Case({**files, **Images().make(rng).files}, "image", (_EXPLAIN.format("{0}", ""),))
        if kind == "checkpoint":
            case = Checkpoints().make(rng)
            return Case(
                {**files, "image": _photo(), **case.files},
                case.victim,
                (_EXPLAIN.format("{0}", ":{0}/" + case.ask[0]),),
            )
        if kind == "plan":
            return Case(Plans().make(rng).files, "plan.toml", ("bench run {0}/plan.toml --out {0}/new",))
        if kind == "export":
            case = Exports().make(rng)
            words = "bench run {0}/plan.toml --out {0}/new --reuse {0}/" + case.ask[0]
            return Case({**files, "plan.toml": PLAN.encode(), **case.files}, case.victim, (words,))
        if kind == "data":
            case = Data().make(rng)
            words = f"explain {case.ask[0]} --model {{0}}/net.py:tiny --method saliency --out {{0}}/out --sample 1"
            return Case({**files, **case.files}, case.victim, (words.replace("{}", "{0}"),))
        if kind == "record":
            record = json.loads(_record()["fei-out/r.json"])
            text = json_text(rng, mutate_json(rng, record)).encode("utf-8", "replace")
            text = mutate_bytes(rng, text, 2) if rng.random() < 0.1 else text
            return Case(
                {**files, **_record(), "fei-out/r.json": text}, "fei-out/r.json", ("reproduce {0}/fei-out/r.json",)
            )
        case = Stores().make(rng)
        other = {f"other/{name}": content for name, content in run_files().items()}
        uses = ("report {0}/run",) if kind == "report" else _RUN_COMMANDS
        return Case({**files, **other, **case.files}, case.victim, ("bench " + rng.choice(uses),))

    def read(self, folder: Path, ask: tuple[str, ...]) -> None:
        """Run the command, and judge its exit code and what it prints."""
        words = [word.format(folder) for word in ask[0].split()]
        here, printed, told = os.getcwd(), io.StringIO(), io.StringIO()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
                code = run(words)
        finally:
            os.chdir(here)
        if code not in (0, 1, 2):
            raise AssertionError(f"exit code {code}")
        for text in (printed.getvalue(), told.getvalue()):
            if "Traceback" in text:
                raise AssertionError(f"a traceback was shown: {text[:200]!r}")
        errors = [line for line in told.getvalue().split("\n") if line.startswith("error: ")]
        if code == 2 and not errors:
            raise AssertionError(f"exit code 2 without a word: {told.getvalue()[:200]!r}")
        for line in errors:
            wrong = "an unexpected error" if line.startswith("error: unexpected ") else wrong_words(line)
            if wrong:
                raise AssertionError(f"{wrong}: {line[:300]!r}")

    @staticmethod
    def _beside() -> dict[str, bytes]:
        return {"net.py": NETWORK.encode()}


_RUN_COMMANDS = (
    *(
        "status {0}/run",
        "status {0}/run --json",
        "show {0}/run aaaa",
        "export {0}/run {0}/t.csv",
        "diff {0}/run {0}/other",
    ),
    *(
        "merge {0}/run {0}/other --out {0}/both",
        "resume {0}/run",
        "run {0}/run/plan.toml --out {0}/new --reuse {0}/run",
    ),
)


def _photo() -> bytes:
    return next(seed for seed in seeds() if seed.startswith(b"\xff\xd8"))


def _run() -> dict[str, bytes]:
    return {f"run/{name}": content for name, content in run_files().items()}


@cache
def _record() -> dict[str, bytes]:
    """The record, picture and map of an explanation, and its image; paths in it count from the case's folder."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("net.py").write_text(NETWORK, encoding="utf-8")
            Path("r.jpg").write_bytes(_photo())
            read_image("r.jpg")
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                code = run(["explain", "r.jpg", "--model", "net.py:tiny", "--method", "saliency", "--device", "cpu"])
            if code:
                raise RuntimeError(f"no record was written, exit code {code}")
            files = [Path("r.jpg"), *(file for file in Path("fei-out").iterdir() if file.suffix in (".json", ".npy"))]
            return {str(file): file.read_bytes() for file in sorted(files)}
        finally:
            os.chdir(here)
