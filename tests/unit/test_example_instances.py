"""The instances that are shown to people are ones that the input takes."""

from __future__ import annotations

import pytest

from loaders.signature import ImageInput, TabularInput, TensorInput, TextInput
from service.inputs import InputLimits, prepare
from service.inputs.example import example_in_python, example_instance, is_known

LIMITS = InputLimits(max_image_pixels=100, max_text_chars=100)
MIXED = TabularInput(columns=("age", "city", "member", "code"), dtype="object")
TYPES = ("number", "text", "boolean", None)


@pytest.mark.parametrize(
    "spec",
    [
        TabularInput(),
        TabularInput(width=4, dtype="float32"),
        TabularInput(columns=("a", "b")),
        TextInput(),
        ImageInput(height=2, width=2),
        TensorInput(),
        TensorInput(shape=(2, None), dtype="int64"),
        TensorInput(shape=(2,), dtype="bool"),
    ],
    ids=repr,
)
def test_every_kind_of_input_takes_its_example(spec):
    assert len(prepare(spec, [example_instance(spec)], LIMITS)) == 1


def test_columns_of_text_and_of_booleans_get_values_of_their_type():
    row = example_instance(MIXED, TYPES)
    assert row == {"age": 0, "city": "a text", "member": False, "code": 0}
    assert len(prepare(MIXED, [row], LIMITS, TYPES)) == 1


def test_a_value_that_the_model_is_known_to_take_comes_before_one_of_the_type():
    row = example_instance(MIXED, TYPES, (None, "Graz", True, 7))
    assert row == {"age": 0, "city": "Graz", "member": True, "code": 7}
    assert example_instance(MIXED, (), (None, "Graz", None, None))["city"] == "Graz"
    assert eval(example_in_python(MIXED, TYPES, (None, "Graz", True, 7))) == row


@pytest.mark.parametrize(
    "spec, known",
    [(TabularInput(), False), (TabularInput(width=2), True), (TabularInput(columns=("a",)), True),
     (TensorInput(), False), (TensorInput(shape=(None,)), True), (TextInput(), True), (ImageInput(2, 2), True)],
)  # fmt: skip
def test_a_shape_that_nobody_knows_is_a_guess(spec, known):
    assert is_known(spec) is known


@pytest.mark.parametrize("spec, types", [(MIXED, TYPES), (MIXED, ()), (TensorInput(shape=(2, 3)), ())])
def test_the_expression_is_the_same_instance(spec, types):
    assert eval(example_in_python(spec, types)) == example_instance(spec, types)
