"""A model is loaded, warmed up and checked before anybody is answered by it; what fails there never serves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from loaders.errors import ModelError, ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import ImageInput
from service.batching.faults import log_error, text_of
from service.inputs import image
from service.models.measuring import Learn, measure
from service.models.placing import PlacedModels
from service.models.self_check import self_check
from service.models.warmup import Predict, warm_up
from service.settings import SelfCheck, Settings

_log = logging.getLogger("jitney")


class Prover:
    """Loads models as the settings want them proved.

    predict: how a batch is run. free: what is done with a model that fails. learning: what learns how long a model's
    batches take, if anything does. placed: who is to know of the models to place this process's threads, if anybody.

    *Thread:* the worker's.
    """

    def __init__(
        self,
        settings: Settings,
        predict: Predict,
        *,
        free: Callable[[ModelHandle], None],
        learning: Callable[[ModelHandle], Learn | None],
        placed: Callable[[], PlacedModels | None],
    ) -> None:
        self._settings = settings
        self._predict = predict
        self._free = free
        self._learning = learning
        self._placed = placed

    def proved(self, load: Callable[[], ModelHandle]) -> tuple[ModelHandle, Any]:
        """A model that has been loaded, warmed up and checked, with the prediction for a made-up row.

        One that fails is freed. What would end the thread is an ordinary failure here: a model that calls `sys.exit`
        must not end the service of the others.
        """
        began = time.monotonic()
        model: ModelHandle | None = None
        if (placed := self._placed()) is not None:
            placed.loads()
        try:
            model = load()
            require_decoder(model)
            model, sample = self._warmed_up(model)
            if self._settings.warmup and (learn := self._learning(model)) is not None:
                measure(model, self._settings.max_batch_size, self._predict, learn)
            if placed is not None:
                placed.warm(model, self._predict)
        except BaseException as error:
            if model is not None:
                with suppress(BaseException):  # what went wrong first is what the operator has to know
                    self._free(model)
            if isinstance(error, Exception):
                raise
            raise ModelLoadError(f"loading it ended with {type(error).__name__}: {text_of(error)}") from error
        for warning in model.warnings:
            _log.warning("%s", warning)
        took_s = time.monotonic() - began
        told = model.name, model.version, model.fmt, model.device
        _log.info("model %s version %s (%s on %s) is ready after %.1f s", *told, took_s)
        return model, sample

    def _warmed_up(self, model: ModelHandle) -> tuple[ModelHandle, Any]:
        settings = self._settings
        if not settings.warmup:
            return model, None
        sample = warm_up(model, settings.max_batch_size, self._predict, settings.batch_size_buckets or ())
        if settings.self_check is SelfCheck.OFF:
            return model, sample
        checked = self_check(model, settings.max_batch_size, self._predict)
        if checked.finding is not None and settings.self_check is SelfCheck.STRICT:
            raise ModelLoadError(checked.finding)
        told = checked.finding or (checked.not_done if settings.self_check is SelfCheck.STRICT else None)
        if told is not None:
            return replace(model, warnings=(*model.warnings, told)), sample
        if checked.not_done is not None:
            _log.info("%s", checked.not_done)
        return model, sample


def require_decoder(model: ModelHandle) -> None:
    """Raise MissingDependencyError where the model's pictures could not be decoded here."""
    if isinstance(model.input, ImageInput):
        image.require()


def log_load_failure(what: str, error: Exception) -> None:
    """A ModelError is written for people; anything else needs its traceback to be understood."""
    shown = None if issubclass(type(error), ModelError) else error
    log_error(_log, logging.CRITICAL, "%s could not be loaded: %s", what, text_of(error), error=shown)
