"""The protocol's routes: health, metadata, configuration, statistics, and inference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flask import Response, current_app, request

from loaders.handle import ModelHandle
from loaders.signature import InputSpec
from service.batching.tickets import Priority
from service.errors import InvalidInput, NotReady, UnknownModel
from service.health import liveness, readiness
from service.http.blueprint import blueprint, runtime
from service.http.charset import refuse_other_charset
from service.http.exchange import Exchange, exchange
from service.http.json import json_response
from service.http.paths import EXACT
from service.http.read import read_body
from service.http.state import state_in
from service.http.v2 import describe
from service.http.v2.declared import declared_outputs
from service.http.v2.inputs import place_of_row, relocated, to_instances
from service.http.v2.outputs import to_tensors
from service.http.v2.request import InferRequest, read_request, read_timeout_s
from service.http.v2.response import check_outputs, write_response
from service.http.v2.statistics import model_stats
from service.http.v2.wire import HEADER_LENGTH
from service.models.loaded import Lease
from service.prediction import PredictCall
from service.release import VERSION
from service.runtime import Runtime
from service.settings import Settings

EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)

# The protocol has as many levels as a server likes; the default is the one in the middle.
_PRIORITIES = {0: Priority.NORMAL, 1: Priority.HIGH, 2: Priority.NORMAL}


@blueprint.get("/v2", **EXACT)
def v2_server() -> Response:
    """The server's metadata."""
    return json_response({"name": "jitney", "version": VERSION, "extensions": EXTENSIONS})


@blueprint.get("/v2/health/live", **EXACT)
def v2_live() -> Response:
    """Liveness; asking for it starts nothing."""
    live, _ = liveness(current_app.extensions["jitney"])
    return json_response({"live": live}, 200 if live else 503)


@blueprint.get("/v2/health/ready", **EXACT)
def v2_ready() -> Response:
    """Readiness of the server."""
    ready, _ = readiness(runtime())
    return json_response({"live": ready}, 200 if ready else 503)


@blueprint.get("/v2/models/<name>/ready", **EXACT)
@blueprint.get("/v2/models/<name>/versions/<version>/ready", **EXACT)
def v2_model_ready(name: str, version: str | None = None) -> Response:
    """Readiness of a model; one that has yet to be loaded is ready when it may be."""
    here = runtime()
    ready, _ = readiness(here)
    try:
        here.check(name, version, was_accepted=True)
    except NotReady:
        ready = False
    return json_response({"name": name, "ready": ready}, 200 if ready else 503)


@blueprint.get("/v2/models/<name>", **EXACT)
@blueprint.get("/v2/models/<name>/versions/<version>", **EXACT)
def v2_metadata(name: str, version: str | None = None) -> Response:
    """What a model takes and gives."""
    here = runtime()
    with _leased(here, name, version) as model:
        versions = [one.version for one in here.known_models() if one.name == name]
        return json_response(describe.metadata(model, versions, here.sample(model)))


@blueprint.get("/v2/models/<name>/config", **EXACT)
@blueprint.get("/v2/models/<name>/versions/<version>/config", **EXACT)
def v2_config(name: str, version: str | None = None) -> Response:
    """A model's configuration, in the words of Triton."""
    here = runtime()
    with _leased(here, name, version) as model:
        settings = here.settings
        return json_response(
            describe.config(
                model,
                max_batch_size=settings.max_batch_size,
                max_batch_latency_ms=settings.max_batch_latency_ms,
                sample=here.sample(model),
            )
        )


@blueprint.get("/v2/models/stats", **EXACT)
@blueprint.get("/v2/models/<name>/stats", **EXACT)
@blueprint.get("/v2/models/<name>/versions/<version>/stats", **EXACT)
def v2_stats(name: str | None = None, version: str | None = None) -> Response:
    """The running totals of the loaded models, or of one."""
    here = runtime()
    chosen = [
        one.handle
        for one in here.known_models()
        if one.handle is not None and name in (None, one.name) and version in (None, one.version)
    ]
    if name is not None and not chosen:
        here.check(name, version, was_accepted=True)
        raise UnknownModel("no model of this name and version is loaded here")
    return json_response({"model_stats": [_stats(here, model) for model in chosen]})


def _leased(here: Runtime, name: str, version: str | None) -> Lease:
    """The right to use a model, to tell of it; also while the service stops. Raises what `Runtime.lease` raises."""
    here.check(name, version, was_accepted=True)
    return here.lease(name, version)


def _stats(here: Runtime, model: ModelHandle) -> dict[str, Any]:
    return model_stats(model.name, model.version, here.statistics(model).totals())


@dataclass(slots=True)
class _Body:
    """A body that has been read; it can be understood once it is known which model answers."""

    data: bytes
    settings: Settings
    model_version: None = None
    timeout_s: float | None = None
    request: InferRequest = field(default_factory=lambda: InferRequest({}))
    spec: InputSpec | None = None

    def call_for(self, model: ModelHandle) -> PredictCall:
        types = model.metadata.get("column_types", ())
        header_length = request.headers.get(HEADER_LENGTH)
        read = read_request(self.data, header_length, model.input, types, max_rows=self.settings.max_instances)
        names = [tensor.name for tensor in declared_outputs(model.output, runtime().sample(model))]
        if names:
            check_outputs(read, names)
        self.request, self.spec = read, model.input
        return PredictCall(
            to_instances(model.input, read.inputs),
            timeout_s=read.timeout_s,
            priority=_PRIORITIES.get(read.priority, Priority.LOW),
            parameters=read.options_of(model.parameters),
        )


@blueprint.post("/v2/models/<name>/infer", **EXACT)
@blueprint.post("/v2/models/<name>/versions/<version>/infer", **EXACT)
def v2_infer(name: str, version: str | None = None) -> Response:
    """One inference request; of its content type only the charset counts, as the protocol's own client sends none."""
    received: list[_Body] = []

    def receive(environ: dict[str, Any], settings: Settings, _: InputSpec | None) -> _Body:
        state_in(environ).place_of = place_of_row
        refuse_other_charset(request)
        body = _Body(read_body(request, settings), settings)
        if runtime().peek(name, version) is None:  # it is to be loaded first: not for garbage, nor beyond the deadline
            most = settings.max_instances
            body.timeout_s = read_timeout_s(body.data, request.headers.get(HEADER_LENGTH), max_rows=most)
        received.append(body)
        return body

    try:
        return exchange(request.environ, runtime(), name, version, receive, _respond)
    except InvalidInput as error:
        if not received or received[0].spec is None:
            raise
        # What is wrong with instance i is wrong in a tensor, as this caller has sent it.
        raise relocated(error, received[0].spec, received[0].request.inputs) from error


def _respond(done: Exchange[_Body]) -> Response:
    prediction = done.prediction
    encoded = write_response(
        done.incoming.request,
        to_tensors(prediction.predictions),
        model_name=prediction.model.name,
        model_version=prediction.model.version,
        parameters={"truncated": True} if any(prediction.truncated) else None,
    )
    return Response(encoded.body, 200, headers=encoded.headers)
