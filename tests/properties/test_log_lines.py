"""Whatever a record holds, the log has one line for it."""

from __future__ import annotations

import logging

import orjson
from hypothesis import given
from hypothesis import strategies as st

from service.logs import MAX_LINE_BYTES, JsonLines, TextLines

# Every code point, halves of surrogate pairs too, and often those that matter to a line.
CHARACTERS = st.sampled_from('a "\\\n\r\t\0\x1b\x85\u2028\u202e\ud800\udfff😀=|') | st.integers(0, 0x10FFFF).map(chr)
TEXTS = st.text(CHARACTERS, max_size=60)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | TEXTS | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(TEXTS, VALUES, max_size=4)


def record(message: str, argument: str, logger: str, fields: dict[str, object], error: str | None) -> logging.LogRecord:
    exc_info = None
    if error is not None:
        exc_info = (ValueError, ValueError(error), None)
    made = logging.LogRecord(logger, logging.INFO, "", 0, message, (argument,), exc_info)
    made.fields = fields
    return made


@given(TEXTS, TEXTS, TEXTS, FIELDS, st.none() | TEXTS)
def test_whatever_is_logged_is_one_line_of_valid_json(message, argument, logger, fields, error):
    line = JsonLines().format(record(message, argument, logger, fields, error))
    assert line.isascii()
    assert "\n" not in line
    assert "\r" not in line
    assert len(line) <= MAX_LINE_BYTES
    # The strictest reader at hand: no NaN, no half of a surrogate pair.
    assert {"time", "level", "logger", "message"} <= orjson.loads(line).keys()


@given(TEXTS, FIELDS, st.none() | TEXTS)
def test_for_people_each_record_has_one_line_and_only_tracebacks_follow_it(message, fields, error):
    first, *others = TextLines().format(record("%s", message, "jitney", fields, error)).split("\n")
    assert first.isprintable()
    assert " INFO jitney: " in first
    assert all(line.startswith("  | ") and line.isprintable() for line in others)
    assert bool(others) == (error is not None)
