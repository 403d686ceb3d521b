"""The page itself: what Gradio shows, and which function of the desk each event calls."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from fei import methods
from fei.app import fragments
from fei.app.bundle import ARCHIVE, EXPLORER
from fei.app.desk import Desk
from fei.app.jobs import CANCELLED, Job
from fei.app.limits import SEEDS
from fei.app.photos import Photo
from fei.core.settings import PRESETS
from fei.errors import FEIError, InputError

_FAMILIES = {
    "optimisation": ("FEI and its kin", "Seconds to a minute each; the mask is shown as it forms."),
    "gradient": ("Gradients", "Quick."),
    "activation": ("Class activation maps", "Quick; scorecam and fgvce take longer."),
    "perturbation": ("Perturbation", "Hundreds to thousands of passes: minutes on a CPU."),
    "chance": ("Chance", "The floor that a method should beat."),
}
_CHOSEN = ("fei-vm", "gradcam")
_TICK_SECONDS = 0.4  # about as often as there is a new picture
_PLACES = 24  # of the 40 threads that answer; the others are for what does not wait
# The explorer is a document of its own, without the rights of the page, also in a tab of its own.
_SANDBOX = "sandbox allow-scripts allow-downloads; frame-ancestors 'self'"


def build_application(desk: Desk) -> FastAPI:
    """The page and the files that go with it, as an ASGI application.

    Args:
        desk: Who does the work.
    """
    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @application.get("/results/{token}/{name}")
    def result(token: str, name: str) -> Response:
        found = desk.result(token, name)
        if found is None:
            return Response("There is no such result any more.", 404, media_type="text/plain")
        if isinstance(found, bytes):
            return Response(found, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})
        policy = {"content-security-policy": _SANDBOX} if name == EXPLORER else {}
        kept_as = name if name == ARCHIVE else None
        return FileResponse(found, filename=kept_as, headers={"cache-control": "no-store", **policy})

    @application.get("/examples/{number}.jpg")
    def example(number: int) -> Response:
        found = desk.thumbnail(number)
        return Response(found or b"", 404 if found is None else 200, media_type="image/jpeg")

    @application.post("/photo")
    async def photo(request: Request) -> Response:
        ticket, file = desk.new_upload()
        try:
            with file.open("xb") as stream:
                async for part in request.stream():
                    stream.write(part)
        except BaseException:  # the browser left, or the gate closed
            file.unlink()
            raise
        return JSONResponse({"ticket": ticket})

    mounted: FastAPI = gr.mount_gradio_app(
        application,
        build_page(desk),
        path="/",
        footer_links=[],
        run_history=False,
        allowed_paths=[],
        blocked_paths=["/"],
        show_error=False,
        max_file_size=1,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=_theme(),
        css=fragments.STYLE,
    )
    return mounted


def build_page(desk: Desk) -> gr.Blocks:
    """The page, each event of it tied to the desk."""
    page = gr.Blocks(title="FEI", analytics_enabled=False)
    with page:
        gr.HTML(fragments.INTRODUCTION, elem_classes="fei")
        with gr.Row():
            with gr.Column(scale=4, min_width=320):
                upload = gr.HTML(fragments.drop_zone(desk.limits.upload_bytes), js_on_load=fragments.UPLOAD)
                examples = gr.HTML(
                    fragments.examples([name for name, _ in desk.examples]), js_on_load=fragments.CHOOSE_EXAMPLE
                )
                trouble, picture = gr.HTML(), gr.HTML(fragments.photo(None))
                network = gr.Dropdown(
                    list(desk.networks), value=next(iter(desk.networks)), label="Network", interactive=True
                )
                target = gr.Radio(
                    [],
                    label="Class to explain",
                    info="The network's best guesses; they appear with the photo.",
                    type="value",
                )
            with gr.Column(scale=6, min_width=320):
                chosen = [
                    gr.CheckboxGroup(names, value=[name for name in names if name in _CHOSEN], label=title, info=info)
                    for title, info, names in _families()
                ]
                with gr.Row():
                    preset = gr.Radio(list(PRESETS), value="fast", label="Preset of FEI", info=_preset_words())
                    seed = gr.Number(0, label="Seed", precision=0, minimum=0, maximum=SEEDS - 1)
                with gr.Row():
                    run = gr.Button("Run", variant="primary", interactive=False)
                    cancel = gr.Button("Cancel", interactive=False)
                message = gr.HTML()
        progress, results = gr.HTML(), gr.HTML()
        seen = [trouble, picture, target, run]
        clock = gr.Timer(_TICK_SECONDS, active=False)
        live = [message, progress, results, run, cancel, clock]
        # Whoever calls an event needs no name for it: what the page does not show is not offered. Every event is a
        # request of its own, answered by its response: the stream that Gradio's queue answers on may close while the
        # next event is on its way, and then that event is never answered.
        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "queue": False}
        handlers = _Handlers(desk)
        upload.upload(handlers.upload, [network], seen, **quiet)
        examples.submit(handlers.example, [network], seen, **quiet)
        network.input(handlers.network, [network], seen, **quiet)
        run.click(handlers.run, [network, target, preset, seed, *chosen], live, **quiet)
        clock.tick(handlers.tick, None, live, **quiet)
        cancel.click(handlers.cancel, None, [message], **quiet)
        page.unload(lambda: None)  # has browsers say, by a stream, that they are still there
        page.state_session_capacity = 2 * desk.limits.sessions  # Gradio keeps a copy of the page for each visitor
    return page


class _Handlers:
    """What events call: a question to the desk, and its answer as values of the page's parts."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._places = threading.BoundedSemaphore(_PLACES)

    def upload(self, network: Any, event: gr.EventData, request: gr.Request) -> list[Any]:
        """A photo was uploaded."""
        return self._look(request, lambda visitor: self._desk.take_photo(visitor, _told(event, "ticket")), network)

    def example(self, network: Any, event: gr.EventData, request: gr.Request) -> list[Any]:
        """An example was chosen."""
        return self._look(request, lambda visitor: self._desk.take_example(visitor, _told(event, "example")), network)

    def network(self, network: Any, request: gr.Request) -> list[Any]:
        """Another network was chosen; before there is a photo, that changes nothing."""
        session = self._desk.sessions.find(request.session_hash)
        if session is None or session.photo is None:
            return [gr.skip()] * 4
        photo = session.photo
        return self._look(request, lambda _: photo, network)

    def cancel(self, request: gr.Request) -> str:
        """The run is not wanted any more."""
        return "" if self._desk.cancel(request.session_hash) else fragments.note("There is no run to cancel.")

    def run(self, request: gr.Request, network: Any, target: Any, preset: Any, seed: Any, *chosen: Any) -> list[Any]:
        """Order a run, and have the clock tick."""
        names = [name for group in chosen if isinstance(group, list) for name in group]
        try:
            with self._place():
                job = self._desk.start(request.session_hash, network, target, names, preset, seed)
        except Exception as error:
            session = self._desk.sessions.find(request.session_hash)
            going = session is not None and session.job is not None and not session.job.over
            clock = gr.Timer(active=True) if going else gr.skip()  # a run that goes on is shown again
            return [fragments.error(_sentence(error)), *[gr.skip()] * 4, clock]
        buttons = [gr.Button(interactive=False), gr.Button(interactive=True)]
        return ["", self._progress(job), "", *buttons, gr.Timer(active=True)]

    def tick(self, request: gr.Request) -> list[Any]:
        """How the run goes, and once it is over, what it found."""
        session = self._desk.sessions.find(request.session_hash)
        job = None if session is None else session.job
        if job is not None and not job.over:
            return [gr.skip(), self._progress(job), *[gr.skip()] * 4]
        shown = [fragments.note(CANCELLED), ""] if job is None else [self._progress(job), fragments.results(job)]
        has_photo = session is not None and session.photo is not None
        buttons = [gr.Button(interactive=has_photo), gr.Button(interactive=False)]
        return ["", *shown, *buttons, gr.Timer(active=False)]

    def _progress(self, job: Job) -> str:
        return fragments.progress(job, self._desk.lane.ahead(job))

    def _look(self, request: gr.Request, take: Callable[[str | None], Photo], network: Any) -> list[Any]:
        """Take a photo and have the network look at it: message, picture, classes to choose from, and the button."""
        try:
            with self._place():
                photo = take(request.session_hash)
                guesses = self._desk.offer(request.session_hash, network)
        except Exception as error:
            nothing = gr.Radio(choices=[], value=None)
            return [fragments.error(_sentence(error)), fragments.photo(None), nothing, gr.Button(interactive=False)]
        choices = [(f"{guess.label} ({guess.probability:.1%})", str(guess.index)) for guess in guesses]
        target = gr.Radio(choices=choices, value=choices[0][1])
        return ["", fragments.photo(photo), target, gr.Button(interactive=True)]

    @contextmanager
    def _place(self) -> Iterator[None]:
        """One of the places for those who may have to wait for others.

        Raises:
            InputError: If all are taken.
        """
        if not self._places.acquire(blocking=False):
            raise InputError("Too many visitors want something at the same moment; try again in a few seconds.")
        try:
            yield
        finally:
            self._places.release()


