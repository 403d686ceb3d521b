"""A look at the pickles of a checkpoint before torch loads them.

torch's reader of weights runs no code. Yet a few bytes can make it ask for any amount of memory, or never come to an
end: numbers that become arrays, archives that unpack to a thousand times their size, tuples that hold each other twice.
"""

import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

_ARCHIVE = b"PK\x03\x04"
_BARE = 5  # pickles before the numbers, where they are not in an archive
_MOST_UNFOLDED = 1_000_000
# What weights and the notes of a training are made of.
_KNOWN = re.compile(
    r"collections (OrderedDict|Counter)|_codecs encode|builtins (set|complex)|torch (Size|device|\w+Storage|[a-z]\w*)"
    r"|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?|qtensor)|torch\.serialization _get_layout"
    r"|torch\.storage UntypedStorage|torch\.nn\.parameter Parameter|torch\._tensor _rebuild_from_type_v2"
)


class SuspiciousError(pickle.UnpicklingError):
    """A file that torch had better not load."""


def look_through(file: Path) -> None:
    """See that a checkpoint of torch holds weights and nothing that grows when it is loaded.

    Raises:
        SuspiciousError: If it does not.
        Exception: Nearly any, if it is damaged.
    """
    with file.open("rb") as stream:
        archived = stream.read(len(_ARCHIVE)) == _ARCHIVE
        stream.seek(0)
        if not archived:
            for _ in range(_BARE):
                if stream.peek(1):
                    _look_at(pickletools.genops(stream))
            return
        with zipfile.ZipFile(stream) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > file.stat().st_size:
                raise SuspiciousError("the archive unpacks to more than it is")
            for entry in entries:
                if entry.filename.endswith("data.pkl"):
                    _look_at(pickletools.genops(archive.read(entry)))


def _look_at(operations: Iterator[tuple[pickletools.OpcodeInfo, object, int | None]]) -> None:
    """Refuse names that weights do not need, and tuples that are far larger unfolded than written."""
    sizes: dict[object, int] = {}  # of what can be referred to: for a tuple, all that it may hold, else 0
    unfolded, top = 1, 0
    for code, argument, _ in operations:
        if code.name == "GLOBAL" and not _KNOWN.fullmatch(str(argument)):
            raise SuspiciousError(f"'{argument}' is no part of weights")
        if code.name.endswith("PUT"):
            sizes[argument] = top
        elif code.name.endswith("GET"):
            top = sizes.get(argument, 0)
            unfolded += top
            if unfolded > _MOST_UNFOLDED:
                raise SuspiciousError("tuples inside tuples without end")
        else:
            top = unfolded if code.name.startswith("TUPLE") else 0
