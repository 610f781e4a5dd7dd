"""What a check has found, how bad that is, and what changes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The words are those of the report."""

    OK = "ok"
    WARNING = "warning"  # it works, but not as well, or not for as long, as it could
    ERROR = "error"  # it will not start, or will fail or repeat requests


@dataclass(frozen=True, slots=True)
class Finding:
    """`check`: what was looked at, in a few words. `found`: a sentence about it.

    `fix`: a setting with its value, a directive or a command that makes it well; empty when all is.
    """

    check: str
    found: str
    verdict: Verdict = Verdict.OK
    fix: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, found)


def warning(check: str, found: str, fix: str) -> Finding:
    """It could be better."""
    return Finding(check, found, Verdict.WARNING, fix)


def error(check: str, found: str, fix: str) -> Finding:
    """It has to be changed."""
    return Finding(check, found, Verdict.ERROR, fix)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The verdict on all of them together."""
    verdicts = {finding.verdict for finding in findings}
    return next((verdict for verdict in (Verdict.ERROR, Verdict.WARNING) if verdict in verdicts), Verdict.OK)
