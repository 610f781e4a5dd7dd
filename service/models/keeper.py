"""Loading, proving, swapping and freeing: everything that happens to a model but its batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from loaders.cache import Key
from loaders.errors import ModelError, ModelLoadError
from loaders.handle import ModelHandle
from service.batching.faults import text_of
from service.errors import NOT_SERVED, UnknownModel, UnknownVersion
from service.metrics.batches import BatchMetrics
from service.metrics.present import StatusOf
from service.models.failed_loads import FailedLoads, could_not_be_loaded
from service.models.first import first_of
from service.models.loaded import Lease, LoadedModels
from service.models.loading import load_configured_model, load_from_repository
from service.models.measuring import Learn
from service.models.placing import PlacedModels
from service.models.proving import Prover, log_load_failure, require_decoder
from service.models.repository import Repository, newest
from service.models.warmup import Predict
from service.settings import Settings
from service.statistics import ModelStatistics


class ModelState(StrEnum):
    """What a version is to a client; the values are words of the answer to `GET /models`."""

    LOADED = "loaded"
    AVAILABLE = "available"  # on disk, loaded when it is first asked for
    UNLOADED = "unloaded"  # on disk, and not served until it is loaded again
    FAILED = "failed"  # its last load failed


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

    predict: how a batch is run, for warm-up and check. status_of: the batcher's numbers for one model, for its gauges;
    None where another process shows them.
    on_unused: have `sweep` called on the worker thread. learning: what learns how long a model's batches take, if
    anything does. placed: who is to know of the models to place this process's threads, if anybody does.

    Which version a request gets is decided in one place, `_resolve`; that it may be loaded, and whether it becomes the
    default, on the worker thread alone, so that what an operator did before is seen.

    *Thread:* `start`, `load`, `load_on_demand`, `unload`, `sweep` and `close` belong to the worker; the others to any.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: BatchMetrics,
        predict: Predict,
        *,
        given: ModelHandle | None,
        status_of: Callable[[ModelHandle], StatusOf | None],
        on_unused: Callable[[], None],
        learning: Callable[[ModelHandle], Learn | None] = lambda model: None,  # noqa: ARG005
        placed: Callable[[], PlacedModels | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._given = given
        self._status_of = status_of
        self._placed = placed
        self._prover = Prover(settings, predict, free=self._free, learning=learning, placed=placed)
        self._repository = None
        if given is None and settings.model_repository is not None:
            self._repository = Repository(settings.model_repository)
        self._loaded = LoadedModels(settings.model_cache_size, on_left=self._left, free=self._free, on_unused=on_unused)
        # Only the worker writes these. Every key is a version that lies, or lay, in the repository.
        self._failed = FailedLoads(self._repository)
        self._unloaded: set[Key] = set()
        self._samples: dict[Key, Any] = {}
        self._statistics: dict[Key, ModelStatistics] = {}

    def __repr__(self) -> str:
        return f"<ModelKeeper default={self._loaded.default_name} {self._loaded!r}>"

    # What any thread may ask.

    @property
    def default(self) -> ModelHandle | None:
        """The model that answers where none is named, for information; None where there is none, or not in memory."""
        name = self._loaded.default_name
        version = None if name is None else self._loaded.current(name)
        return None if name is None or version is None else self._loaded.peek(name, version)

    def current(self, name: str) -> str | None:
        """The version of a model that answers where none is named; None while there is none."""
        return self._loaded.current(name)

    def lease(self, name: str | None, version: str | None) -> Lease | None:
        """The right to use a loaded model; None when it has to be loaded first, or does not exist, see `check`."""
        return self._loaded.lease(name, version)

    def check(self, name: str | None, version: str | None) -> None:
        """Raise UnknownModel or UnknownVersion for what a request can not ask for, NotReady for what failed lately."""
        key = self._resolve(name, version)
        if self._loaded.peek(*key) is None:
            self._failed.refuse_lately(key)

    def peek(self, name: str | None, version: str | None) -> ModelHandle | None:
        """A loaded model, for information."""
        name = name or self._loaded.default_name or ""
        return self._loaded.peek(name, version or self._loaded.current(name) or "")

    def statistics(self, model: ModelHandle) -> ModelStatistics:
        """The running totals of a model that is, or was, loaded."""
        return self._statistics[model.name, model.version]

    def all_statistics(self) -> dict[Key, ModelStatistics]:
        """The running totals of every version that is, or was, loaded, by name and version."""
        return self._statistics.copy()

    @property
    def default_name(self) -> str | None:
        """The model that answers where none is named."""
        return self._loaded.default_name

    @property
    def has_repository(self) -> bool:
        """Whether the models come from MODEL_REPOSITORY."""
        return self._repository is not None

    def sample(self, model: ModelHandle) -> Any | None:
        """The prediction for a made-up row, which shows what the model's predictions look like; None if not known."""
        return self._samples.get((model.name, model.version))

    def wait_for_room(self, timeout_s: float) -> bool:
        """Wait until another model may be loaded; see `load`."""
        return self._loaded.wait_for_room(timeout_s)

    def known(self) -> list[KnownVersion]:
        """Every version that is loaded or lies in the repository, by name, oldest version first."""
        loaded = {(model.name, model.version): model for model in self._loaded.all()}
        on_disk: list[Key] = []
        if (repository := self._repository) is not None:
            with suppress(ModelError):  # it has gone since the start; what is loaded still serves
                on_disk = [(name, version) for name in repository.names() for version in repository.versions(name)]
        return [self._described(key, loaded.get(key)) for key in dict.fromkeys([*on_disk, *sorted(loaded)])]

    # What only the worker does.

    def start(self) -> None:
        """Load what is served from the start: the one model, or of each in the repository the newest version, as many
        as the cache holds. Raises what a load raises, and ModelError when the repository does not fit the settings.

        With EXIT_ON_LOAD_ERROR=false the newest version that can be loaded is served, as long as there is one.
        """
        if self._repository is None:
            self.load()
            return
        failure: Exception | None = None
        self._loaded.default_name, tried = first_of(self._repository, self._settings)
        for name, versions in tried:
            for version in versions:
                try:
                    self.load(name, version)
                    break
                except Exception as error:
                    if self._settings.exit_on_load_error:
                        raise
                    failure = failure or error
        if failure is not None and not self._loaded.all():
            raise failure

    def load(self, name: str | None = None, version: str | None = None) -> ModelHandle | None:
        """Load a model beside those that serve, prove it, and let it answer where no version is named.

        name: None for the only one. version: None for the newest. A version that is loaded already is read again. When
        it fails nothing changes, and whatever the reason was is raised; UnknownModel when there is no such thing.
        None when too many models are in memory, in use by requests that came before: try again when there is room.
        """
        if not self._loaded.has_room:
            return None
        if self._repository is None:
            return self._load_single(name, version)
        name = self._named(name)
        versions = self._repository.versions(name)
        if not versions:
            raise UnknownModel("no model of this name is in the repository")
        chosen = version or newest(versions)
        if chosen is None or chosen not in versions:
            raise UnknownVersion("this version of the model is not in the repository", versions)
        return self._load_version(self._repository, (name, chosen), make_current=True)

    def adopt(self, model: ModelHandle, sample: Any) -> None:
        """Let the description of a model answer that another process has loaded and proved, and nothing else."""
        require_decoder(model)
        self._serve_alone(model, sample)

    def load_on_demand(self, name: str | None, version: str | None) -> bool:
        """See to it that what a request asks for is loaded; False when there is no room, as for `load`.

        Raises what `check` raises, and NotReady when the load fails.
        """
        key = self._resolve(name, version)
        if self._loaded.peek(*key) is None:
            self._failed.refuse_lately(key)
            if not self._loaded.has_room:
                return False
            assert self._repository is not None
            try:
                self._load_version(self._repository, key, make_current=False)
            except Exception as error:
                raise could_not_be_loaded() from error
        if version is None:
            self._loaded.make_current(*key)
        return True

    def unload(self, name: str, version: str | None = None) -> bool:
        """Serve a version, or all of a model's, no longer until it is loaded again; False when none was served.

        Its memory is free when the requests that use it now have been answered.
        """
        served = self._servable(name)
        chosen = served if version is None else served & {version}
        for one in chosen:
            if self._repository is not None:
                self._unloaded.add((name, one))
            self._failed.forget((name, one))
            self._loaded.remove(name, one)
        return bool(chosen)

    def sweep(self) -> None:
        """Free what has left and is not in use any more."""
        self._loaded.sweep()

    def close(self) -> None:
        """Free everything; what was handed in belongs to whoever made it."""
        if (placed := self._placed()) is not None:
            placed.close()
        self._loaded.clear()

    # How.

    def _named(self, name: str | None) -> str:
        name = name or self._loaded.default_name
        if name is None:
            raise UnknownModel(
                "several models are served here: name one, as in /models/<name>/predict; GET /models lists them"
            )
        return name

    def _resolve(self, name: str | None, version: str | None) -> Key:
        """The version that a request means; a default one that could not be loaded gives way to one that may be."""
        name = self._named(name)
        served = self._servable(name)
        if not served:
            raise UnknownModel(NOT_SERVED)
        if version is None:
            current = self._loaded.current(name)
            sound = {one for one in served if (name, one) not in self._failed}
            version = current if current in served else newest(sound or served)
        if version is None or version not in served:
            raise UnknownVersion("this version of the model is not served here", sorted(served))
        return name, version

    def _servable(self, name: str) -> set[str]:
        """The versions that requests may ask for: those that are loaded, or lie on disk and were not unloaded."""
        versions = {model.version for model in self._loaded.all() if model.name == name}
        if self._repository is not None:
            on_disk = self._repository.versions(name)
            versions |= {version for version in on_disk if (name, version) not in self._unloaded}
        return versions

    def _load_single(self, name: str | None, version: str | None) -> ModelHandle:
        """The model that was handed in, or what lies at MODEL_PATH now; it replaces what was loaded from there."""
        known = self._loaded.default_name
        if name is not None and name != known:
            raise UnknownModel(NOT_SERVED)
        if version is not None and version != self._loaded.current(known or ""):
            raise UnknownVersion("only MODEL_REPOSITORY has several versions", [])
        model, sample = self._prover.proved(lambda: self._given or load_configured_model(self._settings))
        self._serve_alone(model, sample)
        return model

    def _serve_alone(self, model: ModelHandle, sample: Any) -> None:
        self._serve(model, sample, make_current=True, make_default=True)
        for other in self._loaded.all():
            if other is not model:
                self._loaded.remove(other.name, other.version)

    def _load_version(self, repository: Repository, key: Key, *, make_current: bool) -> ModelHandle:
        name, version = key
        changed_at = repository.changed_at(name, version)
        try:
            model, sample = self._prover.proved(lambda: load_from_repository(self._settings, repository, name, version))
        except Exception as error:
            self._failed.add(key, error, changed_at)
            log_load_failure(f"version {version} of model {name}", error)
            raise ModelLoadError(f"version {version} of model {name}: {text_of(error)}") from error
        self._failed.forget(key)
        self._unloaded.discard(key)
        self._serve(model, sample, make_current=make_current)
        return model

    def _serve(self, model: ModelHandle, sample: Any, *, make_current: bool, make_default: bool = False) -> None:
        # Before it answers anything, so that its first answer finds its series at zero.
        self._metrics.loaded(model, self._status_of(model))
        self._samples[model.name, model.version] = sample
        self._statistics.setdefault((model.name, model.version), ModelStatistics())
        self._loaded.add(model, make_current=make_current, make_default=make_default)

    def _left(self, model: ModelHandle) -> None:
        successor = self._loaded.peek(model.name, model.version)
        self._metrics.unloaded(model, successor)
        if (placed := self._placed()) is not None:
            placed.left(model, successor)

    def _free(self, model: ModelHandle) -> None:
        if self._given is None:
            model.close()

    def _described(self, key: Key, handle: ModelHandle | None) -> KnownVersion:
        name, version = key
        reason = self._failed.reason(key)
        if handle is not None:
            state = ModelState.LOADED
        elif key in self._unloaded:
            state = ModelState.UNLOADED
        else:
            state = ModelState.AVAILABLE if reason is None else ModelState.FAILED
        return KnownVersion(name, version, state, self._loaded.current(name) == version, handle, reason)
