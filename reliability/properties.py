"""Property tests with many more examples than in CI, and their figures.

    python reliability/properties.py                # ten times the examples of CI, all files
    python reliability/properties.py --multiple 100 maps core

writes reliability/results/properties.json after each file of tests: the functions covered, how many examples each test
drew, and what failed. A failure prints how to repeat it. `findings` is kept from one run to the next: it is written by
hand, one sentence for each fault that these tests found.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULT = Path(__file__).resolve().parent / "results" / "properties.json"
_TEST = re.compile(r"^tests/(test_properties_\w+\.py::\S+):$")
_COUNTS = re.compile(r"(\d+) passing, (\d+) failing")


def run_file(file: Path, multiple: int) -> dict[str, Any]:
    """One file of tests: the examples of each test, and whether all passed."""
    started = time.monotonic()
    done = subprocess.run(  # our own tests
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--hypothesis-show-statistics", str(file)],
        cwd=ROOT,
        env=os.environ | {"FEI_EXAMPLES": str(multiple)},
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    examples: dict[str, int] = {}
    name = ""
    for line in done.stdout.splitlines():
        if heading := _TEST.match(line.strip()):
            name = heading[1].partition("::")[2]
        elif name and (counts := _COUNTS.search(line)):
            examples[name] = examples.get(name, 0) + int(counts[1]) + int(counts[2])
    if done.returncode:
        print(done.stdout[-8000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
    return {
        "passed": done.returncode == 0,
        "summary": done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "",
        "seconds": round(time.monotonic() - started, 1),
        "examples": examples,
    }


def covered() -> list[str]:
    """The public functions with a property test."""
    sys.path.insert(0, str(ROOT / "tests"))
    from test_properties_registry import property_tests

    return sorted(property_tests())


def main() -> None:
    """Run the files, and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("areas", nargs="*", help="such as core or maps; all if not given")
    parser.add_argument("--multiple", type=int, default=10, help="times the examples of CI")
    arguments = parser.parse_args()
    before = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {}
    files = [file for file in sorted((ROOT / "tests").glob("test_properties_*.py")) if "registry" not in file.name]
    result: dict[str, Any] = {
        "what": "property-based tests (hypothesis) of every public function",
        "versions": {name: importlib.metadata.version(name) for name in ("hypothesis", "torch", "numpy")},
        "functions_covered": covered(),
        "total_examples": 0,
        "files": before.get("files", {}),
        "findings": before.get("findings", []),
    }
    for file in files:
        area = file.stem.removeprefix("test_properties_")
        if arguments.areas and area not in arguments.areas:
            continue
        result["files"][area] = {"multiple": arguments.multiple} | run_file(file, arguments.multiple)
        result["total_examples"] = sum(sum(one["examples"].values()) for one in result["files"].values())
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(area, result["files"][area]["summary"])
    if not all(one["passed"] for one in result["files"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
