"""The description of the API is valid, and says of a request what the reader of requests says of it."""

from __future__ import annotations

import json
from math import prod

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from loaders.handle import ModelHandle
from loaders.signature import ImageInput, OutputSpec, TabularInput, TensorInput, TextInput
from service import Settings
from service.errors import InvalidInput, JitneyError
from service.http.body import PredictBody, call_of
from service.http.json_body import read_object
from service.http.openapi.document import OPERATIONS, openapi
from service.http.openapi.instances import instance_schema
from service.http.openapi.operation import Operation
from service.http.problems import PROBLEMS
from service.http.v1 import read_v1
from service.http.v2.datatypes import Datatype
from service.http.v2.inputs import to_instances
from service.http.v2.request import read_request
from service.http.v2.response import check_outputs
from service.inputs import InputLimits, prepare

LIMITS = {"max_text_chars": 20, "max_instances": 3}
SETTINGS = Settings(**LIMITS)
WITH_KEYS = Settings(**LIMITS, api_keys="open-sesame")
WITH_ALL_KEYS = Settings(**LIMITS, api_keys="open-sesame", metrics_key="count-for-me", admin_token="let-me-in-too")
MIXED = TabularInput(columns=("age", "city", "member", "code"), dtype="object", allow_null=True)
MIXED_TYPES = ("number", "text", "boolean", None)
SPECS = [
    TabularInput(),
    TabularInput(width=2),
    TabularInput(columns=("a", "b"), allow_null=True),
    MIXED,
    TextInput(),
    ImageInput(height=2, width=2),
    TensorInput(),
    TensorInput(shape=()),
    TensorInput(shape=(2, None), dtype="uint8"),
    TensorInput(shape=(1,), dtype="bool"),
]


def model_of(spec, parameters=(), output=None, types=()) -> ModelHandle:
    return ModelHandle(
        "m",
        "3",
        "callable",
        print,
        spec,
        output or OutputSpec(),
        metadata={"column_types": types},
        parameters=frozenset(parameters),
    )


def document(model=None, settings=SETTINGS, **more):
    return openapi(model, settings=settings, **more)


def validator(described, name):
    return OAS31Validator({"$ref": f"#/components/schemas/{name}", "components": described["components"]})


def operations_of(described):
    return [operation for path in described["paths"].values() for operation in path.values()]


@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize("spec", [None, *SPECS], ids=repr)
def test_it_is_valid_openapi_for_every_kind_of_input(spec, has_keys):
    model = None if spec is None else model_of(spec, {"proba", "depth"}, OutputSpec("classification", ("a", "b"), 2))
    described = document(model, WITH_ALL_KEYS if has_keys else SETTINGS)
    OpenAPIV31SpecValidator(described).validate()
    assert json.loads(json.dumps(described)) == described


def test_operations_are_told_apart_by_their_ids():
    ids = [operation.operation_id for operation in OPERATIONS]
    assert len(set(ids)) == len(ids)


def test_another_protocol_adds_its_operations_to_the_list():
    more = Operation("get", "/v2", "v2", "V2", "Server", lambda _: {"responses": {"200": {"description": "It."}}})
    described = document(operations=(*OPERATIONS, more))
    OpenAPIV31SpecValidator(described).validate()
    assert described["paths"]["/v2"]["get"]["operationId"] == "v2"
    assert described["tags"][-1] == {"name": "V2"}


# What a client can meet; 414 is the server's answer before there is an app.
STATUSES = {status for status, _ in PROBLEMS.values()} - {401, 403, 499} | {414}


@pytest.mark.parametrize(
    "path, has_keys, more",
    [
        ("/predict", False, set()),
        ("/predict", True, {401}),
        ("/models/{name}/predict", False, {404}),
        ("/models/{name}/versions/{version}/predict", True, {401, 404}),
    ],
)
def test_a_prediction_lists_every_status_of_the_table_of_errors(path, has_keys, more):
    model = model_of(TextInput())
    responses = document(model, WITH_KEYS if has_keys else SETTINGS)["paths"][path]["post"]["responses"]
    assert {int(status) for status in responses} == {200} | STATUSES | more


def test_a_status_is_described_by_the_errors_that_have_it():
    response = document()["components"]["responses"]["Problem413"]
    assert response["description"] == "Something is over its limit."
    assert "Retry-After" in document()["components"]["responses"]["Problem429"]["headers"]
    assert "Retry-After" not in response["headers"]


def secured(described):
    return {
        operation["operationId"]: [scheme for choice in operation["security"] for scheme in choice]
        for operation in operations_of(described)
        if "security" in operation
    }


