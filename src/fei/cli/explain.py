"""``fei explain`` and ``fei demo``."""

from __future__ import annotations

import io
import itertools
import shlex
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fei.cli import _options as opt
from fei.cli._common import (
    FAILURE,
    USAGE,
    aside,
    complain,
    exit_code,
    find_images,
    loading,
    note,
    print_json,
    say,
    sentence,
)
from fei.errors import InputError

if TYPE_CHECKING:
    from fei.auditing import Remembered
    from fei.report.explorer import Shown
    from fei.service import Inquiry, Request

_METHOD, _AUTO = "fei", "auto"


@opt.told
def explain(
    images: opt.Images,
    model: opt.Model = opt.MODEL,
    method: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"The method; see 'fei methods'. Default: {_METHOD}. With auto, what the last 'fei audit' recommends.",
            show_default=False,
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Short for --method fei-NAME: vm, ivm, avm, ibm, bm, abm or none.", show_default=False
        ),
    ] = None,
    target: opt.Targets = None,
    out: opt.Out = opt.OUT,
    seed: opt.Seed = 0,
    steps: opt.Steps = None,
    preset: opt.Preset = None,
    device: opt.Device = "auto",
    reference: opt.Reference = None,
    batch_size: opt.BatchSize = None,
    option: opt.Options = None,
    sample: opt.Sample = None,
    stability: Annotated[
        bool,
        opt.flag("--stability", "Make the map once more, with the next seed, and tell how alike they are."),
    ] = False,
    html: opt.Html = False,
    pdf: Annotated[
        bool, opt.flag("--pdf", "Write one page to print (.sheet.pdf): map, claim, checks, where it is from.")
    ] = False,
    force: opt.Force = False,
    as_json: opt.Json = False,
    quiet: Annotated[bool, opt.flag("--quiet", "Print nothing but errors.")] = False,
    debug: opt.Debug = False,
) -> None:
    """Explain why a network sees what it sees in images.

    Each image gives a picture (.overlay.png), its map (.map.npy) and a record of how it was made (.json). Results of
    another question, such as another method, are kept: then the name tells method, class and number.

    An optimisation method also gives its masks and traces (.explanation.safetensors), and says whether anything in the
    image speaks for the class. With several classes, each has files of its own (photo.CLASS.overlay.png).

    With --html its faithfulness is measured, and all images are in one page, explorer.html, that opens from disk.
    """
    from fei.service import Request

    name = _method_name(method, variant)
    chosen = _by_audit(model) if name == _AUTO else None
    request = Request.of(
        model,
        [name if chosen is None else str(chosen.method)],
        {"steps": steps, "preset": preset},
        option or [],
        seed=seed,
        device=device,
        reference=reference,
        batch_size=batch_size,
        stability=stability,
    )
    if chosen is not None:
        told = {request.method: chosen.options | request.methods[request.method]}
        request = request.model_copy(update={"methods": told})
    requests = [request.model_copy(update={"target": word}) for word in target or ()] or [request]
    voice = _Voice(as_json, quiet, debug)
    wish = _Wish(html, pdf, force, () if chosen is None else (chosen.note(),))
    outcome = _explain_all(requests, find_images(images, sample, seed), Path(out), voice, wish)
    if as_json:
        print_json(outcome.document())
    raise typer.Exit(outcome.exit_code())


def demo(
    steps: opt.Steps = None,
    out: opt.Out = opt.OUT,
    seed: opt.Seed = 0,
    as_json: opt.Json = False,
    debug: opt.Debug = False,
) -> None:
    """Explain a photograph of a cat with the network that came with the install."""
    from fei.common.files import prepare_folder, write_file
    from fei.data import demo_image
    from fei.service import Request

    folder = Path(out)
    prepare_folder(folder)
    photograph = folder / "chelsea.png"
    content = io.BytesIO()
    demo_image("chelsea").save(content, "PNG")
    write_file(photograph, content.getvalue(), what="photograph")
    if not as_json:
        say(f"Which pixels make a network see a cat in {photograph}?")
        say("FEI looks for those that keep both its answer and the way it gets there.")
        say("The network, EfficientNet-Lite0, came with the install. This takes a minute.\n")
    request = Request.of(opt.MODEL, [_METHOD], {"steps": steps}, seed=seed)
    outcome = _explain_all([request], [photograph], folder, _Voice(as_json, False, debug), _Wish())
    if as_json:
        print_json(outcome.document())
    elif outcome.results:
        second = outcome.results[0]["prediction"]["top5"][1]["label"]
        to_folder = [] if out == opt.OUT else ["--out", out]
        say("\nOpen the picture. Then ask about the network's second thought, or any class:\n")
        say("  " + shlex.join(["fei", "explain", str(photograph), "--target", second, *to_folder]))
    raise typer.Exit(outcome.exit_code())


