"""A model card in lines for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loaders.bundle import BUNDLE_FILE
from service.cli.model_card import SHOWN_LABELS

_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_MAX_ANSWER_CHARS = 200
_A_GUESS = " (how many numbers, the model does not tell; put a row of yours there)"
_MADE_UP = {"image": "a picture of one colour", "text": 'the text "warm up"', "tabular": "zeros", "tensor": "zeros"}


def card_lines(card: dict[str, Any], given: Path) -> Iterator[str]:
    """What `jitney inspect` prints; given: the path that was loaded."""
    how = [card["format"], f"on {card['device']}"]
    how += [card["dtype"]] if card["dtype"] else []
    how += ["compiled"] if card["compile"] else []
    yield f"{card['name']}, version {card['version']} ({', '.join(how)})"
    yield ""
    file = card["file"]
    yield _line("file", f"{file['name']}, {_size(file['bytes'])}")
    yield _line("sha256", f"{file['sha256']} ({_pinned(file['pinned'], given)})")
    yield _line("input", _input(card["input"]))
    if card["input"]["kind"] == "image":
        yield _line("prepared", _preparation(card["input"]))
    yield _line("output", _output(card["output"]))
    if card["parameters"]:
        yield _line("parameters", ", ".join(card["parameters"]))
    for warning in card["warnings"]:
        yield _line("warning", warning)
    yield ""
    yield f"A request, once the service runs{'' if card['request']['is_whole'] else _A_GUESS}:"
    yield f"  {card['request']['curl']}"
    if card["answer"] is not None:
        yield f"An answer, here to {_made_up(card['input'])}:"
        yield f"  {_cut(json.dumps(card['answer'], ensure_ascii=False))}"


def _line(title: str, text: str) -> str:
    return f"  {title:<11} {text}"


def _pinned(pinned: bool, given: Path) -> str:
    if pinned:
        return "pinned"
    described = (given / BUNDLE_FILE).is_file()
    return f"not pinned; `jitney pin {given}` does" if described else f"not pinned; a {BUNDLE_FILE} can pin it"


def _input(facts: dict[str, Any]) -> str:
    kind = facts["kind"]
    if kind == "text":
        longest = "" if facts["max_length"] is None else f", cut after {facts['max_length']} tokens"
        rounded = f", padded to multiples of {facts['pad_to_multiple_of']}" if facts["pad_to_multiple_of"] else ""
        packed = f", several in {facts['packs']}" if facts["packs"] else ""
        return f"text{'' if facts['tokenised'] else ', as it comes'}{longest}{rounded}{packed}"
    if kind == "image":
        order = "channels first" if facts["layout"] == "NCHW" else "channels last"
        return f"image: {facts['height']} x {facts['width']} (height x width), {order}, {facts['dtype']}"
    if kind == "tensor":
        unknown = "of a shape that the file does not tell; a bundle's [input] shape can"
        shape = unknown if facts["shape"] is None else _shape(facts["shape"])
        return f"tensor: {shape}, {facts['dtype']}"
    nulls = _nulls(facts)
    what = "numbers or texts" if facts["dtype"] == "object" else facts["dtype"]
    if facts["columns"] is not None:
        return f"tabular: {len(facts['columns'])} columns ({_columns(facts)}), {what}, {nulls}"
    return f"tabular: {facts['width'] or 'any number of'} numbers, {what}, {nulls}"


def _nulls(facts: dict[str, Any]) -> str:
    if not facts["allow_null"]:
        return "no null"
    without = facts["without_null"]
    if not without:
        return "null is a missing value"
    names = facts["columns"] or [str(number) for number in range(facts["width"])]
    return f"null is a missing value, but not in {_some([names[position] for position in without])}"


def _columns(facts: dict[str, Any]) -> str:
    """Some of the names; all of them with their types where those differ."""
    types: Sequence[str | None] = facts["column_types"]
    if not types:
        return _some(facts["columns"])
    return ", ".join(f"{name}: {kind or 'any'}" for name, kind in zip(facts["columns"], types, strict=True))


def _made_up(facts: dict[str, Any]) -> str:
    return "this request" if facts.get("dtype") == "object" else _MADE_UP[facts["kind"]]


def _preparation(facts: dict[str, Any]) -> str:
    if facts["resize_shorter"]:
        how = f"shorter side to {facts['resize_shorter']}, centre {facts['crop'][0]} x {facts['crop'][1]}"
    else:
        how = "stretched to the size"
    pixels = "pixels as they are"
    if facts["dtype"] != "uint8":
        pixels = f"(pixel x {facts['scale']:.6g} - {_per_channel(facts['mean'])}) / {_per_channel(facts['std'])}"
    return f"{how}, {facts['interpolation']}; {pixels}"


def _per_channel(values: tuple[float, ...]) -> str:
    return f"{values[0]:g}" if len(set(values)) == 1 else f"[{', '.join(f'{value:g}' for value in values)}]"


def _output(facts: dict[str, Any]) -> str:
    labels = facts["labels"]
    if labels is None:
        known = ""
    elif isinstance(labels[0], list):
        known = f"; {len(labels)} outputs with {', '.join(str(len(part)) for part in labels)} classes"
    else:
        known = f"; {len(labels)} classes ({_some(labels)})"
    if facts["task"] == "classification":
        what = "the best label and its score" if facts["top_k"] is None else f"the best {facts['top_k']} with scores"
        return f"classification: {what}{', softmax over the scores' if facts['softmax'] else ''}{known}"
    return f"{facts['task'] or 'what the model gives'}{known}"


def _some(names: Any) -> str:
    shown = ", ".join(str(name) for name in names[:SHOWN_LABELS])
    return f"{shown}, ..." if len(names) > SHOWN_LABELS else shown


def _shape(shape: Any) -> str:
    return "[" + ", ".join("any" if extent is None else str(extent) for extent in shape) + "]"


def _size(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_ANSWER_CHARS else f"{text[:_MAX_ANSWER_CHARS]}... ({len(text):,} characters)"
