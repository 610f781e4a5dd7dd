"""The whole OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.handle import ModelHandle
from service.http.openapi.answers import HEADERS, PROBLEM, answer, problem_responses
from service.http.openapi.bodies import body_schemas
from service.http.openapi.instances import instance_schema
from service.http.openapi.operation import Operation, Served
from service.http.openapi.predict import BATCH_INFO, CLASS_SCORE, PREDICT, answer_schema, prediction_schema
from service.http.openapi.probes import LIVENESS, PROBES, READINESS
from service.release import VERSION
from service.settings import Settings

_ABOUT = (
    "Rows of different callers leave for the model as one batch; each caller gets its own answer. "
    "Errors are problem documents (RFC 9457) that never repeat the input."
)

_SELF = (
    Operation(
        "get",
        "/openapi.json",
        "openapi",
        "Description",
        "This document",
        lambda _: {"responses": {"200": answer("OpenAPI 3.1.", "application/json", {"type": "object"})}},
    ),
    Operation(
        "get",
        "/docs",
        "docs",
        "Description",
        "This document as a page, to read and to try",
        lambda _: {"responses": {"200": answer("A page.", "text/html", {"type": "string"})}},
    ),
)

# Every operation, in the order in which they are shown. A protocol adds its own here.
OPERATIONS: tuple[Operation, ...] = (*PREDICT, *PROBES, *_SELF)

_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key as the token."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def openapi(
    model: ModelHandle | None,
    *,
    settings: Settings,
    has_keys: bool = False,
    has_metrics_key: bool = False,
    base_path: str = "",
    operations: Sequence[Operation] = OPERATIONS,
) -> dict[str, Any]:
    """The document, of JSON types.

    model: see `Served`. base_path: the path under which the service is mounted, without a slash at its end.
    """
    served = Served(model, settings, has_keys, has_metrics_key)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation.as_openapi(served)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Jitney", "version": VERSION, "description": _ABOUT},
        "servers": [{"url": base_path or "/"}],
        "tags": [{"name": name} for name in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": _components(served),
    }


def _components(served: Served) -> dict[str, Any]:
    model = served.model
    components: dict[str, Any] = {
        "schemas": {
            **body_schemas(served),
            "Instance": instance_schema(model, served.settings),
            "PredictAnswer": answer_schema(model),
            "Prediction": prediction_schema(None if model is None else model.output),
            "ClassScore": CLASS_SCORE,
            "BatchInfo": BATCH_INFO,
            "Readiness": READINESS,
            "Liveness": LIVENESS,
            "Problem": PROBLEM,
        },
        "headers": HEADERS,
        "responses": problem_responses(),
    }
    if served.has_keys or served.has_metrics_key:
        components["securitySchemes"] = _SECURITY_SCHEMES
    return components
