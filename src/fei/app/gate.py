"""What stands between the network and Gradio: what the page does not need is not there, and nothing is without bounds.

Gradio serves many addresses that this page has no use for: files, uploads, proxies, recordings, an editor. Only those
that the page itself calls are let through, with bodies of bounded size that arrive in bounded time. An event's data may
hold words and numbers alone: where it holds a description of a file, Gradio would read that file, or fetch it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fei.app.limits import Limits
from fei.app.photos import too_large
from fei.app.sessions import Sessions
from fei.app.storage import size_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

UPLOAD, CALL = "/photo", "/gradio_api/run/predict"
_READ = re.compile(
    r"/|/config|/theme\.css|/favicon\.ico|/manifest\.json|/robots\.txt|/(?:assets|static|svelte)/[\w./@+-]+"
    r"|/gradio_api/(?:theme\.css|app_id|info|startup-events|heartbeat/[\w-]{1,64})"
    r"|/examples/\d{1,3}\.jpg|/results/[\w-]{1,64}/[\w.+-]{1,64}"
)
_WRITE = re.compile(f"{UPLOAD}|{CALL}")
_STREAM = re.compile(r"/gradio_api/heartbeat/([\w-]{1,64})")  # open as long as the page is

_CALL_BYTES = 1 << 16  # the words of the page: choices and a file's address
_KEPT_UPLOADS = 16  # that nobody took over yet
_BODY_SECONDS, _PAUSE_SECONDS = 60.0, 15.0
_SEND_SECONDS = 60.0
# The page's own addresses and nothing else; Gradio compiles its templates in the browser.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'self'"
)
_HEADERS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
}


class _Refused(Exception):  # noqa: N818 (never leaves this module)
    """A request that is not let through."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Gate:
    """An ASGI application around another one.

    Args:
        application: What is behind the gate.
        limits: What it bears.
        sessions: Who is told which browsers listen.
        uploads: Where uploads are written to.
        hosts: The names by which the server may be called; empty for any. A page elsewhere can have its own name lead
            to this machine, and would else talk to the server with the rights of the visitor's browser.
    """

    def __init__(
        self, application: Application, limits: Limits, sessions: Sessions, uploads: Path, hosts: Collection[str]
    ) -> None:
        self._application, self._limits, self._sessions, self._hosts = application, limits, sessions, hosts
        self._folder = uploads
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer why not."""
        if scope["type"] == "lifespan":
            return await self._application(scope, receive, send)
        if scope["type"] != "http":  # Gradio needs no websockets
            return None
        answer = _Answer(send, lasting=scope["path"].startswith("/assets/"))
        try:
            headers = self._check(scope)
            uploads = scope["path"] == UPLOAD
            reason = too_large(self._limits) if uploads else "Too long."
            body = _Body(receive, answer, self._most_bytes(scope), reason)
            body.expect(headers)
            if scope["path"] == CALL:
                await body.check_call()
            with self._upload() if uploads else nullcontext(), self._listening(scope):
                await self._application(scope, body, answer)
        except _Refused as refused:
            await answer.refuse(refused.status, refused.reason)
        return None

    def _check(self, scope: Scope) -> dict[bytes, bytes]:
        headers = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        known = _READ if method in ("GET", "HEAD") else _WRITE if method == "POST" else None
        if known is None or not known.fullmatch(path) or ".." in path:
            raise _Refused(404, "There is nothing here.")
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts and urlsplit(f"//{host}").hostname not in self._hosts:
            raise _Refused(421, "This server is not called so.")
        origin = headers.get(b"origin")
        if method == "POST" and origin is not None and urlsplit(origin.decode("latin-1")).netloc != host:
            raise _Refused(403, "Only the page itself may ask for this.")
        # Nobody stands in front of this server, so whoever says so in a header is not believed.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if not name.startswith(b"x-forwarded-")]
        return headers

    def _most_bytes(self, scope: Scope) -> int:
        return self._limits.upload_bytes if scope["path"] == UPLOAD else _CALL_BYTES

    def _upload(self) -> _Counted:
        kept = size_of(self._folder)
        if self._uploads >= self._limits.uploads or kept > _KEPT_UPLOADS * self._limits.upload_bytes:
            raise _Refused(503, "Others are uploading; try again in a moment.")
        return _Counted(self)

    def _listening(self, scope: Scope) -> AbstractContextManager[None]:
        stream = _STREAM.fullmatch(scope["path"])
        return nullcontext() if stream is None else self._sessions.listening(stream[1])


class _Counted:
    """An upload that is under way."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate._uploads += 1

    def __exit__(self, *_: object) -> None:
        self._gate._uploads -= 1


