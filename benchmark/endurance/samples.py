"""What a process has in use over time, and whether it grows."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The first part of a run, in which caches fill and threads are made as they are first needed.
WARM_UP_SHARE = 0.2

# What may be more at the end than after the warm-up: a share of it, or so many where it is a small number.
GROWTH = 0.10
SMALL = 2

GROWING = ("rss_kib", "threads", "files")


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a process: resident memory, threads and open files; rows that wait, requests answered so far."""

    at_s: float
    rss_kib: int
    threads: int
    files: int
    queued: int
    requests: int


def in_use(pid: int) -> tuple[int, int, int]:
    """Resident memory (KiB), threads and open files of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return int(status["VmRSS"].split()[0]), int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd"))


def before_and_after(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """The medians of the first and the last quarter of what was sampled after the warm-up."""
    warm = [getattr(sample, name) for sample in samples[int(len(samples) * WARM_UP_SHARE) :]]
    quarter = max(1, len(warm) // 4)
    return statistics.median(warm[:quarter]), statistics.median(warm[-quarter:])


def growths(samples: Sequence[Sample]) -> list[str]:
    """What has grown by more than it may, as sentences; empty when nothing has."""
    found = []
    for name in GROWING:
        before, after = before_and_after(samples, name)
        if after > before + max(before * GROWTH, SMALL):
            found.append(f"{name} grew from {before:.0f} to {after:.0f}")
    return found


def table(samples: Sequence[Sample], every: int = 6) -> str:
    """Every so many samples, and the last one, as lines."""
    shown = [*samples[::every], *([] if len(samples) % every == 1 else samples[-1:])]
    lines = [f"{'s':>6}{'RSS MiB':>10}{'threads':>9}{'files':>7}{'queued':>8}{'requests':>10}"]
    lines += [
        f"{one.at_s:6.0f}{one.rss_kib / 1024:10.1f}{one.threads:9}{one.files:7}{one.queued:8}{one.requests:10}"
        for one in shown
    ]
    return "\n".join(lines)
