"""What hostile and broken clients do to the server: each attack is one client's visit and returns the answers."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from _load_client import CALL, Site, picture

JSON = "Content-Type: application/json"
Attack = Callable[[Site, random.Random, "Target"], Awaitable[list[tuple[int, bytes]]]]


class Target:
    """What the attacks are after: a file beside the server's folder, with words that no answer may hold."""

    def __init__(self, secret: Path, largest: int) -> None:
        self.secret, self.largest = secret, largest
        self.words = b"the words of a file that is nobody's business"
        secret.write_bytes(self.words)


def _head(site: Site, length: str, path: str = "/photo") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: {site.host}\r\n{length}\r\n\r\n".encode()


async def oversize(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Bodies that are too long, said beforehand or not."""
    parts = b"".join(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" for _ in range(target.largest // 0x10000 + 2))
    return [
        await site.ask("POST", "/photo", b"x" * (target.largest + 1)),
        await site.raw(_head(site, "Transfer-Encoding: chunked") + parts + b"0\r\n\r\n"),
        await site.raw(_head(site, f"Content-Length: {10**18}") + b"x" * 1000),
        await site.ask("POST", CALL, b"[" + b"1," * 50_000 + b"1]", [JSON]),
    ]


async def lying_lengths(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Lengths that are not what is sent, or no lengths."""
    lengths = (
        "Content-Length: 3",
        "Content-Length: -1",
        "Content-Length: 1e3",
        "Content-Length: 3\r\nContent-Length: 9",
    )
    lengths += ("Transfer-Encoding: chunked\r\nContent-Length: 5", "Transfer-Encoding: gzip", "Content-Length: ٣")
    return [await site.raw(_head(site, length) + b"x" * 500 + b"\r\n\r\n", 20) for length in lengths]


async def aborted(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Uploads and events that are broken off half way."""
    for path in ("/photo", CALL):
        async with site.connection() as (_, writer):
            writer.write(_head(site, "Content-Length: 100000", path) + b"x" * chance.randrange(60_000))
            await writer.drain()
            await asyncio.sleep(chance.random() * 0.2)
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no good-bye
    return []


async def slow_sender(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """A request that comes byte by byte: its lines, or its body."""
    async with site.connection() as (_, writer):
        if chance.random() < 0.5:
            writer.write(_head(site, "Content-Length: 5000"))
        with suppress(ConnectionError):
            for _ in range(chance.randrange(5, 40)):
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.2)
    return []


async def slow_reader(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Many answers asked for in one go, and read by nobody."""
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(raw, (site.host, site.port))
        with suppress(OSError, TimeoutError):
            asked = f"GET /config HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode() * 200
            await asyncio.wait_for(loop.sock_sendall(raw, asked), 3)
        await asyncio.sleep(chance.random() * 6)
    return []


async def malformed_events(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Bodies of events that are no JSON, or not the page's."""
    deep = b"[" * 30_000 + b"]" * 30_000
    form = b'--x\r\nContent-Disposition: form-data; name="data"; filename="../../x"\r\n\r\n1\r\n--x--\r\n'
    bodies = [b"", b"{", b"\xff\xfe", deep, b'{"data":' + deep[:40_000], b"null", b'{"data": NaN}', b"\0" * 1000]
    answers = [await site.ask("POST", CALL, body, [JSON]) for body in bodies]
    return [*answers, await site.ask("POST", CALL, form, ["Content-Type: multipart/form-data; boundary=x"])]


async def odd_events(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Events that are JSON, and nonsense: numbers of events, sessions, and flags that the page never sends."""
    numbers = [-1, 10**30, 1.5, "0", None, [0], {"a": 1}, True, *range(8)]
    sessions = [None, 3, "", "../../x", "a\0b", "x" * 5000, "ü" * 50, {"a": 1}, "odd"]
    flags = [{}, {"batched": True}, {"trigger_id": 10**20}, {"event_id": "../x"}, {"simple_format": True}]
    data = [[], ["tiny"], [None] * 9, ["a"] * 300, [[1] * 1000] * 9, [10**400], [float("inf")]]
    answers = []
    for _ in range(6):
        body = {
            "data": chance.choice(data),
            "fn_index": chance.choice(numbers),
            "session_hash": chance.choice(sessions),
            "event_data": chance.choice([None, {}, {"ticket": "x"}, {"example": -1}, {"example": 0}]),
            **chance.choice(flags),
        }
        answers.append(await site.ask("POST", CALL, json.dumps(body).encode(), [JSON]))
    return answers


async def files_in_events(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Events that describe files, which Gradio would read or fetch, and tickets that are paths."""
    answers = []
    for path in (
        str(target.secret),
        f"../../{target.secret.name}",
        f"file://{target.secret}",
        f"http://{site.host}:1/x",
    ):
        file = {"path": path, "url": path, "meta": {"_type": "gradio.FileData"}}
        for said in ({"data": [file]}, {"data": [[file]]}, {"data": ["a"], "event_data": {"ticket": path}}):
            body = {"fn_index": site.events["upload"], "session_hash": "thief", **said}
            answers.append(await site.ask("POST", CALL, json.dumps(body).encode(), [JSON]))
    return answers


async def path_tricks(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Addresses that lead out of where they seem to be."""
    up = ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "....//", "..;/", "%c0%ae%c0%ae/", "%252e%252e%252f")
    starts = ("/", "/static/", "/assets/", "/svelte/", "/results/x/", "/examples/", "/gradio_api/file=", "/file=")
    tricks = [f"{start}{step * 12}{str(target.secret).lstrip('/')}" for start, step in itertools.product(starts, up)]
    tricks += [f"{start}{target.secret}" for start in starts]
    tricks += [
        "/static/a%00.png",
        "/results/" + "a" * 50_000 + "/x",
        "/examples/9" + "9" * 900 + ".jpg",
        "/%ff%fe",
        "/ü",
    ]
    tricks += [
        f"http://{site.host}:1{target.secret}",
        "/results/x/\r\nX: y",
        "*",
        "",
        "/gradio_api/proxy=http://127.0.0.1/",
    ]
    return [await site.ask("GET", path) for path in chance.sample(tricks, 12)]


async def names_of_uploads(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Uploads whose headers and addresses name a place to be written to."""
    names = (str(target.secret), "../../x", "a\0b", "x" * 20_000, "\u202egnp.exe")
    return [
        await site.ask("POST", "/photo", picture(0), [f'Content-Disposition: form-data; filename="{name}"'])
        for name in names[: chance.randrange(1, 3)]
    ] + [await site.ask("POST", f"/photo/{name}", b"x") for name in ("../x", "%2e%2e/x", "x")]


async def other_names(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Requests for another host, from another page, by other verbs, or to a websocket."""
    upgrade = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {'A' * 22}==",
    ]
    heads = [["Host: evil.example"], ["Host: "], ["Host: [::1"], ["Host: 127.0.0.1", "Origin: http://evil.example"]]
    answers = [await site.raw("\r\n".join(["POST /photo HTTP/1.1", *head, "", ""]).encode(), 20) for head in heads]
    verbs = [await site.ask(verb, "/photo") for verb in ("PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X" * 3000)]
    return [*answers, *verbs, await site.ask("GET", "/gradio_api/queue/join", headers=upgrade, seconds=20)]


async def garbage(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """What is no HTTP at all, and too much of it in one go."""
    good = f"GET /robots.txt HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode()
    pieces = [
        chance.randbytes(5000),
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        good + chance.randbytes(300) + good,
        good * 50 + b"Connection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]
    return [await site.raw(chance.choice(pieces), 20)]


async def bad_photos(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Photos that are none, or claim to be huge, handed in as the page does, each by a visitor of its own."""
    whole = picture(chance.randrange(99))
    huge = whole[:16] + struct.pack(">II", 60_000, 60_000) + whole[24:]
    contents = (
        b"",
        b"GIF89a",
        whole[:-200],
        huge,
        b"<svg onload='x'/>",
        chance.randbytes(3000),
        b"P6 99999 99999 255\n",
    )
    status, answer = await site.ask("POST", "/photo", chance.choice(contents))
    if status != 200:
        return [(status, answer)]
    ticket = {"ticket": json.loads(answer)["ticket"]}
    try:
        shown = await site.call("upload", [site.network], f"bad{chance.randrange(20)}", ticket)
    except ConnectionError:
        return [(0, b"")]
    return [(200, shown.encode())]


async def abandoned(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Uploads that nobody takes over, and runs that nobody waits for."""
    answers = [await site.ask("POST", "/photo", picture(chance.randrange(99)))]
    session = f"gone{chance.randrange(8)}"
    run: list[Any] = [site.network, None, "fast", 0, *[[]] * (site.groups - 1), ["random"]]
    with suppress(ConnectionError):
        await site.call("submit", [site.network], session, {"example": 0})
        answers.append((200, (await site.call("click", run, session)).encode()))
    return answers


async def crowd(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """More connections than the server bears, all at once, which say nothing."""
    opened: list[asyncio.StreamWriter] = []

    async def join() -> None:
        opened.append((await asyncio.open_connection(site.host, site.port))[1])

    try:
        await asyncio.gather(*(join() for _ in range(300)), return_exceptions=True)
        await asyncio.sleep(chance.random())
    finally:  # also where the time is over
        for writer in opened:
            writer.close()
    return []


ATTACKS: dict[str, tuple[Attack, int]] = {
    "bodies that are too long": (oversize, 3),
    "lengths that lie": (lying_lengths, 2),
    "uploads and events broken off": (aborted, 4),
    "slow senders": (slow_sender, 3),
    "slow readers": (slow_reader, 2),
    "malformed events": (malformed_events, 4),
    "odd events": (odd_events, 4),
    "files in events": (files_in_events, 3),
    "path tricks in addresses": (path_tricks, 4),
    "path tricks in names of uploads": (names_of_uploads, 2),
    "other hosts, pages, verbs; websockets": (other_names, 3),
    "garbage in place of HTTP": (garbage, 4),
    "photos that are none": (bad_photos, 4),
    "uploads and runs left behind": (abandoned, 1),
    "300 connections at once": (crowd, 1),
}
"""The mix: what is done, and how often compared with the rest."""
