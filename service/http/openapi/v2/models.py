"""What the protocol's clients ask about the server and its models: health, metadata, configuration, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.http.openapi.answers import answer
from service.http.openapi.errors import ErrorForm, errors
from service.http.openapi.operation import Operation
from service.http.openapi.references import ref
from service.http.openapi.served import Served
from service.http.openapi.v2.infer import TAG
from service.http.v2.datatypes import Datatype

_COUNT = {"type": "integer", "minimum": 0}
_STRING = {"type": "string"}


def _object(**properties: Any) -> dict[str, Any]:
    """An object that has all of `properties` and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


_EXTENTS = _list({"type": "integer", "minimum": -1}, description="-1 where it may vary.")
_TENSOR = _object(name=_STRING, datatype={"type": "string", "enum": list(map(str, Datatype))}, shape=_EXTENTS)
_CONFIGURED = _object(name=_STRING, data_type={"type": "string", "pattern": "^TYPE_[A-Z0-9]+$"}, dims=_EXTENTS)
_DURATION = _object(count=_COUNT, ns=_COUNT)
_REQUEST_PARTS = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)
_BATCH_PARTS = ("compute_input", "compute_infer", "compute_output")
_STATISTICS = _object(
    name=_STRING,
    version=_STRING,
    last_inference=_COUNT | {"description": "Milliseconds since 1970; 0 before any."},
    inference_count=_COUNT | {"description": "Rows."},
    execution_count=_COUNT | {"description": "Batches."},
    inference_stats=_object(**dict.fromkeys(_REQUEST_PARTS, _DURATION)),
    batch_stats=_list(_object(batch_size=_COUNT, **dict.fromkeys(_BATCH_PARTS, _DURATION))),
)

SCHEMAS: dict[str, Any] = {
    "V2Server": _object(name=_STRING, version=_STRING, extensions=_list(_STRING)),
    "V2Health": _object(live={"type": "boolean"}),
    "V2ModelReady": _object(name=_STRING, ready={"type": "boolean"}),
    "V2Metadata": _object(
        name=_STRING, versions=_list(_STRING), platform=_STRING, inputs=_list(_TENSOR), outputs=_list(_TENSOR)
    ),
    "V2Config": _object(
        name=_STRING,
        platform=_STRING,
        max_batch_size={"type": "integer", "minimum": 1},
        input=_list(_CONFIGURED),
        output=_list(_CONFIGURED),
        dynamic_batching=_object(
            preferred_batch_size=_list({"type": "integer", "minimum": 1}), max_queue_delay_microseconds=_COUNT
        ),
    ),
    "V2Statistics": _object(model_stats=_list(_STATISTICS)),
}


def _answers(schema: str, description: str, *statuses: int, bad: str | None = None) -> Callable[[Served], Any]:
    """Answers of one schema. statuses: of errors. bad: what a 503 of the same schema means, if there is one."""

    def describe(_: Served) -> dict[str, Any]:
        responses = {"200": answer(description, "application/json", ref(schema)), **errors(statuses, ErrorForm.V2)}
        return {"responses": responses | ({"503": answer(bad, "application/json", ref(schema))} if bad else {})}

    return describe


def _operation(path: str, operation_id: str, summary: str, describe: Callable[[Served], Any]) -> Operation:
    return Operation("get", path, operation_id, TAG, summary, describe, form=ErrorForm.V2)


_LIVE = _answers("V2Health", "The process is worth keeping.", bad="It is not.")
_READY = _answers("V2Health", "A prediction would be answered now.", bad="It would not.")
_MODEL_READY = _answers("V2ModelReady", "The model would answer now.", 404, bad="It would not.")
# One that is only in the repository is loaded first, to be looked at.
_METADATA = _answers("V2Metadata", "What it takes and gives.", 404, 503, 504)
_CONFIG = _answers("V2Config", "Its configuration.", 404, 503, 504)
_ALL_STATISTICS = _answers("V2Statistics", "Totals of every model that is loaded.")
_STATISTICS_OF_ONE = _answers("V2Statistics", "Its totals.", 404, 503)

_MODEL, _VERSION = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"

ABOUT_MODELS = (
    _operation(_MODEL, "v2_metadata", "What a model takes and gives", _METADATA),
    _operation(_VERSION, "v2_metadata_version", "What a version takes and gives", _METADATA),
    _operation(f"{_MODEL}/ready", "v2_model_ready", "Is the model ready?", _MODEL_READY),
    _operation(f"{_VERSION}/ready", "v2_version_ready", "Is the version ready?", _MODEL_READY),
    _operation(f"{_MODEL}/config", "v2_config", "A model's configuration", _CONFIG),
    _operation(f"{_VERSION}/config", "v2_config_version", "A version's configuration", _CONFIG),
    _operation("/v2/models/stats", "v2_all_stats", "Statistics of all models", _ALL_STATISTICS),
    _operation(f"{_MODEL}/stats", "v2_stats", "Statistics of a model", _STATISTICS_OF_ONE),
    _operation(f"{_VERSION}/stats", "v2_stats_version", "Statistics of a version", _STATISTICS_OF_ONE),
)
ABOUT_SERVER = (
    _operation("/v2", "v2_server", "The server and its extensions", _answers("V2Server", "Name and version.")),
    _operation("/v2/health/live", "v2_live", "Is it alive?", _LIVE),
    _operation("/v2/health/ready", "v2_ready", "Is it ready?", _READY),
)
