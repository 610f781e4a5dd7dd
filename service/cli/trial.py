"""A loaded model tried as the service tries it at its start, and what follows from that."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loaders.errors import ModelLoadError
from loaders.handle import ModelHandle
from loaders.signature import TabularInput
from service.last_words import last_words
from service.settings import SelfCheck, Settings

if TYPE_CHECKING:
    from service.models.self_check import CheckResult


@dataclass(frozen=True, slots=True)
class Trial:
    """`refused`: why the service would not serve the model. `answer`: to a made-up row, as JSON has it."""

    answer: Any = None
    refused: str | None = None
    warnings: tuple[str, ...] = ()


def tried(model: ModelHandle, settings: Settings) -> Trial:
    """The outcome of warm-up and self-check, as far as the settings ask for them."""
    # The warm-up logs what the model raised, at length; here the reason is told in a line.
    logging.getLogger("jitney").addHandler(logging.NullHandler())
    if settings.warmup:
        refused = _warm_up_failure(model, settings)
        if refused is not None:
            return Trial(refused=refused)
    checked = _neighbours(model, settings)
    if checked.finding is not None and settings.warmup and settings.self_check is SelfCheck.STRICT:
        return Trial(refused=f"{checked.finding}; with SELF_CHECK=strict it is not served")
    answer, problem = _answered(model)
    # A model that fails on every made-up row could not be checked with one either.
    return Trial(answer, warnings=tuple(filter(None, (problem or checked.not_done, checked.finding))))


def _warm_up_failure(model: ModelHandle, settings: Settings) -> str | None:
    from service.models.warmup import warm_up

    try:
        warm_up(model, settings.max_batch_size, _predict, settings.batch_size_buckets or ())
    except ModelLoadError as error:
        return str(error)
    return None


def _predict(model: ModelHandle, rows: list[Any], parameters: Mapping[str, Any]) -> Any:
    return model.predict_batch(rows, parameters)


def _neighbours(model: ModelHandle, settings: Settings) -> CheckResult:
    from service.models.self_check import CheckResult, self_check

    return (
        CheckResult() if settings.self_check is SelfCheck.OFF else self_check(model, settings.max_batch_size, _predict)
    )


def _answered(model: ModelHandle) -> tuple[Any, str | None]:
    """What the model answers to a made-up row, as a client would see it, or what is wrong with that."""
    import orjson

    from service.outputs import present

    try:
        row = _row(model)
        if row is None:
            return None, None
        (result,) = model.predict_batch([row])
        shown = orjson.dumps(present(model.output, result), option=orjson.OPT_SERIALIZE_NUMPY)
    except Exception as error:  # whatever the framework raises is what the operator has to know
        return None, f"the model fails on a made-up row: {last_words(error)}"
    return json.loads(shown), None


def _row(model: ModelHandle) -> Any | None:
    """A prepared row: of zeros, or of the request that is shown where columns are of several types."""
    from service.inputs import InputLimits, prepare
    from service.inputs.example import example_instance
    from service.models.examples import example_row

    row = example_row(model.input)
    if row is not None or not isinstance(model.input, TabularInput) or model.input.columns is None:
        return row
    types = model.metadata.get("column_types", ())
    instance = example_instance(model.input, types, model.metadata.get("column_examples", ()))
    (prepared,) = prepare(model.input, [instance], InputLimits(1, 1), types)
    return prepared.payload
