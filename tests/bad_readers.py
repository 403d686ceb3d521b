"""Readers with a fault each, for the fuzzer's oracle to see; in a file of its own, which a worker imports at once."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

from _fuzz_worker import MEBIBYTE, Case

from fei.errors import DataError


class BadReader:
    """A reader that has one of some faults in each case."""

    name = "bad"
    max_bytes = 64 * MEBIBYTE

    def __init__(self, *faults: str) -> None:
        self.faults = faults

    def valid(self):
        return []

    def make(self, rng: Random) -> Case:
        return Case({"file": rng.randbytes(8)}, "file", (rng.choice(self.faults),))

    def read(self, folder: Path, ask) -> None:
        getattr(self, ask[0])(folder)

    def works(self, folder):
        (folder / "own").write_text("a file of one's own", encoding="utf-8")
        raise DataError("The file is damaged; save it anew.")

    def raises(self, folder):
        raise ValueError("what nobody expected")

    def two_lines(self, folder):
        class WordyError(DataError):
            __str__ = Exception.__str__  # without what keeps messages on one line

        raise WordyError("one\ntwo")

    def runs_code(self, folder):
        os.system("echo bird > canary")

    def writes_outside(self, folder):
        os.close(os.open(folder.parent / "stray", os.O_CREAT | os.O_WRONLY))

    def links_outside(self, folder):
        os.symlink("file", folder.parent / "stray")  # which is no opening of a file

    def leaves_temporary_files(self, folder):
        (folder.parents[3] / "tmp" / "left").symlink_to("file")

    def allocates(self, folder):
        bytearray(os.urandom(1)) * (100 * MEBIBYTE)

    def is_slow(self, folder):
        start = time.process_time()
        while time.process_time() < start + 0.5:
            pass

    def hangs(self, folder):
        time.sleep(600)

    def dies(self, folder):
        os.abort()
