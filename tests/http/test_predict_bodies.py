"""The forms that a predict request may take, and what each is answered with."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from PIL import Image
from pydantic import TypeAdapter
from served import SMALL_PICTURE, Gate, mean_colour, sums, upper

from loaders.handle import ModelHandle
from loaders.packing import Packs
from loaders.signature import EncodedText, TabularInput, TensorInput, TextInput

RED = [1.0, 0.0, 0.0]
BLUE = [0.0, 0.0, 1.0]


def picture(colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(file, "PNG")
    return file.getvalue()


def b64(colour: str) -> dict[str, str]:
    return {"b64": base64.b64encode(picture(colour)).decode()}


@pytest.fixture
def pictures(served):
    return served(ModelHandle.from_callable(mean_colour, name="colours", input=SMALL_PICTURE))


@pytest.fixture
def texts(served):
    return served(ModelHandle.from_callable(upper, name="loud", input=TextInput()))


def test_rows_of_numbers_are_answered_in_their_order(served):
    answer = served().predict([1, 2], [3.5, 4]).json
    assert answer.pop("latency_ms") >= 0
    assert answer == {"predictions": [3.0, 7.5], "model_name": "m", "model_version": "3"}


def test_rows_may_be_objects_of_named_columns(served):
    spec = TabularInput(columns=("a", "b"), width=2)
    server = served(ModelHandle.from_callable(lambda rows: [row[0] - row[1] for row in rows], name="m", input=spec))
    assert server.predict({"b": 1, "a": 5}, [5, 1]).json["predictions"] == [4.0, 4.0]


def test_texts_are_given_as_strings(texts):
    answer = texts.predict("a", "b").json
    assert answer["predictions"] == ["A", "B"]
    assert "prediction" not in answer


def test_a_single_text_has_a_short_form_with_a_short_answer(texts):
    answer = texts.client.post("/predict", json={"text": "héllo"}).json
    assert (answer["predictions"], answer["prediction"]) == (["HÉLLO"], "HÉLLO")


def test_a_text_that_was_cut_is_marked(served):
    spec = TextInput(encode=lambda text: EncodedText(tuple(text.encode()[:3]), truncated=len(text) > 3))
    server = served(ModelHandle.from_callable(lambda rows: [len(row.ids) for row in rows], name="m", input=spec))
    assert server.predict("ab", "abcd").json["truncated"] == [False, True]
    assert server.client.post("/predict", json={"text": "abcd"}).json["truncated"] is True
    assert "truncated" not in server.predict("ab").json


def test_a_tensor_is_nested_numbers(served):
    spec = TensorInput(shape=(2, 2), dtype="int64")
    server = served(ModelHandle.from_callable(lambda rows: [row.T for row in rows], name="m", input=spec))
    assert server.predict([[1, 2], [3, 4]]).json["predictions"] == [[[1, 3], [2, 4]]]


def test_a_picture_is_answered_alike_as_base64_as_upload_and_as_raw_body(pictures):
    as_json = pictures.predict(b64("red")).json
    upload = pictures.client.post("/predict", data={"file": (io.BytesIO(picture("red")), "x.png")}).json
    raw = pictures.client.post("/predict", data=picture("red"), content_type="image/png").json
    assert as_json["predictions"] == upload["predictions"] == raw["predictions"] == [RED]
    assert upload["prediction"] == raw["prediction"] == RED
    assert "prediction" not in as_json


def test_several_uploads_keep_their_order(pictures):
    files = [(io.BytesIO(picture(colour)), "same.png") for colour in ("red", "blue", "red")]
    answer = pictures.client.post("/predict", data={"file": files}).json
    assert answer["predictions"] == [RED, BLUE, RED]
    assert "prediction" not in answer


def test_form_fields_pin_the_version_and_set_the_deadline(pictures):
    def post(**fields):
        return pictures.client.post("/predict", data={"file": (io.BytesIO(picture("red")), "x.png"), **fields})

    assert post(model_version="1", timeout_ms="5000").status_code == 200
    assert post(model_version="2").status_code == 409
    for wrong in ("soon", "-1", "0", "nan", "inf", ""):
        refused = post(timeout_ms=wrong)
        assert (refused.status_code, refused.json["errors"][0]["loc"]) == (422, "timeout_ms")


@pytest.mark.parametrize("data", [{"other": (io.BytesIO(b"x"), "x.png")}, {"other": "x"}, {"model_version": "1"}])
def test_a_form_without_a_picture_is_refused(pictures, data):
    answer = pictures.client.post("/predict", data=data, content_type="multipart/form-data")
    assert answer.status_code == 422


def form(*parts: tuple[str, bytes]) -> dict:
    """A form of (what follows `form-data; `, content), as arguments for the client."""
    body = b"".join(
        b"--b\r\nContent-Disposition: form-data; " + head.encode() + b"\r\n\r\n" + content + b"\r\n"
        for head, content in parts
    )
    return {"data": body + b"--b--\r\n", "content_type": "multipart/form-data; boundary=b"}


def test_a_picture_without_a_filename_counts_like_any_other_and_keeps_its_place(pictures):
    named, bare = "name=file; filename=x.png", "name=file"
    red, blue = picture("red"), picture("blue")
    answer = pictures.client.post("/predict", **form((named, red), (bare, blue), (named, red)))
    assert answer.json["predictions"] == [RED, BLUE, RED]
    answer = pictures.client.post("/predict", **form((bare, blue), (named, red)))
    assert answer.json["predictions"] == [BLUE, RED]
    assert pictures.client.post("/predict", **form((bare, blue))).json["prediction"] == BLUE


@pytest.mark.parametrize("name, value", [("model_version", b"1"), ("timeout_ms", b"5000")])
def test_a_form_field_that_is_a_file_or_repeated_is_refused_by_its_name(pictures, name, value):
    upload = ("name=file; filename=x.png", picture("red"))
    assert pictures.client.post("/predict", **form(upload, (f"name={name}", value))).status_code == 200
    for wrong in ([(f"name={name}; filename=x", value)], [(f"name={name}", value)] * 2):
        answer = pictures.client.post("/predict", **form(upload, *wrong))
        assert (answer.status_code, answer.json["errors"][0]["loc"]) == (422, name)


@pytest.mark.parametrize("head", ["name=", "filename=x", "x=y"])
def test_a_part_of_a_form_without_a_name_is_refused(pictures, head):
    assert pictures.client.post("/predict", **form((head, picture("red")))).status_code == 422


@pytest.mark.parametrize(
    "content_type, body",
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"no boundary in here"),
        ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; name=file; filename=x\r\n\r\ncut"),
        ("multipart/form-data; boundary=\u00e9", b"x"),
    ],
)
def test_a_broken_form_is_a_malformed_body(pictures, content_type, body):
    assert pictures.client.post("/predict", data=body, content_type=content_type).status_code == 400


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json"])
def test_json_is_known_by_its_content_type(served, content_type):
    answer = served().client.post("/predict", data=b'{"instances": [[1]]}', content_type=content_type)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", None, "", "application/x-www-form-urlencoded", "application/vnd.api+json", "image/png",
     "multipart/form-data; boundary=b", "application/octet-stream"],
)  # fmt: skip
def test_any_other_content_type_is_refused(served, content_type):
    answer = served().client.post("/predict", data=b'{"instances": [[1]]}', content_type=content_type)
    assert (answer.status_code, answer.mimetype) == (415, "application/problem+json")


def test_a_model_of_pictures_refuses_other_types_of_body(pictures):
    assert pictures.client.post("/predict", data=b"%PDF-1.7", content_type="application/pdf").status_code == 415
    assert pictures.client.post("/predict", data=b"%PDF-1.7", content_type="image/png").status_code == 415


@pytest.mark.parametrize("encoding", ["", " ", "identity", "Identity"])
def test_a_body_that_is_named_uncompressed_is_taken(served, encoding):
    answer = served().client.post("/predict", json={"instances": [[1]]}, headers={"Content-Encoding": encoding})
    assert answer.status_code == 200


def post_json(server, body: bytes):
    return server.client.post("/predict", data=body, content_type="application/json")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"instances": [[NaN]]}',
        b'{"instances": [[Infinity]]}',
        b'{"instances": [[-Infinity]]}',
        b'{"instances": [[1e400]]}',
        b'{"instances": [[' + b"9" * 5000 + b"]]}",
        b'{"instances": ["\xff"]}',
        '{"instances": ["é"]}'.encode("latin-1"),
        '{"instances": [[1]]}'.encode("utf-16"),
        b'\xef\xbb\xbf{"instances": [[1]]}',
        b'{"instances": ["\\ud800"]}',
        b"[" * 100_000,
        b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"instances": [[1],]}',
        b"\x1f\x8b\x08\x00",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_no_strict_json_in_utf8_is_malformed(served, body):
    server = served()
    answer = post_json(server, body)
    assert (answer.status_code, answer.json["title"]) == (400, "Malformed body")
    assert post_json(server, b'{"instances": [[1, 2]]}').json["predictions"] == [3.0]


@pytest.mark.parametrize(
    "body",
    [
        b"null", b"[]", b"[1]", b'"x"', b"5", b"true", b"{}", b'{"instance": [[1]]}', b'{"instances": null}',
        b'{"instances": {"0": [1]}}', b'{"instances": "hello"}', b'{"instances": []}', b'{"instances": [[]]}',
        b'{"instances": [1, 2]}', b'{"instances": [[[1]]]}', b'{"instances": [[1, 2], [3]]}',
        b'{"instances": [[true]]}', b'{"instances": [["1.5"]]}', b'{"instances": [[null]]}',
        b'{"instances": [{"a": 1}]}',
        b'{"instances": [[1]], "text": "x"}', b'{"text": "x"}', b'{"instances": [[1]], "more": 1}',
        b'{"instances": [[1]], "timeout_ms": 0}', b'{"instances": [[1]], "timeout_ms": -5}',
        b'{"instances": [[1]], "timeout_ms": "5"}', b'{"instances": [[1]], "timeout_ms": true}',
        b'{"instances": [[1]], "model_version": 3}', b'{"instances": [[1]], "parameters": []}',
        b'{"instances": [[1]], "parameters": {"proba": true}}',
    ],
    ids=lambda body: repr(body[:40]),
)  # fmt: skip
def test_json_that_is_no_valid_input_is_refused_with_the_place(served, body):
    server = served()
    answer = post_json(server, body)
    assert (answer.status_code, answer.json["title"]) == (422, "Invalid input")
    assert answer.json["errors"]
    assert post_json(server, b'{"instances": [[1, 2]]}').json["predictions"] == [3.0]


def test_the_place_of_a_fault_is_named(served):
    server = served()
    assert server.predict([1, True]).json["errors"][0]["loc"] == "instances[0][1]"
    assert server.predict([1, 2], [3]).json["errors"][0]["loc"] == "instances[1]"
    assert server.predict([1], timeout_ms="x").json["errors"][0]["loc"] == "timeout_ms"


def test_of_duplicate_keys_the_last_one_counts(served):
    answer = post_json(served(), b'{"instances": [[1, 2]], "instances": [[3, 4]]}')
    assert answer.json["predictions"] == [7.0]


def test_an_integer_beyond_64_bits_is_exact(served):
    server = served()
    assert post_json(server, b'{"instances": [[9223372036854775808]]}').json["predictions"] == [2.0**63]
    assert post_json(server, b'{"instances": [[18446744073709551616]]}').json["predictions"] == [2.0**64]
    assert post_json(server, b'{"instances": [[-18446744073709551616, 1e300]]}').json["predictions"] == [1e300]


@pytest.mark.parametrize("spec", [
    TabularInput(), TabularInput(width=1, dtype="object"), TensorInput(dtype="int64"), TensorInput(dtype="uint64"),
    TensorInput(dtype="float64"),
])  # fmt: skip
@pytest.mark.parametrize("number", ["-9223372036854775809", "18446744073709551617", "-18446744073709551617", "9" * 30])
@pytest.mark.parametrize("blanks", ["", " ", "\n"])
def test_an_integer_that_would_be_rounded_is_refused_whatever_its_size(served, spec, number, blanks):
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec))
    answer = post_json(server, f'{{"instances":[[{blanks}{number}{blanks}]]}}'.encode())
    assert (answer.status_code, answer.json["errors"][0]["loc"]) == (422, "instances[0][0]")


@pytest.mark.parametrize("number", ["0.00012345678901234567", "12345678901234567890.5", "1234567890123456789e3",
                                    "1.5e0000000000000000000001", "1e-0000000000000000000001"])  # fmt: skip
def test_a_float_of_many_digits_is_read_as_ever(served, number):
    assert post_json(served(), f'{{"instances": [[{number}]]}}'.encode()).json["predictions"] == [float(number)]


def test_a_parameter_reaches_the_model_with_all_its_digits(served):
    server = served(
        ModelHandle.from_callable(lambda rows, p: [str(p) for _ in rows], name="m", parameters=["p"], input=TextInput())
    )
    answer = post_json(server, b'{"instances": ["a"], "parameters": {"p": 18446744073709551617}}')
    assert answer.json["predictions"] == ["18446744073709551617"]
    answer = post_json(server, b'{"instances": ["a"], "parameters": {"p": 1e300}}')
    assert answer.json["predictions"] == ["1e+300"]


def test_digits_inside_a_string_change_nothing(texts):
    assert texts.predict("9" * 30, "-" + "1" * 25).json["predictions"] == ["9" * 30, "-" + "1" * 25]


@pytest.mark.parametrize("number", [b"9" * 5000, b"1" + b"0" * 400])
@pytest.mark.parametrize("place", [b'{"instances": [[%s]]}', b'{"instances": [[1]], "parameters": {"a": %s}}'])
def test_an_integer_beyond_every_float_is_an_error_of_the_caller(served, place, number):
    assert post_json(served(), place.replace(b"%s", number)).status_code in (400, 422)


KINDS = [
    TabularInput(),
    TabularInput(columns=("a",), dtype="object"),
    TextInput(),
    SMALL_PICTURE,
    TensorInput(),
    TensorInput((1,)),
]


@pytest.mark.parametrize("spec", KINDS, ids=repr)
@pytest.mark.parametrize("opening, closing", [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("place", ['{"instances": [%s]}', '{"parameters": {"p": %s}, "instances": [[1]]}', '{"x": %s}'])
def test_json_that_nests_deeper_than_32_is_malformed_for_every_kind_of_input(served, spec, place, opening, closing):
    def nested(depth: int) -> bytes:
        return place.replace("%s", opening * depth + "1" + closing * depth).encode()

    before = place[: place.index("%s")]
    around = before.count("{") + before.count("[")
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec))
    fits, too_deep = post_json(server, nested(32 - around)), post_json(server, nested(33 - around))
    assert fits.status_code in (200, 422)
    assert (too_deep.status_code, too_deep.json["title"]) == (400, "Malformed body")


def test_a_tensor_may_nest_as_deep_as_a_body_may(served):
    server = served(ModelHandle.from_callable(lambda rows: [row.ndim for row in rows], name="m", input=TensorInput()))
    deep = json.loads("[" * 30 + "1" + "]" * 30)
    assert server.predict(deep).json["predictions"] == [30]
    assert server.predict([deep]).status_code == 400


def test_an_integer_that_a_float_cannot_hold_is_refused(served):
    assert served().predict([2**53 + 1]).status_code == 422


def test_a_nul_character_reaches_the_model(texts):
    assert texts.predict("good\u0000bad").json["predictions"] == ["GOOD\u0000BAD"]


def test_surrogate_pairs_and_other_scripts_come_back_whole(texts):
    text = "👨‍👩‍👧 عربي e\u0301 \u202e"
    assert texts.predict(text).json["predictions"] == [text.upper()]


@pytest.mark.parametrize(
    "result, shown",
    [
        (np.int64(3), 3), (np.float32(0.1), 0.1), (np.bool_(True), True), (np.str_("yes"), "yes"), (None, None),
        (np.array([1, 2], np.int32), [1, 2]), ({"head": np.array([0.5], np.float32)}, {"head": [0.5]}),
        (np.datetime64("2024-02-29"), "2024-02-29"),
    ],
)  # fmt: skip
def test_results_of_any_plain_type_become_json(served, result, shown):
    assert json.loads(served(lambda rows: [result for _ in rows]).predict([1]).data)["predictions"] == [shown]


def test_explain_tells_how_each_row_was_batched(served):
    server = served(max_batch_size=2)
    rows = server.predict([1], [2], [3], path="/predict?explain=1").json["batch"]
    assert [row["batch_size"] for row in rows] == [2, 2, 1]
    assert [row["flush_reason"] for row in rows] == ["size", "size", "latency"]
    assert rows[0]["batch_id"] == rows[1]["batch_id"] != rows[2]["batch_id"]
    for row in rows:
        assert row["queue_ms"] >= 0
        assert row["model_ms"] >= 0
        assert (row["padded_length"], row["padding_share"]) == (1, 0.0)
    assert "batch" not in server.predict([1]).json


@pytest.mark.parametrize("word", ["1", "true", "True", "TRUE", "t", "yes", "on", "0", "false", "no", "Off"])
@pytest.mark.parametrize("path", ["/predict", "/models/m/predict"])
def test_explain_is_switched_by_the_words_that_switch_a_setting(served, word, path):
    is_on = TypeAdapter(bool).validate_python(word)
    answer = served().predict([1], path=f"{path}?other=x&explain={word}")
    assert (answer.status_code, "batch" in answer.json) == (200, is_on)


@pytest.mark.parametrize("query", ["", "2", "ja", "tru%65!", "1&explain=1", "1&explain=0", "%FF", "marker"])
def test_explain_with_any_other_word_is_refused_before_the_model_runs(served, query):
    gate = Gate()
    gate.release.set()
    server = served(gate)
    answer = server.predict([1], path=f"/predict?explain={query}")
    assert (answer.status_code, gate.seen) == (422, [])
    (fault,) = answer.json["errors"]
    assert fault["loc"] == "explain"
    assert "one of 1, true, t, yes, y, on, or of 0, false, f, no, n, off" in fault["msg"]
    assert "marker" not in answer.text
    assert server.predict([1]).status_code == 200


def test_explain_counts_the_padding_of_a_batch(served):
    spec = TextInput(encode=lambda text: EncodedText(tuple(text.encode())))
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec), max_batch_size=2)
    rows = server.predict("a", "abc", path="/predict?explain=1").json["batch"]
    assert [(row["padded_length"], row["padding_share"]) for row in rows] == [(3, 0.3333), (3, 0.3333)]


def test_explain_counts_the_padding_to_a_multiple(served):
    spec = TextInput(encode=lambda text: EncodedText(tuple(text.encode())), pad_to_multiple_of=4)
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec), max_batch_size=2)
    rows = server.predict("a", "abc", path="/predict?explain=1").json["batch"]
    assert [(row["padded_length"], row["padding_share"]) for row in rows] == [(4, 0.5), (4, 0.5)]


def test_explain_counts_the_rows_that_packed_texts_share(served):
    spec = TextInput(encode=lambda text: EncodedText(tuple(text.encode())), packs=Packs.ROWS)
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec), max_batch_size=4)
    rows = server.predict("abcdef", "ab", "abc", "abcde", path="/predict?explain=1").json["batch"]
    assert [(row["batch_size"], row["padded_length"], row["padding_share"]) for row in rows] == [(4, 8, 0.0)] * 4


@pytest.mark.parametrize("one, other", [(1, True), (1, 1.0), (0.0, -0.0), (0, 0.0)])
def test_requests_whose_parameters_are_equal_to_python_alone_do_not_share_a_batch(served, one, other):
    seen: list[str] = []

    def model(rows, level=None):
        seen.append(repr((level, len(rows))))
        return [0 for _ in rows]

    server = served(
        ModelHandle.from_callable(model, name="m", parameters=["level"]), max_batch_size=8, max_batch_latency_ms=200
    )
    answers = [
        server.in_thread(lambda level=level: server.predict([1], parameters={"level": level})) for level in (one, other)
    ]
    assert [answer().status_code for answer in answers] == [200, 200]
    assert sorted(seen) == sorted([repr((one, 1)), repr((other, 1))])


@pytest.mark.parametrize("path", ["/predict", "/models/m/predict", "/models/m/versions/3/predict"])
def test_the_aliases_keep_the_same_contract(served, path):
    server = served()
    assert server.predict([1, 2], path=path).json["predictions"] == [3.0]
    assert server.predict([1, True], path=path).status_code == 422


@pytest.mark.parametrize(
    "path", ["/models/other/predict", "/models/m/versions/2/predict", "/models/other/versions/3/predict"]
)
def test_a_path_that_names_another_model_is_not_found(served, path):
    answer = served().predict([1], path=path)
    unknown = "version" if path.startswith("/models/m/") else "model"
    assert (answer.status_code, answer.json["title"]) == (404, f"Unknown {unknown}")


def test_probabilities_come_with_the_names_of_their_classes(served):
    def predict(rows, proba=False):
        return [[0.25, 0.75] if proba else 1 for _ in rows]

    handle = ModelHandle(
        name="m", version="1", fmt="callable", predict=predict, parameters=frozenset({"proba"}),
        metadata={"classes": ["no", "yes"]},
    )  # fmt: skip
    server = served(handle)
    assert server.predict([1], parameters={"proba": True}).json["classes"] == ["no", "yes"]
    assert server.predict([1], parameters={"proba": True}).json["predictions"] == [[0.25, 0.75]]
    assert "classes" not in server.predict([1], parameters={"proba": False}).json
    assert server.predict([1], parameters={"proba": 1}).status_code == 422
    assert server.predict([1], parameters={"proba": [1]}).status_code == 422


def test_a_model_of_rows_refuses_the_short_form_for_texts(served):
    answer = served(sums).client.post("/predict", json={"text": "x"})
    assert (answer.status_code, answer.json["errors"][0]["loc"]) == (422, "text")


def test_rows_of_one_request_must_be_alike_in_shape(served):
    spec = TensorInput(shape=(None,), dtype="float32")
    server = served(ModelHandle.from_callable(lambda rows: [row.sum() for row in rows], name="m", input=spec))
    answer = server.predict([1], [1, 2])
    assert (answer.status_code, answer.json["errors"][0]["loc"]) == (422, "instances[1]")
    assert server.predict([1, 2]).json["predictions"] == [3.0]


@pytest.mark.parametrize("count", [1, 3])
def test_a_function_may_answer_with_one_array_per_head(served, count):
    def heads(rows):
        return {"sum": np.array([row.sum() for row in rows]), "first": [row[0] for row in rows]}

    answer = served(ModelHandle.from_callable(heads, name="m")).predict(*[[number, 1] for number in range(count)])
    assert answer.json["predictions"] == [{"sum": number + 1, "first": number} for number in range(count)]


def test_heads_of_the_wrong_length_are_the_models_fault(served):
    model = ModelHandle.from_callable(lambda rows: {"a": [1, 2, 3], "b": [1]}, name="m")
    assert served(model).predict([1], [2]).status_code == 500
