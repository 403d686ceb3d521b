"""``fei trust``: are a method's maps about the class and the network, and the same with another seed?"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import aside, command_line, find_images, print_json, print_table, say
from fei.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from fei.metrics.grid import GridPointing
    from fei.service import Inquiry

_FEWEST = 5  # images that an interval is given for
_ENDING = ".trust.json"
_MAPS = 8  # of each image, besides those of mosaics


@opt.told
def trust(
    images: opt.Images,
    model: opt.Model = opt.MODEL,
    method: Annotated[str, typer.Option(metavar="NAME", help="The method; see 'fei methods'.")] = "fei",
    size: Annotated[int, typer.Option(min=2, help="Photographs per side of a mosaic.")] = 2,
    confidence: Annotated[float, typer.Option(help="Least probability of the photographs in mosaics.")] = 0.9,
    out: opt.Out = opt.OUT,
    seed: opt.Seed = 0,
    steps: opt.Steps = None,
    preset: opt.Preset = None,
    device: opt.Device = "auto",
    reference: opt.Reference = None,
    batch_size: opt.BatchSize = None,
    option: opt.Options = None,
    sample: opt.Sample = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Test whether a method's maps can be trusted: do they depend on what they should, and on nothing else?

    They should change with the class and the weights, stay with another seed, and point at their class in a mosaic.

    Prints a table with a verdict in words for each, and writes all numbers (.trust.json).
    """
    import torch

    from fei.common.files import prepare_folder, write_files
    from fei.core.checks import check_between
    from fei.service import Inquiry, Request, look
    from fei.service.outputs import free_name
    from fei.service.record import digest, record_text, versions

    given = {"steps": steps, "preset": preset}
    rest: dict[str, Any] = {"seed": seed, "device": device, "reference": reference, "batch_size": batch_size}
    request = Request.of(model, [method], given, option or [], **rest)
    check_between("confidence", confidence)
    folder = Path(out)
    with aside():
        inquiry = Inquiry.of(request)
        notes = inquiry.notes  # for which the network is looked at
        files = find_images(images, sample, seed)
        seen = [look(inquiry.model, file) for file in files]  # what cannot be read is told before the long work
        prepare_folder(folder)
        started = time.perf_counter()
        inputs = torch.cat([each.inputs for each in seen])
        results = _measure(
            inquiry, inputs, {"size": size, "confidence": confidence}, progress=not as_json and sys.stderr.isatty()
        )
        seconds = time.perf_counter() - started
    options = {
        "--model": model,
        "--method": request.method,
        "--size": size,
        "--confidence": confidence,
        "--sample": sample,
        "--seed": seed,
        "--steps": steps,
        "--preset": preset,
        "--device": device,
        "--reference": reference,
        "--batch-size": batch_size,
    }
    words = ["trust", *images, *(word for text in option or [] for word in ("--option", text))]
    document: dict[str, Any] = {
        "schema": 1,
        "images": [
            {"path": str(file), "sha256": digest(file), "target": vars(each.guesses[0])}
            for file, each in zip(files, seen, strict=True)
        ],
        "model": model,
        "method": request.method,
        "notes": notes,
        "size": size,
        "confidence": confidence,
        "results": results,
        "seed": seed,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "request": request.model_dump(mode="json"),
        "command": command_line(words, options),
    }
    name = re.sub(r"[^\w.+-]", "-", request.method)
    name = (name if force else free_name(folder, [name], document, [_ENDING])) + _ENDING
    write_files(folder, {name: record_text(document)})
    named = {"record": str(folder / name)}
    if as_json:
        print_json(document | {"files": named})
    else:
        _say_result(document, named)


