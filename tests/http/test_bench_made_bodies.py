"""Bodies that are made up from the description of a server are such as it takes."""

from __future__ import annotations

import random

import pytest
from served import SMALL_PICTURE, mean_colour

from loaders import ModelHandle
from loaders.signature import TabularInput, TensorInput, TextInput
from service.bench.errors import CannotMakeUp
from service.bench.made import made_bodies
from service.bench.mix import Mix


def made(server, **wanted):
    description = server.client.get("/openapi.json").json
    asked = {"count": 6, "rows": Mix.parse("1,3"), "words": Mix.parse("2-4"), **wanted}
    return made_bodies(description, rng=random.Random(0), **asked)


def statuses(server, bodies):
    answers = [server.client.post("/predict", data=body.payload, content_type=body.content_type) for body in bodies]
    return {answer.status_code for answer in answers}, [len(answer.json["predictions"]) for answer in answers]


def of_input(spec, fn=len):
    return ModelHandle.from_callable(lambda rows: [fn(row) for row in rows], name="m", input=spec)


@pytest.mark.parametrize(
    "spec",
    [
        TabularInput(width=5),
        TabularInput(width=5, dtype="float32", allow_null=True),
        TabularInput(),
        TensorInput(shape=(2, 3), dtype="float32"),
        TensorInput(shape=(4,), dtype="int64"),
        TensorInput(shape=(2, None), dtype="bool"),
        TextInput(),
    ],
)
def test_rows_tensors_and_texts_are_answered(served, spec):
    server = served(of_input(spec))
    bodies = made(server)
    codes, counts = statuses(server, bodies)
    assert codes == {200}
    assert counts == [body.rows for body in bodies]
    assert {body.rows for body in bodies} == {1, 3}
    assert len({body.payload for body in bodies}) == 6


def test_named_columns_keep_the_texts_that_the_model_knows(served):
    spec = TabularInput(columns=("colour", "weight"), dtype="object")
    metadata = {"column_types": ("text", "number"), "column_examples": ("red", 2.5)}
    model = ModelHandle("m", "1", "callable", lambda rows: [row[0] for row in rows], input=spec, metadata=metadata)
    server = served(model)
    bodies = made(server)
    assert statuses(server, bodies)[0] == {200}
    assert all(b'"red"' in body.payload for body in bodies)


def test_pictures_are_answered_alone_and_several_at_once(served):
    server = served(ModelHandle.from_callable(mean_colour, name="m", input=SMALL_PICTURE))
    bodies = made(server)
    codes, counts = statuses(server, bodies)
    assert (codes, counts) == ({200}, [body.rows for body in bodies])
    assert {body.content_type for body in bodies} == {"image/jpeg", "application/json"}


def test_texts_have_as_many_words_as_was_asked_for(served):
    server = served(of_input(TextInput(), fn=lambda text: len(text.split())))
    body = made(server, count=1, rows=Mix.parse("1"), words=Mix.parse("17"))[0]
    assert server.client.post("/predict", data=body.payload, content_type=body.content_type).json["predictions"] == [17]


def test_what_cannot_be_made_up_is_said_with_the_way_out(served):
    with pytest.raises(CannotMakeUp, match="--bodies"):
        made(served(of_input(TensorInput())))
    with pytest.raises(CannotMakeUp, match="--bodies"):
        made_bodies({}, count=1, rows=Mix.parse("1"), words=Mix.parse("1"), rng=random.Random(0))
