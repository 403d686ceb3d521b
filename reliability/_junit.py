"""The outcome of a run of pytest, read from its JUnit report."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any


def outcome(report: Path) -> dict[str, Any]:
    """How many tests passed, and which failed or were skipped, with the reason."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = [said for case in cases if (said := _said(case, "failure", "error"))]
    skipped = [said for case in cases if (said := _said(case, "skipped"))]
    return {"passed": len(cases) - len(failed) - len(skipped), "failed": failed, "skipped": skipped}


def _said(case: ElementTree.Element, *tags: str) -> str | None:
    for tag in tags:
        if (part := case.find(tag)) is not None:
            first = (part.get("message") or "").partition("\n")[0]  # the rest may name folders of this machine
            return f"{case.get('name')}: {first[:200]}"
    return None
