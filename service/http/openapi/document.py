"""The whole OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loaders.handle import ModelHandle
from service.http.openapi.answers import HEADERS, answer
from service.http.openapi.bodies import body_schemas
from service.http.openapi.errors import PROBLEM, PROTOCOL_ERROR, error_responses
from service.http.openapi.instances import instance_schema
from service.http.openapi.models import MODEL, MODEL_LIST, MODELS
from service.http.openapi.operation import Operation
from service.http.openapi.predict import BATCH_INFO, CLASS_SCORE, PREDICT, answer_schema, prediction_schema
from service.http.openapi.probes import LIVENESS, PROBES, READINESS
from service.http.openapi.security import security_schemes
from service.http.openapi.served import Served
from service.http.openapi.status import STATUS, status_schemas
from service.http.openapi.v1 import V1, v1_schemas
from service.http.openapi.v2 import models as v2_models
from service.http.openapi.v2 import repository as v2_repository
from service.http.openapi.v2.infer import INFER, infer_schemas
from service.release import VERSION
from service.settings import Settings

_ABOUT = (
    "Rows of different callers leave for the model as one batch; each caller gets its own answer. "
    "Errors are problem documents (RFC 9457) that never repeat the input; under `/v1` and `/v2` they have the form of "
    "the protocol."
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

_V2 = (*INFER, *v2_models.ABOUT_MODELS, *v2_repository.REPOSITORY, *v2_models.ABOUT_SERVER)

# Every operation, in the order in which they are shown. A protocol adds its own here.
OPERATIONS: tuple[Operation, ...] = (*PREDICT, *MODELS, *PROBES, *STATUS, *V1, *_V2, *_SELF)

_TAGS = {
    "Predict": "One request and one answer, under three paths.",
    "Models": "Which models and versions there are.",
    "Health": "For those who watch the service.",
    "TensorFlow Serving": "The same predictions for clients of TensorFlow Serving's REST API, under `/v1`.",
    "Open Inference Protocol": "The same predictions for clients of KServe and Triton, as tensors, under `/v2`.",
    "Description": "What you are reading.",
}


def openapi(
    model: ModelHandle | None,
    *,
    settings: Settings,
    sample: Any | None = None,
    base_path: str = "",
    operations: Sequence[Operation] = OPERATIONS,
) -> dict[str, Any]:
    """The document, of JSON types.

    model, sample: see `Served`. base_path: the path under which the service is mounted, without a slash at its end.
    """
    served = Served(model, settings, sample)
    paths: dict[str, Any] = {}
    for operation in operations:
        if operation in STATUS and not settings.status_page:
            continue
        paths.setdefault(operation.path, {})[operation.method] = operation.as_openapi(served)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Jitney", "version": VERSION, "description": _ABOUT},
        "servers": [{"url": base_path or "/"}],
        "tags": [_tag(name) for name in dict.fromkeys(operation.tag for operation in operations)],
        "paths": paths,
        "components": _components(served),
    }


def _tag(name: str) -> dict[str, str]:
    return {"name": name, "description": _TAGS[name]} if name in _TAGS else {"name": name}


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
            **status_schemas(served),
            "Model": MODEL,
            "ModelList": MODEL_LIST,
            "Problem": PROBLEM,
            "ProtocolError": PROTOCOL_ERROR,
            **v1_schemas(served),
            **infer_schemas(served),
            **v2_models.SCHEMAS,
            **v2_repository.SCHEMAS,
        },
        "headers": HEADERS,
        "responses": error_responses(),
    }
    schemes = security_schemes(served.settings)
    return components | ({"securitySchemes": schemes} if schemes else {})
