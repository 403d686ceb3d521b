"""Computing a result again: the record of an explanation, or a unit of a run."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fei._request import Request
from fei.cli._outputs import MAP, RECORD
from fei.cli.reproduce import Comparison, rank_correlation
from fei.errors import DataError, InputError

if TYPE_CHECKING:
    from fei.cli._job import Job

_LARGEST = 100_000_000  # bytes of a record
_FORMAT = ("chunk_rows", "device", "dtype", "channels_last")


def repeat(result: str, threads: int | None, device: str, *, progress: bool) -> Comparison:
    """Compute a result again and compare.

    Args:
        result: A file, or RUN#KEY.
        threads: Torch's threads; those of the result if None.
        device: Where a unit is computed; an explanation is computed where it was.
        progress: Whether to show a bar.

    Raises:
        InputError: If there is no such result.
        DataError: If it cannot be computed again, as its image or network changed.
    """
    if not Path(result).is_file() and "#" in result:
        from fei.bench.store import Store
        from fei.cli._bench_unit import unit_document

        folder, _, key = result.rpartition("#")
        with Store.open(Path(folder), readonly=True) as store:
            return _repeat_unit(unit_document(store, key), threads, device)
    document = _read(Path(result))
    if {"unit", "plan", "scores"} <= document.keys():
        return _repeat_unit(document, threads, device)
    if str(document.get("command", "")).startswith("fei explain "):
        return _repeat_explanation(Path(result), document, threads, progress)
    raise InputError(f"'{result}' is no record of 'fei explain' or 'fei bench show'; give one of these, or RUN#KEY.")


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LARGEST:
            raise InputError(f"'{file}' is too large to be a record; give the .json file of a result.")
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The result '{file}' cannot be read ({error.strerror}); check the path.") from error
    except ValueError as error:
        raise InputError(f"'{file}' is no JSON; give the .json file of a result.") from error
    if not isinstance(document, dict):
        raise InputError(f"'{file}' is no record of a result; give the .json file of one.")
    return document


def _repeat_unit(document: dict[str, Any], threads: int | None, device: str) -> Comparison:
    from fei.bench.units import MAP as MAP_KIND
    from fei.cli._bench_unit import compute_again

    if document["status"] != "done":
        raise InputError(
            f"The unit '{document['unit']}' failed ({document['error']}); there is nothing to compare with."
        )
    with contextlib.redirect_stdout(sys.stderr):
        outcome = compute_again(document, threads=threads or document["threads"], device=device)
    then = {_score_name(*score.values()): score["value"] for score in document["scores"]}
    now = {_score_name(*score): None if math.isnan(score[3]) else score[3] for score in outcome.scores}
    # the run may have measured more, or less, under another plan of before
    both = {name: (value, now[name]) for name, value in then.items() if name in now}
    old = np.load(document["map"], allow_pickle=False) if document["map"] and Path(document["map"]).is_file() else None
    same_map = old is None or outcome.map is None or np.array_equal(old, outcome.map)
    wanted = "insertion" if document["kind"] == MAP_KIND else ""
    return Comparison(
        identical=same_map and all(value == again for value, again in both.values()),
        conditions=_conditions(
            {"threads": document["threads"], **_versions(document["versions"])},
            {"threads": outcome.threads, **_versions(_here())},
        ),
        spearman=None if old is None or outcome.map is None else rank_correlation(old, outcome.map),
        scores={
            name: (value, again)
            for name, (value, again) in both.items()
            if name.startswith(wanted) and value is not None and again is not None
        },
    )


def _repeat_explanation(file: Path, record: dict[str, Any], threads: int | None, progress: bool) -> Comparison:
    from fei.bench.engines import torch_threads
    from fei.cli._job import Job

    stored = file.with_name(file.name.removesuffix(RECORD) + MAP)
    if not stored.is_file():
        raise InputError(f"The map '{stored}' of the record is not there; keep it beside the record.")
    image, request = _request(record)
    if hashlib.sha256(image.read_bytes()).hexdigest() != record["image"]["sha256"]:
        raise DataError(f"The image '{image}' is not the one that the record tells of; restore it.")
    with torch_threads(threads or record["config"].get("threads")), tempfile.TemporaryDirectory() as folder:
        job = Job(request)
        again = job.explain(image, Path(folder), "again", progress=progress)
        old = np.load(stored, allow_pickle=False)
        new = np.load(Path(folder) / f"again{MAP}", allow_pickle=False)
        identical = bool(np.array_equal(old, new))
        scores = {} if identical or old.shape != new.shape else _insertion(job, image, record, old, new)
    return Comparison(
        identical,
        _conditions(_circumstances(record), _circumstances(again)),
        rank_correlation(old, new),
        scores,
    )


def _request(record: dict[str, Any]) -> tuple[Path, Request]:
    """What was asked for, from the command in the record."""
    words = shlex.split(record["command"])[2:]
    image, rest = Path(words[0]), words[1:]
    options = [value for name, value in zip(rest[::2], rest[1::2], strict=True) if name == "--option"]
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    if not image.is_file():
        raise InputError(f"There is no image '{image}' here; go to the folder where 'fei explain' was called.")

    def number(name: str) -> int | None:
        return int(given[name]) if name in given else None

    request = Request(
        given["--model"], given["--method"], given.get("--target"), int(given["--seed"]), number("--steps"),
        given.get("--preset"), given.get("--device", "auto"), given.get("--reference"), number("--batch-size"),
        tuple(options),
    )  # fmt: skip
    return image, request


def _insertion(job: Job, image: Path, record: dict[str, Any], *maps: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The insertion of both maps, under the paper's protocol."""
    import torch

    from fei.data import read_image
    from fei.metrics import insertion

    inputs = job.classifier.preprocess(read_image(image))[None].to(job.device)
    values = [
        insertion(
            job.classifier,
            inputs,
            torch.from_numpy(values)[None, None].to(job.device),
            record["target"]["index"],
            reference=job.request.reference,
            generator=torch.Generator().manual_seed(record["seed"]),
        ).auc.item()
        for values in maps
    ]
    return {"insertion": tuple(values)}


def _circumstances(record: dict[str, Any]) -> dict[str, Any]:
    config = record["config"]
    return {name: config.get(name) for name in ("threads", *_FORMAT)} | _versions(record["versions"])


def _conditions(then: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What was recorded then and is otherwise now."""
    return {
        name: (then[name], now.get(name)) for name in then if then[name] is not None and then[name] != now.get(name)
    }


def _versions(versions: dict[str, str]) -> dict[str, str | None]:
    return {name: versions.get(name) for name in ("torch", "fei")}


def _here() -> dict[str, str]:
    from fei.cli._diagnostics import versions

    return versions()


def _score_name(metric: str, protocol: str, layer: str, _: float) -> str:
    return ", ".join(part for part in (metric, protocol, layer) if part)