class _Body:
    """A request's body, of bounded size, that arrives in bounded time."""

    def __init__(self, receive: Receive, answer: _Answer, most: int, reason: str) -> None:
        self._receive, self._answer, self._left, self._reason = receive, answer, most, reason
        self._until = asyncio.get_running_loop().time() + _BODY_SECONDS
        self._complete = False
        self._again: Message | None = None

    def expect(self, headers: dict[bytes, bytes]) -> None:
        """Refuse a body that says itself that it is too long."""
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._left:
            raise _Refused(413, self._reason)

    async def check_call(self) -> None:
        """Read an event's call as a whole, and refuse what the page never sends."""
        parts = []
        while not self._complete:
            parts.append((await self())["body"])
        content = b"".join(parts)
        try:
            call = json.loads(content)
            plain = isinstance(call, dict) and _plain_list(call["data"]) and _plain_object(call.get("event_data"))
        except (ValueError, KeyError, RecursionError):
            plain = False
        if not plain:
            raise _Refused(400, "This is not what the page would say.")
        self._again = {"type": "http.request", "body": content, "more_body": False}

    async def __call__(self) -> Message:
        if self._again is not None:
            again, self._again = self._again, None
            return again
        if self._complete:  # what comes now is that the browser left, whenever it does
            return await self._receive()
        left = self._until - asyncio.get_running_loop().time()
        try:
            message = await asyncio.wait_for(self._receive(), min(max(left, 0), _PAUSE_SECONDS))
        except TimeoutError as error:
            raise self._refusal(408, "The request came too slowly.") from error
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise self._refusal(413, self._reason)
        self._complete = not message.get("more_body", False)
        return message

    def _refusal(self, status: int, reason: str) -> _Refused:
        self._answer.muted = True  # or the application behind would answer first, that something went wrong
        return _Refused(status, reason)


def _plain_list(value: Any) -> bool:
    """Whether a value is a list of words and numbers, or of lists of them."""
    return isinstance(value, list) and all(
        _plain(one) or (isinstance(one, list) and all(map(_plain, one))) for one in value
    )


def _plain_object(value: Any) -> bool:
    """Whether a value is nothing, or an object of words and numbers."""
    return value is None or (isinstance(value, dict) and all(map(_plain, value.values())))


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


class _Answer:
    """A response, with our headers, to a browser that reads it."""

    def __init__(self, send: Send, *, lasting: bool) -> None:
        self._send, self._started, self.muted = send, False, False
        # Gradio's own parts have names that change with their content.
        self._headers = _HEADERS | ({b"cache-control": b"public, max-age=604800, immutable"} if lasting else {})

    async def __call__(self, message: Message) -> None:
        if self.muted:
            return
        if message["type"] == "http.response.start":
            self._started = True
            have = {name.lower() for name, _ in message.get("headers", [])}
            ours = [(name, value) for name, value in self._headers.items() if name not in have]
            message = {**message, "headers": [*message.get("headers", []), *ours]}
        try:
            await asyncio.wait_for(self._send(message), _SEND_SECONDS)
        except TimeoutError as error:
            raise ConnectionError("the browser reads too slowly") from error

    async def refuse(self, status: int, reason: str) -> None:
        """Answer with one sentence, and have the connection closed."""
        if self._started:
            raise ConnectionError(reason)
        self.muted = False
        body = reason.encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
        await self({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
        await self({"type": "http.response.body", "body": body})