def test_keys_are_asked_for_only_where_they_are_configured():
    described = document()
    assert "securitySchemes" not in described["components"]
    assert secured(described) == {}

    described = document(settings=WITH_ALL_KEYS)
    for_predictions = ("predict", "predict_model", "predict_version", "v1_predict", "v1_predict_version")
    assert secured(described) == {
        **{name: ["bearer", "apiKey"] for name in (*for_predictions, "v2_infer", "v2_infer_version")},
        "metrics": ["metricsBearer", "metricsKey"],
        "status": ["metricsBearer", "metricsKey"],
        "v2_load": ["adminBearer", "adminKey"],
        "v2_unload": ["adminBearer", "adminKey"],
    }
    used = {name for names in secured(described).values() for name in names}
    assert set(described["components"]["securitySchemes"]) == used
    for operation in operations_of(described):
        assert ("401" in operation["responses"]) == ("security" in operation), operation["operationId"]
        assert ("414" in operation["responses"]) == ("parameters" in operation), operation["operationId"]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_files_are_bodies_only_for_models_of_pictures(spec):
    content = document(model_of(spec))["paths"]["/predict"]["post"]["requestBody"]["content"]
    pictures = {"multipart/form-data", "image/*"} if isinstance(spec, ImageInput) else set()
    assert set(content) == {"application/json"} | pictures


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_the_examples_are_valid_and_the_reader_takes_them(spec):
    model = model_of(spec, types=MIXED_TYPES if spec is MIXED else ())
    described = document(model)
    examples = described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert examples
    for example in examples.values():
        validator(described, "PredictBody").validate(example["value"])
        PredictBody.model_validate(example["value"])


