"""The page's addresses, what each of them asks the desk, and the gate before them: nothing is without bounds."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fei import methods
from fei.app.desk import Desk
from fei.app.limits import OFFERED, SEEDS, Limits, is_address, sentence
from fei.core.settings import FLAGSHIP, PRESETS
from fei.report import explorer
from fei.report.shell import document, policy

_FAMILIES = {
    "optimisation": ("FEI and its kin", "Seconds to a minute each; the mask is shown as it forms."),
    "gradient": ("Gradients", "Quick."),
    "activation": ("Class activation maps", "Quick; scorecam and fgvce take longer."),
    "attention": ("Attention", "For transformers alone; quick but for vit-cx."),
    "perturbation": ("Perturbation", "Hundreds to thousands of passes: minutes on a CPU."),
    "chance": ("Controls", "They never look at the network: the floor that a method should beat."),
}
_PAGE = replace(
    explorer.PAGE,
    brand="FEI",
    skip="Skip the head",
    scripts=(*explorer.PAGE.scripts, "serve.js"),
    above="serve",
    start="serve",
    sources="img-src 'self' data: blob:; connect-src 'self'",
)
_TICK_SECONDS, _PING_SECONDS = 0.25, 10.0
_PLACES = 24  # of the 40 threads that answer; the others are for what does not wait
_WORDS_BYTES = 1 << 16  # what the page says, but for photos
_BODY_SECONDS, _PAUSE_SECONDS, _SEND_SECONDS = 60.0, 15.0, 60.0
_CLOSE = {"connection": "close"}
_COOKIE = "fei_token"
_PLACE = r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9._-]{1,253}))(?::[0-9]{1,5})?"
_HOST, _ORIGIN = re.compile(_PLACE), re.compile(rf"null|[a-z][a-z0-9+.-]{{0,30}}://{_PLACE}")
_HEADERS = {
    # What is downloaded is a document of its own, without the rights of the page, also where it is opened from here.
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# What the page may ask for in words, and the words that go with it.
_ORDERS: dict[str, tuple[Callable[..., object], tuple[str, ...]]] = {
    "example": (Desk.take_example, ("number",)),
    "run": (Desk.start, ("network", "targets", "methods", "preset", "seed")),
    "cancel": (Desk.cancel, ()),
}


def build_application(desk: Desk) -> Starlette:
    """The page and what it asks for, as an ASGI application around a desk that does the work."""
    site = _Site(desk)

    async def nothing(request: Request, error: Exception) -> Response:
        return PlainTextResponse("There is nothing here.", 404)

    return Starlette(
        routes=[
            Route("/", site.page),
            Route("/examples/{number}.jpg", site.example),
            Route("/visits/{key}/stream", site.stream),
            Route("/visits/{key}/photo", site.upload, methods=["POST"]),
            *(Route(f"/visits/{{key}}/{name}", site.order, methods=["POST"], name=name) for name in _ORDERS),
            Route("/visits/{key}/files/{name}", site.file),
        ],
        exception_handlers={404: nothing, 405: nothing},
    )


class _Site:
    """What the addresses lead to."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._busy = desk, Counter[str]()

    async def page(self, request: Request) -> Response:
        payload = {"visit": secrets.token_urlsafe(24), **_choices(self._desk)}
        headers = {"content-security-policy": f"{policy(_PAGE)}; frame-ancestors 'none'"}
        return HTMLResponse(document(_PAGE, "FEI", payload), headers=headers)

    async def example(self, request: Request) -> Response:
        pictures = {str(number): small for number, (*_, small) in enumerate(self._desk.examples)}
        return _file(pictures.get(request.path_params["number"]))

    async def file(self, request: Request) -> Response:
        return _file(self._desk.found(request.path_params["key"], request.path_params["name"]))

    async def upload(self, request: Request) -> Response:
        """A photo arrives; of few visitors at a time, since it is kept in memory until it is read."""
        client, most = _client(request.scope), self._desk.limits.uploads
        with (
            self._place(f"upload {client}", self._desk.limits.quota(most, client), "You are uploading already"),
            self._place("upload", most, "Others are uploading"),
        ):
            return await self._answer(request, Desk.take_photo, await request.body())

    async def order(self, request: Request) -> Response:
        """Something is asked for in words."""
        call, names = _ORDERS[request.url.path.rpartition("/")[2]]
        try:
            said = json.loads(await request.body())
            given = [said.get(name) for name in names]
        except (ValueError, AttributeError, RecursionError) as error:
            raise HTTPException(400, "This is not what the page would say.") from error
        return await self._answer(request, call, *given)

    async def stream(self, request: Request) -> Response:
        """What the page shows, whenever that changes. Open as long as the page is: so we know that it is."""
        key = request.path_params["key"]

        async def events() -> AsyncIterator[str]:
            shown, rests = None, 0.0
            with self._desk.visits.listening(key):
                while not await request.is_disconnected():
                    told = self._desk.told(key)
                    now = {**told, "number": 0}
                    if now != shown or rests >= _PING_SECONDS:
                        shown, rests = now, 0.0
                        yield f"data: {json.dumps(told)}\n\n"
                    await asyncio.sleep(_TICK_SECONDS)
                    rests += _TICK_SECONDS

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _answer(self, request: Request, call: Callable[..., object], *given: Any) -> Response:
        """Ask the desk, in a thread, and tell what the page shows from now on, and what went wrong, in a sentence."""
        key, wrong = request.path_params["key"], ""
        client, limits, visits = _client(request.scope), self._desk.limits, self._desk.visits
        with self._place("thread", _PLACES, "Too many visitors want something at the same moment"):
            try:
                await run_in_threadpool(visits.admit, key, client, limits.quota(limits.visits, client))
                await run_in_threadpool(call, self._desk, key, *given)
            except Exception as error:
                wrong = sentence(error, "Something went wrong on the server")
        return JSONResponse(self._desk.told(key) | {"error": wrong})

    @contextmanager
    def _place(self, kind: str, most: int, why: str) -> Iterator[None]:
        if self._busy[kind] >= most:
            raise HTTPException(503, f"{why}; try again in a moment.", _CLOSE)
        self._busy[kind] += 1
        try:
            yield
        finally:
            self._busy[kind] -= 1
            if not self._busy[kind]:
                del self._busy[kind]


