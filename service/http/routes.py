"""The routes: predict with its aliases, what is served, and the two probes."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from flask import Blueprint, Response, current_app, g, request
from werkzeug.exceptions import HTTPException

from service.errors import JitneyError, UnknownModel
from service.health import liveness, models, readiness
from service.http import docs, problems
from service.http.body import read_call
from service.http.json import json_response
from service.http.paths import EXACT
from service.prediction import Prediction, lease_model, lease_other_version, predict
from service.runtime import Runtime
from service.wsgi_environ import ACCEPTED

# Linux tells when the other side has closed its half; elsewhere only a connection that is closed both ways shows.
_HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)

blueprint = Blueprint("jitney", __name__)
blueprint.register_error_handler(JitneyError, problems.from_error)
blueprint.register_error_handler(HTTPException, problems.from_http_exception)
blueprint.register_error_handler(Exception, problems.from_surprise)
docs.register(blueprint)


def runtime() -> Runtime:
    """The runtime of the app that answers this request."""
    found: Runtime = current_app.extensions["jitney"]
    return found


@blueprint.post("/predict", **EXACT)
@blueprint.post("/models/<name>/predict", **EXACT)
@blueprint.post("/models/<name>/versions/<version>/predict", **EXACT)
def predict_route(name: str | None = None, version: str | None = None) -> Response:
    """One predict request."""
    started_at = time.perf_counter()
    entered_at = time.monotonic()
    here = runtime()
    here.ensure_started()
    here.await_model_in_memory()
    with ExitStack() as leases:
        lease = lease_model(here, name, version, was_accepted=request.environ.get(ACCEPTED, False))
        model = g.jitney_model = leases.enter_context(lease)
        arrival = here.announce()
        leases.callback(arrival.release)
        read = read_call(request, model.input, here.settings)
        if version is None and (other := lease_other_version(here, model, read.call)) is not None:
            model = g.jitney_model = leases.enter_context(other)
            read.check_fits(model.input)
        prediction = predict(
            here, model, read.call, entered_at=entered_at, arrival=arrival, is_gone=_is_gone(request.environ)
        )
    latency_ms = (time.perf_counter() - started_at) * 1000
    body: dict[str, Any] = {
        "predictions": prediction.predictions,
        "model_name": model.name,
        "model_version": model.version,
        "latency_ms": round(latency_ms, 3),
    }
    if read.single:
        body["prediction"] = prediction.predictions[0]
    if prediction.classes is not None:
        body["classes"] = prediction.classes
    if any(prediction.truncated):
        body["truncated"] = True if read.single else prediction.truncated
    if request.args.get("explain") == "1":
        body["batch"] = explain(prediction)
    g.jitney_phases = (
        f"preprocess;dur={prediction.preprocess_s * 1000:.3f}, queue;dur={prediction.answer.queue_s * 1000:.3f}, "
        f"model;dur={prediction.answer.model_s * 1000:.3f}"
    )
    return json_response(body)


@blueprint.get("/models", **EXACT)
def models_route() -> Response:
    """What is served here."""
    return json_response({"models": models(runtime())})


@blueprint.get("/models/<name>", **EXACT)
def model_route(name: str) -> Response:
    """One model with its versions."""
    found = models(runtime(), name)
    if not found:
        raise UnknownModel("no model of this name is served here")
    return json_response(found[0])


@blueprint.get("/healthz", **EXACT)
def healthz() -> Response:
    """Readiness."""
    here = runtime()
    here.ensure_started()
    ready, body = readiness(here)
    return json_response(body, 200 if ready else 503)


@blueprint.get("/livez", **EXACT)
def livez() -> Response:
    """Liveness."""
    live, body = liveness(runtime())
    return json_response(body, 200 if live else 503)


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
            "padding_share": round(info.padding_tokens / (info.size * info.padded_length), 4),
        }
        for info in prediction.answer.batches
    ]


def _is_gone(environ: dict[str, Any]) -> Callable[[], bool] | None:
    """A test whether the client has closed its connection; None where the server does not give the socket."""
    connection = environ.get("gunicorn.socket")
    if connection is None:
        return None

    def gone() -> bool:
        # Asks for the end of the stream alone: it takes no byte of a next request, and works under TLS.
        poll = select.poll()
        try:
            poll.register(connection, _HANG_UP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed on our side
            return True

    return gone