def test_an_example_that_nobody_can_read_is_left_out():
    described = document(model_of(TensorInput(shape=(3, 224, 224))))
    assert "examples" not in described["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
    assert len(json.dumps(described)) < 100_000


def test_the_example_of_an_answer_is_one():
    for output in (OutputSpec(), OutputSpec("classification", ("no", "yes")), OutputSpec("classification", None, 2)):
        described = document(model_of(TextInput(), output=output))
        media = described["paths"]["/predict"]["post"]["responses"]["200"]["content"]["application/json"]
        validator(described, "PredictAnswer").validate(media["example"])


def takes(spec, instance, types=()) -> bool:
    try:
        prepare(spec, [instance], InputLimits(100, SETTINGS.max_text_chars), types)
    except JitneyError:
        return False
    return True


VALUES = [
    None,
    True,
    1,
    1.5,
    300,
    -1,
    2.0,
    "a",
    "",
    "a" * 21,
    [],
    [1],
    [True],
    [1, 2],
    [1, None],
    [1, "a"],
    ["1", 2],
    [[1, 2]],
]
VALUES += [
    [[1], [2]],
    [[1, 2], [3, 4]],
    [[1, 2], [3, 400]],
    [[1.5, 2], [3, 4]],
    [[], []],
    [[[1]]],
    {},
    {"a": 1, "b": None},
]
VALUES += [
    {"a": 1},
    {"a": 1, "b": 2, "c": 3},
    {"b64": ""},
    {"b64": 1},
    {"b64": "x", "more": 1},
    [1, "x", True, 1],
    [None] * 4,
]
VALUES += [["x", "x", True, 1], [1, "x", 1, 1], {"age": 1, "city": "x", "member": True, "code": "y"}, [1e39], [1e39, 1]]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("spec", [*SPECS, TabularInput(width=2, dtype="float32"), TensorInput(shape=(1,))], ids=repr)
def test_the_schema_of_an_instance_agrees_with_its_preparation(spec, value):
    types = MIXED_TYPES if spec is MIXED else ()
    schema = validator(document(model_of(spec, types=types)), "Instance")
    assert schema.is_valid(value) == takes(spec, value, types)


BODIES = [
    {},
    {"instances": None},
    {"instances": []},
    {"instances": ["a"]},
    {"instances": ["a"] * 4},
    {"instances": "a"},
    {"text": "a"},
    {"text": None},
    {"text": 1},
    {"text": "a", "instances": ["a"]},
    {"text": "a", "instances": None},
    {"text": None, "instances": ["a"]},
    {"text": "a", "more": 1},
    {"text": "a", "model_version": "3"},
    {"text": "a", "model_version": 3},
    {"text": "a", "model_version": None},
    {"text": "a", "timeout_ms": 5},
    {"text": "a", "timeout_ms": 0},
    {"text": "a", "timeout_ms": "5"},
    {"text": "a", "timeout_ms": True},
    {"text": "a", "timeout_ms": None},
    {"text": "a", "parameters": {}},
    {"text": "a", "parameters": None},
    {"text": "a", "parameters": []},
    [],
    None,
]


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_the_schema_of_a_body_agrees_with_its_reader(body):
    try:
        read = read_object(json.dumps(body).encode(), SETTINGS.max_instances, "", call_of)
        # How many there may be is the settings' matter, and stands in the schema all the same.
        is_good = 1 <= len(read.call.instances) <= SETTINGS.max_instances
    except InvalidInput:
        is_good = False
    assert validator(document(model_of(TextInput())), "PredictBody").is_valid(body) == is_good


# For a model of texts, whose V2 output is `output`.
TENSOR = {"name": "input", "datatype": "BYTES", "shape": [1], "data": ["a"]}
INFER_BODIES = [
    {"inputs": [TENSOR]},
    {"inputs": [TENSOR], "id": "7", "model_name": "ignored"},
    {"inputs": [TENSOR], "id": 7},
    {"inputs": [TENSOR], "id": None, "outputs": None, "parameters": None},
    {"inputs": [TENSOR | {"shape": [1, 1], "data": [["a"]]}]},
    {"inputs": [TENSOR | {"shape": [1, 1, 1]}]},
    {"inputs": [TENSOR | {"shape": [0], "data": []}]},
    {"inputs": [TENSOR | {"shape": [True]}]},
    {"inputs": [TENSOR | {"shape": [4], "data": ["a"] * 4}]},
    {"inputs": [TENSOR | {"datatype": "FP32", "data": [1]}]},
    {"inputs": [TENSOR | {"name": "other"}]},
    {"inputs": [TENSOR | {"data": [1]}]},
    {"inputs": [TENSOR | {"data": "a"}]},
    {"inputs": [TENSOR | {"data": ["a" * 21]}]},
    {"inputs": [{key: value for key, value in TENSOR.items() if key != "data"}]},
    {"inputs": [TENSOR | {"parameters": {"anything": 1}}]},
    {"inputs": [TENSOR | {"parameters": {"anything": [1]}}]},
    {"inputs": [TENSOR | {"parameters": {"binary_data_size": 1}}]},
    {"inputs": [TENSOR | {"parameters": {"shared_memory_region": "r"}}]},
    {"inputs": [TENSOR, TENSOR]},
    {"inputs": []},
    {"inputs": [TENSOR], "outputs": []},
    {"inputs": [TENSOR], "outputs": [{"name": "output"}]},
    {"inputs": [TENSOR], "outputs": [{"name": "output"}] * 2},
    {"inputs": [TENSOR], "outputs": [{"name": "other"}]},
    {"inputs": [TENSOR], "outputs": [{"name": "output", "parameters": {"binary_data": True}}]},
    {"inputs": [TENSOR], "outputs": [{"name": "output", "parameters": {"binary_data": 1}}]},
    {"inputs": [TENSOR], "outputs": [{"name": "output", "parameters": {"classification": 1}}]},
    {"inputs": [TENSOR], "outputs": [{"name": "output", "parameters": {"shared_memory_region": "r"}}]},
    *(
        {"inputs": [TENSOR], "parameters": parameters}
        for parameters in (
            {"timeout": 0},
            {"timeout": -1},
            {"timeout": 2**53 + 1},
            {"timeout": True},
            {"priority": 1},
            {"priority": -1},
            {"binary_data_output": 1},
            {"sequence_id": 0},
            {"sequence_id": 1},
            {"sequence_id": "a"},
            {"triton_anything": "a"},
            {"anything": None},
            [],
        )
    ),
    {},
    [],
]


@pytest.mark.parametrize("body", INFER_BODIES, ids=lambda body: repr(body)[-70:])
def test_the_schema_of_an_infer_body_agrees_with_its_reader(body):
    spec = TextInput()
    try:
        read = read_request(json.dumps(body).encode(), None, spec, max_rows=SETTINGS.max_instances)
        check_outputs(read, ["output"])
        instances = to_instances(spec, read.inputs)
        is_good = bool(instances) and all(takes(spec, instance) for instance in instances)
    except JitneyError:
        is_good = False
    described = document(model_of(spec), sample="an answer")
    assert validator(described, "V2InferBody").is_valid(body) == is_good


@pytest.mark.parametrize("datatype", Datatype)
@pytest.mark.parametrize(
    "spec",
    [
        TabularInput(width=2),
        TabularInput(width=2, dtype="object"),
        TextInput(),
        TensorInput(shape=()),
        TensorInput(shape=(2, None), dtype="uint8"),
        TensorInput(shape=(1,), dtype="bool"),
    ],
    ids=repr,
)
def test_the_schema_of_a_tensor_has_the_datatypes_that_are_taken(spec, datatype):
    shape = [1, 2] if isinstance(spec, TabularInput) else [1]
    if isinstance(spec, TensorInput):
        shape = [1, *(extent or 1 for extent in spec.shape)]
    element = {"BYTES": "a", "BOOL": True}.get(datatype, 1)
    body = {"inputs": [{"name": "input", "datatype": datatype, "shape": shape, "data": [element] * prod(shape)}]}
    try:
        read = read_request(json.dumps(body).encode(), None, spec, max_rows=3)
        is_good = all(takes(spec, instance) for instance in to_instances(spec, read.inputs))
    except JitneyError:
        is_good = False
    assert validator(document(model_of(spec)), "V2InferBody").is_valid(body) == is_good


def test_columns_are_sent_one_by_one_or_as_whole_rows():
    schema = validator(document(model_of(MIXED, types=MIXED_TYPES)), "V2InferBody")
    given = (("age", "FP64", 1), ("city", "BYTES", "x"), ("member", "BOOL", True), ("code", "INT8", 1))
    columns = [{"name": name, "datatype": datatype, "shape": [1], "data": [value]} for name, datatype, value in given]
    whole = {"name": "input", "datatype": "FP64", "shape": [1, 4], "data": [1, 2, 3, 4]}
    for inputs in (columns, columns[::-1], [whole]):
        assert schema.is_valid({"inputs": inputs})
    for inputs in (columns[:3], [*columns[:3], columns[0]], [*columns, whole], [columns[0] | {"datatype": "BOOL"}]):
        assert not schema.is_valid({"inputs": inputs})


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_the_example_of_tensors_is_valid_and_the_reader_takes_it(spec):
    types = MIXED_TYPES if spec is MIXED else ()
    model = model_of(spec, types=types)
    described = document(model)
    content = described["paths"]["/v2/models/{name}/infer"]["post"]["requestBody"]["content"]
    if isinstance(spec, ImageInput):
        assert set(content) == {"application/octet-stream"}
        return
    body = content["application/json"]["examples"]["row"]["value"]
    validator(described, "V2InferBody").validate(body)
    read = read_request(json.dumps(body).encode(), None, spec, types, max_rows=3)
    instances = to_instances(spec, read.inputs)
    assert len(instances) == 1
    assert takes(spec, instances[0], types)


V1_BODIES = [
    {"instances": [{"a": 1, "b": 2}]},
    {"instances": [[1, 2]], "signature_name": "serving_default"},
    {"instances": [[1, 2]], "signature_name": ""},
    {"instances": [[1, 2]], "signature_name": "other"},
    {"instances": [[1, 2]], "signature_name": None},
    {"instances": [[1, 2]] * 4},
    {"instances": []},
    {"instances": None},
    {"inputs": [[1, 2]]},
    {"inputs": {"a": [1], "b": [2]}},
    {"inputs": {"a": [[1]], "b": [2]}},
    {"inputs": {"a": [[1, 1]], "b": [2]}},
    {"inputs": {"a": [1]}},
    {"inputs": {"a": [1], "b": [2], "c": [3]}},
    {"inputs": {"a": 1, "b": 2}},
    {"inputs": 1},
    {"instances": [[1, 2]], "inputs": [[1, 2]]},
    {"instances": [[1, 2]], "more": 1},
    {},
    [],
]


@pytest.mark.parametrize("body", V1_BODIES, ids=repr)
@pytest.mark.parametrize("spec", [TabularInput(columns=("a", "b")), TabularInput(width=2)], ids=repr)
def test_the_schema_of_a_v1_body_agrees_with_its_reader(spec, body):
    try:
        call = read_object(json.dumps(body).encode(), SETTINGS.max_instances, "", read_v1)
        instances = call.call_for(model_of(spec)).instances
        is_good = 1 <= len(instances) <= SETTINGS.max_instances and all(takes(spec, one) for one in instances)
    except JitneyError:
        is_good = False
    assert validator(document(model_of(spec)), "V1PredictBody").is_valid(body) == is_good


def test_options_that_a_model_does_not_have_are_not_valid():
    schema = validator(document(model_of(TextInput(), {"proba", "depth"})), "PredictBody")
    assert schema.is_valid({"text": "a", "parameters": {"proba": True, "depth": 3}})
    assert not schema.is_valid({"text": "a", "parameters": {"proba": 1}})
    assert not schema.is_valid({"text": "a", "parameters": {"depth": [1]}})
    assert not schema.is_valid({"text": "a", "parameters": {"other": 1}})


def test_without_a_model_every_kind_of_instance_is_valid():
    schema = validator(document(), "Instance")
    for value in ([1, 2], {"a": "x"}, "text", {"b64": "eA=="}, [[[1]]]):
        assert schema.is_valid(value)
    assert instance_schema(None, SETTINGS)["anyOf"]


def test_the_service_may_be_mounted_under_a_prefix():
    assert document()["servers"] == [{"url": "/"}]
    assert document(base_path="/models")["servers"] == [{"url": "/models"}]
