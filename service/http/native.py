"""Jitney's own predict routes."""

from __future__ import annotations

from functools import partial
from typing import Any

from flask import Request, Response

from loaders.signature import InputSpec
from service.http.blueprint import blueprint, runtime
from service.http.body import ReadCall, read_call
from service.http.exchange import Exchange, exchange
from service.http.flags import flag
from service.http.json import json_response
from service.http.paths import EXACT
from service.http.state import current_request, state_in
from service.prediction import Prediction
from service.settings import Settings

# In the environ of a request that somebody has dealt with already: its answer, or what went wrong.
DEALT_WITH = "jitney.dealt_with"

PREDICT = "/predict"

# The flag in the query that asks how each row was batched.
EXPLAIN = "explain"


@blueprint.post(PREDICT, **EXACT)
@blueprint.post("/models/<name>/predict", **EXACT)
@blueprint.post("/models/<name>/versions/<version>/predict", **EXACT)
def predict_route(name: str | None = None, version: str | None = None) -> Response:
    """One predict request."""
    asked = current_request()
    environ = asked.environ
    dealt_with: Response | Exception | None = environ.pop(DEALT_WITH, None)
    if isinstance(dealt_with, Exception):
        try:
            raise dealt_with
        finally:
            del dealt_with  # it holds this frame, which would hold it, and with it the body, for the garbage collector
    if dealt_with is not None:
        return dealt_with
    return exchange(environ, runtime(), name, version, partial(_receive, asked), partial(_respond, asked))


def _receive(asked: Request, environ: dict[str, Any], settings: Settings, expected: InputSpec | None) -> ReadCall:
    _wants_batches(asked)  # a word that is none is refused here, before anybody works for the answer
    incoming = read_call(asked, settings, expected)
    state_in(environ).place_of = incoming.place_of
    return incoming


def _respond(asked: Request, done: Exchange[ReadCall]) -> Response:
    body = answer_of(done)
    if _wants_batches(asked):
        body["batch"] = explain(done.prediction)
    return json_response(body)


def _wants_batches(asked: Request) -> bool:
    # Most requests have no query, and taking one apart costs more than to see that there is none.
    return bool(asked.query_string) and flag(asked.args, EXPLAIN)


def answer_of(done: Exchange[ReadCall]) -> dict[str, Any]:
    """The body of the answer."""
    prediction, single = done.prediction, done.incoming.single
    body: dict[str, Any] = {
        "predictions": prediction.predictions,
        "model_name": prediction.model.name,
        "model_version": prediction.model.version,
        "latency_ms": round(done.latency_ms, 3),
    }
    if single:
        body["prediction"] = prediction.predictions[0]
    if prediction.classes is not None:
        body["classes"] = prediction.classes
    if True in prediction.truncated:
        body["truncated"] = True if single else prediction.truncated
    return body


def explain(prediction: Prediction) -> list[dict[str, Any]]:
    """How each row was batched."""
    return [
        {
            "batch_id": info.batch_id,
            "batch_size": info.size,
            "flush_reason": info.reason,
            "queue_ms": round((info.started_at - prediction.answer.enqueued_at) * 1000, 3),
            "model_ms": round(info.model_s * 1000, 3),
            "padded_length": info.padded_length,
            "padding_share": round(info.padding_share, 4),
        }
        for info in prediction.answer.batches
    ]
