"""Histogram buckets."""

from __future__ import annotations

# Seconds. They tell batches of a tenth of a millisecond apart and reach past the default request timeout of 30 s.
SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
