"""docs/reliability.md says what the last runs of the tools found, and nothing else."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_is_that_of_the_results():
    check = [sys.executable, str(ROOT / "reliability" / "page.py"), "--check"]
    assert subprocess.run(check, check=False).returncode == 0, "run python reliability/page.py"
