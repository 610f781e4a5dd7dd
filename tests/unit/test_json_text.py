from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidInput, MalformedBody, TooLarge
from service.inputs.json_text import MAX_CONTAINERS, MAX_KEYS, MAX_STRINGS, Shape, refuse_if_costly, shape_of

LETTERS = st.text(alphabet='a"\\,[]{}é\n', max_size=6)
DOCUMENTS = st.recursive(
    st.integers() | LETTERS | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(LETTERS, inner, max_size=4),
    max_leaves=20,
)


def shape_by_walking(document) -> Shape:
    level, depth, commas, containers = [document], 0, [0, 0], 0
    strings = int(type(document) is str)
    while level := [part for part in level if type(part) in (list, dict)]:
        depth += 1
        containers += len(level)
        if depth <= 2:
            commas[depth - 1] = sum(max(0, len(part) - 1) for part in level)
        strings += sum(len(part) for part in level if type(part) is dict)
        level = [child for part in level for child in (part.values() if type(part) is dict else part)]
        strings += sum(type(child) is str for child in level)
    return Shape(depth, (commas[0], commas[1]), containers, strings)


@given(DOCUMENTS, st.booleans(), st.sampled_from([1, 3, 1000]))
def test_the_shape_is_told_as_if_the_text_had_been_parsed(document, ascii_only, piece_bytes):
    text = json.dumps(document, ensure_ascii=ascii_only).encode()
    assert shape_of(text, piece_bytes) == shape_by_walking(document)


@given(st.binary(min_size=1, max_size=200))
def test_text_that_is_no_json_has_some_shape(data):
    assert shape_of(data).commas <= (len(data), len(data))


def many(text: bytes, count: int = 200_000) -> bytes:
    return b",".join([text] * count)


def test_a_body_with_very_many_keys_is_refused():
    with pytest.raises(InvalidInput, match=f"more than {MAX_KEYS} keys"):
        refuse_if_costly(b"{" + many(b'"k":1') + b"}", 1024)


@pytest.mark.parametrize("instance", [b'"a"', b'","', b'"\\""', b"[]", b"{}", b'{"b64":""}'])
def test_very_many_instances_are_refused_by_the_name_of_their_limit(instance):
    with pytest.raises(TooLarge, match=r"1024 \(MAX_INSTANCES\)"):
        refuse_if_costly(b'{"instances":[' + many(instance) + b"]}", 1024)
    refuse_if_costly(b'{"instances":[' + many(instance) + b"]}", 200_000)


def test_deep_text_is_refused_whatever_is_beside_it():
    with pytest.raises(MalformedBody, match="32 deep"):
        refuse_if_costly(b"[" * 33 + many(b'"a"') + b"]" * 33, 1024)
    refuse_if_costly(b"[" * 32 + many(b'"a"') + b"]" * 32, 1024)


def test_a_long_text_or_many_numbers_are_no_reason_to_refuse():
    refuse_if_costly(b'{"text":"' + many(b"a,[]{}") + b'"}', 1)
    refuse_if_costly(b'{"instances":[[' + many(b"1.5", 1_000_000) + b"]]}", 1)


@pytest.mark.parametrize("inner", [b"[],", b"{},", b"[[]],"])
def test_millions_of_small_containers_are_refused_wherever_they_are(inner):
    many_deep = b'{"instances": [[' + inner * MAX_CONTAINERS + b"0]]}"
    with pytest.raises(MalformedBody, match="more than 500000 arrays and objects"):
        refuse_if_costly(many_deep, 1024)


def test_containers_are_counted_outside_of_strings_only():
    refuse_if_costly(b'{"text": "' + b"[{" * MAX_CONTAINERS + b'"}', 1024)
    assert shape_of(b'{"a": [[1], {"b": "[[["}]}').containers == 4


@pytest.mark.parametrize("row", [b"[%s]", b"{%s}"])
def test_a_million_strings_and_more_in_one_row_are_refused_and_no_fewer(row):
    item = b'"a"' if row[:1] == b"[" else b'"a":1'
    refuse_if_costly(b'{"instances":[' + row % many(item, MAX_STRINGS - 1) + b"]}", 1024)
    with pytest.raises(MalformedBody, match=f"more than {MAX_STRINGS} strings"):
        refuse_if_costly(b'{"instances":[' + row % many(item, MAX_STRINGS) + b"]}", 1024)
