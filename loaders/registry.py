"""Which loader serves which format: built in, registered by the program, or brought by a plug-in package."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from loaders.errors import ModelLoadError, UnknownFormatError
from loaders.handle import ModelHandle

ENTRY_POINT_GROUP = "jitney.loaders"

# Named, not imported: a heavy framework is imported only when a model of its format is loaded.
_BUILT_IN = {
    "pickle": "loaders.formats.pickled:PickleLoader",
    "joblib": "loaders.formats.pickled:JoblibLoader",
    "onnx": "loaders.formats.onnx:OnnxLoader",
    "pt2": "loaders.formats.pt2:Pt2Loader",
    "torchscript": "loaders.formats.torchscript:TorchScriptLoader",
    "transformers": "loaders.formats.transformers:TransformersLoader",
}


@runtime_checkable
class ModelLoader(Protocol):
    """Turns a file or directory into a `ModelHandle`.

    `metadata` holds the bundle's tables (`model`, `input`, `output`), `device`, `trusted` (True when the
    file's SHA-256 was pinned and matched, or when the operator allowed pickles), and where it is more than 1
    `instances`, how many copies are loaded to run side by side; `pack` is true where short texts of a batch may share a
    row, see `TextInput.packs`.
    *Thread:* `load` runs on the worker thread, which keeps the model from then on. Of several copies each is called by
    a worker thread of its own, and all are loaded and freed by one of those.
    """

    fmt: str

    def load(
        self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None
    ) -> ModelHandle: ...


_registered: dict[str, ModelLoader] = {}


def register_loader(fmt: str, loader: ModelLoader) -> None:
    """Serve models of format `fmt` with `loader`; a later registration replaces an earlier or built-in one."""
    if not fmt or not hasattr(loader, "load"):
        raise TypeError("register_loader needs a format name and an object with a load() method")
    _registered[fmt] = loader


def loader_for(fmt: str) -> ModelLoader:
    """The loader of format `fmt`; raises `UnknownFormatError` naming the formats there are."""
    if fmt in _registered:
        return _registered[fmt]
    target = _BUILT_IN.get(fmt)
    if target is not None:
        module, _, attribute = target.partition(":")
        return _instance(getattr(import_module(module), attribute))
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP, name=fmt):
        try:
            return _instance(entry_point.load())
        except Exception as error:
            raise ModelLoadError(f"the plug-in {entry_point.value!r} for format {fmt!r} failed: {error}") from error
    raise _unknown(fmt)


def check_known(fmt: str) -> None:
    """Raise `UnknownFormatError` for a format without a loader; nothing is imported to find that out."""
    if fmt not in known_formats():
        raise _unknown(fmt)


def known_formats() -> list[str]:
    """Every format that can be named, sorted."""
    plug_ins = {entry_point.name for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return sorted({*_BUILT_IN, *_registered, *plug_ins})


def _unknown(fmt: str) -> UnknownFormatError:
    known = known_formats()
    close = get_close_matches(fmt, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return UnknownFormatError(f"no loader for model format {fmt!r}; known formats: {', '.join(known)}{hint}")


def _instance(loader: Any) -> ModelLoader:
    """A loader may be named as a class or as a ready object."""
    instance: ModelLoader = loader() if isinstance(loader, type) else loader
    return instance
