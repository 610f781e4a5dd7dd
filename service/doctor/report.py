"""The findings as a table for people, whatever the width of their terminal, and as data for programs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from service.doctor.findings import Finding, Verdict, worst

MIN_WIDTH = 60
MAX_WIDTH = 160

# From here on what fixes something has a column of its own.
_WIDE = 110

_GAP = "  "
_MAX_CHECK_CHARS = 24

# (text, verdict) -> text; for colours.
Paint = Callable[[str, Verdict], str]


def as_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """Of JSON types only."""
    return {
        "verdict": worst(findings).value,
        "findings": [
            {"check": each.check, "found": each.found, "verdict": each.verdict.value, "fix": each.fix or None}
            for each in findings
        ],
    }


def as_table(findings: Sequence[Finding], width: int, paint: Paint = lambda text, _: text) -> Iterator[str]:
    """Lines of at most `width` characters (between MIN_WIDTH and MAX_WIDTH), with a sentence at the end."""
    width = min(max(width, MIN_WIDTH), MAX_WIDTH)
    columns = _columns(findings, width)
    titles = ("verdict", "check", "found", "what fixes it")[: len(columns)]
    yield _GAP.join(title.ljust(chars) for title, chars in zip(titles, columns, strict=True)).rstrip()
    yield _GAP.join("-" * chars for chars in columns)
    for each in findings:
        yield from _row(each, columns, paint)
    yield ""
    yield _summary(findings)


def _columns(findings: Sequence[Finding], width: int) -> list[int]:
    verdict = max(len(each) for each in Verdict)
    check = min(max([len("check"), *(len(each.check) for each in findings)]), _MAX_CHECK_CHARS)
    left = width - verdict - check - 2 * len(_GAP)
    if width < _WIDE:
        return [verdict, check, left]
    fix = min(40, max([len("what fixes it"), *(len(each.fix) for each in findings)]))
    return [verdict, check, left - fix - len(_GAP), fix]


def _row(finding: Finding, columns: Sequence[int], paint: Paint) -> Iterator[str]:
    found = _wrapped(finding.found, columns[2])
    cells = [[finding.verdict.value], _wrapped(finding.check, columns[1]), found]
    if len(columns) == 4:
        cells.append(_wrapped(finding.fix, columns[3]))
    elif finding.fix:
        cells[2] = [*found, *_wrapped(f"-> {finding.fix}", columns[2], indent="   ")]
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        padded = [part.ljust(chars) for part, chars in zip(parts, columns, strict=True)]
        line = _GAP.join(padded).rstrip()
        # Painted last, because a colour is no width.
        yield paint(line[: columns[0]], finding.verdict) + line[columns[0] :] if number == 0 else line


def _wrapped(text: str, chars: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, chars, subsequent_indent=indent, break_on_hyphens=False)


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(each.verdict for each in findings)
    errors, warnings = counts[Verdict.ERROR], counts[Verdict.WARNING]
    return f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}, {counts[Verdict.OK]} ok"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
