"""Whether the models that are to be served are there, whole, and of a kind that can be loaded; none is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from loaders.bundle import BUNDLE_FILE, read_bundle, verify
from loaders.errors import ModelError, UntrustedModelError
from loaders.load import check_path, format_of
from loaders.paths import resolve_model_path
from loaders.registry import known_formats
from service.doctor.findings import Finding, error, ok, warning
from service.models.repository import Repository, newest
from service.settings import Settings

_PIN_BARE = f"put it into a bundle with a {BUNDLE_FILE}, and jitney pin that"

_RUNS_CODE = frozenset({"pickle", "joblib"})


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`fmt`: None where it cannot be told. `has_pictures`: its bundle says that it takes images."""

    findings: tuple[Finding, ...]
    fmt: str | None = None
    has_pictures: bool = False


def look_at_models(settings: Settings) -> list[ModelFacts]:
    """One entry for each model: that of MODEL_PATH, or the newest version of each in MODEL_REPOSITORY."""
    if settings.model_repository is not None:
        return _repository(settings, Repository(settings.model_repository))
    if settings.model_path is None:
        found = "not set: only an app that serves a model of its own can start"
        return [ModelFacts((warning("MODEL_PATH", found, "MODEL_PATH=a model file or bundle directory"),))]
    return [_model("MODEL_PATH", settings.model_path, settings)]


def _repository(settings: Settings, repository: Repository) -> list[ModelFacts]:
    odd = tuple(
        warning("MODEL_REPOSITORY", f"{each} is passed over: no bundle lies there", f"add a {BUNDLE_FILE}, or move it")
        for each in repository.passed_over()
    )
    try:
        names = repository.names()
    except ModelError as fault:
        return [ModelFacts((error("MODEL_REPOSITORY", str(fault), "MODEL_REPOSITORY=a directory of bundles"), *odd))]
    versions = {name: newest(repository.versions(name)) for name in names}
    paths = {f"{name}/{version}": repository.path(name, version) for name, version in versions.items() if version}
    found = [_model(f"model {label}", str(path), settings, repository.root) for label, path in paths.items() if path]
    if len(names) > settings.model_cache_size:
        text = f"{len(names)} models, of which MODEL_CACHE_SIZE={settings.model_cache_size} stay loaded"
        odd += (warning("MODEL_CACHE_SIZE", text, f"MODEL_CACHE_SIZE={len(names)}"),)
    if len(names) > 1 and settings.model_name is None:
        text = f"{len(names)} models and no MODEL_NAME: /predict alone answers 404"
        odd += (warning("MODEL_NAME", text, f"MODEL_NAME={names[0]}"),)
    return [ModelFacts(odd), *found]


def _model(check: str, path: str, settings: Settings, root: Path | None = None) -> ModelFacts:
    try:
        resolved = resolve_model_path(path, root=root)
    except ModelError as fault:
        return ModelFacts((error(check, str(fault), f"{check}=a model file or bundle directory"),))
    if not (resolved / BUNDLE_FILE).is_file():
        return _bare(check, Path(path), resolved, settings)
    try:
        bundle = read_bundle(resolved)
        fmt = settings.model_format or bundle.tables.model.format
        fmt = fmt or format_of(resolved / bundle.tables.model.file, bundle.artifact)
        if fmt in known_formats():
            check_path(resolved, settings.model_format)
        is_pinned = verify(bundle)
    except UntrustedModelError as fault:
        return ModelFacts((error(check, str(fault), f"jitney pin {path}"),))
    except ModelError as fault:
        return ModelFacts((error(check, str(fault), f"correct {BUNDLE_FILE}"),))
    has_pictures = bundle.tables.input is not None and bundle.tables.input.kind == "image"
    trust = _trust(check, fmt, is_pinned, settings, f"jitney pin {path}")
    return ModelFacts((_known(check, fmt), trust), fmt, has_pictures)


def _bare(check: str, named: Path, resolved: Path, settings: Settings) -> ModelFacts:
    """A model without a bundle, which nothing pins."""
    try:
        fmt = settings.model_format or format_of(named, resolved)
    except ModelError as fault:
        return ModelFacts((error(check, str(fault), "MODEL_FORMAT=its format"),))
    return ModelFacts((_known(check, fmt), _trust(check, fmt, False, settings, _PIN_BARE)), fmt)


def _known(check: str, fmt: str) -> Finding:
    known = known_formats()
    if fmt in known:
        return ok(check, f"is there, in {fmt} format")
    # The program that is served may register it.
    return warning(check, f"no loader for {fmt} is known here", f"MODEL_FORMAT=one of {', '.join(known)}")


def _trust(check: str, fmt: str, is_pinned: bool, settings: Settings, fix: str) -> Finding:
    if is_pinned:
        return ok(check, "its SHA-256 is the pinned one")
    if fmt not in _RUNS_CODE:
        return ok(check, f"not pinned, which {fmt} models need not be")
    if settings.allow_pickle:
        found = f"{fmt} files run code when they are loaded; nothing pins this one, and ALLOW_PICKLE lets it in"
        return warning(check, found, fix)
    return error(check, f"{fmt} files run code when they are loaded, and nothing pins this one", fix)