def _client(scope: Scope) -> str:
    """The address that a request comes from."""
    return str((scope.get("client") or ("",))[0])


def _choices(desk: Desk) -> dict[str, Any]:
    """What the page offers."""
    families: dict[str, list[str]] = {}
    for name in methods.available():
        family = methods.describe(name).family
        if family != "attention" or any(offered.attends for offered in desk.networks.values()):
            families.setdefault(family, []).append(name)
    return {
        "schema": 1,
        "most": desk.limits.upload_bytes,
        "tooLarge": desk.limits.too_large,
        "seeds": SEEDS,
        "networks": list(desk.networks),
        "labels": {name: network.classifier.labels or [] for name, network in desk.networks.items()},
        "about": {one.name: f"{one.summary} ({one.cost} passes)" for one in map(methods.describe, methods.available())},
        "examples": [name for name, *_ in desk.examples],
        "families": [(*_FAMILIES.get(family, (family.capitalize(), "")), names) for family, names in families.items()],
        "chosen": ["fei", "gradcam"],
        "controls": [name for name in methods.available() if methods.is_control(name)],
        "presets": [(name, PRESETS[preset or FLAGSHIP]["steps"]) for name, preset in OFFERED.items()],
    }


def _file(found: Any) -> Response:
    if found is None:
        raise HTTPException(404)
    if isinstance(found, bytes):
        return Response(found, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})
    return FileResponse(found, filename=found.name)