@dataclass(frozen=True)
class _Voice:
    """How much is said, and in which form."""

    as_json: bool
    quiet: bool
    debug: bool

    @property
    def talks(self) -> bool:
        return not (self.as_json or self.quiet)


@dataclass(frozen=True)
class _Wish:
    """What is written besides, whether it may replace results of another question, and what a reader is told."""

    html: bool = False
    pdf: bool = False
    force: bool = False
    notes: tuple[str, ...] = ()


@dataclass
class _Outcome:
    """What became of several images."""

    results: list[dict[str, Any]] = field(default_factory=list)
    failures: list[tuple[Path, Exception]] = field(default_factory=list)
    page: str | None = None

    def document(self) -> dict[str, Any]:
        errors = [{"image": str(image), "error": sentence(error)} for image, error in self.failures]
        document: dict[str, Any] = {"schema": 1, "results": self.results, "failures": errors, "page": self.page}
        return document | ({"error": " ".join(failure["error"] for failure in errors)} if errors else {})

    def exit_code(self) -> int:
        """2 only if there was nothing to explain because of what the caller passed."""
        if not self.failures:
            return 0
        return FAILURE if self.results else min(USAGE, *(exit_code(error) for _, error in self.failures))


def _explain_all(requests: list[Request], images: list[Path], folder: Path, voice: _Voice, wish: _Wish) -> _Outcome:
    """Explain images one after the other, the classes of each together.

    An image that cannot be explained does not stop the others.
    """
    outcome = _Outcome()

    def fail(image: Path, error: Exception) -> None:
        outcome.failures.append((image, error))
        complain(error, debug=voice.debug)

    _report_missing(images, fail)
    missing = {image for image, _ in outcome.failures}
    if len(missing) == len(set(images)):
        return outcome
    progress = voice.talks and sys.stderr.isatty()
    if progress:  # before torch is loaded, which takes seconds
        note(f"Loading {requests[0].model}")
    with loading():
        from fei.common.files import prepare_folder
        from fei.service import Inquiry
        from fei.service.looking import label
        from fei.service.outputs import class_parts, page_name, result_names

    with aside():
        found = Inquiry.each(requests, progress=progress, tell=note if progress else None)
        inquiries = [replace(one, told=wish.notes) for one in found]
    prepare_folder(folder)
    pages = []
    classes = [(one.target, label(one.model, one.target)) for one in inquiries if one.target is not None]
    parts = class_parts(classes) or [""]
    for number, (image, name) in enumerate(zip(images, result_names(images, folder, parts), strict=True), 1):
        if image in missing:
            continue
        if progress and len(images) > 1:
            note(f"Image {number} of {len(images)}")
        try:
            names = [name + part for part in parts]
            records, shown = _explain_one(requests, inquiries, image, folder, names, wish)
        except Exception as error:
            fail(image, error)
            continue
        pages += shown
        outcome.results += records
        if voice.talks:
            say("\n".join(map(_summary, records)))
    if pages:
        from fei.report.explorer import write_explorer

        page = page_name(folder, (one.command for one in pages), force=wish.force)
        outcome.page = str(write_explorer(folder / page, pages))
        if voice.talks:
            say(f"Explore: {outcome.page}")
    if outcome.failures and len(images) > 1:
        note(f"{len(outcome.failures)} of {len(images)} images could not be explained.")
    return outcome


