"""What a loaded model is, takes and gives, as plain data for a person or a program to read."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loaders.bundle import BUNDLE_FILE, bundle_digest, digest, read_bundle
from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, OutputSpec, TabularInput, TextInput

# Class names that are shown; a model may have thousands.
SHOWN_LABELS = 5
# A body that is longer is written by a line of Python instead.
_MAX_BODY_CHARS = 400
_FREE_WIDTH = 3

_RUNS_CODE = {"pickle", "joblib"}


def model_card(model: ModelHandle, given: Path, url: str) -> dict[str, Any]:
    """Everything that `jitney inspect` tells, of JSON types only.

    given: the path that was loaded, a bundle's directory or a bare model. url: where the service will listen.
    """
    file = _file(given)
    warnings = list(model.warnings)
    if model.fmt in _RUNS_CODE and not file["pinned"]:
        warnings.append(
            f"{model.fmt} files run code when they are loaded, and this one is not pinned: it is served only with "
            "ALLOW_PICKLE=true"
        )
    table = model.metadata.get("model", {})
    return {
        "name": model.name,
        "version": model.version,
        "format": model.fmt,
        "device": model.device,
        "dtype": table.get("dtype"),
        "compile": bool(table.get("compile")),
        "file": file,
        "input": _input(model.input),
        "output": _output(model.output, model.metadata.get("classes")),
        "parameters": sorted(model.parameters),
        "warnings": warnings,
        "request": {"path": "/predict", "curl": curl(model.input, url)},
    }


def _file(given: Path) -> dict[str, Any]:
    """Name, size and digest of what is loaded; for a bundle, with the files that belong to it."""
    if (given / BUNDLE_FILE).is_file():
        bundle = read_bundle(given)
        artifact, sha256 = bundle.artifact, bundle_digest(bundle)
        name, pinned = bundle.tables.model.file, bundle.tables.model.sha256 is not None
    else:
        artifact, sha256, name, pinned = given.resolve(), digest(given.resolve()), given.name, False
    files = [file for file in artifact.rglob("*") if file.is_file()] if artifact.is_dir() else [artifact]
    size = sum(file.stat().st_size for file in files if file.name != BUNDLE_FILE)
    return {"name": name, "bytes": size, "sha256": sha256, "pinned": pinned}


def _input(spec: InputSpec) -> dict[str, Any]:
    facts = asdict(spec)
    # A function has no place in JSON; whether there is one decides what the model sees.
    if isinstance(spec, TextInput):
        facts["tokenised"] = facts.pop("encode") is not None
    return {"kind": spec.kind.value, **facts}


def _output(spec: OutputSpec, classes: Any) -> dict[str, Any]:
    names = spec.labels if spec.labels is not None else classes
    several = bool(names) and isinstance(names[0], list)
    return {
        "task": spec.task,
        "labels": None if not names else [list(part) for part in names] if several else list(names),
        "top_k": spec.top_k,
        "softmax": spec.softmax,
    }


def curl(spec: InputSpec, url: str) -> str:
    """A command for a shell whose request the model can take, as far as its input is known."""
    predict = shlex.quote(f"{url}/predict")
    if isinstance(spec, ImageInput):
        return f"curl -s -F file=@photo.jpg {predict}"
    body = json.dumps({"instances": [example_instance(spec)]}, ensure_ascii=False)
    send = f"curl -s -H 'Content-Type: application/json' -d {{}} {predict}"
    if len(body) <= _MAX_BODY_CHARS:
        return send.format(shlex.quote(body))
    code = f'import json; print(json.dumps({{"instances": [{_as_python(spec)}]}}))'
    return f"python3 -c {shlex.quote(code)} | {send.format('@-')}"


def example_instance(spec: InputSpec) -> Any:
    """One instance of a request: zeros of the right shape, or a sentence."""
    if isinstance(spec, TextInput):
        return "a text"
    if isinstance(spec, TabularInput) and spec.columns is not None:
        return dict.fromkeys(spec.columns, 0)
    instance: Any = _zero(spec)
    for extent in reversed(_shape(spec)):
        instance = [instance] * extent
    return instance


def _as_python(spec: InputSpec) -> str:
    if isinstance(spec, TabularInput) and spec.columns is not None:
        return f"dict.fromkeys({list(spec.columns)!r}, 0)"
    text = repr(_zero(spec))
    for extent in reversed(_shape(spec)):
        text = f"[{text}] * {extent}"
    return text


def _shape(spec: InputSpec) -> tuple[int, ...]:
    if isinstance(spec, TabularInput):
        return (spec.width or _FREE_WIDTH,)
    shape = getattr(spec, "shape", None)
    return (_FREE_WIDTH,) if shape is None else tuple(extent or 1 for extent in shape)


def _zero(spec: InputSpec) -> int | bool:
    return False if getattr(spec, "dtype", "") == "bool" else 0
