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
_CHECKPOINT = re.compile(r":(?:[A-Za-z]:[\\/])?[^:]*\.(?:safetensors|pt|pth)$")


def finetune(
    data: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="Images with labels: cub:DIR, imagefolder:DIR, csv:FILE, voc:DIR.",
            show_default=False,
        ),
    ],
    model: opt.Model = "efficientnet_lite0",
    test: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Images to test on; the test split of cub:DIR, or a held-out fifth, if not given.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="Where the weights go, a .safetensors file.")
    ] = "fei-out/finetuned.safetensors",
    whole: Annotated[bool, typer.Option("--whole", help="Train all weights, and not only the last layer.")] = False,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="The most passes over the images: 500, or 20 with --whole.", show_default=False),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Step of Adam, with --whole: 1e-5 if not given.", show_default=False)
    ] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(
            help="Penalty on the last layer's weights; chosen on a held-out fifth, or 0.001, if not given.",
            show_default=False,
        ),
    ] = None,
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
    from fei.service.record import versions

    file, where = _checked_file(out), choose_device(device)
    images, tests = training.load_sets(data, test, seed)
    classifier = load(model).to(where)
    prepare_folder(file.parent)
    show = not as_json and sys.stderr.isatty()
    started = time.perf_counter()
    result = training.finetune(
        classifier, images, whole=whole, epochs=epochs, lr=lr, weight_decay=weight_decay, batch_size=batch_size,
        seed=seed, progress=show, tell=note if show else lambda _: None,
    )  # fmt: skip
    score = None if tests is None or result.interrupted else _tested(result.classifier, tests, batch_size, show)
    options = {
        "--model": model,
        "--data": data,
        "--test": test,
        "--out": out,
        "--epochs": epochs,
        "--lr": (lr or training.LR) if whole else None,
        "--weight-decay": result.weight_decay,
        "--batch-size": batch_size,
        "--seed": seed,
        "--device": where.type,
    }
    report = _report(images, tests, result, score, whole) | {
        "settings": {name.removeprefix("--").replace("-", "_"): value for name, value in options.items()},
        "seconds": round(time.perf_counter() - started, 3),
        "versions": versions(),
        "command": command_line(["finetune", *(["--whole"] if whole else [])], options),
    }
    spec = _CHECKPOINT.sub("", model)
    training.save(result.classifier, file, spec=spec, report=report)
    example = (tests or images)[0].path
    following = shlex.join(["fei", "explain", str(example), "--model", f"{spec}:{file}"])
    if as_json:
        print_json(report | {"file": str(file), "spec": f"{spec}:{file}", "next": following})
    else:
        _say_problems(report)
        _say_result(result, report, file)
        say(f"\nExplain an image with it:\n\n  {following}")


def _report(
    images: Dataset, tests: Dataset | None, result: Finetuned, score: Score | None, whole: bool
) -> dict[str, Any]:
    """How the training went, as plain data."""
    labels = result.classifier.labels or []
    return {
        "schema": 1,
        "data": images.spec,
        "test": None if tests is None else tests.spec if tests.spec != images.spec else "a held-out fifth",
        "trained": "whole" if whole else "head",
        "head": result.head.removeprefix("network."),
        "accuracy": {"train": result.accuracy, "test": None if score is None else score.accuracy},
        "images": {
            "train": result.images,
            "validation": result.validation_images,
            "test": 0 if score is None else score.images,
        },
        "classes": {"all": len(labels), "trained": result.trained_classes},
        "weight_decay": result.weight_decay,
        "steps": result.steps,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "interrupted": result.interrupted,
        "skipped": [*result.skipped, *(() if score is None else score.skipped)],
        "problems": list(dict.fromkeys([*images.problems, *(() if tests is None else tests.problems)])),
    }


def _checked_file(out: str) -> Path:
    file = Path(out)
    if file.suffix != ".safetensors":
        raise InputError(f"--out is '{out}'; give the name of a file that ends in .safetensors.")
    if ":" in os.path.splitdrive(out)[1]:
        raise InputError(f"--out is '{out}'; give a name without a colon, which --model SPEC:FILE could not read.")
    if file.is_dir():
        raise InputError(f"--out is '{out}', a folder; give the name of a file.")
    return file


def _tested(classifier: Classifier, tests: Dataset, batch_size: int, show: bool) -> Score | None:
    """The score on the test images; None where there is none in the end, as the training is worth keeping."""
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
    for sentences, what in (
        (report["problems"], "problems with the data set"),
        (report["skipped"], "images could not be read and were left out"),
    ):
        more = len(sentences) - _MOST_NAMED
        named = [*sentences[:_MOST_NAMED], *([f"and {more} more, which --json lists"] if more > 0 else [])]
        if named:
            note("\n  ".join([f"warning: {len(sentences)} {what}:", *named]))
    if report["trained"] == "whole" and not report["images"]["validation"]:
        note(
            "warning: with fewer than 5 images a class none could be held out to say when to stop; the last layer "
            "alone is often better, so try without --whole."
        )


def _say_result(result: Finetuned, report: dict[str, Any], file: Path) -> None:
    """The result in a few lines for a person."""
    classes, trained, images, accuracy = (report[key] for key in ("classes", "trained", "images", "accuracy"))
    absent = classes["all"] - classes["trained"]
    how = f"the last layer, {report['head']}"
    if trained == "whole":
        how = f"all weights, best in epoch {result.best_epoch} of {result.epochs}"
    held = f", {images['validation']} of them to validate" if images["validation"] else ""
    lines = [
        (
            "classes",
            f"{classes['all']}" + (f", of which {absent} have no image and are not predicted" if absent else ""),
        ),
        ("trained", f"{how}, on {images['train']} images{held}, {report['seconds']:.0f} s"),
        ("settings", f"weight decay {result.weight_decay:g}, seed {report['settings']['seed']}"),
    ]
    if accuracy["train"] is not None:
        lines.append(("training", f"{accuracy['train']:.1%} of {images['train']} images right"))
    if accuracy["test"] is not None:
        which = ", held out before the training," if report["test"] == "a held-out fifth" else ""
        chance = f"{1 / classes['trained']:.1%} by chance"
        lines.append(("test", f"{accuracy['test']:.1%} of {images['test']} images{which} right; {chance}"))
    elif report["test"] is None:
        lines.append(("test", "none; each class needs 5 images to hold some out, or give others with --test"))
    else:
        lines.append(("test", "not finished"))
    if result.interrupted:
        say("Interrupted; the best weights so far are kept.")
    say("\n".join(f"{name:<8}  {value}" for name, value in [*lines, ("weights", str(file))]))
