"""``fei finetune``: a network for classes of the user's own."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import command_line, note, print_json, say
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.data import Dataset
    from fei.models import Classifier
    from fei.models.finetune import Finetuned, Score

_MOST_NAMED = 10

# A checkpoint at the end of a specification; its colon may be followed by that of a Windows drive.
_CHECKPOINT = re.compile(r":(?:[A-Za-z]:[\\/])?[^:]*\.(?:safetensors|pt|pth|ckpt|bin|tar)$")

_DATA = "Images with labels: cub:DIR, imagefolder:DIR, csv:FILE, voc:DIR."
_TEST = "Images to test on; the test split of cub:DIR, or a held-out fifth, if not given."
_DECAY = "Penalty on the last layer's weights; chosen on a held-out fifth, or 0.001, if not given."


@opt.told
def finetune(
    data: Annotated[str, typer.Option(metavar="SPEC", help=_DATA)],
    model: opt.Model = opt.MODEL,
    test: Annotated[str | None, typer.Option(metavar="SPEC", help=_TEST)] = None,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Where the weights go, a .safetensors file.")
    ] = "fei-out/finetuned.safetensors",
    whole: Annotated[bool, opt.flag("--whole", "Train all weights, not only the last layer.")] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="The most passes over the images: 500, or 20 with --whole.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Step of Adam, with --whole: 1e-5 if not given.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help=_DECAY)] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images in one pass; fewer need less memory.")] = 16,
    seed: opt.Seed = 0,
    device: opt.Device = "auto",
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Train a network on images of other classes, and write weights that --model SPEC:FILE takes.

    By default only the last layer is trained, which takes one pass over the images.

    Ctrl-C ends the training and keeps the best so far.
    """
    from fei.common.device import choose_device
    from fei.common.files import prepare_folder
    from fei.models import finetune as training
    from fei.models import load
    from fei.models.preprocessing import join_spec, split_spec
    from fei.service.record import versions

    file, where = _checked_file(out), choose_device(device)
    images, tests = training.load_sets(data, test, seed)
    classifier = load(model).to(where)
    prepare_folder(file.parent)
    show = not as_json and sys.stderr.isatty()
    started = time.perf_counter()
    settings: dict[str, Any] = {"epochs": epochs, "lr": lr, "weight_decay": weight_decay, "batch_size": batch_size}
    tell = note if show else lambda _: None
    result = training.finetune(classifier, images, whole=whole, seed=seed, progress=show, tell=tell, **settings)
    score = None if tests is None or result.interrupted else _tested(result.classifier, tests, batch_size, show)
    used = {"lr": (lr or training.LR) if whole else None, "weight_decay": result.weight_decay}
    settings = {"model": model, "data": data, "test": test, "out": out, **settings, **used}
    settings |= {"seed": seed, "device": where.type}
    options = {f"--{name.replace('_', '-')}": value for name, value in settings.items()}
    report = _report(images, tests, result, score, whole) | {
        "settings": settings,
        "seconds": round(time.perf_counter() - started, 3),
        "versions": versions(),
        "command": command_line(["finetune", *(["--whole"] if whole else [])], options),
    }
    bare, told = split_spec(model)
    spec = _CHECKPOINT.sub("", bare)
    training.save(result.classifier, file, spec=spec, report=report)
    example = (tests or images)[0].path
    trained = join_spec(f"{spec}:{file}", {name: value for name, value in told.items() if name != "labels"})
    following = shlex.join(["fei", "explain", str(example), "--model", trained])
    if as_json:
        print_json(report | {"file": str(file), "spec": trained, "next": following})
    else:
        _say_problems(report)
        _say_result(report, file)
        say(f"\nExplain an image with it:\n\n  {following}")


