"""The predict operations: one request and one answer under three paths."""

from __future__ import annotations

from typing import Any

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, OutputSpec, TextInput
from service.batching.tickets import FlushReason
from service.http.flags import NO, YES
from service.http.keys import Access
from service.http.native import EXPLAIN
from service.http.openapi.answers import answer
from service.http.openapi.bodies import predict_body
from service.http.openapi.errors import errors
from service.http.openapi.operation import Operation
from service.http.openapi.parameters import REQUEST_ID
from service.http.openapi.references import ref
from service.http.openapi.served import Served
from service.http.problems import PROBLEMS

# What a prediction can end with. 499 is for the log and the metrics: nobody is there to read it. 401 comes with the
# key; 403 is for what administers models.
STATUSES = frozenset(status for status, _ in PROBLEMS.values()) - {401, 403, 499}

# Patterns have no switch for capitals.
_WORDS = "|".join("".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in word) for word in YES + NO)

_EXPLAIN = {
    "name": EXPLAIN,
    "in": "query",
    "description": f"{', '.join(YES)}: adds `batch`, which tells how each row was batched. {', '.join(NO)}: does not.",
    "schema": {"type": "string", "pattern": f"^({_WORDS})$"},
    "example": "1",
}

_MILLISECONDS = {"type": "number", "minimum": 0}
_COUNT = {"type": "integer", "minimum": 0}

BATCH_INFO = {
    "type": "object",
    "description": "How one row was batched.",
    "properties": {
        "batch_id": _COUNT,
        "batch_size": {"type": "integer", "minimum": 1, "description": "Rows that shared the batch."},
        "flush_reason": {
            "type": "string",
            "enum": [reason.value for reason in FlushReason],
            "description": "Why the batch left when it did.",
        },
        "queue_ms": {"type": "number", "description": "From the queue to the model."},
        "model_ms": _MILLISECONDS | {"description": "In the model, the whole batch."},
        "padded_length": _COUNT
        | {
            "description": "Tokens of each row that the model computed, of which short texts may share one; 1 where "
            "rows have no length."
        },
        "padding_share": {"type": "number", "minimum": 0, "maximum": 1, "description": "Tokens that were padding."},
    },
    "required": [
        "batch_id",
        "batch_size",
        "flush_reason",
        "queue_ms",
        "model_ms",
        "padded_length",
        "padding_share",
    ],
    "additionalProperties": False,
}

CLASS_SCORE = {
    "type": "object",
    "properties": {
        "label": {"type": ["string", "integer"], "description": "The class; its number where it has no name."},
        "score": {"type": "number"},
    },
    "required": ["label", "score"],
    "additionalProperties": False,
}


def prediction_schema(output: OutputSpec | None) -> dict[str, Any]:
    """The schema of one prediction: the shape to expect, beside what the model may give instead."""
    raw = {"title": "Raw", "description": "What the model itself gives: any JSON value."}
    if output is None or output.task != "classification":
        return raw
    if output.top_k is None:
        usual: dict[str, Any] = ref("ClassScore") | {"description": "The best class."}
    else:
        usual = {"type": "array", "items": ref("ClassScore"), "minItems": 1, "maxItems": output.top_k}
        usual["description"] = f"The {output.top_k} best classes, best first."
    raw["description"] = (
        "Probabilities in the order of `classes`, where `proba` asked for them; an object by name for several outputs."
    )
    return {"anyOf": [usual, raw]}


def answer_schema(model: ModelHandle | None) -> dict[str, Any]:
    """The schema of a 200, with the keys that this model's answers can have."""
    properties: dict[str, Any] = {
        "predictions": {
            "type": "array",
            "items": ref("Prediction"),
            "minItems": 1,
            "description": "One for each instance, in their order.",
        },
        "model_name": {"type": "string"},
        "model_version": {"type": "string"},
        "latency_ms": _MILLISECONDS | {"description": "From the request's arrival to its answer, milliseconds."},
    }
    required = list(properties)
    if model is None or isinstance(model.input, TextInput | ImageInput):
        properties["prediction"] = ref("Prediction") | {"description": "The only one, where a short form was used."}
    if model is None or isinstance(model.input, TextInput):
        properties["truncated"] = {
            "description": "Whether the text was cut, or for each instance; only where one was.",
            "type": ["boolean", "array"],
            "items": {"type": "boolean"},
        }
    if model is None or "proba" in model.parameters:
        properties["classes"] = {"type": "array", "description": "Only with `proba`."}
    properties["batch"] = {
        "type": "array",
        "items": ref("BatchInfo"),
        "minItems": 1,
        "description": "Only with `explain=1`: one for each instance.",
    }
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _describe(served: Served) -> dict[str, Any]:
    example = {} if served.model is None else {"example": _example_answer(served.model)}
    done = answer("The predictions.", "application/json", ref("PredictAnswer"), **example)
    return {
        "parameters": [_EXPLAIN, REQUEST_ID],
        "requestBody": predict_body(served),
        # 404 also where no model is named: several may be served, or the only one be unloaded.
        "responses": {"200": done, **errors(STATUSES)},
    }


def _example_answer(model: ModelHandle) -> dict[str, Any]:
    label = model.output.labels[0] if model.output.labels else 0
    prediction: Any = 1.5
    if model.output.task == "classification":
        best = {"label": label, "score": 0.98}
        prediction = best if model.output.top_k is None else [best]
    return {
        "predictions": [prediction],
        "model_name": model.name,
        "model_version": model.version,
        "latency_ms": 3.2,
    }


PREDICT = (
    Operation(
        "post",
        "/predict",
        "predict",
        "Predict",
        "Predict with the model that is served",
        _describe,
        Access.INFERENCE,
    ),
    Operation(
        "post",
        "/models/{name}/predict",
        "predict_model",
        "Predict",
        "Predict with the model of this name",
        _describe,
        Access.INFERENCE,
    ),
    Operation(
        "post",
        "/models/{name}/versions/{version}/predict",
        "predict_version",
        "Predict",
        "Predict with one version of it",
        _describe,
        Access.INFERENCE,
    ),
)
