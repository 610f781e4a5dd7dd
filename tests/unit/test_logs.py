from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from service.logs import (
    MAX_LINE_BYTES,
    MAX_MESSAGE_CHARS,
    MAX_TRACEBACK_CHARS,
    JsonLines,
    LogFormat,
    TextLines,
    is_request_logged,
    log_config,
    log_fields,
    log_request,
)

AT = datetime(2026, 3, 1, 12, 30, 5, 67_891, tzinfo=UTC).timestamp()
ANSWERED: dict[str, Any] = {
    "method": "POST",
    "route": "/predict",
    "status": 200,
    "duration_ms": 3.21549,
    "request_id": "abc-1",
    "client": "10.0.0.7",
    "rows": 2,
    "queue_ms": 0.51249,
    "model_ms": 1.5,
    "batch_sizes": (32, 8),
    "model": "digits",
    "version": "1",
}


def record(message: Any = "hello", *args: Any, error: BaseException | None = None, **values: Any) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("jitney", logging.INFO, "", 0, message, args, exc_info)
    made.created = AT
    made.__dict__.update(values)
    return made


def as_json(*args: Any, **kwargs: Any) -> dict[str, Any]:
    entry: dict[str, Any] = orjson.loads(JsonLines().format(record(*args, **kwargs)))
    return entry


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


class Unshowable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class NoClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:
        raise ValueError


