"""`jitney inspect`: what would be served, without serving it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never

import click

from loaders.bundle import BUNDLE_FILE
from loaders.errors import ModelError
from loaders.handle import ModelHandle
from service.settings import SelfCheck, Settings, SettingsError, load_settings, read_dotenv

_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_MAX_ANSWER_CHARS = 200
_MADE_UP = {"image": "a picture of one colour", "text": 'the text "warm up"', "tabular": "zeros", "tensor": "zeros"}


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def inspect(model: str, as_json: bool) -> None:
    """Load MODEL as the service would and tell what it takes and gives.

    Settings count as they do for `jitney serve`: DEVICE, ALLOW_PICKLE, MODEL_FORMAT and the others.
    """
    from service.cli.model_card import model_card

    read_dotenv()
    try:
        settings = load_settings(model_path=model, model_repository=None)
        handle = _load(settings)
    except SettingsError as error:
        _fail(f"wrong settings\n{error}", as_json)
    except ModelError as error:
        _fail(str(error), as_json)
    try:
        card = model_card(handle, Path(model), _url(settings.bind))
        card["answer"], problem = _try(handle)
        card["warnings"] += [finding for finding in (problem, _checked(handle, settings)) if finding is not None]
    finally:
        handle.close()
    if as_json:
        click.echo(json.dumps(card, indent=2, ensure_ascii=False, default=str))
        return
    click.echo("\n".join(_lines(card, Path(model))))


def _load(settings: Settings) -> ModelHandle:
    from loaders.signature import ImageInput
    from service.inputs import image
    from service.models.loading import load_configured_model

    handle = load_configured_model(settings)
    if isinstance(handle.input, ImageInput):
        image.require()
    return handle


def _fail(message: str, as_json: bool) -> Never:
    if as_json:
        click.echo(json.dumps({"error": message}, ensure_ascii=False))
        sys.exit(1)
    raise click.ClickException(message)


def _try(handle: ModelHandle) -> tuple[Any, str | None]:
    """What the model answers to a made-up row, as a client would see it, or what is wrong with that."""
    import orjson

    from service.models.examples import example_row
    from service.outputs import present

    row = example_row(handle.input)
    if row is None:
        return None, None
    try:
        results = handle.predict_batch([row])
        if not isinstance(results, list) or len(results) != 1:
            return None, "the model does not give one result for one row"
        shown = orjson.dumps(present(handle.output, results[0]), option=orjson.OPT_SERIALIZE_NUMPY)
    except Exception as error:  # whatever the framework raises is what the operator has to know
        return None, f"the model fails on a made-up row: {type(error).__name__}: {error}"
    return json.loads(shown), None


def _checked(handle: ModelHandle, settings: Settings) -> str | None:
    """What the self-check of the service would find."""
    from service.models.self_check import self_check

    if settings.self_check is SelfCheck.OFF:
        return None
    finding = self_check(handle, settings.max_batch_size, lambda model, rows, _: model.predict_batch(rows)).finding
    refused = finding is not None and settings.self_check is SelfCheck.STRICT
    return f"{finding}; with SELF_CHECK=strict it is not served" if refused else finding


def _lines(card: dict[str, Any], given: Path) -> Iterator[str]:
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
    yield "A request, once the service runs:"
    yield f"  {card['request']['curl']}"
    if card["answer"] is not None:
        yield f"An answer, here to {_MADE_UP[card['input']['kind']]}:"
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
        return f"text{'' if facts['tokenised'] else ', as it comes'}{longest}{rounded}"
    if kind == "image":
        order = "channels first" if facts["layout"] == "NCHW" else "channels last"
        return f"image: {facts['height']} x {facts['width']} (height x width), {order}, {facts['dtype']}"
    if kind == "tensor":
        unknown = "of a shape that the file does not tell; a bundle's [input] shape can"
        shape = unknown if facts["shape"] is None else _shape(facts["shape"])
        return f"tensor: {shape}, {facts['dtype']}"
    nulls = "null is a missing value" if facts["allow_null"] else "no null"
    what = "numbers or texts" if facts["dtype"] == "object" else facts["dtype"]
    if facts["columns"] is not None:
        return f"tabular: {len(facts['columns'])} columns ({_some(facts['columns'])}), {what}, {nulls}"
    return f"tabular: {facts['width'] or 'any number of'} numbers, {what}, {nulls}"


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
    from service.cli.model_card import SHOWN_LABELS

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


def _url(bind: str) -> str:
    """Where a client on this machine finds the service; a socket has no address to show."""
    if bind.startswith(("unix:", "fd:")):
        return "http://127.0.0.1:8000"
    return f"http://127.0.0.1{bind}" if bind.startswith(":") else f"http://{bind}"
