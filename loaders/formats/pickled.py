"""scikit-learn style estimators, from pickle or joblib files."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from loaders.classification import classification, is_asked_for
from loaders.dependencies import require
from loaders.devices import cuda_index
from loaders.errors import MissingDependencyError, ModelLoadError, UntrustedModelError
from loaders.formats.columns import MAX_DEPTH, Column, ColumnType, inner_parts, known_columns, to_frame
from loaders.formats.rows import rows_of
from loaders.handle import ModelHandle
from loaders.signature import OutputSpec, TabularInput

# What `sklearn.base` says for every array given to an estimator that was trained on a data frame.
_NO_FEATURE_NAMES = "X does not have valid feature names"
_MISSING_ATTRIBUTE = re.compile(r"Can't get attribute '([^']+)' on <module '([^']+)'")
_SKLEARN = {"sklearn", "joblib", "scipy"}
_NOT_NUMERIC = frozenset({ColumnType.TEXT, ColumnType.BOOLEAN})


class PickleLoader:
    """Loads an object with a `predict` method from a pickle; refused unless the file is trusted."""

    fmt: ClassVar[str] = "pickle"

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None) -> ModelHandle:
        """The estimator as a handle.

        Raises `UntrustedModelError` when `metadata` does not say that the file is trusted: loading a pickle runs
        whatever its author put into it.
        """
        metadata = metadata or {}
        if not metadata.get("trusted"):
            raise UntrustedModelError(
                f"{self.fmt} files run code while they are loaded, so {path.name!r} is refused: pin its digest with "
                "the bundle's [model] sha256 key (`jitney pin`), or set ALLOW_PICKLE=true if the file can be trusted"
            )
        estimator, notes = _unpickle(self._read, path)
        if not callable(getattr(estimator, "predict", None)):
            raise ModelLoadError(
                f"{path.name!r} holds a {type(estimator).__name__}, which has no predict method; "
                "save the fitted estimator itself"
            )
        return _handle(estimator, notes, fmt=self.fmt, path=path, name=name, version=version, metadata=metadata)

    def _read(self, path: Path) -> Any:
        with path.open("rb") as file:
            return pickle.load(file)  # noqa: S301 - trusted: checked by load()


class JoblibLoader(PickleLoader):
    """As `PickleLoader`, for files written by joblib."""

    fmt: ClassVar[str] = "joblib"

    def _read(self, path: Path) -> Any:
        return require("joblib", extra="sklearn").load(path)


class _Estimator:
    """Runs the estimator. `frame`: pandas, when its columns are known by name and pandas is there."""

    def __init__(
        self,
        estimator: Any,
        columns: Sequence[str] | None,
        types: Sequence[ColumnType | None],
        frame: ModuleType | None,
        scores: bool,
    ) -> None:
        self._estimator = estimator
        self._columns = list(columns or ())
        self._types = types
        self._frame = frame
        self._scores = scores

    def __call__(self, rows: list[Any], proba: bool = False) -> Any:
        """Predictions; class probabilities with `proba`, or always when the bundle asks for a classification."""
        if self._frame is None or not _is_mixed(rows[0]):
            return self._answers(self._batch(rows), len(rows), proba)
        results: list[Any] = [None] * len(rows)
        waiting = list(range(len(rows)))
        while waiting:
            frame, alike = to_frame(self._frame, [rows[number] for number in waiting], self._columns, self._types)
            answers = self._answers(frame, len(alike), proba)
            if len(alike) == len(rows):
                return answers
            for position, answer in zip(alike, answers, strict=True):
                results[waiting[position]] = answer
            done = frozenset(alike)
            waiting = [number for position, number in enumerate(waiting) if position not in done]
        return results

    def _answers(self, batch: Any, count: int, proba: bool) -> Any:
        if not (proba or self._scores):
            result = rows_of(self._estimator.predict(batch))
            squeezed = isinstance(result, np.ndarray) and result.ndim == 0 and count == 1
            return result.reshape(1) if squeezed else result
        result = self._estimator.predict_proba(batch)
        if not isinstance(result, list):
            return rows_of(result)
        # Several outputs: one array (rows, classes) for each, turned into one list of lists for each row.
        outputs = [rows_of(output) for output in result]
        return [[output[number] for output in outputs] for number in range(len(outputs[0]))]

    def close(self) -> None:
        """Let the estimator go."""
        self._estimator = None

    def _batch(self, rows: list[Any]) -> Any:
        if isinstance(rows[0], str):
            return rows
        if _is_mixed(rows[0]):
            # Without a data frame the values of several types stay what they are in an array of objects alone.
            return np.array([tuple(row) for row in rows], dtype=object)
        batch = np.stack(rows)
        return batch if self._frame is None else self._frame.DataFrame(batch, columns=self._columns)


def _is_mixed(row: Any) -> bool:
    """Whether a row holds values of several types, and is no array of numbers."""
    return isinstance(row, tuple) or (isinstance(row, np.ndarray) and row.dtype.hasobject)


def _handle(
    estimator: Any, notes: list[str], *, fmt: str, path: Path, name: str, version: str, metadata: Mapping[str, Any]
) -> ModelHandle:
    columns = _columns(estimator)
    frame = _pandas() if columns is not None else None
    if columns is not None and frame is None:
        # For the whole process: entering and leaving a filter around each batch is not safe beside other threads.
        warnings.filterwarnings("ignore", message=_NO_FEATURE_NAMES, category=UserWarning)
        notes.append("the model was trained on named columns, but pandas is not installed: it gets plain arrays")
    if cuda_index(str(metadata.get("device", "auto"))) or str(metadata.get("device")).startswith("cuda"):
        notes.append(f"{fmt} models run on the CPU; DEVICE={metadata['device']} has no effect on {name!r}")
    has_proba = hasattr(estimator, "predict_proba")
    classes = _classes(estimator)
    declared = metadata.get("output", {})
    # A classifier without probabilities can still name its class, but has nothing to rank the others by.
    scores = is_asked_for(metadata) and has_proba
    for key in ("top_k", "labels"):
        if declared.get(key) and not has_proba:
            raise ModelLoadError(f"[output] {key}: needs a score for each class, but the model has no predict_proba")
    known = known_columns(estimator, columns) if columns is not None and frame is not None else ()
    types = tuple(column.kind for column in known)
    holds_others = _selects_columns(estimator) or any(kind in _NOT_NUMERIC for kind in types)
    predict = _Estimator(estimator, columns, types, frame, scores)
    width = getattr(estimator, "n_features_in_", None)
    return ModelHandle(
        name=name,
        version=version,
        fmt=fmt,
        predict=predict,
        input=TabularInput(
            columns=columns,
            width=int(width) if width is not None else None,
            dtype="object" if frame is not None and holds_others else "float64",
        ),
        output=_scored(classes) if scores else OutputSpec(),
        path=path,
        metadata={**metadata, **_told(classes, known)},
        parameters=frozenset({"proba"} if has_proba else ()),
        warnings=tuple(notes),
        release=predict.close,
    )


def _told(classes: list[Any] | None, known: Sequence[Column]) -> dict[str, Any]:
    """What the estimator itself says, beside what the bundle does."""
    told: dict[str, Any] = {} if classes is None else {"classes": classes}
    if any(column.kind for column in known):
        told["column_types"] = tuple(column.kind for column in known)
    if any(column.example is not None for column in known):
        told["column_examples"] = tuple(column.example for column in known)
    return told


def _unpickle(read: Callable[[Path], Any], path: Path) -> tuple[Any, list[str]]:
    """The object, and what the operator should know about how it was saved."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            estimator = read(path)
        except (MissingDependencyError, MemoryError):
            raise
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] in _SKLEARN:
                raise MissingDependencyError(
                    f"{path.name!r} needs {error.name}, which is not installed: pip install 'jitney[sklearn]'"
                ) from error
            raise ModelLoadError(
                f"{path.name!r} needs the module {error.name!r}, which is not installed here"
            ) from error
        except Exception as error:
            raise ModelLoadError(_explained(path, error)) from error
    notes = []
    changed = [entry for entry in caught if entry.category.__name__ == "InconsistentVersionWarning"]
    if changed:
        # One note for all the parts of a pipeline; each of them warned.
        saved_with = {str(getattr(entry.message, "original_sklearn_version", "another version")) for entry in changed}
        running = getattr(changed[0].message, "current_sklearn_version", "this version")
        notes.append(
            f"{path.name!r} was saved with scikit-learn {', '.join(sorted(saved_with))} and is run by {running}: "
            "its results may be wrong; save it again with this version, or install that one"
        )
    for entry in caught:
        if entry not in changed:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    return estimator, notes


