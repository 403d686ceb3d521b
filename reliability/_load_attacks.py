"""What hostile and broken clients do to the server: each attack is one client's visit and returns the answers."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from _load_client import Site, picture
from PIL import Image

PHOTO, RUN = "/visits/evil/photo", "/visits/evil/run"
Attack = Callable[[Site, random.Random, "Target"], Awaitable[list[tuple[int, bytes]]]]


class Target:
    """What the attacks are after: a file beside the server's folder, with words that no answer may hold."""

    def __init__(self, secret: Path, largest: int) -> None:
        self.secret, self.largest = secret, largest
        self.words = b"the words of a file that is nobody's business"
        secret.write_bytes(self.words)


def _head(site: Site, length: str, path: str = PHOTO) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: {site.host}\r\n{length}\r\n\r\n".encode()


async def oversize(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Bodies that are too long, said beforehand or not."""
    parts = b"".join(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" for _ in range(target.largest // 0x10000 + 2))
    return [
        await site.ask("POST", PHOTO, b"x" * (target.largest + 1)),
        await site.raw(_head(site, "Transfer-Encoding: chunked") + parts + b"0\r\n\r\n"),
        await site.raw(_head(site, f"Content-Length: {10**18}") + b"x" * 1000),
        await site.ask("POST", RUN, b"[" + b"1," * 50_000 + b"1]"),
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
    """Uploads and orders that are broken off half way."""
    for path in (PHOTO, RUN):
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
            asked = f"GET / HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode() * 200
            await asyncio.wait_for(loop.sock_sendall(raw, asked), 3)
        await asyncio.sleep(chance.random() * 6)
    return []


async def malformed_orders(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Bodies of orders that are no JSON, or not the page's."""
    deep = b"[" * 30_000 + b"]" * 30_000
    form = b'--x\r\nContent-Disposition: form-data; name="data"; filename="../../x"\r\n\r\n1\r\n--x--\r\n'
    bodies = [b"", b"{", b"\xff\xfe", deep, b'{"seed":' + deep[:40_000], b"null", b'{"seed": NaN}', b"\0" * 1000]
    answers = [await site.ask("POST", RUN, body) for body in bodies]
    return [*answers, await site.ask("POST", RUN, form, ["Content-Type: multipart/form-data; boundary=x"])]


async def odd_orders(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Orders that are JSON, and nonsense: values, and names of visits, that the page never sends."""
    keys = ["..", "a%00b", "x" * 5000, "%c3%bc" * 50, "a%2fb", "null", "odd", "odd", "odd"]
    values = [None, -1, 10**30, 1.5, "0", [0], {"a": 1}, True, 10**400, float("inf"), ["a"] * 300, [[1] * 1000] * 9]
    names = ("number", "network", "targets", "methods", "preset", "seed")
    answers = []
    for _ in range(6):
        said = {name: chance.choice(values) for name in chance.sample(names, 4)}
        what = chance.choice(["example", "run", "cancel"])
        answers.append(await site.order(chance.choice(keys), what, **said))
    return answers


async def files_in_orders(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Orders that describe files or addresses where the page sends words, and photos that are paths."""
    answers = []
    paths = (str(target.secret), f"../../{target.secret.name}", f"file://{target.secret}", f"http://{site.host}:1/x")
    await site.order("thief", "example", number=0)
    for path in paths:
        file = {"path": path, "url": path}
        usual = {"network": site.network, "targets": None, "methods": ["random"], "preset": "default", "seed": 0}
        for wrong in ({"network": path}, {"network": file}, {"methods": [path]}, {"methods": [file]}, {"preset": path}):
            answers.append(await site.order("thief", "run", **usual | wrong))
        answers.append(await site.order("thief", "example", number=file))
        answers.append(await site.ask("POST", "/visits/thief/photo", path.encode()))
    return answers


async def path_tricks(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Addresses that lead out of where they seem to be."""
    up = ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%5c", "....//", "..;/", "%c0%ae%c0%ae/", "%252e%252e%252f")
    starts = ("/", "/static/", "/examples/", "/visits/", "/visits/x/files/", "/visits/x/", "/file=")
    tricks = [f"{start}{step * 12}{str(target.secret).lstrip('/')}" for start, step in itertools.product(starts, up)]
    tricks += [f"{start}{target.secret}" for start in starts]
    tricks += [
        "/examples/a%00.jpg",
        "/visits/" + "a" * 50_000 + "/files/x",
        "/examples/9" + "9" * 900 + ".jpg",
        "/%ff%fe",
        "/ü",
    ]
    tricks += [f"http://{site.host}:1{target.secret}", "/visits/x/files/\r\nX: y", "*", "", "/proxy=http://127.0.0.1/"]
    return [await site.ask("GET", path) for path in chance.sample(tricks, 12)]


async def names_of_uploads(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Uploads whose headers and addresses name a place to be written to."""
    names = (str(target.secret), "../../x", "a\0b", "x" * 20_000, "\u202egnp.exe")
    return [
        await site.ask("POST", PHOTO, picture(0), [f'Content-Disposition: form-data; filename="{name}"'])
        for name in names[: chance.randrange(1, 3)]
    ] + [await site.ask("POST", f"/visits/{name}/photo", b"x") for name in ("../x", "%2e%2e", "%2e%2e/x", "a%2fb")]


async def other_names(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Requests for another host, from another page, by other verbs, or to a websocket."""
    upgrade = [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {'A' * 22}==",
    ]
    heads = [["Host: evil.example"], ["Host: "], ["Host: [::1"], ["Host: 127.0.0.1", "Origin: http://evil.example"]]
    answers = [await site.raw("\r\n".join([f"POST {PHOTO} HTTP/1.1", *head, "", ""]).encode(), 20) for head in heads]
    verbs = [await site.ask(verb, PHOTO) for verb in ("PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "X" * 3000)]
    return [
        *answers,
        *verbs,
        await site.ask("GET", "/", headers=upgrade, seconds=20),
    ]


async def garbage(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """What is no HTTP at all, and too much of it in one go."""
    good = f"GET /examples/0.jpg HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode()
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


@cache
def painted_again(times: int) -> bytes:
    """A JPEG that goes over its pixels again and again."""
    content = io.BytesIO()
    Image.new("RGB", (900, 900), "teal").save(content, "JPEG", progressive=True)
    plain = content.getvalue()
    return plain[:-2] + plain[plain.rindex(b"\xff\xda") : -2] * times + plain[-2:]


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
        painted_again(2000),
        painted_again(50),
    )
    return [await site.ask("POST", f"/visits/bad{chance.randrange(20)}/photo", chance.choice(contents))]


async def abandoned(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """Photos and runs that nobody waits for."""
    key = f"gone{chance.randrange(8)}"
    chosen = {"network": site.network, "targets": None, "methods": ["random"], "preset": "default", "seed": 0}
    return [
        await site.ask("POST", f"/visits/{key}/photo", picture(chance.randrange(99))),
        await site.order(key, "run", **chosen),
    ]


async def crowd(site: Site, chance: random.Random, target: Target) -> list[tuple[int, bytes]]:
    """More connections than the server bears, all at once, which say nothing."""
    opened: list[asyncio.StreamWriter] = []

    async def join() -> None:
        # from an address of its own: it must not shut out the others
        opened.append((await asyncio.open_connection(site.host, site.port, local_addr=("127.0.0.2", 0)))[1])

    try:
        await asyncio.gather(*(join() for _ in range(300)), return_exceptions=True)
        await asyncio.sleep(chance.choice((0.1, 1, 5)))
    finally:  # also where the time is over
        for writer in opened:
            writer.close()
    return []


ATTACKS: dict[str, tuple[Attack, int]] = {
    "bodies that are too long": (oversize, 3),
    "lengths that lie": (lying_lengths, 2),
    "uploads and orders broken off": (aborted, 4),
    "slow senders": (slow_sender, 3),
    "slow readers": (slow_reader, 2),
    "malformed orders": (malformed_orders, 4),
    "odd orders": (odd_orders, 4),
    "files in orders": (files_in_orders, 3),
    "path tricks in addresses": (path_tricks, 4),
    "path tricks in names of uploads": (names_of_uploads, 2),
    "other hosts, pages, verbs; websockets": (other_names, 3),
    "garbage in place of HTTP": (garbage, 4),
    "photos that are none": (bad_photos, 4),
    "photos and runs left behind": (abandoned, 1),
    "300 connections at once": (crowd, 1),
}
"""The mix: what is done, and how often compared with the rest."""
