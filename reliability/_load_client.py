"""What honest visitors of the page do, request by request, over plain sockets."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
import zipfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

CALL = "/gradio_api/run/predict"
PATIENCE = 600.0  # a slow machine is no finding
_LATER = ("try again", "Others are uploading")


def picture(seed: int, size: tuple[int, int] = (60, 45)) -> bytes:
    """A photo of noise, as the bytes of a PNG file."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*size[::-1], 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


@dataclass
class Site:
    """A server and the numbers of its page's events.

    Attributes:
        host: Its address.
        port: Its port.
        network: The network that visitors choose.
        groups: How many groups of methods the page has.
        events: The numbers of the page's events, by what triggers them.
    """

    host: str
    port: int
    network: str
    groups: int = 0
    events: dict[str, int] = field(default_factory=dict)

    async def learn(self) -> None:
        """Read the page's own description of its events."""
        status, body = await self.ask("GET", "/config")
        if status != 200:
            raise RuntimeError(f"the server answered {status}")
        config = json.loads(body)
        for one in config["dependencies"]:
            self.events.setdefault(one["targets"][0][1], one["id"])
        run = next(one for one in config["dependencies"] if one["id"] == self.events["click"])
        self.groups = len(run["inputs"]) - 4

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

    async def call(self, event: str, data: list[Any], session: str, told: dict[str, Any] | None = None) -> str:
        """What an event of the page is answered with."""
        body = {"data": data, "fn_index": self.events[event], "session_hash": session, "event_data": told}
        status, answer = await self.ask("POST", CALL, json.dumps(body).encode(), ["Content-Type: application/json"])
        if status != 200:
            raise ConnectionError(f"an event was answered {status}: {answer[:200]!r}")
        return answer.decode()


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


async def _visit(site: Site, session: str, seed: int, found: Visit) -> None:
    started = time.monotonic()
    status, page = await _patiently(found, lambda: site.ask("GET", "/"))
    found.page_seconds = time.monotonic() - started
    if status != 200 or b"<html" not in page:
        raise RuntimeError(f"the page was answered {status}")
    async with site.connection() as (_, writer):  # the stream by which an open page says that it is there
        writer.write(f"GET /gradio_api/heartbeat/{session} HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
        photo = picture(seed)
        _, answer = await _patiently(found, lambda: site.ask("POST", "/photo", photo))
        ticket = {"ticket": json.loads(answer)["ticket"]}
        shown = await _patiently(found, lambda: site.call("upload", [site.network], session, ticket))
        if "Your photo" not in shown:
            raise RuntimeError(f"the photo was answered {shown[:200]}")
        chosen: list[Any] = [site.network, None, "fast", seed, *[[]] * (site.groups - 1), ["random"]]
        shown = await _patiently(found, lambda: site.call("click", chosen, session))
        while '"active":false' not in shown:
            await asyncio.sleep(0.2)
            shown = await _patiently(found, lambda: site.call("tick", [], session))
        link = re.search(r"/results/[\w-]+/fei-results\.zip", shown)
        if link is None:
            raise RuntimeError(f"the run ended with {shown[:300]}")
        _, archive = await _patiently(found, lambda: site.ask("GET", link[0]))
        with zipfile.ZipFile(io.BytesIO(archive)) as file:
            if file.testzip() is not None or file.read("photo.png") != photo:
                raise RuntimeError("the zip is not what was asked for")


async def _patiently(found: Visit, ask: Any) -> Any:
    """Ask until the answer is not that one should try again."""
    while True:
        try:
            answer = await ask()
        except ConnectionError:
            answer = None
        text = answer[1].decode("latin-1") if isinstance(answer, tuple) else answer
        refused = isinstance(answer, tuple) and answer[0] in (0, 503)
        if answer is not None and not refused and not any(word in text[:3000] for word in _LATER):
            return answer
        found.later += 1
        await asyncio.sleep(0.3)
