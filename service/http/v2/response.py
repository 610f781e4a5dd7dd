"""From named tensors to a body on the wire, as the request wants it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import orjson

from service.errors import InvalidInput
from service.http.v2.binary import to_bytes
from service.http.v2.datatypes import datatype_of
from service.http.v2.json_data import to_json
from service.http.v2.parameters import Parameters
from service.http.v2.request import InferRequest, WantedOutput
from service.http.v2.wire import HEADER_LENGTH
from service.inputs.names import listed


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A body, and the header that tells how to read it: `header_length` is None when all of it is JSON."""

    body: bytes
    content_type: str
    header_length: int | None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that belong to the body."""
        length = {} if self.header_length is None else {HEADER_LENGTH: str(self.header_length)}
        return {"Content-Type": self.content_type, **length}


def check_outputs(request: InferRequest, names: Collection[str]) -> None:
    """Raise InvalidInput when the request asks for an output that is not among `names`."""
    for position, wanted in enumerate(request.outputs):
        if wanted.name not in names:
            raise InvalidInput.at(f"outputs[{position}].name", f"is no output of this model; it has {listed(names)}")


def write_response(
    request: InferRequest,
    tensors: Mapping[str, npt.NDArray[Any]],
    *,
    model_name: str,
    model_version: str,
    parameters: Parameters | None = None,
) -> EncodedResponse:
    """The answer to `request`: the outputs it asks for in its order, or all of them.

    tensors: as `to_tensors` gives them. parameters: what else there is to say of the whole answer.
    Raises InvalidInput for an output that there is not.
    """
    check_outputs(request, tensors.keys())
    outputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for wanted in request.outputs or [WantedOutput(name) for name in tensors]:
        array = tensors[wanted.name]
        output: dict[str, Any] = {"name": wanted.name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
        if wanted.binary if wanted.binary is not None else request.binary_output:
            parts.append(to_bytes(array))
            output["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            output["data"] = to_json(array)
        outputs.append(output)
    document: dict[str, Any] = {"model_name": model_name, "model_version": model_version, "outputs": outputs}
    if request.id is not None:
        document["id"] = request.id
    if parameters:
        document["parameters"] = parameters
    head = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    if not parts:
        return EncodedResponse(head, "application/json", None)
    return EncodedResponse(b"".join((head, *parts)), "application/octet-stream", len(head))