class Gate:
    """An ASGI application around another one: who may ask, how much, and for how long.

    Args:
        application: What is behind the gate.
        limits: What it bears.
        hosts: The names by which the server may be called. A page elsewhere can have its own name lead to this machine,
            and would else talk to the server with the rights of the visitor's browser.
        addresses: Whether it may be called by any address as well, which no page elsewhere can have.
        token: What a visitor must show, once in the address and from then on by a cookie; ``None`` for nothing.
    """

    def __init__(
        self,
        application: ASGIApp,
        limits: Limits,
        hosts: Collection[str],
        *,
        addresses: bool = False,
        token: str | None = None,
    ) -> None:
        self._application, self._limits, self._addresses, self._token = application, limits, addresses, token
        self._hosts = {name.lower() for name in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer why not."""
        if scope["type"] != "http":  # the page needs no websockets
            return
        # Nobody stands in front of this server, so whoever says so in a header is not believed.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if not name.startswith(b"x-forwarded-")]
        photo = scope["path"].endswith("/photo")
        most, reason = (self._limits.upload_bytes, self._limits.too_large) if photo else (_WORDS_BYTES, "Too long.")
        answer = self._refusal(scope, most, reason) or self._application
        await answer(scope, _limited(receive, most, reason), _bounded(send))

    def _refusal(self, scope: Scope, most: int, reason: str) -> Response | None:
        headers = Headers(scope=scope)
        host, origin, length = headers.get("host", ""), headers.get("origin"), headers.get("content-length", "0")
        named = _HOST.fullmatch(host)
        # a proxy may take the other one of two: what it lets through must not be two requests here
        unclear = len(headers.getlist("origin")) > 1 or {"content-length", "transfer-encoding"} <= set(headers)
        if named is None or unclear or (origin is not None and not _ORIGIN.fullmatch(origin)):
            return PlainTextResponse("This is no request of a browser.", 400, _CLOSE)
        name = (named[1] or named[2]).lower()
        if name not in self._hosts and not (self._addresses and is_address(name)):
            return PlainTextResponse("This server does not go by that name.", 421, _CLOSE)
        if self._token is not None and not _same(self._token, headers.get("cookie", ""), _COOKIE):
            return self._at_the_door(scope)
        if scope["method"] not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != host:
            return PlainTextResponse("Only the page itself may ask for this.", 403, _CLOSE)
        if not re.fullmatch("[0-9]{1,18}", length) or int(length) > most:
            return PlainTextResponse(reason, 413, _CLOSE)
        return None

    def _at_the_door(self, scope: Scope) -> Response:
        """Give whoever comes with the token a cookie with it; the page is then asked for without it."""
        query = scope["query_string"].decode("latin-1")
        if self._token is None or scope["path"] != "/" or not _same(self._token, query, "token"):
            return PlainTextResponse("Open the page by the address that the server told; it has a token.", 401, _CLOSE)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
        return answer


def _same(token: str, text: str, name: str) -> bool:
    """Whether a cookie or a query gives the token under a name."""
    given = [value for part in re.split("[;&]", text) for key, _, value in [part.strip().partition("=")] if key == name]
    return any(secrets.compare_digest(value.encode(), token.encode()) for value in given)


def _limited(receive: Receive, most: int, reason: str) -> Receive:
    """How a request's body comes in: of bounded size, and in bounded time."""
    until, length, complete = time.monotonic() + _BODY_SECONDS, 0, False

    async def body() -> Message:
        nonlocal length, complete
        if complete:  # what comes now is that the browser left, whenever it does
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), min(max(until - time.monotonic(), 0), _PAUSE_SECONDS))
        except TimeoutError as error:
            raise HTTPException(408, "The request came too slowly.", _CLOSE) from error
        length += len(message.get("body", b""))
        if length > most:
            raise HTTPException(413, reason, _CLOSE)
        complete = not message.get("more_body", False)
        return message

    return body


def _bounded(send: Send) -> Send:
    """How answers go out: with our headers, and to a browser that reads them."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        try:
            await asyncio.wait_for(send(message), _SEND_SECONDS)
        except TimeoutError as error:
            raise ConnectionError("the browser reads too slowly") from error

    return answer
