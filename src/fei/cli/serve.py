"""``fei serve``: a web page on this machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from fei.cli import _options as opt
from fei.cli._common import note, say


@opt.told
def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SPEC",
            help="A network to offer, see 'fei models'; repeat for several. Default: efficientnet_lite0.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which others call this server, such as that of a proxy before it; repeat for several.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for one that is free.")] = 7860,
    max_upload_mb: Annotated[float, typer.Option(help="Largest file of a photo, in megabytes.")] = 20,
    max_pixels: Annotated[int, typer.Option(help="Largest photo, in pixels.")] = 40_000_000,
    max_seconds: Annotated[float, typer.Option(help="Longest run.")] = 600,
    queue: Annotated[int, typer.Option(metavar="N", help="Runs that may wait while one runs.")] = 8,
    example: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="IMAGE",
            help="An image to offer, instead of the install's; repeat for several.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, mps or auto.")] = "auto",
    debug: opt.Debug = False,
) -> None:
    """Open a web page on this machine: give a photo, choose methods, watch them work, explore what they found.

    Visitors choose among the networks given here, and nothing else. Ctrl-C ends the server and removes its files.
    """
    from fei.app.limits import Limits, is_loopback
    from fei.app.server import ServeOptions, serving
    from fei.common.device import choose_device

    limits = Limits(int(max_upload_mb * 1e6), max_pixels, max_seconds, queue)
    options = ServeOptions(
        model or ["efficientnet_lite0"],
        host,
        port,
        limits,
        example or [],
        choose_device(device),
        allowed_hosts=allowed_host or [],
    )
    if not is_loopback(host):
        note(
            f"warning: with --host {host} whoever has the address below and reaches this machine can use the page; it "
            "is not encrypted."
        )
    note(f"Loading {', '.join(options.models)}; the page opens when that is done.")
    with serving(options) as address:
        stop = threading.Event()
        # Until here Ctrl-C interrupts; from here on it is how the server is meant to end.
        before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
        say(f"The page is at {address} (Ctrl-C ends it).")
        while not stop.wait(1):  # Windows sees a signal only between waits
            pass
        for number, handler in before.items():
            signal.signal(number, handler)
        note("Stopping.")
