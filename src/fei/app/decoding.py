"""Photos that strangers send are decoded by a small process of its own, with limits on time, memory and files.

The process reads the name of a file and the pixels that it may have from a line, decodes the file in a child that the
limits hold for, and answers with a line. It loads no torch. What is decoded lies beside the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from PIL import Image

from fei.data.images import read_image
from fei.errors import DataError, FEIError, InputError

_SECONDS = 20  # of the processor's time, and of the clock's thrice as many
_BYTES, _BYTES_PER_PIXEL = 1 << 28, 24
_FILES = 32
_TOO_MUCH = "The photo takes too much time or memory to read; save it again, in another format or smaller."
_PIXELS = ".rgb"
# Python itself would put the folder that it is started in, and whatever lies there, before all other modules.
_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from fei.app.decoding import serve; serve()"


def decoded(file: Path, most_pixels: int) -> tuple[Image.Image, str]:
    """A photo, and the format of its file, decoded in this process.

    Raises:
        DataError: If it is too large or no image; visitors know no path of ours, so none is named.
    """
    try:
        image = read_image(file, max_pixels=most_pixels)
        with Image.open(file) as header:
            return image, header.format or "PNG"
    except (InputError, DataError) as error:
        raise DataError(str(error).replace(f"'{file}'", "The photo")) from error


class Decoder:
    """Decodes photos as `decoded` does, in processes of its own: as many at a time, and others wait.

    Args:
        count: How many.
    """

    def __init__(self, count: int = 2) -> None:
        self._free: queue.SimpleQueue[subprocess.Popen[str] | None] = queue.SimpleQueue()
        self._started: list[subprocess.Popen[str]] = []
        self._lock, self._closed = threading.Lock(), False
        for _ in range(count):
            self._free.put(self._start())

    def __call__(self, file: Path, most_pixels: int) -> tuple[Image.Image, str]:
        """Decode a photo; arguments, result and errors are those of `decoded`."""
        process = self._free.get()
        try:
            if process is None or process.poll() is not None:
                _let_go(process)
                process = None
                process = self._start()
            answer = _ask(process, file, most_pixels)
        finally:
            if process is not None and process.poll() is not None:
                _let_go(process)
                process = None
            self._free.put(process)
        if "error" in answer:
            raise DataError(answer["error"])
        raw = file.with_suffix(_PIXELS)
        try:
            return Image.frombytes("RGB", tuple(answer["size"]), raw.read_bytes()), str(answer["kind"])
        finally:
            raw.unlink()

    def close(self) -> None:
        """End all processes, whatever they do."""
        with self._lock:
            self._closed = True
            for process in self._started:
                _end(process)
        with contextlib.suppress(queue.Empty):  # those that are busy are let go by whoever asked them
            while True:
                _let_go(self._free.get_nowait())

    def _start(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise DataError("The server is being stopped; try again later.")
            process = subprocess.Popen(  # noqa: S603 (it is this program)
                [sys.executable, "-P", "-c", _BEGIN, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is the server's affair
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
            self._started = [one for one in self._started if one.poll() is None] + [process]
            return process


def _ask(process: subprocess.Popen[str], file: Path, most_pixels: int) -> dict[str, Any]:
    if process.stdin is None or process.stdout is None:
        return {"error": _TOO_MUCH}
    # where the child cannot be limited, as on Windows, or hangs all the same, its process ends with it
    timer = threading.Timer(4 * _SECONDS, _end, [process])
    timer.start()
    try:
        process.stdin.write(json.dumps([str(file), most_pixels]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = ""
    finally:
        timer.cancel()
    answer: dict[str, Any] = json.loads(line) if line else {"error": _TOO_MUCH}
    return answer


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _let_go(process: subprocess.Popen[str] | None) -> None:
    """Close the pipes of a process that has ended."""
    for stream in (process.stdin, process.stdout) if process is not None else ():
        if stream is not None:
            with contextlib.suppress(OSError):  # what was still to be written
                stream.close()


def serve() -> None:
    """Answer line by line, until nobody asks any more."""
    for line in sys.stdin:
        name, most_pixels = json.loads(line)
        answer = _answer(Path(name), most_pixels) if not hasattr(os, "fork") else _forked(Path(name), most_pixels)
        print(answer, flush=True)


def _forked(file: Path, most_pixels: int) -> str:
    """What a child answers, or that it took too much."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            _limit(most_pixels)
            os.write(writing, _answer(file, most_pixels).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, encoding="utf-8") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    return answer if status == 0 and answer else json.dumps({"error": _TOO_MUCH})


def _limit(most_pixels: int) -> None:
    """Bound what this process may use from now on."""
    import resource

    with open("/proc/self/statm", encoding="ascii") if sys.platform == "linux" else contextlib.nullcontext() as stream:
        pages = int(stream.read().split()[0]) if stream is not None else 0
    limits = {
        resource.RLIMIT_CPU: _SECONDS,
        resource.RLIMIT_AS: pages * resource.getpagesize() + _BYTES + _BYTES_PER_PIXEL * most_pixels,
        resource.RLIMIT_NOFILE: _FILES,
        resource.RLIMIT_FSIZE: 3 * most_pixels + (1 << 20),
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        if kind != resource.RLIMIT_AS or pages:
            resource.setrlimit(kind, (most, most))
    signal.alarm(3 * _SECONDS)


def _answer(file: Path, most_pixels: int) -> str:
    try:
        image, kind = decoded(file, most_pixels)
        file.with_suffix(_PIXELS).write_bytes(image.tobytes())
    except FEIError as error:
        return json.dumps({"error": str(error)})
    except MemoryError:
        return json.dumps({"error": _TOO_MUCH})
    return json.dumps({"size": image.size, "kind": kind})
