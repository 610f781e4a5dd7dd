"""From the body of a predict request to a `PredictCall`: JSON, a form with files, or one picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from flask import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from werkzeug.datastructures import FileStorage, MultiDict
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from loaders.signature import ImageInput, InputSpec, TextInput
from service.errors import Fault, InvalidInput, MalformedBody, TooLarge, UnsupportedMedia
from service.prediction import PredictCall
from service.settings import Settings

# A form has one part per picture, and two fields beside them.
_OTHER_FIELDS = ("model_version", "timeout_ms")


class PredictBody(BaseModel):
    """The JSON body of a predict request. `text` is short for one instance of a text model."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, protected_namespaces=())

    instances: list[Any] | None = None
    text: str | None = None
    model_version: str | None = None
    timeout_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    parameters: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_of_two(self) -> PredictBody:
        if (self.instances is None) == (self.text is None):
            raise ValueError("give either instances or text")
        return self


@dataclass(frozen=True, slots=True)
class ReadCall:
    """`single`: the request used a short form for one item, so the answer also has `prediction`."""

    call: PredictCall
    single: bool


def read_call(request: Request, spec: InputSpec, settings: Settings) -> ReadCall:
    """Read the body, which must be of a kind that the model takes.

    Raises MalformedBody, UnsupportedMedia, InvalidInput or TooLarge.
    """
    request.max_content_length = settings.max_body_bytes
    request.max_form_memory_size = settings.max_body_bytes
    request.max_form_parts = settings.max_instances + len(_OTHER_FIELDS)
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedMedia("bodies are taken as they are, without a Content-Encoding")
    mimetype = request.mimetype.lower()
    if mimetype == "application/json":
        return _from_json(_read(request, settings), spec)
    if isinstance(spec, ImageInput):
        if mimetype == "multipart/form-data":
            return _from_form(request, settings)
        if mimetype.startswith("image/"):
            return ReadCall(PredictCall([_read(request, settings)]), single=True)
        raise UnsupportedMedia("this model takes application/json, multipart/form-data or image/*")
    raise UnsupportedMedia("this model takes application/json")


def _read(request: Request, settings: Settings) -> bytes:
    try:
        return request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise _over_limit(settings) from None
    except Exception as error:
        # The HTTP server raises its own exceptions for a broken chunk or a connection that ended early.
        raise MalformedBody("the body could not be read to its end") from error


def _from_json(data: bytes, spec: InputSpec) -> ReadCall:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedBody(
            f"the body is not valid JSON in UTF-8 (line {error.lineno}, column {error.colno})"
        ) from None
    if not isinstance(document, dict):
        raise InvalidInput.at("", 'the body must be a JSON object, e.g. {"instances": [...]}')
    try:
        body = PredictBody.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(*(_fault(fault) for fault in error.errors(include_url=False, include_input=False))) from None
    if body.text is not None and not isinstance(spec, TextInput):
        raise InvalidInput.at("text", "this model does not take texts; send instances")
    call = PredictCall(
        instances=[body.text] if body.instances is None else body.instances,
        model_version=body.model_version,
        timeout_s=None if body.timeout_ms is None else body.timeout_ms / 1000,
        parameters=body.parameters,
    )
    return ReadCall(call, single=body.text is not None)


def _from_form(request: Request, settings: Settings) -> ReadCall:
    try:
        files, fields = request.files, request.form
    except RequestEntityTooLarge:
        raise _over_limit(settings) from None
    except HTTPException as error:
        raise MalformedBody("the form could not be parsed") from error
    except Exception as error:
        raise MalformedBody("the body could not be read to its end") from error
    unknown = sorted({name for name in [*files, *fields] if name not in ("file", *_OTHER_FIELDS)})
    if unknown or not files.getlist("file"):
        raise InvalidInput.at("file", "the form takes one or more parts named file, and model_version and timeout_ms")
    pictures = [_content(part) for part in files.getlist("file")]
    call = PredictCall(pictures, model_version=fields.get("model_version"), timeout_s=_timeout_s(fields))
    return ReadCall(call, single=len(pictures) == 1)


def _content(part: FileStorage) -> bytes:
    content: bytes = part.stream.read()
    return content


def _timeout_s(fields: MultiDict[str, str]) -> float | None:
    text = fields.get("timeout_ms")
    if text is None:
        return None
    try:
        timeout_ms = float(text)
    except ValueError:
        timeout_ms = -1.0
    if not 0 < timeout_ms < float("inf"):
        raise InvalidInput.at("timeout_ms", "must be a number of milliseconds above 0")
    return timeout_ms / 1000


def _over_limit(settings: Settings) -> TooLarge:
    return TooLarge("the request body, in bytes,", settings.max_body_bytes, "MAX_BODY_BYTES")


def _fault(error: Any) -> Fault:
    """Where and what, without the input itself."""
    loc = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    if error["type"] == "extra_forbidden":
        return Fault(loc, f"is not a key of a predict request; those are {', '.join(PredictBody.model_fields)}")
    return Fault(loc, str(error["msg"]).removeprefix("Value error, "))
