"""One model in several copies, a worker thread's own each, that look like one handle to everybody else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from service.batching.instances import instance

Stamp = tuple[tuple[str, int, int, int], ...]
"""Name, number, size in bytes and time of change (ns) of every file of a model."""


class Copies:
    """Calls the copy of the worker thread that asks; a thread that is none gets the first one.

    *Thread:* each copy is called by one thread at a time. All are loaded, warmed up and closed by whichever worker
    thread does that job, while the others wait.
    """

    def __init__(self, handles: list[ModelHandle]) -> None:
        self._handles = handles

    def __len__(self) -> int:
        return len(self._handles)

    def __call__(self, rows: list[Any], **parameters: Any) -> Any:
        """What the copy gives for `rows`."""
        return self._handles[instance()].predict(rows, **parameters)

    def close(self) -> None:
        """Free every copy; raises what the first one that could not be freed raises, when all others are."""
        while self._handles:
            handle = self._handles.pop()
            try:
                handle.close()
            except BaseException:
                self.close()
                raise


def copied(load: Callable[[], ModelHandle], path: str | Path, count: int) -> ModelHandle:
    """What `load` gives, `count` times, as one handle; once where all threads may share it. path: of what it reads.

    Where one copy cannot be loaded, those before it are freed and its error is raised; ModelLoadError where the files
    changed meanwhile, so that the copies might not be alike.
    """
    if count == 1:
        return load()
    before = _stamp(Path(path))
    first = load()
    handles = [first]
    copies = Copies(handles)
    try:
        while len(handles) < count and not first.is_thread_safe:
            handles.append(load())
        # Also of what is loaded once: the loader may have opened the files several times.
        if _stamp(Path(path)) != before:
            raise ModelLoadError(
                f"the model's files changed while its {count} copies were loaded (MODEL_INSTANCES): load it again"
            )
    except BaseException:
        with suppress(BaseException):  # what went wrong first is what the operator has to know
            copies.close()
        raise
    if first.is_thread_safe:
        return first
    warnings = first.warnings
    if first.device != "cpu":
        warnings += (
            f"MODEL_INSTANCES={count} on {first.device}: the device runs one batch after the other whoever asks, and "
            "holds every copy; 1 needs less of its memory",
        )
    return replace(first, predict=copies, release=copies.close, warnings=warnings)


def copies_of(model: ModelHandle) -> int:
    """How many copies of a model there are, in whichever process."""
    return len(model.predict) if isinstance(model.predict, Copies | Elsewhere) else 1


class Elsewhere:
    """What predicts in a process that only knows of a model: nothing. `copies`: that another process has of it."""

    def __init__(self, copies: int) -> None:
        self._copies = copies

    def __len__(self) -> int:
        return self._copies

    def __call__(self, rows: list[Any], **_: Any) -> Any:
        """Raise RuntimeError: nobody asks it."""
        raise RuntimeError(f"{len(rows)} rows reached a front end's description of a model, which cannot predict")


def _stamp(path: Path) -> Stamp:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    try:
        states = [(file.name, file.stat()) for file in files if not file.is_dir()]
    except OSError:  # `load` tells what is wrong with it
        return ()
    return tuple((name, state.st_ino, state.st_size, state.st_mtime_ns) for name, state in states)
