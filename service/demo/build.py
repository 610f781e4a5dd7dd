"""Builds demo models into a directory: each one completely or not at all, and one's failure never stops another."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loaders.bundle import BUNDLE_FILE
from service.demo import digits, imagenet, sentiment
from service.demo.sources import DemoError, Fetch, Sources
from service.demo.steps import Report, Say, Step, say_for

Build = Callable[[Path, Sources, Say], None]
"""Fills an empty directory with a bundle, or raises."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one demo model is built. `extra`: the optional dependencies of Jitney that building and serving it need."""

    build: Build
    extra: str


RECIPES: Mapping[str, Recipe] = {
    "digits": Recipe(digits.build, "demo-digits"),
    "sentiment": Recipe(sentiment.build, "demo-sentiment"),
    "imagenet": Recipe(imagenet.build_onnx, "demo-imagenet"),
    "imagenet-torchscript": Recipe(imagenet.build_torchscript, "demo-imagenet"),
}


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What came of a build. `built`: the finished bundles by name; `failed`: the reason by name."""

    built: Mapping[str, Path]
    failed: Mapping[str, str]


def build(
    names: Iterable[str],
    target: Path,
    report: Report,
    *,
    fetch: Fetch | None = None,
    recipes: Mapping[str, Recipe] = RECIPES,
) -> BuildResult:
    """Build the named demo models into `target`/<name>, replacing those that are there.

    A model that cannot be built (a source out of reach, a package missing) is named in the result and the
    others go on; what stood in its place stays. `fetch`: how source files are brought here, None for pip.
    Raises `KeyError` for a name without a recipe, before anything is built.
    """
    chosen = {name: recipes[name] for name in names}
    target.mkdir(parents=True, exist_ok=True)
    built: dict[str, Path] = {}
    failed: dict[str, str] = {}
    with Sources(fetch) as sources:
        for name, recipe in chosen.items():
            try:
                built[name] = _build_one(name, recipe, target, sources, report)
            except ImportError as error:
                failed[name] = f"{error}; pip install 'jitney[{recipe.extra}]' brings what it needs"
            except DemoError as error:
                failed[name] = str(error)
            except Exception as error:  # whatever a framework raises must not stop the other models
                failed[name] = f"{type(error).__name__}: {error}"
            if name in failed:
                report(Step(name, f"not built: {failed[name]}"))
    return BuildResult(built, failed)


def is_built(name: str, target: Path) -> bool:
    """Whether `target` holds the model's bundle; a bundle that is there is complete."""
    return (target / name / BUNDLE_FILE).is_file()


def _build_one(name: str, recipe: Recipe, target: Path, sources: Sources, report: Report) -> Path:
    # Beside its place, so that the rename at the end stays on one file system and is one step.
    scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target))
    try:
        recipe.build(scratch, sources, say_for(name, report))
        _make_readable(scratch)
        finished = _put_in_place(scratch, target / name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    report(Step(name, "ready"))
    return finished


def _make_readable(directory: Path) -> None:
    """Temporary directories and some writers keep others out; a model may be read by whoever serves it."""
    directory.chmod(0o755)
    for path in directory.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _put_in_place(scratch: Path, place: Path) -> Path:
    """Rename the finished bundle to its place; an old one gives way only then."""
    old = scratch.with_name(f"{scratch.name}-old")
    if place.exists():
        place.rename(old)
    scratch.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    return place
