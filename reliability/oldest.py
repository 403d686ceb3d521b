"""The tests with the oldest supported torch, one file at a time, in an environment that was made for it.

    python -m venv old
    old/bin/pip install torch==2.4.0 torchvision==0.19.0 ".[cli,timm,shap,parquet]" pytest hypothesis duckdb
    python reliability/oldest.py --python old/bin/python            all files of core, methods, metrics, models, bench
    python reliability/oldest.py --python old/bin/python clipgrad   these alone

Each file's outcome is added to `reliability/results/oldest.json` as it comes; a run that is interrupted goes on where
it stopped. Pages and the web application, which do not compute, are left out, and so is Ray.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _junit import outcome

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "reliability" / "results" / "oldest.json"
FILES = (
    *("clipgrad", "quantiles", "sites", "pathway", "attribution", "folding", "odd_modules", "references"),
    *(
        "explanation",
        "layout",
        "methods",
        "fgvis",
        "gradient_methods",
        "cam_family",
        "scorecam",
        "head_methods",
        "rise",
    ),
    *("extremal", "occlusion_kernelshap", "baselines", "method_options", "metrics", "protocols", "black_image"),
    *("randomization", "localization", "complexity", "agreement", "confidence", "cost_summary", "models"),
    *("model_files", "model_structure", "model_sources", "adapters", "compat", "images", "datasets", "golden"),
    *("bench_plan", "bench_store", "bench_exchange", "bench_run", "bench_engine", "bench_report", "bench_faults"),
    *("real_networks", "architectures", "finetune", "report"),
)
PACKAGES = (
    *("torch", "torchvision", "numpy", "scipy", "scikit-image", "pillow", "captum", "safetensors", "matplotlib"),
    *("pydantic", "timm", "transformers", "scikit-learn", "pyarrow", "torchcam", "grad-cam", "quantus", "pytest"),
)
_VERSIONS = """
import importlib.metadata as m, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


def run_file(python: str, name: str, timeout: float) -> dict[str, Any]:
    """How many tests of a file passed, and which failed or were skipped, with the reason."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}"]
        command = [python, "-B", "-m", "pytest", *options, f"tests/test_{name}.py"]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, encoding="utf-8"
            )
        except subprocess.TimeoutExpired:
            return {"passed": 0, "failed": [f"the file took more than {timeout:g} s"], "skipped": []}
        if not report.exists():
            return {
                "passed": 0,
                "failed": [f"pytest ended with {done.returncode}: {done.stdout[-200:]}"],
                "skipped": [],
            }
        return outcome(report)


def write(by_file: dict[str, dict[str, Any]], versions: dict[str, str | None]) -> None:
    """Store the outcomes so far, with their sums."""
    facts = {
        "what": "tests with the oldest supported torch, a file at a time; pages, the web application and Ray left out",
        "command": "python reliability/oldest.py --python OLD/bin/python",
        "versions": versions,
        "files": len(by_file),
        "passed": sum(one["passed"] for one in by_file.values()),
        "failed": sum(len(one["failed"]) for one in by_file.values()),
        "skipped": sum(len(one["skipped"]) for one in by_file.values()),
        "not_run": [name for name in FILES if name not in by_file],
        "by_file": by_file,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> int:
    """Read the command line and run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", required=True, help="the interpreter of the environment with the oldest torch")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a file may take")
    parser.add_argument("files", nargs="*", help="such as clipgrad for tests/test_clipgrad.py; run again if named")
    given = parser.parse_args()
    printed = subprocess.run(
        [given.python, "-c", _VERSIONS, *PACKAGES], capture_output=True, text=True, check=True, encoding="utf-8"
    )
    versions: dict[str, str | None] = json.loads(printed.stdout)
    before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    by_file = before.get("by_file", {}) if before.get("versions") == versions else {}
    for name in given.files or [name for name in FILES if name not in by_file]:
        by_file[name] = run_file(given.python, name, given.timeout)
        write(by_file, versions)
        print(f"{name}: {by_file[name]['passed']} passed, {len(by_file[name]['failed'])} failed", flush=True)
    return 1 if any(one["failed"] for one in by_file.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
