"""A slice of `reliability/load.py`: honest visitors of `fei serve` among hostile clients."""

import subprocess
import sys
from pathlib import Path

import pytest
from page_server import require

pytestmark = pytest.mark.slow

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory and descriptors are read from /proc")
def test_visitors_are_served_among_attackers_and_nothing_grows_leaks_or_is_left(monkeypatch):
    monkeypatch.delenv("MATPLOTLIBRC")  # of the tests, from which the server would read it
    require("starlette", "uvicorn")
    import load

    seen = load.measure(6, quick=True)
    assert seen["findings"] == []
    assert seen["visits_served"] == seen["visits"] >= load.VISITORS + 1
    assert seen["attacks"] >= load.ATTACKERS  # they were there
    assert set(seen["answers_by_status"]) & {"400", "404", "413"}  # and were heard
    assert seen["memory_mb_peak"] < seen["memory_mb_before"] + 200
    assert seen["files_left_when_all_had_gone"] == []
    assert seen["paths_touched_outside"] == {"written": [], "read": [], "never": []}
    assert seen["kernel_account"]["written"] == []


def test_what_is_touched_outside_is_found(tmp_path):
    """The audit hook's account, of a process that does what the server must not."""
    import load

    folder, log = tmp_path / "server", tmp_path / "opened.jsonl"
    folder.mkdir()
    log.touch()
    program = f"""
import os, sys
sys.path.insert(0, {str(load.HERE)!r})
from _load_server import watch
log = os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND)
watch(log)
open({str(folder / "mine")!r}, "w").close()
os.write(log, b'["mark", "attacks begin"]\\n')
os.rename({str(folder / "mine")!r}, {str(tmp_path / "away")!r})
open("/etc/hostname", "rb").close()
os.system("true")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    running = load.Server("", None, 0, folder, log, None)
    found = load.touched(running)
    assert found["written"] == [str(tmp_path / "away")]
    assert found["read"] == ["/etc/hostname"]
    assert [what.split()[0] for what in found["never"]] == ["os.system"]