def _measure(inquiry: Inquiry, inputs: Tensor, grid: dict[str, Any], *, progress: bool) -> list[dict[str, Any]]:
    """What each test found, as plain data."""
    from fei.metrics import class_sensitivity, grid_pointing_game, stability, weight_sensitivity
    from fei.progress import part, reporter

    method: Any
    (method,) = inquiry.methods.values()
    count = len(inputs)
    in_mosaics = count // grid["size"] ** 2 * grid["size"] ** 2
    common: dict[str, Any] = {"generator": inquiry.generator, "batch_size": inquiry.batch_size}
    given: dict[str, Any] = {} if inquiry.reference is None else {"reference": inquiry.reference}
    with reporter(progress, _MAPS * count + in_mosaics) as tick:
        with part(tick, count) as report:
            maps = method(inquiry.model, inputs, progress=report, **given, **common)

        def ask(test: Any, asked: int = 1) -> Any:
            with part(tick, asked * count) as report:
                told = {"references": [inquiry.reference]} if test is stability else given
                return test(inquiry.model, method, inputs, maps=maps, progress=report, **told, **common)

        classes, weights = ask(class_sensitivity, 2), ask(weight_sensitivity, 4)
        found = {
            "random_class": _numbers(classes.random.correlation, classes.random.flat),
            "runner_up": _numbers(classes.runner_up.correlation, classes.runner_up.flat),
            "stability": _numbers(ask(stability).correlation),
            "classifier_randomization": _numbers(weights.classifier.correlation, weights.classifier.flat),
            "cascade": _numbers(weights.cascade.correlation, weights.cascade.flat),
            "emprt": _numbers(weights.complexity.rise, weights.complexity.flat),
        }
        try:
            with part(tick, in_mosaics) as report:
                game = grid_pointing_game(inquiry.model, method, inputs, progress=report, **grid, **given, **common)
        except InputError as error:  # too few photographs for a mosaic
            found["grid_rank"] = {"n": 0, "verdict": str(error)}
        else:
            found["grid_rank"] = _numbers(game.rank.mean(1)) | _of_grid(game)
    return _judged(found)


def _numbers(values: Tensor, flat: Tensor | None = None) -> dict[str, Any]:
    """One number per image, their mean and its interval."""
    from fei.metrics import bootstrap_interval

    return {
        "n": len(values),
        "mean": values.mean().item(),
        "interval": bootstrap_interval(values) if len(values) >= _FEWEST else None,
        "values": values.tolist(),
    } | ({} if flat is None else {"flat": int(flat.sum())})


def _of_grid(game: GridPointing) -> dict[str, Any]:
    names = ("rank", "energy", "classes", "photographs")
    return {"chance": game.chance, "cells": {name: getattr(game, name).tolist() for name in names}}


def _judged(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Each test with what is asked of it, and the verdict."""
    from fei.metrics import describe
    from fei.metrics.criteria import CRITERIA

    rows = []
    for criterion in CRITERIA:
        numbers = found[criterion.metric]
        chance = numbers.get("chance", 0.0)
        asked = {"metric": criterion.metric, "about": criterion.about, "measure": describe(criterion.metric).heading}
        asked |= {"limit": criterion.limit + chance}
        if numbers["n"]:
            numbers = numbers | {"verdict": criterion.verdict(numbers["mean"], numbers["interval"], chance)}
        rows.append(asked | numbers)
    return rows


def _say_result(document: dict[str, Any], files: dict[str, str]) -> None:
    say(f"{document['method']} on {document['model']}, {len(document['images'])} image(s), seed {document['seed']}")
    rows = [[row["about"], row["measure"], *_cells(row)] for row in document["results"]]
    print_table(["property", "measure", "mean", "chance", "verdict"], rows, words=True)
    for row in document["results"]:
        if not row["n"]:
            say(row["verdict"])
    say(f"ρ is the rank correlation of two maps; in brackets are 95 % intervals, from {_FEWEST} images on.")
    for text in document["notes"]:
        say(f"Note: {text}")
    if any(row.get("flat") for row in document["results"]):
        say("Flat is a map of which more than half is tied; in a correlation it counts as the same map.")
    for file in files.values():
        say(file)


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["n"]:
        return ["–", "–", "not measured"]
    interval = "" if row["interval"] is None else " [{:.2f}, {:.2f}]".format(*row["interval"])
    chance = f"{row['chance']:.2f}" if "chance" in row else "–"
    mosaics = f", {row['n']} mosaic(s)" if "chance" in row else ""
    flat = f"; {row['flat']} flat" if row.get("flat") else ""
    return [f"{row['mean']:.2f}{interval}{mosaics}", chance, row["verdict"] + flat]
