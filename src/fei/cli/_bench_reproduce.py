"""Computing a result again: the record of an explanation, or a unit of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from fei.bench.store.disk import read_map
from fei.cli._common import aside
from fei.cli.reproduce import WEIGHTS, Repetition, rank_correlation
from fei.common.consent import named_by
from fei.errors import DataError, InputError
from fei.service import Inquiry, Look, Request, look
from fei.service.outputs import MAP, RECORD
from fei.service.record import digest, make_record, versions

_LARGEST = 100_000_000  # bytes of a record
_MOST_THREADS = 4096
_FORMAT = ("chunk_rows", "device", "dtype", "channels_last")
_SCORE = ("metric", "protocol", "layer", "value")
# What is read of a record, and the types it has there.
_EXPLANATION: dict[str, tuple[type, ...]] = {
    "command": (str,), "image.sha256": (str,), "config": (dict,),
    "config.threads": (int, NoneType), "versions": (dict,), "target.index": (int,), "seed": (int,),
    "network": (dict, NoneType), "network.source": (dict, NoneType), "preprocessing": (dict, NoneType),
    "hardware": (dict, NoneType),
}  # fmt: skip
_UNIT: dict[str, tuple[type, ...]] = {
    "unit": (str,), "kind": (str,), "status": (str,), "plan": (str,), "scores": (list,), "versions": (dict,),
    "threads": (int, NoneType), "map": (str, NoneType),
}  # fmt: skip


def repeat(result: str, threads: int | None, device: str, *, progress: bool) -> Repetition:
    """Compute a result again and compare.

    Args:
        result: A file, or RUN#KEY.
        threads: Torch's threads; those of the result if None.
        device: Where a unit is computed; an explanation is computed where it was.
        progress: Whether to show a bar.

    Raises:
        InputError: If there is no such result, or it names code that the user has not agreed to.
        DataError: If it cannot be computed again, as its image or network changed.
    """
    with named_by(f"The result '{result}'"):
        return _repeat(result, threads, device, progress)


def _repeat(result: str, threads: int | None, device: str, progress: bool) -> Repetition:
    if not Path(result).is_file() and "#" in result:
        from fei.bench.store import Store
        from fei.cli._bench_unit import unit_document

        folder, _, key = result.rpartition("#")
        with Store.open(Path(folder), readonly=True) as store:
            return _repeat_unit(unit_document(store, key), threads, device)
    document = _read(Path(result))
    if {"unit", "plan", "scores"} <= document.keys():
        _require(document, _UNIT, result)
        return _repeat_unit(document, threads, device)
    if str(document.get("command", "")).startswith("fei explain "):
        _require(document, _EXPLANATION, result)
        return _repeat_explanation(Path(result), document, threads, progress)
    raise InputError(f"'{result}' is no record of 'fei explain' or 'fei bench show'; give one of these, or RUN#KEY.")


def _read(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > _LARGEST:
            raise InputError(f"'{file}' is too large to be a record; give the .json file of a result.")
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The result '{file}' cannot be read ({error.strerror}); check the path.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"'{file}' is no JSON; give the .json file of a result.") from error
    if not isinstance(document, dict):
        raise InputError(f"'{file}' is no record of a result; give the .json file of one.")
    return document


def _require(document: dict[str, Any], parts: dict[str, tuple[type, ...]], file: str) -> None:
    """Refuse a record in which a part is missing or of another type."""
    for place, types in parts.items():
        value: Any = document
        for key in place.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        sound = isinstance(value, types)
        if sound and place == "scores":
            sound = all(isinstance(score, dict) and score.keys() >= set(_SCORE) for score in value)
        if not sound or (place.endswith("threads") and value is not None and not 0 < value <= _MOST_THREADS):
            raise DataError(
                f"'{file}' has {value!r:.60} for '{place}', which no record has; give one as it was written."
            )


def _repeat_unit(document: dict[str, Any], threads: int | None, device: str) -> Repetition:
    from fei.bench.units import MAP as MAP_KIND
    from fei.cli._bench_unit import compute_again

    if document["status"] != "done":
        raise InputError(
            f"The unit '{document['unit']}' failed ({document['error']}); there is nothing to compare with."
        )
    with aside():
        outcome = compute_again(document, threads=threads or document["threads"], device=device)
    then = {_score_name(*(score[name] for name in _SCORE)): score["value"] for score in document["scores"]}
    now = {_score_name(*score): None if math.isnan(score[3]) else score[3] for score in outcome.scores}
    # the run may have measured more, or less, under another plan of before
    both = {name: (value, now[name]) for name, value in then.items() if name in now}
    old = None if document["map"] is None else read_map(Path(document["map"]).parent, Path(document["map"]).stem)
    same_map = old is None or outcome.map is None or np.array_equal(old, outcome.map)
    wanted = "insertion" if document["kind"] == MAP_KIND else ""
    return Repetition(
        identical=same_map and all(value == again for value, again in both.values()),
        conditions=_conditions(
            {"threads": document["threads"], **_versions(document["versions"])},
            {"threads": outcome.threads, **_versions(versions())},
        ),
        spearman=None if old is None or outcome.map is None else rank_correlation(old, outcome.map),
        scores={
            name: (value, again)
            for name, (value, again) in both.items()
            if name.startswith(wanted) and value is not None and again is not None
        },
    )


def _repeat_explanation(file: Path, record: dict[str, Any], threads: int | None, progress: bool) -> Repetition:
    from fei.bench.engine.engines import torch_threads

    stored = file.with_name(file.name.removesuffix(RECORD) + MAP)
    if not stored.is_file():
        raise InputError(f"The map '{stored}' of the record is not there; keep it beside the record.")
    image, request = _request(record)
    if digest(image) != record["image"]["sha256"]:
        raise DataError(f"The image '{image}' is not the one that the record tells of; restore it.")
    old = read_map(stored.parent, stored.stem)
    if old is None:
        raise DataError(f"The map '{stored}' of the record cannot be read; restore it.")
    with torch_threads(threads or record["config"].get("threads")), aside():
        inquiry = Inquiry.of(request, progress=progress)
        seen = look(inquiry.model, image)
        found = inquiry.find(request.method, seen)
        again = make_record(inquiry, request, seen, found, str(image))
        new = found.map.float().numpy()
        identical = bool(np.array_equal(old, new))
        scores = {} if identical or old.shape != new.shape else _insertion(inquiry, seen, old, new)
    conditions = _conditions(_circumstances(record), _circumstances(again))
    return Repetition(identical, conditions, rank_correlation(old, new), scores)


def _request(record: dict[str, Any]) -> tuple[Path, Request]:
    """What was asked for, of which image; records of version 0.1 tell it as a command."""
    if "request" in record:
        image, request = str(record["image"].get("path")), Request.from_data(record["request"])
    else:
        image, request = Request.from_command(record["command"])
    if not Path(image).is_file():
        raise InputError(f"There is no image '{image}' here; go to the folder where 'fei explain' was called.")
    return Path(image), request


def _insertion(inquiry: Inquiry, seen: Look, *maps: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The insertion of both maps, under the paper's protocol."""
    import torch

    from fei.metrics import insertion

    values = [
        insertion(
            inquiry.model,
            seen.inputs,
            torch.from_numpy(values)[None, None].to(seen.inputs.device),
            inquiry.explained(seen),
            reference=inquiry.reference,
            generator=inquiry.generator,
        ).auc.item()
        for values in maps
    ]
    return {"insertion": tuple(values)}


def _circumstances(record: dict[str, Any]) -> dict[str, Any]:
    config = record["config"]
    network: dict[str, Any] = record.get("network") or {}  # records of version 0.1 have none
    fed = {name: value for name, value in (record.get("preprocessing") or {}).items() if name != "words"}
    return {
        WEIGHTS: network.get("weights"),
        **{f"source of {name}": sha256 for name, sha256 in (network.get("source") or {}).items()},
        **{f"preprocessing, {name}": value for name, value in fed.items()},
        **{name: config.get(name) for name in ("threads", *_FORMAT)},
        **_versions(record["versions"]),
        "instructions": (record.get("hardware") or {}).get("instructions"),
    }


def _conditions(then: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What was recorded then and is otherwise now."""
    return {
        name: (then[name], now.get(name)) for name in then if then[name] is not None and then[name] != now.get(name)
    }


def _versions(versions: dict[str, str]) -> dict[str, str | None]:
    return {name: versions.get(name) for name in ("torch", "fei")}


def _score_name(metric: str, protocol: str, layer: str, _: float) -> str:
    return ", ".join(part for part in (metric, protocol, layer) if part)