def _report(
    images: Dataset, tests: Dataset | None, result: Finetuned, score: Score | None, whole: bool
) -> dict[str, Any]:
    """How the training went, as plain data."""
    tested: dict[str, Any] = {"accuracy": None, "images": 0, "skipped": ()}
    if score is not None:
        tested = {name: getattr(score, name) for name in tested}
    problems = [*images.problems, *(() if tests is None else tests.problems)]
    return {
        "schema": 1,
        "data": images.spec,
        "test": None if tests is None else tests.spec if tests.spec != images.spec else "a held-out fifth",
        "trained": "whole" if whole else "head",
        "head": result.head.removeprefix("network."),
        "accuracy": {"train": result.accuracy, "test": tested["accuracy"]},
        "images": {"train": result.images, "validation": result.validation_images, "test": tested["images"]},
        "classes": {"all": len(result.classifier.labels or []), "trained": result.trained_classes},
        **{name: getattr(result, name) for name in ("weight_decay", "steps", "epochs", "best_epoch", "interrupted")},
        "skipped": [*result.skipped, *tested["skipped"]],
        "problems": list(dict.fromkeys(problems)),
    }


def _checked_file(out: str) -> Path:
    file = Path(out)
    if file.suffix != ".safetensors":
        raise InputError(f"`--out` is '{out}'; give the name of a file that ends in .safetensors.")
    if ":" in os.path.splitdrive(out)[1]:
        raise InputError(f"`--out` is '{out}'; give a name without a colon, which --model SPEC:FILE could not read.")
    if file.is_dir():
        raise InputError(f"`--out` is '{out}', a folder; give the name of a file.")
    return file


def _tested(classifier: Classifier, tests: Dataset, batch_size: int, show: bool) -> Score | None:
    """The score on the test images; None where the test fails, since the training is worth keeping."""
    from fei.models.finetune import measure

    if show:
        note(f"Testing on {len(tests)} images")
    try:
        return measure(classifier, tests, batch_size=batch_size, progress=show)
    except KeyboardInterrupt:
        note("The test was interrupted; the weights are kept.")
    except DataError as error:
        note(f"warning: {error}")
    return None


def _say_problems(report: dict[str, Any]) -> None:
    """Tell what was left out, and what to think of the result."""
    what = {"problems": "problems with the data set", "skipped": "images could not be read and were left out"}
    for key in what:
        more = len(report[key]) - _MOST_NAMED
        named = [*report[key][:_MOST_NAMED], *([f"and {more} more, which --json lists"] if more > 0 else [])]
        if named:
            note("\n  ".join([f"warning: {len(report[key])} {what[key]}:", *named]))
    if report["trained"] == "whole" and not report["images"]["validation"]:
        why = "with fewer than 5 images per class none could be held out to say when to stop"
        note(f"warning: {why}; the last layer alone is often better, so try without --whole.")


def _say_result(report: dict[str, Any], file: Path) -> None:
    """The result in a few lines for a person."""
    classes, images, accuracy = report["classes"], report["images"], report["accuracy"]
    absent = classes["all"] - classes["trained"]
    how = f"the last layer, {report['head']}"
    if report["trained"] == "whole":
        how = f"all weights, best in epoch {report['best_epoch']} of {report['epochs']}"
    held = f", {images['validation']} of them to validate" if images["validation"] else ""
    lines = {
        "classes": f"{classes['all']}" + (f", of which {absent} have no image and are not predicted" if absent else ""),
        "trained": f"{how}, on {images['train']} images{held}, {report['seconds']:.0f} s",
        "settings": f"weight decay {report['weight_decay']:g}, seed {report['settings']['seed']}",
    }
    if accuracy["train"] is not None:
        lines["training"] = f"{accuracy['train']:.1%} of {images['train']} images right"
    lines["test"] = "not finished"
    if accuracy["test"] is not None:
        which = ", held out before the training," if report["test"] == "a held-out fifth" else ""
        chance = f"{1 / classes['trained']:.1%} by chance"
        lines["test"] = f"{accuracy['test']:.1%} of {images['test']} images{which} right; {chance}"
    elif report["test"] is None:
        lines["test"] = "none; each class needs 5 images to hold some out, or give others with --test"
    if report["interrupted"]:
        say("Interrupted; the best weights so far are kept.")
    say("\n".join(f"{name:<8}  {value}" for name, value in (lines | {"weights": str(file)}).items()))
