"""The report of an audit as text: Markdown for people, JUnit for machines that build."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

from fei.auditing.costs import short
from fei.auditing.result import Audit
from fei.auditing.verdicts import FAIL, NONE, PASS
from fei.common.words import in_markdown, printable
from fei.progress import span


def markdown(audit: Audit) -> str:
    """The report in a page of Markdown."""
    document = audit.document()
    names = [question["name"] for question in document["questions"]]
    rows = [
        [_code(each["name"]), *(each["answers"][name]["mark"] for name in names), _seconds(each), str(each["images"])]
        for each in document["methods"]
    ]
    parts = [
        f"# Audit of {_code(document['network']['model'])}",
        in_markdown(" ".join(document["sentences"])),
        *(f"**{in_markdown(remark['sentence'])}**" for remark in document["network"]["remarks"]),
        _table(["method", *names, "per map", "images"], rows),
        "✓ passes, ✗ fails, ? cannot tell with this many images, – does not apply. At most "
        f"{document['alpha']:.0%} of the ✓ and ✗ are expected to be wrong.",
        "## What was asked",
        "\n".join(
            f"- **{each['name']}**: {each['title']} {each['measure'][:1].upper()}{each['measure'][1:]}, "
            f"{'below' if each['below'] else 'above'} {each['limit']:g}."
            for each in document["questions"]
        ),
        "## Numbers",
        _table(
            ["method", "question", "", "mean", "interval", "n", "note"],
            [
                [_code(each["name"]), name, answer["mark"], *_numbers(answer), in_markdown(_note(answer))]
                for each in document["methods"]
                for name, answer in each["answers"].items()
                if answer["answer"] != NONE
            ],
        ),
    ]
    for title, reasons in (("Dropped early", document["dropped"]), ("Not measured", document["left_out"])):
        if reasons:
            parts += [f"## {title}", "\n".join(f"- {_code(name)}: {in_markdown(why)}" for name, why in reasons.items())]
    parts.append(
        f"{document['data']['images']} images in {_code(document['data']['spec'])}, seed {document['seed']}, "
        f"{span(document['seconds'])} of {span(document['budget'])}; fingerprint "
        f"`{document['network']['fingerprint']}`."
    )
    return "\n\n".join(parts) + "\n"


def junit(audit: Audit, method: str | None) -> str:
    """What was required of a method as a JUnit report: a test for each question.

    Args:
        audit: The audit.
        method: The method; the recommended one if None.

    Examples:
        >>> found = fei.audit("net.py:net", "imagefolder:classes", methods=["gradcam", "random"], require="class")
        >>> fei.auditing.junit(found, "random").splitlines()[1].startswith('<testsuite name="fei audit" tests="1"')
        True
    """
    name = method or audit.recommended
    unmet = audit.unmet(method)
    suite = ElementTree.Element("testsuite", name="fei audit")
    for question in audit.questions:
        case = ElementTree.SubElement(suite, "testcase", classname=f"audit.{name}", name=question.name)
        verdict = audit.table.get((name or "", question.name))
        if question.name in unmet:
            kind = "failure" if verdict is not None and verdict.answer == FAIL else "error"
            ElementTree.SubElement(case, kind, message=f"{name}: {unmet[question.name]}")
        elif verdict is not None and verdict.answer != PASS:
            ElementTree.SubElement(case, "skipped", message=verdict.why)
    counts = {kind: len(list(suite.iter(kind))) for kind in ("failure", "error", "skipped")}
    suite.attrib |= {
        "tests": str(len(audit.questions)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": f"{audit.seconds:.1f}",
    }
    ElementTree.indent(suite)
    for each in suite.iter():  # XML has no sign for some of what a file may be called
        each.attrib = {key: printable(value) for key, value in each.attrib.items()}
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _code(text: str) -> str:
    """A name, as code."""
    line = printable(" ".join(text.split()))
    return f"`{line.replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def _seconds(method: dict[str, Any]) -> str:
    return "–" if method["seconds"] is None else short(method["seconds"])


def _numbers(answer: dict[str, Any]) -> list[str]:
    if answer["mean"] is None:
        return ["–", "–", str(answer["n"])]
    interval = "–" if answer["low"] is None else f"[{answer['low']:.3f}, {answer['high']:.3f}]"
    return [f"{answer['mean']:.3f}", interval, str(answer["n"])]


def _note(answer: dict[str, Any]) -> str:
    return answer["why"] or (f"against {answer['against']}" if answer["against"] else "")
