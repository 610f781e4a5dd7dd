"""What a loaded model is, takes and gives, as plain data for a person or a program to read."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loaders.bundle import BUNDLE_FILE, bundle_digest, digest, read_bundle
from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, OutputSpec, TextInput
from service.inputs.example import example_in_python, example_instance, is_known

# Class names that are shown; a model may have thousands.
SHOWN_LABELS = 5
# A body that is longer is written by a line of Python instead.
_MAX_BODY_CHARS = 400

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
        "input": {**_input(model.input), **_columns(model)},
        "output": _output(model.output, model.metadata.get("classes")),
        "parameters": sorted(model.parameters),
        "warnings": warnings,
        "request": {
            "path": "/predict",
            "curl": curl(model.input, url, **_known_columns(model)),
            "is_whole": is_known(model.input),
        },
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


def _columns(model: ModelHandle) -> dict[str, Any]:
    """The type of each named column, None where it is not known; none at all for other inputs."""
    if getattr(model.input, "columns", None) is None:
        return {}
    return {"column_types": [kind and str(kind) for kind in _known_columns(model)["column_types"]]}


def _known_columns(model: ModelHandle) -> dict[str, Sequence[Any]]:
    return {key: model.metadata.get(key, ()) for key in ("column_types", "column_examples")}


def _output(spec: OutputSpec, classes: Any) -> dict[str, Any]:
    names = spec.labels if spec.labels is not None else classes
    several = bool(names) and isinstance(names[0], list)
    return {
        "task": spec.task,
        "labels": None if not names else [list(part) for part in names] if several else list(names),
        "top_k": spec.top_k,
        "softmax": spec.softmax,
    }


def curl(
    spec: InputSpec, url: str, column_types: Sequence[str | None] = (), column_examples: Sequence[Any] = ()
) -> str:
    """A command for a shell whose request the model can take, as far as its input is known.

    column_types, column_examples: see `service.inputs.example`.
    """
    predict = shlex.quote(f"{url}/predict")
    if isinstance(spec, ImageInput):
        return f"curl -s -F file=@photo.jpg {predict}"
    body = json.dumps({"instances": [example_instance(spec, column_types, column_examples)]}, ensure_ascii=False)
    send = f"curl -s -H 'Content-Type: application/json' -d {{}} {predict}"
    if len(body) <= _MAX_BODY_CHARS:
        return send.format(shlex.quote(body))
    instance = example_in_python(spec, column_types, column_examples)
    code = f'import json; print(json.dumps({{"instances": [{instance}]}}))'
    return f"python3 -c {shlex.quote(code)} | {send.format('@-')}"
