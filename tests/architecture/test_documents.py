"""The tables of the documents say what the code does."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Any

from service.batching.tickets import FlushReason
from service.http.problems import PROBLEMS
from service.settings import Settings

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def table(*header: str, document: Path = README) -> list[list[str]]:
    """The cells of the rows under the one table that begins with these column titles."""
    lines = document.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if cells(line)[: len(header)] == list(header)]
    assert len(starts) == 1, f"{document.name} must have one table with the columns {header}"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def shown(default: Any) -> str:
    if default is None:
        return "unset"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:.12g}"
    return str(default.value if isinstance(default, Enum) else default)


def settings_in(document: Path) -> dict[str, str]:
    return {name: default for name, default, *_ in table("variable", "default", "meaning", document=document)}


def test_every_setting_is_documented_with_its_default():
    actual = {f"`{name.upper()}`": f"`{shown(field.default)}`" for name, field in Settings.model_fields.items()}
    assert settings_in(ROOT / "docs" / "settings.md") == actual
    assert settings_in(README).items() <= actual.items()


def test_what_a_setting_means_is_told_in_the_words_of_the_code():
    told = {
        name: meaning
        for name, _, meaning in table("variable", "default", "meaning", document=ROOT / "docs" / "settings.md")
    }
    assert told == {f"`{name.upper()}`": field.description for name, field in Settings.model_fields.items()}


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


def test_every_status_of_an_error_stands_in_the_readme():
    documented = {int(status) for row in table("status") for status in re.findall(r"\b\d{3}\b", row[0])}
    # Nobody is there to see a 499: it is what the metrics count a client under that has left.
    assert {status for status, _ in PROBLEMS.values()} - {499} <= documented


def test_every_reason_for_which_a_batch_leaves_is_explained_and_has_a_colour():
    reasons = {f"`{reason.value}`" for reason in FlushReason}
    assert {reason for reason, _ in table("reason", "holds when", document=ROOT / "docs" / "design.md")} == reasons
    pages = ROOT / "service" / "http" / "pages"
    words = (pages / "distributions.js").read_text(encoding="utf-8").partition("REASONS = {")[2].partition("}")[0]
    styles = (pages / "status.css").read_text(encoding="utf-8")
    for reason in FlushReason:
        assert re.search(rf"^  {reason.value}: \"", words, re.MULTILINE), f"no words for {reason}"
        assert styles.count(f"--{reason.value}: #") == 2, f"{reason} needs a colour in the light and in the dark"
        assert f".batch.reason-{reason.value} " in styles
        assert f".bar.reason-{reason.value} " in styles
