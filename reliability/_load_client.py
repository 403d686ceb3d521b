"""What honest visitors of the page do, request by request, over plain sockets."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

PATIENCE = 600.0  # a slow machine is no finding
_LATER = (b"try again",)


def picture(seed: int, size: tuple[int, int] = (60, 45)) -> bytes:
    """A photo of noise, as the bytes of a PNG file."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*size[::-1], 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


@dataclass
class Site:
    """A server.

    Attributes:
        host: Its address.
        port: Its port.
        network: The network that visitors choose.
    """

    host: str
    port: int
    network: str

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: Iterable[str] = (), seconds: float = PATIENCE
    ) -> tuple[int, bytes]:
        """One request on a connection of its own: the status, and the body of the answer."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", "Connection: close"]
        if method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([*lines, *headers]).encode("utf-8", "surrogatepass")
        return await self.raw(head + b"\r\n\r\n" + body, seconds)

    async def raw(self, content: bytes, seconds: float = PATIENCE) -> tuple[int, bytes]:
        """Send bytes as they are; status 0 if there is no answer."""
        async with asyncio.timeout(seconds), self.connection() as (reader, writer):
            with suppress(ConnectionError):  # it may answer before it has read everything
                writer.write(content)
                await writer.drain()
            answer = b""
            with suppress(ConnectionError):
                while part := await reader.read(1 << 16):
                    answer += part
        head, _, body = answer.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.\d (\d{3})", head)
        return int(status[1]) if status else 0, body

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection, closed at the end."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def order(self, key: str, what: str, **said: Any) -> tuple[int, bytes]:
        """Ask for something in words, as the page does."""
        return await self.ask("POST", f"/visits/{key}/{what}", json.dumps(said).encode())


@dataclass
class Visit:
    """One visit: how long it took, and how often the visitor was asked to try again.

    Attributes:
        seconds: From the photo to the last byte of the zip.
        page_seconds: How long the page's document took.
        later: How often "try again" was heard, or a connection was not to be had.
        fault: What went wrong; empty if nothing did.
    """

    seconds: float = 0.0
    page_seconds: float = 0.0
    later: int = 0
    fault: str = ""


async def visit(site: Site, seed: int) -> Visit:
    """A whole visit: photo, classes, run, download; who is asked to try again does so."""
    found = Visit()
    started = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE):
            await _visit(site, f"honest{seed}", seed, found)
    except Exception as error:  # the load is to go on, and to tell
        found.fault = f"{type(error).__name__}: {error}"[:300]
    found.seconds = time.monotonic() - started
    return found


async def _visit(site: Site, key: str, seed: int, found: Visit) -> None:
    started = time.monotonic()
    page = await _patiently(found, lambda: site.ask("GET", "/"))
    found.page_seconds = time.monotonic() - started
    if b"<html" not in page:
        raise RuntimeError(f"the page was answered {page[:200]!r}")
    async with site.connection() as (reader, writer):  # the stream by which an open page says that it is there
        writer.write(f"GET /visits/{key}/stream HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
        photo = picture(seed)
        shown = await _patiently(found, lambda: site.ask("POST", f"/visits/{key}/photo", photo))
        if not json.loads(shown)["photo"]:
            raise RuntimeError(f"the photo was answered {shown[:200]!r}")
        chosen = {"network": site.network, "targets": None, "methods": ["random"], "preset": "default", "seed": seed}
        shown = await _patiently(found, lambda: site.order(key, "run", **chosen))
        run = json.loads(shown)["run"]
        while run["state"] not in ("done", "stopped"):
            line = await reader.readline()
            if not line:
                raise RuntimeError("the stream ended before the run did")
            if line.startswith(b"data: "):
                run = json.loads(line[6:])["run"] or run
        if run["state"] != "done":
            raise RuntimeError(f"the run ended with {run['words']}")
        archive = await _patiently(found, lambda: site.ask("GET", f"/visits/{key}/files/fei-results.zip"))
        with zipfile.ZipFile(io.BytesIO(archive)) as file:
            if file.testzip() is not None or file.read("photo.png") != photo:
                raise RuntimeError("the zip is not what was asked for")


async def _patiently(found: Visit, ask: Callable[[], Awaitable[tuple[int, bytes]]]) -> bytes:
    """Ask until the answer is not that one should try again."""
    while True:
        try:
            status, answer = await ask()
        except ConnectionError:
            status, answer = 0, b""
        if status == 200 and not any(word in answer[:3000] for word in _LATER):
            return answer
        if status not in (0, 200, 503):
            raise RuntimeError(f"the answer was {status}: {answer[:200]!r}")
        found.later += 1
        await asyncio.sleep(0.3)
