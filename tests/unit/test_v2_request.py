"""Requests of the Open Inference Protocol: what is read from the wire, and every fault of it."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest

from loaders.signature import ImageInput, InputSpec, TabularInput, TensorInput, TextInput
from service.errors import InvalidInput, MalformedBody, TooLarge
from service.http.v2.request import InferRequest, WantedOutput, read_request, read_timeout_s

TABLE = TabularInput()
TWO = TabularInput(columns=("a", "b"))
MAX_ROWS = 100


def read(
    document: Any, tail: bytes = b"", *, spec: InputSpec = TABLE, header_length: str | None = "", front: bytes = b""
) -> InferRequest:
    """Read `document`, JSON or what becomes JSON; the header tells where it ends when there is a tail."""
    head = document if isinstance(document, bytes) else front + json.dumps(document).encode()
    if header_length == "":
        header_length = str(len(head)) if tail else None
    return read_request(head + tail, header_length, spec, max_rows=MAX_ROWS)


def tensor(**changes: Any) -> dict[str, Any]:
    """An input of one row with two numbers; a change to None takes a key away."""
    item = {"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]} | changes
    return {key: value for key, value in item.items() if value is not None}


def binary(size_bytes: Any, **changes: Any) -> dict[str, Any]:
    return tensor(data=None, parameters={"binary_data_size": size_bytes}, **changes)


def fault(document: Any, tail: bytes = b"", **how: Any) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as caught:
        read(document, tail, **how)
    first = caught.value.faults[0]
    return first.loc, first.msg


def malformed(document: Any, tail: bytes = b"", **how: Any) -> str:
    with pytest.raises(MalformedBody) as caught:
        read(document, tail, **how)
    return str(caught.value)


BINARY_ELEMENTS = [
    ("BOOL", "<?", [True, False]),
    ("UINT8", "<B", [0, 2**8 - 1]),
    ("UINT16", "<H", [1, 2**16 - 1]),
    ("UINT32", "<I", [1, 2**32 - 1]),
    ("UINT64", "<Q", [1, 2**64 - 1]),
    ("INT8", "<b", [-(2**7), 2**7 - 1]),
    ("INT16", "<h", [-(2**15), 2**15 - 1]),
    ("INT32", "<i", [-(2**31), 2**31 - 1]),
    ("INT64", "<q", [-(2**63), 2**63 - 1]),
    ("FP16", "<e", [1.5, -65504.0]),
    ("FP32", "<f", [1.5, -(2.0**127)]),
    ("FP64", "<d", [0.1, -1e308]),
]


@pytest.mark.parametrize("datatype, code, values", BINARY_ELEMENTS)
def test_every_datatype_is_read_from_little_endian_bytes(datatype, code, values):
    tail = b"".join(struct.pack(code, value) for value in values)
    array = read({"inputs": [binary(len(tail), datatype=datatype)]}, tail).inputs["input"]
    assert (array.shape, array.tolist()) == ((1, 2), [values])
    assert array.dtype.isnative
    assert array.dtype.itemsize == struct.calcsize(code)


@pytest.mark.parametrize("datatype, code, values", BINARY_ELEMENTS)
def test_every_datatype_but_bf16_is_read_from_json(datatype, code, values):
    array = read({"inputs": [tensor(datatype=datatype, data=values)]}).inputs["input"]
    assert array.tolist() == [values]
    assert array.dtype.itemsize == struct.calcsize(code)


def test_bf16_becomes_the_float32_with_the_same_upper_half_and_is_not_taken_as_json():
    halves = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in (1.5, -2.0)]
    array = read({"inputs": [binary(4, datatype="BF16")]}, struct.pack("<2H", *halves)).inputs["input"]
    assert (array.dtype, array.tolist()) == (np.float32, [[1.5, -2.0]])
    assert fault({"inputs": [tensor(datatype="BF16")]})[0] == "inputs[0].datatype"


def test_bytes_are_read_from_lengths_and_from_strings():
    tail = struct.pack("<I", 3) + b"\xff\x00a" + struct.pack("<I", 0)
    array = read({"inputs": [binary(len(tail), datatype="BYTES")]}, tail).inputs["input"]
    assert array.tolist() == [[b"\xff\x00a", b""]]
    array = read({"inputs": [tensor(datatype="BYTES", data=["é", ""])]}).inputs["input"]
    assert array.tolist() == [["é".encode(), b""]]
    assert fault({"inputs": [tensor(datatype="BYTES", data=["a", 1])]}) == (
        "inputs[0].data[0][1]",
        "must be a string, not a number",
    )


@pytest.mark.parametrize(
    "tail, msg",
    [
        (b"\x01", "ends before the 2 elements that the shape declares"),
        (struct.pack("<I", 1) + b"a" + b"\x01\x00\x00", "ends in the length of element 1"),
        (struct.pack("<I", 9) + b"aaaa", "ends in element 0"),
        (struct.pack("<I", 2**32 - 1) * 2, "ends in element 0"),
        (struct.pack("<I", 0) * 3, "goes on after the 2 elements that the shape declares"),
    ],
)
def test_bytes_whose_lengths_do_not_add_up_are_refused(tail, msg):
    assert fault({"inputs": [binary(len(tail), datatype="BYTES")]}, tail) == ("inputs[0].data", msg)


def test_a_bool_byte_is_0_or_1():
    assert fault({"inputs": [binary(2, datatype="BOOL")]}, b"\x01\x02")[0] == "inputs[0].data"


def test_arrays_from_binary_data_are_aligned_and_writable_wherever_the_data_starts():
    for blanks in range(4):
        array = read({"inputs": [binary(8)]}, struct.pack("<2f", 1, 2), front=b" " * blanks).inputs["input"]
        assert array.flags.writeable
        assert array.flags.aligned


def test_binary_and_json_inputs_mix_and_take_their_bytes_in_the_order_of_the_request():
    one = {"shape": [2], "datatype": "INT8"}
    request = read(
        {"inputs": [binary(2, name="b", **one), tensor(name="a", **one), binary(2, name="input", **one)]},
        b"\x05\x06\x07\x08",
        spec=TWO,
    )
    assert list(request.inputs) == ["b", "a", "input"]
    assert [array.tolist() for array in request.inputs.values()] == [[5, 6], [1, 2], [7, 8]]


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[[1, 2, 3], [4, 5, 6]]]])
def test_data_may_be_flat_or_nested_like_the_shape(data):
    array = read({"inputs": [tensor(shape=[1, 2, 3], data=data)]}).inputs["input"]
    assert array.tolist() == [[[1, 2, 3], [4, 5, 6]]]


@pytest.mark.parametrize(
    "data",
    [
        [1],
        [1, 2, 3],
        [[1], [2]],
        [[1, 2], [3, 4]],
        [[1, 2], 3],
        [[[1, 2]]],
        [[1], [2, 3]],
        [],
        {"0": 1},
        "ab",
        1,
        None,
    ],
)
def test_data_that_does_not_fill_the_shape_is_refused(data):
    item = tensor() | {"data": data}
    assert fault({"inputs": [item]})[0].startswith("inputs[0].data")


@pytest.mark.parametrize(
    "datatype, value, word",
    [
        ("FP32", True, "must be a number, not a boolean"),
        ("FP32", "1", "must be a number, not a string"),
        ("FP32", None, "must be a number, not null"),
        ("FP32", 1e39, "is out of the range of float32"),
        ("FP16", 70000, "is out of the range of float16"),
        ("FP64", 2**53 + 1, "is an integer that a 64-bit float cannot hold exactly"),
        ("UINT8", 256, "is out of the range of uint8, 0 to 255"),
        ("UINT8", -1, "is out of the range of uint8, 0 to 255"),
        ("INT32", 1.5, "must be a whole number: the model takes int32"),
        ("BOOL", 1, "must be true or false, not a number"),
    ],
)
def test_an_element_that_its_datatype_cannot_hold_is_refused_where_it_stands(datatype, value, word):
    good = True if datatype == "BOOL" else 0
    document = {"inputs": [tensor(datatype=datatype, shape=[2, 1], data=[good, value])]}
    assert fault(document) == ("inputs[0].data[1][0]", word)


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_words_that_json_does_not_have_are_refused(word):
    document = json.dumps({"inputs": [tensor()]}).encode().replace(b"[1, 2]}", b"[1, " + word + b"]}")
    with pytest.raises((MalformedBody, InvalidInput)):
        read(document)


def test_integers_beyond_64_bits_keep_their_digits():
    assert "exactly" in fault({"inputs": [tensor(datatype="FP64", data=[2**64 + 1, 0])]})[1]
    array = read({"inputs": [tensor(datatype="FP64", data=[2**64, 1e300])]}).inputs["input"]
    assert array.tolist() == [[2.0**64, 1e300]]
    assert "range of uint64" in fault({"inputs": [tensor(datatype="UINT64", data=[2**64, 0])]})[1]
    with pytest.raises(MalformedBody):
        read(json.dumps({"inputs": [tensor()]}).encode().replace(b"[1, 2]}", b"[1, 7" + b"0" * 5000 + b"]}"))


@pytest.mark.parametrize("length", ["-1", "1.0", "", " ", "abc", "0x1", "+1", "1_0", "٣", "9" * 30, "999999"])
def test_a_header_length_that_cannot_be_is_refused(length):
    body = json.dumps({"inputs": [tensor()]}).encode()
    with pytest.raises(MalformedBody, match="Inference-Header-Content-Length must be a whole number from 0 to"):
        read_request(body, length, TABLE, max_rows=MAX_ROWS)


@pytest.mark.parametrize("off_by", [-1, 1, 3])
def test_a_header_length_that_is_not_that_of_the_json_is_refused_with_a_hint(off_by):
    body = json.dumps({"inputs": [tensor()]}).encode()
    message = malformed(body, b"\x00\x01\x02", header_length=str(len(body) + off_by))
    assert "does not end where Inference-Header-Content-Length says" in message


def test_strings_beyond_what_bytes_may_have_are_counted_before_they_are_parsed():
    texts = ",".join(['"\\"a"'] * 400_000).encode()
    document = b'{"inputs":[{"name":"input","datatype":"BYTES","shape":[400000,1],"data":[' + texts + b"]}]}"
    with pytest.raises(TooLarge, match=r"number of strings.*MAX_INSTANCES"):
        read(document)


def test_escaped_quotes_inside_few_strings_are_not_taken_for_many():
    text = '"' * 300_000
    assert read({"inputs": [tensor(datatype="BYTES", data=[text, "\\"])]}).inputs["input"].tolist() == [
        [text.encode(), b"\\"]
    ]


def test_the_deadline_is_known_before_the_model_is():
    body = json.dumps({"parameters": {"timeout": 250_000}, "inputs": "not looked at"}).encode()
    assert read_timeout_s(body + b"\x01", str(len(body)), max_rows=MAX_ROWS) == 0.25
    assert read_timeout_s(b"\xff\xd8", "0", max_rows=MAX_ROWS) is None
    for wrong in (b"", b"[]", b'{"parameters": 1}', b'{"parameters": {"timeout": "1"}}', b"{" * 100_000):
        with pytest.raises((MalformedBody, InvalidInput)):
            read_timeout_s(wrong, None, max_rows=MAX_ROWS)


def test_the_header_may_be_given_without_any_binary_data():
    body = json.dumps({"inputs": [tensor()]}).encode()
    assert read(body, header_length=f" {len(body)} ").inputs["input"].tolist() == [[1, 2]]


def test_binary_data_needs_the_header():
    assert "Inference-Header-Content-Length is needed" in malformed({"inputs": [binary(8)]}, header_length=None)


@pytest.mark.parametrize("declared, sent, words", [(8, 7, "ends early"), (8, 9, "1 bytes of binary data follow")])
def test_the_sizes_of_all_inputs_are_what_follows_the_json(declared, sent, words):
    assert words in malformed({"inputs": [binary(declared)]}, b"\0" * sent)


def test_binary_data_after_json_inputs_alone_is_refused():
    assert "belong to no input" in malformed({"inputs": [tensor()]}, b"\0")


@pytest.mark.parametrize("size", [4, 12, 0])
def test_a_size_that_shape_and_datatype_do_not_make_is_refused(size):
    loc, msg = fault({"inputs": [binary(size)]}, b"\0" * 12)
    assert loc == "inputs[0].parameters.binary_data_size"
    assert msg.endswith("shape and datatype FP32 make 8 bytes")


@pytest.mark.parametrize("size", [-1, 1.5, "8", True])
def test_a_size_is_a_whole_number(size):
    assert fault({"inputs": [binary(size)]}, b"\0" * 8)[0] == "inputs[0].parameters.binary_data_size"


def test_an_input_has_its_data_in_one_place():
    both = tensor(parameters={"binary_data_size": 8})
    assert fault({"inputs": [both]}, b"\0" * 8) == ("inputs[0]", "has both data and parameters.binary_data_size")
    assert fault({"inputs": [tensor(data=None)]})[0] == "inputs[0]"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"\xef\xbb\xbf{}", b"[1]]", "{}".encode("utf-16")])
def test_what_is_no_json_is_malformed(body):
    assert "not valid JSON in UTF-8" in malformed(body)


@pytest.mark.parametrize("document", [None, [], [1], "x", 5])
def test_the_body_is_an_object(document):
    assert fault(document)[0] == ""


@pytest.mark.parametrize("inputs", [None, [], {}, "x", 5])
def test_the_inputs_are_a_list_of_at_least_one(inputs):
    assert fault({"inputs": inputs}) == ("inputs", "must be a list of at least one tensor")
    assert fault({"instances": [[1, 2]]})[0] == "inputs"


@pytest.mark.parametrize(
    "item, loc",
    [
        (5, "inputs[0]"),
        (None, "inputs[0]"),
        (tensor(name=None), "inputs[0].name"),
        (tensor(name=5), "inputs[0].name"),
        (tensor(name="secret"), "inputs[0].name"),
        (tensor(datatype=None), "inputs[0].datatype"),
        (tensor(datatype="float"), "inputs[0].datatype"),
        (tensor(datatype=["FP32"]), "inputs[0].datatype"),
        (tensor(datatype={}), "inputs[0].datatype"),
        (tensor(shape=None), "inputs[0].shape"),
        (tensor(parameters=[]), "inputs[0].parameters"),
        (tensor(parameters={"x": []}), "inputs[0].parameters"),
        (tensor(parameters={"x": None}), "inputs[0].parameters"),
        (tensor(parameters={"shared_memory_region": "r"}), "inputs[0].parameters.shared_memory_region"),
    ],
)
def test_what_is_wrong_with_an_input_is_told_where_it_is(item, loc):
    found, msg = fault({"inputs": [item]})
    assert found == loc
    assert "secret" not in msg


def test_an_input_is_given_once():
    assert fault({"inputs": [tensor(), tensor()]}) == ("inputs[1].name", "is that of an earlier input")


@pytest.mark.parametrize("shape", [[], [-1, 2], [1.0, 2], [True, 2], ["1", 2], [[1], 2], 2, "12", {}, [1] * 33])
def test_a_shape_is_a_list_of_whole_numbers(shape):
    assert fault({"inputs": [tensor(shape=shape)]})[0] == "inputs[0].shape"


@pytest.mark.parametrize(
    "shape", [[1, 10**12], [1, 2**31, 0], [1, 2**62, 2**62, 0], [1, 10**400], [2, 2**30], [0, 2**40]]
)
@pytest.mark.parametrize("datatype", ["FP64", "BYTES"])
def test_an_absurd_shape_costs_no_memory(shape, datatype):
    document = {"inputs": [binary(8, shape=shape, datatype=datatype)]}
    tracemalloc.start()
    try:
        with pytest.raises((InvalidInput, TooLarge, MalformedBody)):
            read(document, b"\0" * 8)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_rows_are_counted_before_they_are_decoded():
    assert len(read({"inputs": [tensor(shape=[MAX_ROWS], data=[0] * MAX_ROWS)]}).inputs["input"]) == MAX_ROWS
    with pytest.raises(TooLarge, match=r"inputs\[0\].shape: the number of rows.*MAX_INSTANCES"):
        read({"inputs": [tensor(shape=[MAX_ROWS + 1, 0], data=[])]})
    with pytest.raises(TooLarge, match=r"number of BYTES elements.*MAX_INSTANCES"):
        read({"inputs": [tensor(shape=[1, MAX_ROWS + 1], datatype="BYTES", data=[""] * (MAX_ROWS + 1))]})


@pytest.mark.parametrize("shape, data", [([0, 2], []), ([2, 0], []), ([2, 0], [[], []])])
def test_an_empty_tensor_has_no_data(shape, data):
    assert read({"inputs": [tensor(shape=shape, data=data)]}).inputs["input"].shape == tuple(shape)


def test_keys_that_the_protocol_does_not_have_are_ignored():
    request = read({"model_name": "x", "extra": [1], "inputs": [tensor(more=1)]})
    assert (request.id, request.outputs, request.binary_output, request.timeout_s, request.priority) == (
        None,
        (),
        False,
        None,
        0,
    )


def test_nesting_without_end_is_malformed():
    body = json.dumps({"inputs": [tensor()]}).encode().replace(b"[1, 2]}", b"[" * 500 + b"]" * 500 + b"}")
    assert "nests more than" in malformed(body)


def test_nesting_is_judged_before_the_slower_parser_follows_it():
    body = json.dumps({"inputs": [tensor(datatype="FP64", data=[10**300, 0])]}).encode()
    assert "nests more than" in malformed(body[:-1] + b', "x": ' + b"[" * 1000 + b"]" * 1000 + b"}")


def test_parameters_are_read_in_their_own_units():
    parameters = {"timeout": 500_000, "priority": 2, "binary_data_output": True, "proba": True, "k": "v", "triton_x": 1}
    request = read({"id": "", "inputs": [tensor()], "parameters": parameters | {"sequence_id": 0}})
    assert (request.id, request.timeout_s, request.priority, request.binary_output) == ("", 0.5, 2, True)
    assert request.options == {"proba": True, "k": "v"}
    assert request.options_of({"proba"}) == {"proba": True}
    assert read({"inputs": [tensor()], "parameters": {"timeout": 0}}).timeout_s is None


@pytest.mark.parametrize(
    "name, value",
    [
        ("timeout", -1),
        ("timeout", 1.5),
        ("timeout", "1"),
        ("timeout", True),
        ("timeout", 2**60),
        ("priority", -1),
        ("priority", 1.0),
        ("priority", True),
        ("binary_data_output", 1),
        ("sequence_id", 7),
        ("sequence_id", "s"),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_refused_by_name(name, value):
    assert fault({"inputs": [tensor()], "parameters": {name: value}})[0] == f"parameters.{name}"


@pytest.mark.parametrize("parameters", [[], "x", {"a": None}, {"a": [1]}, {"a": {}}])
def test_parameters_are_strings_numbers_and_booleans(parameters):
    assert fault({"inputs": [tensor()], "parameters": parameters})[0] == "parameters"


def test_the_id_is_a_string():
    assert read({"id": "42", "inputs": [tensor()]}).id == "42"
    assert fault({"id": 42, "inputs": [tensor()]}) == ("id", "must be a string")


def test_outputs_are_read_in_their_order_with_their_encodings():
    outputs = [
        {"name": "b"},
        {"name": "a", "parameters": {"binary_data": True}},
        {"name": "c", "parameters": {"binary_data": False, "classification": 0}},
    ]
    assert read({"inputs": [tensor()], "outputs": outputs}).outputs == (
        WantedOutput("b"),
        WantedOutput("a", True),
        WantedOutput("c", False),
    )


@pytest.mark.parametrize(
    "outputs, loc",
    [
        ({}, "outputs"),
        ([5], "outputs[0]"),
        ([{}], "outputs[0].name"),
        ([{"name": "a"}, {"name": "a"}], "outputs[1].name"),
        ([{"name": "a", "parameters": {"binary_data": 1}}], "outputs[0].parameters.binary_data"),
        ([{"name": "a", "parameters": {"classification": 2}}], "outputs[0].parameters.classification"),
        ([{"name": "a", "parameters": {"shared_memory_region": "r"}}], "outputs[0].parameters.shared_memory_region"),
    ],
)
def test_what_is_wrong_with_an_output_is_told_where_it_is(outputs, loc):
    assert fault({"inputs": [tensor()], "outputs": outputs})[0] == loc


def raw(body: bytes, spec: InputSpec) -> InferRequest:
    return read_request(body, "0", spec, max_rows=MAX_ROWS)


@pytest.mark.parametrize("spec", [TextInput(), ImageInput(8, 8)])
def test_a_body_without_json_is_one_element_of_bytes(spec):
    request = raw(b"\xff\xd8", spec)
    assert request.inputs["input"].tolist() == [[b"\xff\xd8"]]
    assert request.binary_output


@pytest.mark.parametrize("spec", [TabularInput(dtype="float32"), TabularInput(width=2, dtype="float32")])
def test_a_body_without_json_is_one_row_of_numbers(spec):
    assert raw(struct.pack("<2f", 1, 2), spec).inputs["input"].tolist() == [[1, 2]]


def test_the_one_extent_that_may_vary_follows_from_the_length():
    spec = TensorInput(shape=(2, None), dtype="int8")
    assert raw(bytes(range(6)), spec).inputs["input"].tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert raw(b"\x05", TensorInput(shape=(), dtype="int8")).inputs["input"].tolist() == [5]


@pytest.mark.parametrize(
    "body, spec",
    [
        (b"", TABLE),
        (b"1234567", TABLE),
        (b"12345678" * 3, TabularInput(width=2)),
        (b"123", TensorInput(shape=(2, None), dtype="int8")),
        (b"1234", TensorInput(shape=(None, None), dtype="int8")),
        (b"1234", TensorInput(dtype="int8", shape=(2,))),
        (b"12345678", TWO),
        (b"12345678", TabularInput(width=2, dtype="object")),
    ],
)
def test_a_body_without_json_that_is_not_one_row_of_one_input_is_refused(body, spec):
    with pytest.raises(InvalidInput) as caught:
        raw(body, spec)
    assert caught.value.faults[0].loc == "inputs"


def test_an_empty_extent_of_the_model_is_no_row_of_a_body_without_json():
    with pytest.raises(InvalidInput):
        raw(b"1", TensorInput(shape=(0,), dtype="int8"))


def test_no_fault_repeats_what_was_sent():
    secret = "s3cret"
    documents: list[Any] = [
        {"inputs": [tensor(name=secret)]},
        {"inputs": [tensor(datatype=secret)]},
        {"inputs": [tensor(data=[secret, 1])]},
        {"inputs": [tensor()], "parameters": {secret: []}},
        {"inputs": [tensor()], "outputs": [{"name": secret}, {"name": secret}]},
        {"inputs": [tensor(shape=secret)]},
    ]
    for document in documents:
        loc, msg = fault(document)
        assert secret not in loc + msg


def test_nan_passes_the_wire_as_binary_data_and_is_left_to_the_rules_of_rows():
    array = read({"inputs": [binary(8)]}, struct.pack("<2f", math.nan, 1)).inputs["input"]
    assert math.isnan(array[0][0])