def _preset_words() -> str:
    """The presets by the number of their steps."""
    return "; ".join(f"{name}: {settings['steps']} steps" for name, settings in PRESETS.items()) + "."


def _told(event: gr.EventData, name: str) -> Any:
    """What the page's script told with an event."""
    return event._data.get(name) if isinstance(event._data, dict) else None


def _theme() -> gr.themes.Base:
    """Gradio's look, with fonts that every system has, and small print that can be read."""
    theme = gr.themes.Default(
        primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )
    buttons = {"button_primary_background_fill": "*primary_700", "button_primary_background_fill_hover": "*primary_800"}
    grey = {
        "body_text_color_subdued": "#5b6270",
        "block_info_text_color": "#5b6270",
        "block_label_text_color": "#374151",
    }
    dark = {f"{name}_dark": "#b6bcc8" for name in grey}
    return theme.set(**buttons, **grey, **dark)


def _families() -> Iterator[tuple[str, str, list[str]]]:
    """Titles, remarks and methods, family by family."""
    names = methods.available()
    families = {name: methods.describe(name).family for name in names}
    for family in dict.fromkeys(families.values()):
        title, info = _FAMILIES.get(family, (family.capitalize(), ""))
        yield title, info, [name for name in names if families[name] == family]


def _sentence(error: Exception) -> str:
    """An error as a visitor reads it; what is no fault of the visitor's is told on the server's terminal too."""
    if isinstance(error, FEIError):
        return str(error)
    traceback.print_exception(error, file=sys.stderr)
    return f"Something went wrong on the server ({type(error).__name__}); its terminal shows more."