class Lines(logging.Handler):
    """Keeps what would be written."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, made: logging.LogRecord) -> None:
        self.lines.append(self.format(made))


@pytest.fixture
def requests_log():
    """The log of requests with a handler of its own, at the level info."""
    log = logging.getLogger("jitney.request")
    lines = Lines(JsonLines())
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    log.propagate = False
    yield lines
    log.removeHandler(lines)
    log.setLevel(logging.NOTSET)
    log.propagate = True


def test_a_record_is_an_object_with_time_level_logger_and_message():
    assert as_json("%d rows", 3) == {
        "time": "2026-03-01T12:30:05.067Z",
        "level": "info",
        "logger": "jitney",
        "message": "3 rows",
    }


def test_an_error_is_told_with_its_traceback():
    entry = as_json("it failed", error=raised(KeyError("age")))
    assert entry["message"] == "it failed"
    assert entry["exception"].startswith("Traceback (most recent call last):")
    assert entry["exception"].endswith("KeyError: 'age'")


def test_of_a_long_traceback_both_ends_are_kept():
    told = as_json("x", error=raised(ValueError("a" * 100_000 + "the end")))["exception"]
    assert len(told) < MAX_TRACEBACK_CHARS + 100
    assert told.startswith("Traceback")
    assert "characters left out" in told
    assert told.endswith("the end")


def test_a_recursion_is_told_by_its_innermost_calls():
    def deeper(left: int) -> None:
        # Two by turns, which Python does not sum up as "previous line repeated".
        if left == 0:
            raise ValueError("the bottom")
        (deeper if left % 2 else (lambda n: deeper(n)))(left - 1)

    try:
        deeper(200)
    except ValueError as error:
        told = as_json("x", error=error)["exception"]
    assert "the bottom" in told
    assert told.count('File "') <= 40


@pytest.mark.parametrize(
    "text", ["a\nb", "a\r\nb", "a\x00b", "a\x1b[2Jb", "a\u2028b", "a\u202eb", 'a"}\n{"level": "critical', "é€😀"]
)
def test_no_text_ends_a_line_and_all_of_it_comes_back(text):
    line = JsonLines().format(record("%s", text))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == text


def test_half_a_surrogate_pair_does_not_make_json_that_strict_readers_refuse():
    assert as_json("a\ud800b \ud83d\ude00")["message"] == "a\ufffdb 😀"


@pytest.mark.parametrize("text", ["x" * 1_000_000, "é" * 1_000_000, "\x01" * 1_000_000, "😀" * 1_000_000])
def test_a_huge_message_is_cut_and_the_line_keeps_its_limit(text):
    error = raised(ValueError(text))
    line = JsonLines().format(record(text, error=error, fields={f"f{n}": text for n in range(3)}))
    assert len(line) <= MAX_LINE_BYTES
    assert "characters left out)" in orjson.loads(line)["message"]


def test_values_beside_a_message_give_way_when_the_line_has_no_room_for_them():
    line = JsonLines().format(record("kept", fields={f"f{n}": "x" * MAX_MESSAGE_CHARS for n in range(100)}))
    assert len(line) <= MAX_LINE_BYTES
    assert set(orjson.loads(line)) == {"time", "level", "logger", "message"}


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (record("%d rows", "three"), "%d rows"),
        (record(Unshowable()), "cannot be shown"),
        (record("%s", Unshowable()), "%s"),
        (record("kept", error=Unshowable()), "Unshowable"),
        (record("kept", error=NoClass()), "kept"),
        (record("kept", error=NoClass()), "NoClass, which cannot be shown"),
        (record("kept", fields={"a": Unshowable()}), "kept"),
        (record("kept", fields={"a": 10**5000}), "kept"),
        (record("kept", fields={"a": float("nan"), "b": [float("inf")]}), "kept"),
        (record("kept", fields="none"), "kept"),
        (record("kept", created=float("inf")), "cannot be shown"),
    ],
)
def test_a_record_that_is_broken_still_gives_a_line(formatter, made, kept):
    line = formatter.format(made)
    assert kept in line
    if isinstance(formatter, JsonLines):
        orjson.loads(line)


@pytest.mark.parametrize("message", ["plain", "é"])
def test_numbers_that_json_lacks_are_told_in_words(message):
    entry = as_json(message, fields={"a": float("nan"), "b": [float("-inf")], "c": 2**70, "d": 2**53})
    assert (entry["a"], entry["b"], entry["d"]) == ("nan", ["-inf"], 2**53)
    assert "too long" in entry["c"]


def test_values_beside_a_message_do_not_take_the_place_of_what_every_line_has():
    entry = as_json("true", fields={"message": "forged", "level": "critical", "rows": 3})
    assert (entry["message"], entry["level"], entry["rows"]) == ("true", "info", 3)


def test_for_people_values_stand_behind_the_message_quoted_where_they_need_it():
    line = TextLines().format(record("done", fields={"rows": 3, "model": "my model", "sizes": [3, 4], "none": ""}))
    assert line == '2026-03-01T12:30:05.067Z INFO jitney: done rows=3 model="my model" sizes=[3,4] none=""'


def test_a_request_is_one_line_with_all_that_is_known_of_it(requests_log):
    log_request(**ANSWERED)
    (line,) = requests_log.lines
    entry = json.loads(line)
    assert entry.pop("time")
    assert entry == {
        "level": "info",
        "logger": "jitney.request",
        "message": "POST /predict 200",
        "request_id": "abc-1",
        "method": "POST",
        "route": "/predict",
        "status": 200,
        "duration_ms": 3.215,
        "rows": 2,
        "queue_ms": 0.512,
        "model_ms": 1.5,
        "batch_sizes": [32, 8],
        "model": "digits",
        "version": "1",
        "client": "10.0.0.7",
    }


def test_what_is_not_known_of_a_request_is_left_out(requests_log):
    log_request(method="GET", route="unmatched", status=404, duration_ms=0.1, request_id="a")
    assert set(json.loads(requests_log.lines[0])) == {
        "time", "level", "logger", "message", "request_id", "method", "route", "status", "duration_ms"
    }  # fmt: skip


@pytest.mark.parametrize(
    "route", ["/healthz", "/livez", "/metrics", "/status.json", "/v2/health/live", "/v2/health/ready"]
)
def test_what_machines_ask_every_few_seconds_is_logged_at_the_level_debug_only(requests_log, route):
    log_request(**{**ANSWERED, "route": route})
    assert (requests_log.lines, is_request_logged(route)) == ([], False)
    logging.getLogger("jitney.request").setLevel(logging.DEBUG)
    log_request(**{**ANSWERED, "route": route})
    assert [json.loads(line)["level"] for line in requests_log.lines] == ["debug"]


def test_nothing_is_made_for_a_log_that_is_off(requests_log):
    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("looked at")

    log = logging.getLogger("jitney.request")
    log.setLevel(logging.WARNING)
    assert not is_request_logged("/predict")
    untouchable: Any = Untouchable()
    log_request(**{**ANSWERED, "duration_ms": untouchable})
    log_fields(log, logging.INFO, "never", untouchable)
    assert requests_log.lines == []


@pytest.mark.parametrize(("log_format", "starts"), [(LogFormat.JSON, '{"time":'), (LogFormat.TEXT, "20")])
def test_the_configuration_gives_every_logger_the_same_lines(log_format, starts):
    """In an interpreter of its own: the configuration is the whole process's."""
    code = f"""
import logging, logging.config
from service.logs import LogFormat, log_config
logging.config.dictConfig(log_config(LogFormat({str(log_format)!r}), "info"))
for name in ("jitney", "gunicorn.error", "anybody"):
    logging.getLogger(name).info("a\\nb")
    logging.getLogger(name).debug("not at this level")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(starts) for line in lines)


def test_the_level_of_the_configuration_is_the_one_that_is_set():
    assert log_config(LogFormat.TEXT, "warning")["root"]["level"] == "WARNING"