def _explain_one(
    requests: list[Request], inquiries: list[Inquiry], image: Path, folder: Path, names: list[str], wish: _Wish
) -> tuple[list[dict[str, Any]], list[Shown]]:
    """The records of one image, as they were written, with the paths of the files; and what a page shows of it.

    Requests, inquiries and names are those of its classes.
    """
    from fei.service import look

    with aside():
        first, targets = inquiries[0], [one.target for one in inquiries]
        seen = look(first.model, image)
        found = first.find_classes(requests[0].method, seen, targets)
        # what draws is loaded when there is something to draw: who waits waits for the first step
        from fei.service import explanation_files
        from fei.service.outputs import RECORD, SHEET, free_name, in_file_name, write_results
        from fei.service.sheet import sheet_bytes

        if requests[0].stability:
            found = first.repeat(seen, found, targets)
        if wish.html or wish.pdf:
            found = [inquiry.measure(seen, panel) for inquiry, panel in zip(inquiries, found, strict=True)]
        made = [
            explanation_files(inquiry, request, seen, panel)
            for inquiry, request, panel in zip(inquiries, requests, found, strict=True)
        ]
        for (record, contents), panel, name in zip(made, found, names, strict=True):
            if wish.pdf:
                contents[SHEET] = sheet_bytes(seen, panel, record, str(contents[RECORD]))
            label = record["target"]["label"].split(",")[0]
            longer = itertools.accumulate([name, *map(in_file_name, (record["method"], label))], "{}.{}".format)
            chosen = name if wish.force else free_name(folder, list(longer), record)
            record["files"] = write_results(folder, chosen, contents)
        records = [record for record, _ in made]
        if not wish.html:
            return records, []
        others = [word for request in requests[1:] for word in ("--target", str(request.target))]
        command = f"{records[0]['command']} {shlex.join([*others, '--html'])}"
        shown = [inquiry.shown(seen, [panel]) for inquiry, panel in zip(inquiries, found, strict=True)]
    return records, [replace(one, command=command) for one in shown]


def _report_missing(images: list[Path], fail: Callable[[Path, Exception], None]) -> None:
    """Tell about paths that are no files before the long work, in the words of the image reader."""
    from fei.data import read_image

    for image in images:
        if not image.is_file():
            try:
                read_image(image)
            except InputError as error:
                fail(image, error)


def _by_audit(model: str) -> Remembered:
    """The last audit of a network, which chooses the method."""
    from fei import models
    from fei.auditing import last_audit
    from fei.bench.plan.keys import model_fingerprint

    with aside():
        return last_audit(model_fingerprint(models.load(model)), model)


def _method_name(method: str | None, variant: str | None) -> str:
    if variant is None:
        return method or _METHOD
    name = f"fei-{variant}".lower()
    if method is not None and method.lower() != name:
        raise InputError(
            f"The options --method {method} and --variant {variant} contradict each other; give one of them."
        )
    return name


def _summary(record: dict[str, Any]) -> str:
    """A record in a few lines for a person."""
    top, target = record["prediction"]["top5"], record["target"]
    percent = [f"{entry['label']} {entry['probability']:.1%}" for entry in top[:3]]
    chosen = "as predicted" if target["chosen_by"] == "prediction" else f"as asked, {target['probability']:.1%}"
    files, kind = record["files"], " (preview)" if record["preview"] else ""
    lines = [
        ("predicted", ", ".join(percent)),
        ("explained", f"{target['label']} ({target['index']}), {chosen}"),
        *([] if record["preprocessing"] is None else [("input", _wrapped(record["preprocessing"]["words"]))]),
        ("method", f"{record['method']}{kind}, seed {record['seed']}, {record['seconds']:.0f} s"),
        *_judged(record),
        *(("note", _wrapped(text)) for text in record["notes"]),
        ("picture", files["picture"]),
        ("data", ", ".join(Path(file).name for kind, file in files.items() if kind != "picture")),
    ]
    return "\n".join([record["image"]["path"], *(f"  {name:<9}  {value}" for name, value in lines)])


def _wrapped(text: str) -> str:
    return f"\n{'':13}".join(textwrap.wrap(text, 67))


def _judged(record: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known of how far a map can be believed: its evidence, and how far it depends on the seed."""
    from fei.core.evidence import presence

    lines = []
    if (weighed := record["evidence"]) is not None:
        areas = [mask["area_got"] for mask in record["trace"]["masks"]]
        told = presence(weighed["kept"], weighed["chance"], areas, weighed["whole"])
        lines.append(("evidence", _wrapped(weighed["sentence"] or told)))
    if (again := record["stability"]) is not None:
        lines.append(("stability", f"rank correlation {again['correlation']:.2f} with seed {again['seed']}"))
    return lines
