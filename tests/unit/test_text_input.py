from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.signature import EncodedText, TextInput
from service.errors import InvalidInput, TooLarge
from service.inputs import InputLimits, PreparedRow, prepare

LIMITS = InputLimits(max_image_pixels=1000, max_text_chars=50)


def by_code_point(text: str) -> EncodedText:
    """A tokeniser of one token per code point, at most 8."""
    return EncodedText(tuple(map(ord, text[:8])), truncated=len(text) > 8)


def test_without_a_tokeniser_the_row_is_the_string():
    assert prepare(TextInput(), ["hello", ""], LIMITS) == [PreparedRow("hello"), PreparedRow("")]


def test_with_a_tokeniser_the_row_is_its_tokens_and_their_number():
    short, long = prepare(TextInput(encode=by_code_point), ["abc", "abcdefghij"], LIMITS)
    assert (short.payload.ids, short.length, short.truncated, short.shape_key) == ((97, 98, 99), 3, False, ())
    assert (long.length, long.truncated) == (8, True)


@pytest.mark.parametrize(
    "item, word", [(5, "a number"), (None, "null"), (["a"], "a list"), ({"b64": ""}, "an object"), (True, "a boolean")]
)
def test_what_is_no_string_is_refused_where_it_stands(item, word):
    with pytest.raises(InvalidInput) as caught:
        prepare(TextInput(), ["a", item], LIMITS)
    assert [(f.loc, f.msg) for f in caught.value.faults] == [("instances[1]", f"must be a string, not {word}")]


def test_a_blank_text_counts_like_any_other():
    rows = prepare(TextInput(encode=by_code_point), [" ", "\n\t"], LIMITS)
    assert [row.length for row in rows] == [1, 2]


def test_a_text_without_any_token_is_refused_where_it_stands():
    with pytest.raises(InvalidInput) as caught:
        prepare(TextInput(encode=by_code_point), ["a", ""], LIMITS)
    assert caught.value.faults[0].loc == "instances[1]"


@pytest.mark.parametrize(
    "text", ["good\0bad", "\u202eabc", "\x07", "e\u0301", "\U0001f468\u200d\U0001f469", "ไทย", "مرحبا"]
)
def test_control_characters_and_every_script_reach_the_model_unchanged(text):
    assert prepare(TextInput(), [text], LIMITS)[0].payload == text
    assert len(prepare(TextInput(encode=by_code_point), [text], LIMITS)[0].payload.ids) == len(text)


@pytest.mark.parametrize("text", ["\ud800", "a\udc00b"])
def test_half_a_surrogate_pair_is_refused(text):
    with pytest.raises(InvalidInput, match="surrogate"):
        prepare(TextInput(encode=by_code_point), [text], LIMITS)


def test_a_text_over_the_limit_is_refused_by_the_name_of_the_setting():
    assert prepare(TextInput(), ["x" * 50], LIMITS)
    with pytest.raises(TooLarge, match=r"instances\[1\].*MAX_TEXT_CHARS") as caught:
        prepare(TextInput(), ["x", "x" * 51], LIMITS)
    assert (caught.value.limit, caught.value.setting) == (50, "MAX_TEXT_CHARS")


def test_no_text_is_tokenised_when_one_of_them_is_refused():
    seen: list[str] = []

    def encode(text: str) -> EncodedText:
        seen.append(text)
        return EncodedText((1,))

    with pytest.raises(TooLarge):
        prepare(TextInput(encode=encode), ["a", "x" * 51], LIMITS)
    assert seen == []


@given(st.lists(st.text(max_size=60) | st.none() | st.integers() | st.lists(st.text(max_size=2)), min_size=1))
def test_any_list_gives_its_texts_or_a_refusal(instances):
    try:
        rows = prepare(TextInput(), instances, LIMITS)
    except (InvalidInput, TooLarge):
        return
    assert [row.payload for row in rows] == instances
