"""From a body on the wire to an `InferRequest`; its tensors are checked for themselves, not yet against the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from loaders.signature import InputSpec
from service.errors import InvalidInput, MalformedBody, TooLarge
from service.http.json_body import read_object
from service.http.v2 import parameters as reading
from service.http.v2.binary import from_bytes
from service.http.v2.datatypes import Datatype, read_datatype
from service.http.v2.declared import accepted_names, declared_inputs
from service.http.v2.json_data import from_json, refuse_if_many_strings
from service.http.v2.parameters import Parameters, read_parameters
from service.http.v2.raw import read_raw
from service.http.v2.shapes import read_shape
from service.http.v2.wire import HEADER_LENGTH, BinaryData, split
from service.inputs.names import listed
from service.inputs.nesting import MAX_DEPTH, refuse_if_deep
from service.inputs.numbers import MayBeRounded

_EXAMPLE = '{"inputs": [...]}'


_KEYS = frozenset({"id", "inputs", "outputs", "parameters"})


@dataclass(frozen=True, slots=True)
class WantedOutput:
    """An output that the caller asks for. `binary`: how, None for what the request says for all of them."""

    name: str
    binary: bool | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One request of the protocol.

    `inputs`: arrays by name, in the order of the request; BYTES are `bytes` in an array of objects. `outputs`: those
    asked for, in their order; empty for all. `binary_output`: the encoding of outputs that say nothing else.
    `options`: parameters that are no words of the protocol. `timeout_s`: None for the default.
    """

    inputs: Mapping[str, npt.NDArray[Any]]
    id: str | None = None
    outputs: tuple[WantedOutput, ...] = ()
    binary_output: bool = False
    timeout_s: float | None = None
    priority: int = 0
    options: Parameters = field(default_factory=dict)

    def options_of(self, known: Collection[str]) -> Parameters:
        """The parameters that a model which takes `known` is given; the protocol lets clients send others."""
        return {name: value for name, value in self.options.items() if name in known}


def read_request(
    body: bytes,
    header_length: str | None,
    spec: InputSpec,
    column_types: Sequence[str | None] = (),
    *,
    max_rows: int,
) -> InferRequest:
    """The request in `body`, which is no longer compressed.

    header_length: the value of `Inference-Header-Content-Length`, None without that header; with 0 the body is the
    data of the only input. column_types: see `service.inputs.prepare`. max_rows: the bound of each first extent,
    MAX_INSTANCES.
    Raises MalformedBody for wrong framing or JSON, InvalidInput for a wrong tensor, TooLarge for too many rows, and for
    JSON that would take too much memory before that is known.
    Of duplicate keys in the JSON the last one counts; keys that the protocol does not have are ignored.
    """
    head, tail = split(body, header_length)
    if header_length is not None and not head:
        return InferRequest(read_raw(tail, declared_inputs(spec, column_types)), binary_output=True)
    names = accepted_names(spec)
    binary = None if header_length is None else tail
    refuse_if_many_strings(head, len(names), max_rows)

    def translate(document: dict[str, Any], reread: Callable[[], InferRequest] | None) -> InferRequest:
        try:
            return _request(document, binary, names, max_rows, may_be_rounded=reread is not None)
        except MayBeRounded:
            # The parser makes a float of an integer beyond 64 bits; Python's own keeps its digits, and takes its time.
            assert reread is not None
            return reread()

    return read_object(head, max(max_rows, len(names)), _EXAMPLE, translate)


def read_timeout_s(body: bytes, header_length: str | None, *, max_rows: int) -> float | None:
    """The deadline that the request in `body` asks for, seconds, while it is not known yet what its model takes.

    None for the default. Raises what `read_request` raises for the framing, the JSON and the deadline itself.
    """
    head, _ = split(body, header_length)
    if header_length is not None and not head:
        return None

    def translate(document: dict[str, Any], _: Callable[[], float | None] | None) -> float | None:
        return reading.timeout_s(read_parameters(document.get("parameters"), "parameters"))

    return read_object(head, max_rows, _EXAMPLE, translate)


