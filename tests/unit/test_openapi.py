"""The description of the API is valid, and says of a request what the reader of requests says of it."""

from __future__ import annotations

import json

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
from service.inputs import InputLimits, prepare

SETTINGS = Settings(max_text_chars=20, max_instances=3)
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


def document(model=None, **more):
    return openapi(model, settings=SETTINGS, **more)


def validator(described, name):
    return OAS31Validator({"$ref": f"#/components/schemas/{name}", "components": described["components"]})


def operations_of(described):
    return [operation for path in described["paths"].values() for operation in path.values()]


@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize("spec", [None, *SPECS], ids=repr)
def test_it_is_valid_openapi_for_every_kind_of_input(spec, has_keys):
    model = None if spec is None else model_of(spec, {"proba", "depth"}, OutputSpec("classification", ("a", "b"), 2))
    described = document(model, has_keys=has_keys, has_metrics_key=has_keys)
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


# What a client can meet.
STATUSES = {status for status, _ in PROBLEMS.values()} - {401, 403, 404, 499}


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
    responses = document(has_keys=has_keys)["paths"][path]["post"]["responses"]
    assert {int(status) for status in responses} == {200} | STATUSES | more


def test_a_status_is_described_by_the_errors_that_have_it():
    response = document()["components"]["responses"]["Problem413"]
    assert response["description"] == "Something is over its limit."
    assert "Retry-After" in document()["components"]["responses"]["Problem429"]["headers"]
    assert "Retry-After" not in response["headers"]


def test_keys_are_asked_for_only_where_they_are_configured():
    described = document()
    assert "securitySchemes" not in described["components"]
    assert not any("security" in operation for operation in operations_of(described))

    described = document(has_keys=True)
    assert set(described["components"]["securitySchemes"]) == {"bearer", "apiKey"}
    secured = {operation["operationId"] for operation in operations_of(described) if "security" in operation}
    assert secured == {"predict", "predict_model", "predict_version"}

    described = document(has_metrics_key=True)
    secured = {operation["operationId"] for operation in operations_of(described) if "security" in operation}
    assert secured == {"metrics"}
    assert "401" in described["paths"]["/metrics"]["get"]["responses"]


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
