"""Photos of strangers are decoded in a process of its own, which can do no harm and holds up nobody."""

import io
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image
from waiting import PATIENCE, until

from fei.app.decoding import Decoder, decoded
from fei.errors import DataError

pytestmark = pytest.mark.slow

GREEDY = """
import os, sys, time
from pathlib import Path
from fei.app import decoding
assert "torch" not in sys.modules
decoding._SECONDS = 1
def decoded(file, pixels):
    {}
decoding.decoded = decoded
print(decoding._forked(Path({!r}), 1000))
"""


@pytest.fixture
def decoder():
    made = Decoder(1)
    yield made
    made.close()


@pytest.fixture
def photo(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo", "PNG")
    return tmp_path / "photo"


def test_it_decodes_as_we_do(decoder, photo, tmp_path):
    for _ in range(2):
        image, kind = decoder(photo, 1000)
        here, same = decoded(photo, 1000)
        assert (kind, same) == ("PNG", "PNG")
        np.testing.assert_array_equal(np.asarray(image), np.asarray(here))
    assert [file.name for file in tmp_path.iterdir()] == ["photo"]
    for decode in (decoder, decoded):
        with pytest.raises(DataError, match=r"^The photo has more than 0.0001 million pixels"):
            decode(photo, 100)
        with pytest.raises(DataError, match=r"^There is no image file The photo"):
            decode(tmp_path / "none", 100)


def test_it_runs_nothing_of_the_folder_it_is_started_in(photo, tmp_path, monkeypatch):
    """Python looks for modules there first, so that a file of that name would run in the place of the right one."""
    for name in ("json", "PIL", "encodings", "multiprocessing", "numpy"):
        (tmp_path / f"{name}.py").write_text(f"open('ran-{name}', 'w').close()", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made = Decoder(1)
    try:
        assert made(photo, 1000)[0].size == (30, 20)
    finally:
        made.close()
    assert not list(tmp_path.glob("ran-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's")
@pytest.mark.parametrize(
    "greed",
    [
        "\n    while True: pass",
        "return bytearray(2_000_000_000)",
        "return [open(os.devnull) for _ in range(100)]",
        "Path('large').write_bytes(bytes(4_000_000))",
    ],
)
def test_a_photo_that_takes_too_much(tmp_path, greed):
    code = GREEDY.format(greed, str(tmp_path / "photo"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        cwd=tmp_path,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "error": "The photo takes too much time or memory to read; save it again, in another format or smaller."
    }


def test_one_that_dies_is_replaced(decoder, photo):
    decoder(photo, 1000)
    (process,) = decoder._started
    process.kill()
    process.wait()
    assert decoder(photo, 1000)[0].size == (30, 20)
    assert len(decoder._started) == 1


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups")
def test_the_end_waits_for_no_photo(decoder, tmp_path):
    """A JPEG of many scans of many pixels keeps a process busy; closing ends it at once."""
    content = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (3000, 3000), dtype=np.uint8)).save(
        content, "JPEG", progressive=True, quality=30
    )
    plain = content.getvalue()
    scan = plain[plain.rindex(b"\xff\xda") : -2]
    (tmp_path / "photo").write_bytes(plain[:-2] + scan * 50 + plain[-2:])
    errors = []

    def decode():
        try:
            decoder(tmp_path / "photo", 40_000_000)
        except DataError as error:
            errors.append(str(error))

    thread = threading.Thread(target=decode)
    thread.start()
    until(lambda: decoder._started)
    decoder.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(errors) == 1
