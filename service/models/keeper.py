"""Loading, proving, swapping and freeing: everything that happens to a model but its batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from loaders.cache import Key
from loaders.errors import ModelError, ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import ImageInput
from service.batching.faults import log_error, text_of
from service.errors import NotReady, UnknownModel
from service.inputs import image
from service.metrics.batches import BatchMetrics, StatusOf
from service.models.loaded import Lease, LoadedModels
from service.models.loading import load_configured_model, load_from_repository
from service.models.repository import Repository, newest
from service.models.self_check import self_check
from service.models.warmup import Predict, warm_up
from service.settings import SelfCheck, Settings

_log = logging.getLogger("jitney")

# For how long requests do not try again to load a version that could not be loaded, seconds.
RETRY_AFTER_S = 30.0


class ModelState(StrEnum):
    """What a version is to a client; the values are words of the answer to `GET /models`."""

    LOADED = "loaded"
    AVAILABLE = "available"  # on disk, loaded when it is first asked for
    UNLOADED = "unloaded"  # on disk, and not served until it is loaded again
    FAILED = "failed"  # its last load failed


def log_load_failure(what: str, error: Exception) -> None:
    """A ModelError is written for people; anything else needs its traceback to be understood."""
    shown = None if issubclass(type(error), ModelError) else error
    log_error(_log, logging.CRITICAL, "%s could not be loaded: %s", what, text_of(error), error=shown)


@dataclass(frozen=True, slots=True)
class KnownVersion:
    """One version of a model. `is_default`: it answers where no version is named. `reason`: of a failed load."""

    name: str
    version: str
    state: ModelState
    is_default: bool
    handle: ModelHandle | None = None
    reason: str | None = None


class ModelKeeper:
    """The models of a runtime: one that was handed in, the one at MODEL_PATH, or those of MODEL_REPOSITORY.

    predict: how a batch is run, for warm-up and check. status_of: the batcher's numbers for one model, for its gauges.
    on_unused: have `sweep` called on the worker thread.

    *Thread:* `start`, `load`, `unload`, `sweep` and `close` belong to the worker; the others to any.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: BatchMetrics,
        predict: Predict,
        *,
        given: ModelHandle | None,
        status_of: Callable[[ModelHandle], StatusOf],
        on_unused: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._predict = predict
        self._given = given
        self._status_of = status_of
        self._repository = None
        if given is None and settings.model_repository is not None:
            self._repository = Repository(settings.model_repository)
        self._loaded = LoadedModels(
            settings.model_cache_size, on_left=metrics.unloaded, free=self._free, on_unused=on_unused
        )
        self._default_name: str | None = None
        # Only the worker writes these two; a version is in at most one of them.
        self._failed: dict[Key, tuple[str, float]] = {}
        self._unloaded: set[Key] = set()

    def __repr__(self) -> str:
        return f"<ModelKeeper default={self._default_name} {self._loaded!r}>"

    # What any thread may ask.

    @property
    def default(self) -> ModelHandle | None:
        """The model that answers where no name and no version is given; of several without one, the first by name."""
        name = self._default_name
        version = None if name is None else self._loaded.current(name)
        model = None if name is None or version is None else self._loaded.peek(name, version)
        return model or min(self._loaded.all(), key=lambda model: (model.name, model.version), default=None)

    def lease(self, name: str | None, version: str | None) -> Lease | None:
        """The right to use a loaded model; None when it has to be loaded first, see `find`.

        name: None for the only one. version: None for its default one. Raises UnknownModel.
        """
        return self._loaded.lease(self._named(name), version)

    def find(self, name: str | None, version: str | None) -> Key:
        """What to load for a request that `lease` had nothing for.

        Raises UnknownModel when there is no such model or version, NotReady when it could not be loaded lately.
        """
        name = self._named(name)
        versions = self._servable(name)
        if not versions and not any(model.name == name for model in self._loaded.all()):
            raise UnknownModel("no model of this name is served here")
        current = self._loaded.current(name)
        found = version or (current if current in versions else newest(versions))
        if found is None or found not in versions:
            raise UnknownModel("this version of the model is not served here")
        failure = self._failed.get((name, found))
        if failure is not None and time.monotonic() < failure[1] + RETRY_AFTER_S:
            raise NotReady("this version of the model could not be loaded; the service's log has the reason")
        return name, found

    def has(self, name: str, version: str) -> bool:
        """Whether a request may ask for this version."""
        return self._loaded.peek(name, version) is not None or version in self._servable(name)

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait until another model may be loaded; see `load_for_request`."""
        return self._loaded.wait_for_room(timeout_s)

    def known(self) -> list[KnownVersion]:
        """Every version that is loaded or lies in the repository, by name, oldest version first."""
        loaded = {(model.name, model.version): model for model in self._loaded.all()}
        on_disk: list[Key] = []
        if (repository := self._repository) is not None:
            with suppress(ModelError):  # it has gone since the start; what is loaded still serves
                on_disk = [(name, version) for name in repository.names() for version in repository.versions(name)]
        return [self._described(key, loaded.get(key)) for key in dict.fromkeys([*on_disk, *loaded])]

    # What only the worker does.

    def start(self) -> None:
        """Load what is served from the start: the one model, or of each in the repository the newest version, as many
        as the cache holds. Raises what a load raises, and ModelError when the repository does not fit the settings.

        With EXIT_ON_LOAD_ERROR=false those that can be loaded are served as long as there is one.
        """
        if self._repository is None:
            self.load()
            return
        failure: Exception | None = None
        for name, version in self._first(self._repository):
            try:
                self.load(name, version)
            except Exception as error:
                if self._settings.exit_on_load_error:
                    raise
                failure = failure or error
        if failure is not None and not self._loaded.all():
            raise failure

    def load(self, name: str | None = None, version: str | None = None) -> ModelHandle:
        """Load a model beside those that serve, prove it, and let it answer where no version is named.

        name: None for the only one. version: None for the newest. A version that is loaded already is read again. When
        it fails nothing changes, and whatever the reason was is raised.
        """
        if self._repository is None:
            model = self._proved(lambda: self._given or load_configured_model(self._settings))
            self._default_name = model.name
            self._serve(model, make_current=True)
            for other in self._loaded.all():
                if other is not model:
                    self._loaded.remove(other.name, other.version)
            return model
        name = self._named(name)
        version = version or newest(self._repository.versions(name))
        if version is None:
            raise UnknownModel("no model of this name is in the repository")
        return self._load_version(self._repository, (name, version), make_current=True)

    def load_for_request(self, key: Key, *, make_current: bool) -> bool:
        """Load a version that a request asks for, unless another one has had it loaded meanwhile.

        False when too many models are in memory, in use by requests that came before.
        """
        assert self._repository is not None
        if self._loaded.peek(*key) is not None:
            return True
        if not self._loaded.has_room:
            return False
        self._load_version(self._repository, key, make_current=make_current)
        return True

    def unload(self, name: str, version: str | None = None) -> bool:
        """Serve a version, or all of a model's, no longer until it is loaded again; False when there is none.

        Its memory is free when the requests that use it now have been answered.
        """
        versions = {model.version for model in self._loaded.all() if model.name == name} | self._servable(name)
        chosen = versions if version is None else versions & {version}
        for one in chosen:
            self._failed.pop((name, one), None)
            self._unloaded.add((name, one))
            self._loaded.remove(name, one)
        return bool(chosen)

    def used(self, model: ModelHandle) -> None:
        """A batch of this model has run."""
        self._loaded.used(model)

    def sweep(self) -> None:
        """Free what has left and is not in use any more."""
        self._loaded.sweep()

    def close(self) -> None:
        """Free everything; what was handed in belongs to whoever made it."""
        self._loaded.clear()

    # How.

    def _named(self, name: str | None) -> str:
        name = name or self._default_name
        if name is None:
            raise UnknownModel("several models are served here: name one, as in /models/<name>/predict")
        return name

    def _servable(self, name: str) -> set[str]:
        """The versions on disk that requests may ask for."""
        if self._repository is None:
            return set()
        return {version for version in self._repository.versions(name) if (name, version) not in self._unloaded}

    def _first(self, repository: Repository) -> list[Key]:
        settings = self._settings
        names = repository.names()
        default = settings.model_name or (names[0] if len(names) == 1 else None)
        if default is not None and default not in names:
            raise ModelError(f"MODEL_NAME={default!r} is not in MODEL_REPOSITORY, which has {', '.join(names)}")
        if settings.model_version is not None and default is None:
            raise ModelError("MODEL_VERSION says nothing without MODEL_NAME: MODEL_REPOSITORY holds several models")
        self._default_name = default
        first: list[Key] = []
        for name in sorted(names, key=lambda name: (name != default, name)):
            version = settings.model_version if name == default else None
            first.append((name, version or newest(repository.versions(name)) or ""))
        return first[: settings.model_cache_size]

    def _load_version(self, repository: Repository, key: Key, *, make_current: bool) -> ModelHandle:
        try:
            model = self._proved(lambda: load_from_repository(self._settings, repository, *key))
        except Exception as error:
            self._failed[key] = text_of(error), time.monotonic()
            log_load_failure(f"version {key[1]} of model {key[0]}", error)
            raise
        self._failed.pop(key, None)
        self._unloaded.discard(key)
        self._serve(model, make_current=make_current)
        return model

    def _proved(self, load: Callable[[], ModelHandle]) -> ModelHandle:
        """A model that has been loaded, warmed up and checked; one that fails is freed."""
        began = time.monotonic()
        model: ModelHandle | None = None
        try:
            model = load()
            if isinstance(model.input, ImageInput):
                image.require()
            model = self._warmed_up(model)
        except Exception:
            if model is not None and self._given is None:
                model.close()
            raise
        for warning in model.warnings:
            _log.warning("%s", warning)
        took_s = time.monotonic() - began
        _log.info("model %s version %s (%s) is ready after %.1f s", model.name, model.version, model.fmt, took_s)
        return model

    def _warmed_up(self, model: ModelHandle) -> ModelHandle:
        settings = self._settings
        if not settings.warmup:
            return model
        warm_up(model, settings.max_batch_size, self._predict, settings.batch_size_buckets or ())
        if settings.self_check is SelfCheck.OFF:
            return model
        finding = self_check(model, settings.max_batch_size, self._predict)
        if finding is None:
            return model
        if settings.self_check is SelfCheck.STRICT:
            raise ModelLoadError(finding)
        return replace(model, warnings=(*model.warnings, finding))

    def _serve(self, model: ModelHandle, *, make_current: bool) -> None:
        # Before it answers anything, so that its first answer finds its series at zero.
        self._metrics.loaded(model, self._status_of(model))
        self._loaded.add(model, make_current=make_current)

    def _free(self, model: ModelHandle) -> None:
        if self._given is None:
            model.close()

    def _described(self, key: Key, handle: ModelHandle | None) -> KnownVersion:
        name, version = key
        reason, _ = self._failed.get(key, (None, 0.0))
        if handle is not None:
            state = ModelState.LOADED
        elif key in self._unloaded:
            state = ModelState.UNLOADED
        else:
            state = ModelState.AVAILABLE if reason is None else ModelState.FAILED
        return KnownVersion(name, version, state, self._loaded.current(name) == version, handle, reason)
