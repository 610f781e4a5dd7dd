"""TensorFlow Serving's REST routes: the same requests under the names that its clients know.

Row format (`instances`) is answered with `predictions`, columnar format (`inputs`) with `outputs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Response, request

from loaders.handle import ModelHandle
from loaders.signature import InputSpec
from service.errors import NOT_SERVED, InvalidInput, UnknownModel, UnknownVersion, UnsupportedMedia
from service.http.blueprint import blueprint, runtime
from service.http.charset import refuse_other_charset
from service.http.columnar import place_in_only_input, relocated, to_rows
from service.http.exchange import Exchange, exchange
from service.http.json import json_response
from service.http.json_body import read_object
from service.http.paths import EXACT
from service.http.read import read_body
from service.http.state import state_in
from service.models.keeper import KnownVersion, ModelState
from service.prediction import PredictCall
from service.settings import Settings

# Of the signatures that a SavedModel may have, the one that there is here.
SIGNATURE = "serving_default"

# *Source:* the states of TensorFlow Serving's get_model_status.proto.
STATES = {
    ModelState.LOADED: "AVAILABLE",
    ModelState.AVAILABLE: "AVAILABLE",
    ModelState.UNLOADED: "END",
    ModelState.FAILED: "END",
}


@dataclass(slots=True)
class V1Call:
    """A body that has been read. `columns`: the value of `inputs`, None where the request has `instances`.

    `reread`: see `service.http.json_body.read_object`. `spec`: what the model takes, None until that is known.
    """

    call: PredictCall
    columns: Any = None
    reread: Callable[[], V1Call] | None = None
    model_version: str | None = None
    timeout_s: float | None = None
    spec: InputSpec | None = None

    def call_for(self, model: ModelHandle) -> PredictCall:
        """The call, with columns turned into rows."""
        if self.columns is None:
            return self.call
        reread = self.reread
        again = None if reread is None else lambda: reread().call_for(model)
        self.spec = model.input
        return PredictCall(to_rows(self.columns, model.input), reread=again)


@blueprint.post("/v1/models/<name>:predict", **EXACT)
@blueprint.post("/v1/models/<name>/versions/<version>:predict", **EXACT)
def v1_predict(name: str, version: str | None = None) -> Response:
    """Predict, as TensorFlow Serving's clients ask for it."""
    received: list[V1Call] = []

    def receive(environ: dict[str, Any], settings: Settings, _: InputSpec | None) -> V1Call:
        received.append(call := _read(settings))
        if call.columns is not None:
            state_in(environ).place_of = place_in_only_input(call.columns)
        return call

    try:
        return exchange(request.environ, runtime(), name, version, receive, _respond)
    except InvalidInput as error:
        if not received or received[0].columns is None or received[0].spec is None:
            raise
        # What is wrong with instance i is wrong in a column, as this caller has sent it.
        raise relocated(error, received[0].columns, received[0].spec) from error


def _respond(done: Exchange[V1Call]) -> Response:
    key = "predictions" if done.incoming.columns is None else "outputs"
    return json_response({key: done.prediction.predictions})


@blueprint.get("/v1/models/<plain_name:name>", **EXACT)
@blueprint.get("/v1/models/<name>/versions/<plain_name:version>", **EXACT)
def v1_status(name: str, version: str | None = None) -> Response:
    """Which versions there are, and whether they answer."""
    here = runtime()
    known = [one for one in here.known_models() if one.name == name]
    if not known:
        here.check(name, version, was_accepted=True)
        raise UnknownModel(NOT_SERVED)
    chosen = [one for one in known if version in (None, one.version)]
    if not chosen:
        raise UnknownVersion("this version of the model is not served here", [one.version for one in known])
    return json_response({"model_version_status": [_status(one) for one in chosen]})


def _status(known: KnownVersion) -> dict[str, Any]:
    failed = known.state is ModelState.FAILED
    return {
        "version": known.version,
        "state": STATES[known.state],
        "status": {
            "error_code": "UNKNOWN" if failed else "OK",
            "error_message": "it could not be loaded; GET /models has the reason" if failed else "",
        },
    }


def _read(settings: Settings) -> V1Call:
    # Many of its clients send no content type, or that of a form, which curl does by itself.
    if request.mimetype not in ("", "application/json", "application/x-www-form-urlencoded", "text/plain"):
        raise UnsupportedMedia("this route takes the Content-Type application/json")
    refuse_other_charset(request)
    return read_object(read_body(request, settings), settings.max_instances, '{"instances": [...]}', read_v1)


def read_v1(document: dict[str, Any], reread: Callable[[], V1Call] | None) -> V1Call:
    """The call that a JSON object asks for; raises InvalidInput. reread: see `service.http.json_body.read_object`."""
    if not document.keys() <= {"instances", "inputs", "signature_name"}:
        raise InvalidInput.at("", "the body has a key that is none of instances, inputs, signature_name")
    if document.get("signature_name", SIGNATURE) not in (SIGNATURE, ""):
        raise InvalidInput.at("signature_name", f"must be {SIGNATURE}, the only one")
    if ("instances" in document) == ("inputs" in document):
        raise InvalidInput.at("", "give either instances or inputs")
    if "inputs" in document:
        columns = document["inputs"]
        if not isinstance(columns, list | dict):
            raise InvalidInput.at("inputs", "must be a list, or an object of lists")
        return V1Call(PredictCall([]), columns, reread)
    instances = document["instances"]
    if not isinstance(instances, list):
        raise InvalidInput.at("instances", "must be a list")
    return V1Call(PredictCall(instances, reread=None if reread is None else lambda: reread().call))