def _explained(path: Path, error: Exception) -> str:
    missing = _MISSING_ATTRIBUTE.search(str(error))
    if missing is not None:
        attribute, module = missing.groups()
        if module.endswith(".__main__"):
            module = "__main__"  # that of a program started with `python -m`
        advice = "the code it was saved with is not the code installed here"
        if module == "__main__":
            advice = (
                "it was defined in the script that saved the model, which is not running here; "
                "move it to a module that can be imported, and save the model again"
            )
        return f"{path.name!r}: module {module} has no {attribute!r}: {advice}"
    if "incompatible dtype" in str(error):
        return (
            f"{path.name!r} was saved by a scikit-learn that stored its data in another way (incompatible dtype); "
            "install that version, or save the model again with this one"
        )
    return f"{path.name!r} cannot be unpickled: {type(error).__name__}: {error}"


def _scored(classes: list[Any] | None) -> OutputSpec:
    """One score per class; several outputs have no common list of labels."""
    if not classes or isinstance(classes[0], list):
        return OutputSpec(task="classification")
    return classification(classes)


def _columns(estimator: Any) -> tuple[str, ...] | None:
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not all(isinstance(column, str) for column in names):
        return None
    return tuple(str(column) for column in names)


def _classes(estimator: Any) -> list[Any] | None:
    """The class names in the order of the probabilities; one list of them for each of several outputs."""
    classes = getattr(estimator, "classes_", None)
    if isinstance(classes, list):
        return [np.asarray(of_output).tolist() for of_output in classes]
    return None if classes is None else list(np.asarray(classes).tolist())


def _selects_columns(estimator: Any, depth: int = 0) -> bool:
    """Whether some part treats columns differently by name, which is what text among the numbers needs."""
    return hasattr(estimator, "transformers") or (
        depth < MAX_DEPTH and any(_selects_columns(part, depth + 1) for part in inner_parts(estimator))
    )


def _pandas() -> ModuleType | None:
    try:
        return require("pandas", extra="sklearn")
    except (MissingDependencyError, ModelLoadError):
        return None
