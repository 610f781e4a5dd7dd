"""What a load is made of: when requests are due, and what they hold."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.bench import arrivals
from service.bench.bodies import json_body, read_bodies
from service.bench.mix import Mix


def test_constant_arrivals_are_equally_far_apart():
    assert list(arrivals.until(1.0, arrivals.constant(4))) == [0.0, 0.25, 0.5, 0.75]


def test_bursts_come_together_and_keep_the_rate():
    assert list(arrivals.until(2.0, arrivals.bursts(4, size=2))) == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.5, 1.5]


def test_poisson_arrivals_keep_the_rate_and_scatter_as_independent_callers_do():
    times = list(itertools.islice(arrivals.poisson(50, random.Random(1)), 20_000))
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert times[:10] == list(itertools.islice(arrivals.poisson(50, random.Random(1)), 10))


def test_recorded_arrivals_begin_at_zero_and_are_put_in_order(tmp_path):
    recorded = tmp_path / "times.txt"
    recorded.write_text("1000.5\n\n1000.25\n1002\n")
    assert arrivals.replay(recorded) == [0.0, 0.25, 1.75]
    recorded.write_text("2026-01-31T12:00:00.250+00:00\n2026-01-31T12:00:01+00:00\n")
    assert arrivals.replay(recorded) == [0.0, 0.75]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\nsoon\n", "line 2"),
        ("1\nnan\n", "line 2"),
        ("1\n1e400\n", "line 2"),
        ("0001-01-01T00:00:00\n", "line 1"),
        ("\n", "no times"),
        ("-1e308\n1e308\n", "milliseconds"),
        ("1764000000000\n1764000700000\n", "milliseconds"),
    ],
)
def test_recorded_arrivals_that_are_no_times_are_named(tmp_path, text, said):
    (tmp_path / "times.txt").write_text(text)
    with pytest.raises(ValueError, match=said):
        arrivals.replay(tmp_path / "times.txt")


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1), st.randoms())
def test_a_mix_draws_from_its_ranges_only(parts, rng):
    ranges = [(low, low + more) for low, more in parts]
    mix = Mix.parse(",".join(f"{low}-{high}" for low, high in ranges))
    size = mix.draw(rng)
    assert any(low <= size <= high for low, high in ranges)


def test_a_range_that_stands_twice_is_drawn_twice_as_often():
    rng = random.Random(0)
    drawn = [Mix.parse("1,1,8").draw(rng) for _ in range(3_000)]
    assert drawn.count(1) / drawn.count(8) == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("text", ["", "0", "4-2", "1,,2", "few", "-3"])
def test_a_mix_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="at least 1"):
        Mix.parse(text)


def test_bodies_are_read_line_by_line_with_their_rows(tmp_path):
    file = tmp_path / "bodies.jsonl"
    file.write_text('{"instances": [[1], [2]]}\n\n{"text": "schön"}\n')
    bodies = read_bodies(file)
    assert [(body.rows, body.payload.decode()) for body in bodies] == [
        (2, '{"instances": [[1], [2]]}'),
        (1, '{"text": "schön"}'),
    ]


def test_a_text_may_hold_what_unicode_takes_for_the_end_of_a_line(tmp_path):
    text = '{"text": "one\u2028two\x85three"}'
    (tmp_path / "bodies.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n")
    assert [body.payload.decode() for body in read_bodies(tmp_path / "bodies.jsonl")] == [text]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"text": "a"}\n{', "line 2 is not JSON"),
        ("[1]", 'line 1 must be an object with "instances"'),
        ('{"instances": []}', "line 1 must be"),
        ("\n", "no bodies"),
        ('{"instances": [[NaN]]}', "line 1 is not JSON"),
        ('{"text": "a"}\n{"text": "\\ud800"}', "line 2 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON"),
        ('{"text": 5}', "line 1 must be"),
    ],
)
def test_a_line_that_is_no_body_is_named(tmp_path, text, said):
    (tmp_path / "bodies.jsonl").write_text(text)
    with pytest.raises(ValueError, match=said):
        read_bodies(tmp_path / "bodies.jsonl")


def test_a_body_tells_its_rows():
    assert json_body({"instances": [1, 2, 3]}).rows == 3