def _request(
    document: dict[str, Any], tail: memoryview | None, names: Collection[str], max_rows: int, *, may_be_rounded: bool
) -> InferRequest:
    # Keys that the protocol does not have are ignored, but not how deep they are.
    refuse_if_deep([value for key, value in document.items() if key not in _KEYS], MAX_DEPTH)
    request_id = document.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise InvalidInput.at("id", "must be a string")
    parameters = read_parameters(document.get("parameters"), "parameters")
    # The cheap parts first: what is wrong with them is told before a tensor is decoded.
    outputs = _outputs(document.get("outputs"))
    return InferRequest(
        id=request_id,
        outputs=outputs,
        binary_output=reading.flag(parameters, "binary_data_output", "parameters") or False,
        timeout_s=reading.timeout_s(parameters),
        priority=reading.priority(parameters),
        options=reading.options(parameters),
        inputs=_inputs(document.get("inputs"), tail, names, max_rows, may_be_rounded=may_be_rounded),
    )


def _inputs(
    value: Any, tail: memoryview | None, names: Collection[str], max_rows: int, *, may_be_rounded: bool
) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(value, list) or not value:
        raise InvalidInput.at("inputs", "must be a list of at least one tensor")
    source = BinaryData(memoryview(b"") if tail is None else tail)
    arrays: dict[str, npt.NDArray[Any]] = {}
    for position, item in enumerate(value):
        loc = f"inputs[{position}]"
        name = _name(item, loc)
        if name not in names:
            raise InvalidInput.at(f"{loc}.name", f"is no input of this model; it takes {listed(names)}")
        if name in arrays:
            raise InvalidInput.at(f"{loc}.name", "is that of an earlier input")
        datatype = read_datatype(item.get("datatype"), f"{loc}.datatype")
        shape = read_shape(item.get("shape"), f"{loc}.shape", max_rows=max_rows)
        if datatype is Datatype.BYTES and math.prod(shape) > max_rows:
            # Each takes far more memory here than on the wire.
            raise TooLarge(f"{loc}.shape: the number of BYTES elements", max_rows, "MAX_INSTANCES")
        size_bytes = _binary_size(item, loc)
        if size_bytes is None:
            if "data" not in item:
                raise InvalidInput.at(loc, "has neither data nor parameters.binary_data_size")
            arrays[name] = from_json(item["data"], datatype, shape, loc, may_be_rounded=may_be_rounded)
        else:
            if tail is None:
                raise MalformedBody(f"{loc} has binary data, for which the header {HEADER_LENGTH} is needed")
            arrays[name] = from_bytes(source.take(size_bytes), datatype, shape, loc)
    source.finish()
    return arrays


def _outputs(value: Any) -> tuple[WantedOutput, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidInput.at("outputs", "must be a list")
    wanted: dict[str, WantedOutput] = {}
    for position, item in enumerate(value):
        loc = f"outputs[{position}]"
        name = _name(item, loc)
        if name in wanted:
            raise InvalidInput.at(f"{loc}.name", "is that of an earlier output")
        parameters = _own_parameters(item, loc)
        if parameters.get("classification", 0) != 0:
            raise InvalidInput.at(f"{loc}.parameters.classification", "the classification extension is not served")
        wanted[name] = WantedOutput(name, reading.flag(parameters, "binary_data", f"{loc}.parameters"))
    return tuple(wanted.values())


def _name(item: Any, loc: str) -> str:
    if not isinstance(item, dict):
        raise InvalidInput.at(loc, "must be an object")
    name = item.get("name")
    if not isinstance(name, str):
        raise InvalidInput.at(f"{loc}.name", "must be a string")
    return name


def _own_parameters(item: dict[str, Any], loc: str) -> Parameters:
    parameters = read_parameters(item.get("parameters"), f"{loc}.parameters")
    if "shared_memory_region" in parameters:
        raise InvalidInput.at(f"{loc}.parameters.shared_memory_region", "shared memory is not served")
    return parameters


def _binary_size(item: dict[str, Any], loc: str) -> int | None:
    """Bytes of binary data that belong to the input; None when it has none."""
    size_bytes = _own_parameters(item, loc).get("binary_data_size")
    if size_bytes is None:
        return None
    if type(size_bytes) is not int or size_bytes < 0:
        raise InvalidInput.at(f"{loc}.parameters.binary_data_size", "must be a whole number of bytes")
    if "data" in item:
        raise InvalidInput.at(loc, "has both data and parameters.binary_data_size")
    return size_bytes
