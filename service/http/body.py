"""From the body of a predict request to a `PredictCall`: JSON, a form with files, or one picture.

JSON is strict: UTF-8 without a byte order mark, no NaN or Infinity, no number beyond a 64-bit float. Of duplicate
keys the last one counts. Integers are exact, whatever their size, as far as Python reads them (4300 digits).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from flask import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, TextInput
from service.errors import Fault, InvalidInput, UnsupportedMedia
from service.http.charset import refuse_other_charset
from service.http.form import Part, read_parts
from service.http.json import JSON
from service.http.json_body import read_object
from service.http.places import PlaceOf
from service.http.read import read_body
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


_KEYS = PredictBody.model_fields.keys()


class ReadCall(NamedTuple):
    """A body that has been read, before the model that will answer is known.

    `single`: the request used a short form for one item, so the answer also has `prediction`. `sent_as`: the kind of
    input that its form is for; None where it is for any. `place_of`: how its caller knows each row, where those are no
    instances.
    """

    call: PredictCall
    single: bool
    sent_as: type[InputSpec] | None = None
    place_of: PlaceOf | None = None

    @property
    def model_version(self) -> str | None:
        """The version that the body asks for."""
        return self.call.model_version

    @property
    def timeout_s(self) -> float | None:
        """The caller's own deadline, seconds."""
        return self.call.timeout_s

    def call_for(self, model: ModelHandle) -> PredictCall:
        """The call; raises UnsupportedMedia or InvalidInput for a body that is for another kind of model."""
        if self.sent_as is TextInput and not isinstance(model.input, TextInput):
            raise InvalidInput.at("text", "this model does not take texts; send instances")
        if self.sent_as is ImageInput:
            refuse_unless_image(model.input)
        return self.call


def refuse_unless_image(spec: InputSpec) -> None:
    """Raise UnsupportedMedia for a form or a picture that is sent to a model which takes none."""
    if not isinstance(spec, ImageInput):
        raise UnsupportedMedia("this model takes the Content-Type application/json")


def read_call(request: Request, settings: Settings, expected: InputSpec | None = None) -> ReadCall:
    """Read the body.

    expected: what the model takes, where that is known already, so that what it cannot take is refused unread.
    Raises MalformedBody, UnsupportedMedia, UnsupportedEncoding, InvalidInput or TooLarge.
    """
    # What nearly all send is told without taking the header apart.
    is_json = request.environ.get("CONTENT_TYPE") == JSON
    mimetype = JSON if is_json else request.mimetype.lower()
    if mimetype == JSON:
        if not is_json:
            refuse_other_charset(request)
        return read_json(read_body(request, settings), settings)
    if expected is not None:
        refuse_unless_image(expected)
    if mimetype == "multipart/form-data":
        # Its charset, which has no meaning (RFC 7578), matters not: numbers and names of versions are ASCII.
        return _from_form(read_body(request, settings), request.mimetype_params.get("boundary", ""), settings)
    if mimetype.startswith("image/"):
        call = PredictCall([read_body(request, settings)])
        return ReadCall(call, single=True, sent_as=ImageInput, place_of=lambda _: "body")
    raise UnsupportedMedia(
        "taken are the Content-Types application/json, and for pictures multipart/form-data and image/*"
    )


def read_json(data: bytes, settings: Settings) -> ReadCall:
    """Read a JSON body; raises MalformedBody, InvalidInput or TooLarge."""
    return read_object(data, settings.max_instances, '{"instances": [...]}', call_of)


def call_of(document: dict[str, Any], reread: Callable[[], ReadCall] | None) -> ReadCall:
    """What a JSON body asks for; raises InvalidInput. reread: see `read_object`."""
    if not document.keys() <= _KEYS:
        # Judged here, because a key is part of the input and is not to be repeated; nor is one fault for each needed.
        raise InvalidInput.at("", f"the body has a key that is none of {', '.join(PredictBody.model_fields)}")
    instances = document.get("instances")
    parameters = document.get("parameters", {})
    if type(instances) is list and type(parameters) is dict and len(document) == 1 + ("parameters" in document):
        # What most send: of this much the model of the body has nothing to say.
        return ReadCall(PredictCall(instances, parameters=parameters, reread=_call_of(reread)), single=False)
    try:
        body = PredictBody.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(*(_fault(fault) for fault in error.errors(include_url=False, include_input=False))) from None
    if (body.instances is None) == (body.text is None):
        raise InvalidInput.at("", "give either instances or text")
    call = PredictCall(
        instances=[body.text] if body.instances is None else body.instances,
        model_version=body.model_version,
        timeout_s=None if body.timeout_ms is None else body.timeout_ms / 1000,
        parameters=body.parameters,
        reread=_call_of(reread),
    )
    by_text = body.text is not None
    if by_text:
        return ReadCall(call, single=True, sent_as=TextInput, place_of=lambda _: "text")
    return ReadCall(call, single=False)


def _call_of(reread: Callable[[], ReadCall] | None) -> Callable[[], PredictCall] | None:
    return None if reread is None else lambda: reread().call


def _from_form(data: bytes, boundary: str, settings: Settings) -> ReadCall:
    most = settings.max_instances
    parts = read_parts(data, boundary, max_parts=most + len(_OTHER_FIELDS), max_files=most)
    # Some clients send a file without its name, which makes it a field to the form; a picture it is all the same.
    pictures = [part.content for part in parts if part.name == "file"]
    if not pictures or not {part.name for part in parts} <= {"file", *_OTHER_FIELDS}:
        raise InvalidInput.at("file", "the form takes one or more parts named file, and model_version and timeout_ms")
    call = PredictCall(
        pictures, model_version=_field(parts, "model_version"), timeout_s=_timeout_s(_field(parts, "timeout_ms"))
    )
    single = len(pictures) == 1
    return ReadCall(call, single=single, sent_as=ImageInput, place_of=lambda row: "file" if single else f"file[{row}]")


def _field(parts: list[Part], name: str) -> str | None:
    found = [part for part in parts if part.name == name]
    if len(found) > 1:
        raise InvalidInput.at(name, "must be given once")
    if any(part.has_filename for part in found):
        raise InvalidInput.at(name, "must be a field of the form, not a file")
    return found[0].content.decode(errors="replace") if found else None


def _timeout_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        timeout_ms = float(text)
    except ValueError:
        timeout_ms = -1.0
    if not 0 < timeout_ms < float("inf"):
        raise InvalidInput.at("timeout_ms", "must be a number of milliseconds above 0")
    return timeout_ms / 1000


def _fault(error: Any) -> Fault:
    """Where and what, without the input itself."""
    loc = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]).lstrip(".")
    return Fault(loc, str(error["msg"]).removeprefix("Value error, "))
