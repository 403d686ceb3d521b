"""The server: Gradio behind the gate, on a socket of ours, with a private folder, until it is told to stop."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from fei.app.desk import Desk
from fei.app.gate import Gate
from fei.app.jobs import Lane
from fei.app.limits import Limits
from fei.app.networks import load_networks
from fei.app.sessions import GRACE, Sessions
from fei.app.storage import private_folder, remove_older
from fei.data.images import demo_image, read_image
from fei.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "::", "")  # noqa: S104 (to recognise it)
_EXAMPLES = ("chelsea", "coffee", "astronaut", "rocket")
_HEAD_SECONDS = 10.0  # for a request's first lines
_SWEEP_SECONDS = 5.0
_UPLOAD_SECONDS = 60.0  # the page takes an upload over at once; what is left belongs to nobody
_END_SECONDS = 3
_BACKLOG = 128  # connections that are accepted in one go, before the first of too many can be closed


@dataclass(frozen=True)
class Options:
    """What the server is started with.

    Attributes:
        models: What visitors may choose from, as `fei.models.load` takes it.
        host: The address to bind to.
        port: The port; 0 for one that is free.
        limits: What it bears.
        examples: Image files to offer; those of scikit-image if there are none.
        device: Where networks compute.
        grace: Seconds for which the files of a visitor who left are kept.
        temporary: Where the private folder is made; by default where the system keeps temporary files.
    """

    models: Sequence[str] = ("efficientnet_lite0",)
    host: str = "127.0.0.1"
    port: int = 7860
    limits: Limits = field(default_factory=Limits)
    examples: Sequence[Path] = ()
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    grace: float = GRACE
    temporary: Path | None = None


@contextmanager
def serving(options: Options) -> Iterator[str]:
    """Run the server while the block runs.

    Yields:
        The address of the page.

    Raises:
        InputError: If the port is taken, there is no such network, or Gradio is not installed.
        ModelError: If a network cannot be loaded or does not work.
        DataError: If an example cannot be read.
    """
    _require_gradio()
    with ExitStack() as stack:
        bound = stack.enter_context(_bound_socket(options.host, options.port))
        networks = load_networks(options.models, options.device)
        examples = _examples(options.examples, options.limits)
        folder = stack.enter_context(private_folder(options.temporary))
        uploads, unused = folder / "uploads", folder / "gradio"
        for inner in (uploads, unused, folder / "sessions"):
            inner.mkdir()
        sessions = Sessions(folder / "sessions", options.limits.sessions, options.grace)
        lane = Lane(options.limits.queue)
        stack.callback(sessions.close)
        stack.callback(lane.close)
        # Gradio reads these when it is imported: nothing is sent anywhere, and what it writes, it writes here.
        os.environ.update(GRADIO_ANALYTICS_ENABLED="False", GRADIO_TEMP_DIR=str(unused))
        from fei.app.page import build_application

        desk = Desk(networks, examples, options.limits, sessions, lane, uploads)
        gate = Gate(build_application(desk), options.limits, sessions, uploads, _names(options.host))
        stack.enter_context(_running(gate, bound, options.limits))
        stack.enter_context(_sweeping(sessions, uploads))
        host = options.host if options.host not in _ANY else socket.gethostname()
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound.getsockname()[1]}/"


def _require_gradio() -> None:
    if importlib.util.find_spec("gradio") is None:
        raise InputError('Gradio is needed for this and is not installed; run: pip install "fei[serve]"')


def _names(host: str) -> tuple[str, ...]:
    """The names by which visitors may call the server; any, where it listens on all of the machine's addresses."""
    return () if host in _ANY else (*LOOPBACK, host)


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
        raise InputError(
            f"The server cannot listen on {host}, port {port} ({getattr(error, 'strerror', error)}); choose another "
            "with --port or --host."
        ) from error
    return bound


def _examples(files: Sequence[Path], limits: Limits) -> list[tuple[str, Image.Image]]:
    if files:
        return [(file.stem, read_image(file, max_pixels=limits.pixels)) for file in files]
    return [(name, demo_image(name)) for name in _EXAMPLES]


@contextmanager
def _running(gate: Gate, bound: socket.socket, limits: Limits) -> Iterator[None]:
    """A server of its own thread, so that this one is there for Ctrl-C."""
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(
            gate,
            http=_protocol(limits.connections),
            ws="none",
            backlog=_BACKLOG,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_END_SECONDS,
            lifespan="on",
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="fei-serve")
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise InputError("The server did not start; run with --debug to see why.")
        time.sleep(0.02)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def _sweeping(sessions: Sessions, uploads: Path) -> Iterator[None]:
    """Clean up behind visitors, again and again."""
    ended = threading.Event()

    def sweep() -> None:
        while not ended.wait(_SWEEP_SECONDS):
            sessions.sweep()
            remove_older(uploads, _UPLOAD_SECONDS)

    thread = threading.Thread(target=sweep, name="fei-sweep")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _protocol(most: int) -> type[asyncio.Protocol]:
    """HTTP as uvicorn speaks it, to a bounded number of browsers, none of which may take forever to say what it wants.

    Args:
        most: Connections at a time.
    """
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        _waits: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > most:
                transport.abort()
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._rest()

        def _wait(self) -> None:
            """Count from when there is no request to when there is one, however slowly its lines come."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._rest()
            elif self._waits is None:
                self._waits = self.loop.call_later(_HEAD_SECONDS, self._give_up)

        def _rest(self) -> None:
            if self._waits is not None:
                self._waits.cancel()
                self._waits = None

        def _give_up(self) -> None:
            self._waits = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.abort()

    return Impatient
