"""The page's server for the load generator, under an audit hook that writes down what it opens.

Ends when its standard input does. Prints its address when it is ready.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_PATHS = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}
_READS = {"os.listdir", "os.scandir"}
_DECODER = "fei.app.decoding"  # the one program that the server starts
_NEVER = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect"}


def watch(log: int) -> None:
    """Write every file that this process opens, changes or lists to a descriptor, as lines of JSON: [kind, path].

    Paths that are not absolute are left out: they are relative to a folder that is open, which Python does not tell, or
    to the working folder, which is empty and must stay so.
    """

    def tell(kind: str, path: Any) -> None:
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str | os.PathLike) and os.path.isabs(path):
            os.write(log, json.dumps([kind, os.path.normpath(path)]).encode() + b"\n")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            tell("write" if (arguments[2] or 0) & _CHANGES else "read", arguments[0])
        elif event in _PATHS:
            for path in arguments[:2]:
                tell("write", path)
        elif event in _READS:
            tell("read", arguments[0])
        elif event in _NEVER and _DECODER not in repr(arguments):
            os.write(log, json.dumps(["never", f"{event} {arguments!r}"[:500]]).encode() + b"\n")

    sys.addaudithook(hook)


def main() -> None:
    """Serve until standard input ends."""
    given = json.loads(sys.argv[1])
    from fei.app import server
    from fei.app.limits import Limits

    server._SWEEP_SECONDS, server._HEAD_SECONDS = given["sweep_seconds"], given["head_seconds"]
    options = server.ServeOptions(
        given["models"], port=0, limits=Limits(**given["limits"]), grace=given["grace"], temporary=Path(given["folder"])
    )
    watch(os.open(given["log"], os.O_WRONLY | os.O_APPEND))
    with server.serving(options) as address:
        print(address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
