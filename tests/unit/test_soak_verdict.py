"""The soak finds what grows, and lets pass what only fluctuates."""

from __future__ import annotations

import os

import pytest

from benchmark.endurance.samples import Sample, before_and_after, growths, in_use, table


def samples(rss_kib=lambda _: 100_000, threads=lambda _: 80, files=lambda _: 30) -> list[Sample]:
    return [Sample(5.0 * n, rss_kib(n), threads(n), files(n), 0, 100 * n) for n in range(120)]


def test_what_stays_or_fluctuates_is_no_growth():
    assert growths(samples()) == []
    assert growths(samples(rss_kib=lambda n: 100_000 + 5000 * (n % 7), files=lambda n: 30 + n % 3)) == []


def test_what_the_warm_up_takes_is_no_growth():
    assert growths(samples(rss_kib=lambda n: min(100_000, 50_000 + 5000 * n), threads=lambda n: min(80, n * 10))) == []


@pytest.mark.parametrize(
    ("grown", "name"),
    [
        ({"rss_kib": lambda n: 100_000 + 400 * n}, "rss_kib"),
        ({"threads": lambda n: 80 + n // 5}, "threads"),
        ({"files": lambda n: 30 + n // 10}, "files"),
    ],
)
def test_what_grows_without_end_is_named(grown, name):
    (growth,) = growths(samples(**grown))
    assert growth.startswith(name)


def test_a_small_number_may_differ_by_a_few():
    assert growths(samples(threads=lambda n: 4 + (n > 60))) == []


def test_the_comparison_is_between_quarters_after_the_warm_up():
    assert before_and_after(samples(rss_kib=lambda n: n), "rss_kib") == (35.5, 107.5)


def test_the_table_ends_with_the_last_sample():
    lines = table(samples()).splitlines()
    assert len(lines) == 1 + 20 + 1
    assert lines[-1].split()[0] == "595"


def test_what_this_process_uses_can_be_read():
    rss_kib, threads, files = in_use(os.getpid())
    assert rss_kib > 1000
    assert threads >= 1
    assert files >= 3
