"""The last audit of each network, by its fingerprint, so that ``fei explain --method auto`` can follow it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fei.common.memory import read_own, write_own
from fei.errors import InputError


@dataclass(frozen=True)
class Remembered:
    """What is kept of an audit.

    Attributes:
        fingerprint: Of the network, see `fei.bench.plan.keys.model_fingerprint`.
        method: What it recommends; None where it recommends nothing.
        options: The method's options.
        sentences: The recommendation in words.
        report: Where the audit's report is.
        finished: When it was made.

    Examples:
        >>> from fei.auditing import Remembered
        >>> kept = Remembered("0f", "gradcam", {}, ("Take gradcam.", "It passes."), "audit.html", "2026-01-02T03:04:05")
        >>> kept.note()
        'The method was chosen by the audit of this network of 2026-01-02: Take gradcam.'
    """

    fingerprint: str
    method: str | None
    options: dict[str, Any]
    sentences: tuple[str, str]
    report: str
    finished: str

    def note(self) -> str:
        """What a record says."""
        return f"The method was chosen by the audit of this network of {self.finished[:10]}: {self.sentences[0]}"


def remember(audit: Remembered) -> Path | None:
    """Keep an audit in place of the last one of the same network; None where nothing can be written.

    A method in a file is kept with all of its path: elsewhere another file, of a stranger, may have its name.
    """
    file, mark, name = (audit.method or "").rpartition(":")
    if file.endswith(".py"):
        audit = replace(audit, method=f"{Path(file).resolve()}{mark}{name}")
    return write_own(_name(audit.fingerprint), json.dumps(asdict(audit), indent=2) + "\n")


def last_audit(fingerprint: str, spec: str) -> Remembered:
    """The last audit of a network.

    Args:
        fingerprint: Of the network.
        spec: Its specification, for what is said where there is none.

    Raises:
        InputError: If there is none, or it recommends nothing.

    Examples:
        >>> fei.auditing.last_audit("a network that nobody audited", "net.py:net")
        Traceback (most recent call last):
        fei.errors.InputError: There is no audit of this network that could choose the method; make one with: ...
    """
    text = read_own(_name(fingerprint))
    try:
        found = None if text is None else Remembered(**json.loads(text))
    except (ValueError, TypeError):
        found = None
    if found is None or found.fingerprint != fingerprint:
        raise InputError(
            f"There is no audit of this network that could choose the method; make one with: fei audit --model {spec} "
            "--data DIR."
        )
    if found.method is None:
        raise InputError(
            f"The last audit of this network recommends no method ('{found.report}'); name one with --method, or audit "
            "it again with more images or a longer budget."
        )
    return found


def _name(fingerprint: str) -> str:
    return f"audit-{fingerprint}.json"
