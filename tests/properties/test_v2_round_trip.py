"""The wire against an independent reader and writer of it: NVIDIA's own client."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tritonclient.http import InferInput, InferRequestedOutput, InferResult
from tritonclient.http._utils import _get_inference_request
from tritonclient.utils import np_to_triton_dtype

from loaders.signature import TabularInput
from service.errors import InvalidInput, MalformedBody, TooLarge
from service.http.v2.request import InferRequest, WantedOutput, read_request
from service.http.v2.response import write_response

NAMES = ("a", "b", "c")
SPEC = TabularInput(columns=NAMES)
MAX_ROWS = 64

NUMBERS = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]
shapes = npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


def finite(dtype: str) -> st.SearchStrategy[npt.NDArray[Any]]:
    elements = {"allow_nan": False, "allow_infinity": False} if dtype in FLOATS else None
    return npst.arrays(dtype, shapes, elements=elements)


def objects(elements: st.SearchStrategy[bytes]) -> st.SearchStrategy[npt.NDArray[Any]]:
    return npst.arrays(object, shapes, elements=elements, fill=st.nothing())


numbers = st.sampled_from(NUMBERS + FLOATS).flatmap(finite)
any_floats = st.sampled_from(FLOATS).flatmap(lambda dtype: npst.arrays(dtype, shapes))
texts = objects(st.text(st.characters(exclude_categories=["Cs"]), max_size=5).map(str.encode))
blobs = objects(st.binary(max_size=5))
tensors = st.tuples(numbers | texts, st.booleans()) | st.tuples(any_floats | blobs, st.just(True))
requests = st.dictionaries(st.sampled_from(NAMES), tensors, min_size=1)
names = st.lists(st.text(max_size=3), max_size=3, unique=True)


def input_of(name: str, array: npt.NDArray[Any], *, binary: bool) -> InferInput:
    item = InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    return item.set_data_from_numpy(array, binary_data=binary)


def sent(inputs: list[InferInput], **more: Any) -> tuple[bytes, str | None]:
    """What the client puts on the wire: the body and the value of the header."""
    arguments: dict[str, Any] = {
        "request_id": "",
        "outputs": None,
        "sequence_id": 0,
        "sequence_start": False,
        "sequence_end": False,
        "priority": 0,
        "timeout": None,
        "custom_parameters": None,
    }
    body, length = _get_inference_request(inputs=inputs, **arguments | more)
    return body, None if length is None else str(length)


def same(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Of one dtype and shape, with the same elements; NaN is itself."""
    return left.dtype == right.dtype and left.shape == right.shape and repr(left.tolist()) == repr(right.tolist())


@given(requests)
def test_what_the_client_sends_is_what_is_read(wanted: dict[str, tuple[npt.NDArray[Any], bool]]):
    body, length = sent([input_of(name, array, binary=binary) for name, (array, binary) in wanted.items()])
    request = read_request(body, length, SPEC, max_rows=MAX_ROWS)
    assert list(request.inputs) == list(wanted)
    for name, (array, _) in wanted.items():
        assert same(request.inputs[name], array)


@given(npst.arrays("float32", shapes))
def test_bf16_of_the_client_is_read_as_the_same_numbers(array: npt.NDArray[Any]):
    with np.errstate(over="ignore", invalid="ignore"):
        halved = array.astype(ml_dtypes.bfloat16)
    body, length = sent([input_of("a", halved, binary=True)])
    assert same(read_request(body, length, SPEC, max_rows=MAX_ROWS).inputs["a"], halved.astype(np.float32))


@given(
    names,
    st.booleans(),
    st.text(max_size=3),
    st.integers(0, 2**40),
    st.integers(0, 9),
    st.dictionaries(st.text("kv", min_size=1), st.text() | st.booleans() | st.integers(0, 9)),
)
def test_what_the_client_asks_for_is_what_is_understood(wanted, binary, request_id, timeout, priority, custom):
    body, length = sent(
        [input_of("a", np.zeros(1), binary=True)],
        outputs=[InferRequestedOutput(name, binary_data=binary) for name in wanted],
        request_id=request_id,
        timeout=timeout,
        priority=priority,
        custom_parameters=custom,
    )
    request = read_request(body, length, SPEC, max_rows=MAX_ROWS)
    assert request.id == (request_id or None)
    assert request.outputs == tuple(WantedOutput(name, binary) for name in wanted)
    assert request.binary_output is (not wanted)
    assert request.priority == priority
    assert math.isclose(request.timeout_s or 0.0, timeout / 1e6)
    assert request.options == custom


@given(
    st.dictionaries(st.text(max_size=4), st.tuples(numbers | texts, st.none() | st.booleans()), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_the_client_reads_what_is_answered(outputs, asked: bool, binary: bool):
    wanted = tuple(WantedOutput(name, own) for name, (_, own) in reversed(outputs.items())) if asked else ()
    request = InferRequest({}, id="7", outputs=wanted, binary_output=binary)
    arrays = {name: array for name, (array, _) in outputs.items()}
    response = write_response(request, arrays, model_name="m", model_version="1")
    result = InferResult.from_response_body(response.body, header_length=response.header_length)
    answered = [output["name"] for output in result.get_response()["outputs"]]
    assert answered == ([output.name for output in wanted] or list(arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(texts_as_bytes(result.as_numpy(name)), array)
        assert result.as_numpy(name).dtype == array.dtype


def texts_as_bytes(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The client leaves BYTES that came as JSON as strings."""
    if array.dtype != object:
        return array
    flat = [element.encode() if isinstance(element, str) else element for element in array.reshape(-1)]
    plain = np.empty(len(flat), object)
    plain[:] = flat
    return plain.reshape(array.shape)


@given(requests, st.integers(1, 2**16), st.sampled_from(["cut", "flip", "length"]))
def test_a_damaged_request_is_read_or_refused_and_nothing_else(wanted, number, damage):
    body, length = sent([input_of(name, array, binary=binary) for name, (array, binary) in wanted.items()])
    position = number % len(body)
    if damage == "cut":
        body = body[:position]
    elif damage == "flip":
        body = body[:position] + bytes([body[position] ^ (1 << number % 8)]) + body[position + 1 :]
    else:
        length = str(position)
    with contextlib.suppress(MalformedBody, InvalidInput, TooLarge):
        read_request(body, length, SPEC, max_rows=MAX_ROWS)


@pytest.mark.parametrize("extra", [b"\0", b"\0" * 8])
def test_bytes_after_the_last_tensor_are_refused(extra):
    body, length = sent([input_of("a", np.zeros(2), binary=True)])
    with pytest.raises(MalformedBody):
        read_request(body + extra, length, SPEC, max_rows=MAX_ROWS)
