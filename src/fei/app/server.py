"""The server: the page behind the gate, on a socket of ours, with a private folder, until it is told to stop."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fei.app.decoding import Decoder
from fei.app.desk import Desk, Visits
from fei.app.limits import Limits, is_loopback
from fei.app.photos import encoded, load_networks
from fei.app.runs import Lane
from fei.common.files import is_mine
from fei.common.lock import Lock
from fei.common.packages import need
from fei.data.images import demo_image, read_image
from fei.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PREFIX = "fei-serve-"
_ANY = ("0.0.0.0", "::", "")  # noqa: S104 (to recognise it)
_EXAMPLES = ("chelsea", "coffee", "astronaut", "rocket")
_THUMBNAIL = 200
_HEAD_SECONDS = 10.0  # for a request's first lines
_TELL_SECONDS = 1.0
_NO_ROOM = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 52\r\n"
    b"connection: close\r\n\r\nToo many connections are open; try again in a while."
)
_SWEEP_SECONDS = 5
_NEW_SECONDS = 60  # within which a server that starts now has locked its folder
_END_SECONDS = 3
_BATCH = 64  # connections that are accepted in one go
_WAITING = 512  # those that may wait to be accepted
_TOLD = 128  # clients that are being told at one time that there is no room
MOST_TURNED_AWAY = _TOLD + 4 * _BATCH
"""Connections that may be open beyond the limit: between being accepted and being closed, one goes through four rounds
of the event loop, each of which may accept as many again."""


@dataclass(frozen=True)
class ServeOptions:
    """What the server is started with.

    Attributes:
        models: What visitors may choose from, as `fei.models.load` takes it.
        host: The address to bind to.
        port: The port; 0 for one that is free.
        limits: What it bears.
        examples: Image files to offer; those of the install if there are none.
        device: Where networks compute.
        grace: Seconds for which the files of a visitor who left are kept.
        allowed_hosts: Further names by which visitors may call the server.
        temporary: Where the private folder is made; by default where the system keeps temporary files.
    """

    models: Sequence[str] = ("efficientnet_lite0",)
    host: str = "127.0.0.1"
    port: int = 7860
    limits: Limits = field(default_factory=Limits)
    examples: Sequence[Path] = ()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    grace: float = 20
    allowed_hosts: Sequence[str] = ()
    temporary: Path | None = None


@contextmanager
def serving(options: ServeOptions) -> Iterator[str]:
    """Run the server while the block runs.

    Yields:
        The address of the page, with a token where others than this machine can reach it.

    Raises:
        InputError: If the port is taken, or there is no such network.
        PackageError: If Starlette or uvicorn is not installed.
        ModelError: If a network cannot be loaded or does not work.
        DataError: If an example cannot be read.
    """
    need("The page", "serve", "starlette", "uvicorn")
    from fei.app.web import Gate, build_application

    with ExitStack() as stack:
        bound = stack.enter_context(_bound_socket(options.host, options.port))
        networks = load_networks(options.models, options.device)
        examples = _examples(options.examples, options.limits)
        folder = stack.enter_context(private_folder(options.temporary))
        (folder / "visits").mkdir()
        visits = Visits(folder / "visits", options.limits.visits, options.grace)
        lane = Lane(options.limits.queue)
        decoder = Decoder()
        stack.callback(visits.close)
        stack.callback(lane.close)
        stack.callback(decoder.close)
        desk = Desk(networks, examples, options.limits, visits, lane, decoder)
        everywhere = options.host in _ANY
        host = socket.gethostname() if everywhere else options.host
        token = None if is_loopback(options.host) else secrets.token_urlsafe(16)
        gate = Gate(
            build_application(desk),
            options.limits,
            (*LOOPBACK, host, *options.allowed_hosts),
            addresses=everywhere,
            token=token,
        )
        stack.enter_context(_running(gate, bound, options.limits, visits))
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{bound.getsockname()[1]}/{f'?token={token}' if token else ''}"


@contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder that nobody else may read, removed at the end.

    What a server that was killed left behind is removed too: its lock went with it.

    Args:
        parent: Where to make it; by default where the system keeps temporary files.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    for left in parent.glob(f"{_PREFIX}*"):
        with suppress(InputError, OSError):  # another server's, or another user's
            status = left.lstat()
            if time.time() - status.st_mtime < _NEW_SECONDS:
                continue
            if is_mine(status) and not left.is_symlink() and (left / "lock").is_file():
                Lock(left).release()
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).resolve()
    lock = Lock(folder)
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def _bound_socket(host: str, port: int) -> socket.socket:
    try:
        address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(address[0], socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"'{host}' is no address of this machine; give --host 127.0.0.1 or another.") from error
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address[4])
    except (OSError, OverflowError) as error:
        bound.close()
        place = f"{host}, port {port} ({getattr(error, 'strerror', error)})"
        raise InputError(f"The server cannot listen on {place}; choose another with --port or --host.") from error
    return bound


def _examples(files: Sequence[Path], limits: Limits) -> list[tuple[str, bytes, bytes]]:
    """Name, bytes and a small picture of each example."""
    if files:
        images = [(file.stem, read_image(file, max_pixels=limits.pixels), file.read_bytes()) for file in files]
    else:
        images = [(name, image, encoded(image, "PNG")) for name in _EXAMPLES for image in [demo_image(name)]]
    return [(name, content, encoded(image, most=_THUMBNAIL)) for name, image, content in images]


@contextmanager
def _running(application: Any, bound: socket.socket, limits: Limits, visits: Visits) -> Iterator[None]:
    """A server in a thread of its own, so that this one is there for Ctrl-C; it cleans up behind visitors."""
    import uvicorn

    async def sweep() -> None:
        await asyncio.to_thread(visits.sweep)

    server = uvicorn.Server(
        uvicorn.Config(
            application,
            http=_protocol(limits),
            ws="none",
            lifespan="off",
            backlog=_BATCH,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            callback_notify=sweep,
            timeout_notify=_SWEEP_SECONDS,
            timeout_graceful_shutdown=_END_SECONDS,
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="fei-serve")
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise InputError("The server did not start; run with --debug to see why.")
        time.sleep(0.02)
    bound.listen(_WAITING)  # asyncio takes one number for both
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


def _protocol(limits: Limits) -> type[asyncio.Protocol]:
    """HTTP as uvicorn speaks it, which by itself turns nobody away who is one too many, or who says nothing."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    turned_away: set[Any] = set()  # who is being told so

    class Impatient(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            address = (self.client or ("",))[0]
            own = sum((getattr(one, "client", None) or ("",))[0] == address for one in self.connections)
            if len(self.connections) > limits.connections or own > limits.quota(limits.connections, address):
                self._turn_away()
            self.loop.call_later(_HEAD_SECONDS, self._look, None)

        def _turn_away(self) -> None:
            """Say that there is no room; whoever comes while many are being told so hears nothing."""
            self.connections.discard(self)
            if len(turned_away) >= _TOLD:
                self.transport.abort()
                return
            turned_away.add(self)
            self.transport.write(_NO_ROOM)
            self.loop.call_later(_TELL_SECONDS, self.transport.close)

        def data_received(self, data: bytes) -> None:
            if self not in turned_away:
                super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            turned_away.discard(self)
            super().connection_lost(exc)

        def _look(self, before: Any) -> None:
            """Hang up if no request came since the last look, however slowly its lines come."""
            if self.cycle is before and (before is None or before.response_complete):
                self.transport.abort()
            elif not self.transport.is_closing():
                self.loop.call_later(_HEAD_SECONDS, self._look, self.cycle)

    return Impatient
