"""From a path to a model that is ready to predict."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaders.bundle import BUNDLE_FILE, read_bundle, verify
from loaders.declared import with_declared
from loaders.errors import BundleError, ModelError, ModelLoadError, UnknownFormatError
from loaders.handle import ModelHandle
from loaders.missing import with_columns_without_null
from loaders.paths import resolve_model_path
from loaders.registry import check_known, known_formats, loader_for
from loaders.suffixes import FORMAT_OF_SUFFIX
from loaders.tables import BundleTables, ModelTable

_NOT_TORCH = {"pickle", "joblib", "onnx"}


def load_model(
    path: str | os.PathLike[str],
    fmt: str | None = None,
    *,
    name: str | None = None,
    version: str | None = None,
    device: str = "auto",
    allow_pickle: bool = False,
    root: str | os.PathLike[str] | None = None,
    pad_to_multiple_of: int | None = None,
    instances: int = 1,
    pack: bool = False,
) -> ModelHandle:
    """Load a bundle directory, a Hugging Face directory or a bare model file.

    What is given here wins over the bundle, and the bundle over what the file says about itself. `device`: "auto",
    "cpu", "cuda" or "cuda:N". `root`: a directory that the path must not leave. `pad_to_multiple_of`: for
    texts, where the bundle says nothing. `instances`: how many copies, of which this is one, are to run side by side;
    each has its share of the CPUs. `pack`: short texts of a batch may share a row of a model that can do that; see
    `TextInput.packs`. Everything that can go wrong is raised as a `ModelError`.

    *Thread:* the one that will call `predict_batch`.
    """
    given = Path(path)
    resolved = resolve_model_path(path, root=root)
    metadata: dict[str, Any] = {}
    tables, artifact, named = BundleTables(), resolved, given
    pinned = False
    if (resolved / BUNDLE_FILE).is_file():
        bundle = read_bundle(resolved)
        # Before anything else touches the artifact: reading some formats already runs code from them.
        pinned = verify(bundle)
        tables, artifact, named = bundle.tables, bundle.artifact, bundle.directory / bundle.tables.model.file
        metadata = bundle.metadata()
    metadata |= {"device": device, "trusted": pinned or allow_pickle, "pad_to_multiple_of": pad_to_multiple_of}
    if instances > 1:
        metadata["instances"] = instances
    if pack:
        metadata["pack"] = True

    fmt = fmt or tables.model.format or format_of(named, artifact)
    name = name or tables.model.name or (resolved.name if resolved.is_dir() else given.stem)
    version = version or tables.model.version or "1"
    _check_torch_keys(tables.model, fmt)
    handle = _load(fmt, artifact, name=name, version=version, metadata=metadata)
    if handle.path is None:
        handle = replace(handle, path=artifact)
    try:
        return with_columns_without_null(with_declared(handle, tables))
    except ModelError:
        handle.close()
        raise


def check_path(path: str | os.PathLike[str], fmt: str | None = None) -> BundleTables:
    """Find out what `load_model` would refuse without reading the model; gives the bundle's tables, or empty ones.

    Raises `ModelError` for a path, a bundle or a format that cannot be loaded.
    """
    resolved = resolve_model_path(path)
    tables, artifact, named = BundleTables(), resolved, Path(path)
    if (resolved / BUNDLE_FILE).is_file():
        bundle = read_bundle(resolved)
        tables, artifact, named = bundle.tables, bundle.artifact, bundle.directory / bundle.tables.model.file
    fmt = fmt or tables.model.format or format_of(named, artifact)
    check_known(fmt)
    _check_torch_keys(tables.model, fmt)
    return tables


def _check_torch_keys(table: ModelTable, fmt: str) -> None:
    """A key that a built-in format would silently ignore is refused; a registered one may know what to do with it."""
    if table.dtype is not None and fmt in _NOT_TORCH:
        raise BundleError(
            f"{BUNDLE_FILE}: [model] dtype: only for torch formats (transformers, torchscript, pt2); "
            f"a model in {fmt} format has its types in its file"
        )
    if table.compile and fmt in {*_NOT_TORCH, "torchscript", "pt2"}:
        raise BundleError(
            f"{BUNDLE_FILE}: [model] compile: only for the transformers format, not {fmt}: "
            "torch.compile needs the model's Python code"
        )


def _load(fmt: str, artifact: Path, *, name: str, version: str, metadata: dict[str, Any]) -> ModelHandle:
    loader = loader_for(fmt)
    try:
        return loader.load(artifact, name=name, version=version, metadata=metadata)
    except ModelError:
        raise
    except Exception as error:
        raise ModelLoadError(f"{name!r} could not be loaded as {fmt}: {type(error).__name__}: {error}") from error


def format_of(named: Path, artifact: Path) -> str:
    """The format that the file's name tells; a link is judged by its own name, as its target may have none."""
    if artifact.is_dir():
        if (artifact / "config.json").is_file():
            return "transformers"
        raise UnknownFormatError(
            f"the directory {artifact.name!r} is not a model: "
            f"it holds neither {BUNDLE_FILE} nor a Hugging Face config.json"
        )
    fmt = FORMAT_OF_SUFFIX.get(named.suffix.lower()) or FORMAT_OF_SUFFIX.get(artifact.suffix.lower())
    if fmt is None:
        raise UnknownFormatError(
            f"the suffix {named.suffix!r} of {named.name!r} tells no format: set MODEL_FORMAT, or [model] format in a "
            f"{BUNDLE_FILE}, to one of {', '.join(known_formats())}"
        )
    return fmt
