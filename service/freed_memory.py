"""What the C library does with memory that has been freed: keep it for the next batch, or give it back each time."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

# Of glibc's `mallopt`. Source: malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8

_MIB = 1024 * 1024

# The longest block that glibc may take from what it keeps; longer ones are always got from the system and given back.
_LONGEST_KEPT_BYTES = 32 * _MIB

# How much it keeps that is free in a row. Four blocks of the longest: a layer's input, its output, and what is between.
_MOST_KEPT_BYTES = 4 * _LONGEST_KEPT_BYTES


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Have glibc keep up to 128 MiB that are free in a row for what is asked for next.

    What a batch computes with is freed at its end. Given back to the system it is got anew by the next batch, page by
    page, which took 8 to 20 % of the CPU time of a text model. For all threads together it is one heap: with one for
    each of them, as glibc has it by default, a whole one is given back as soon as it is free, and in all of them
    together much more would be kept.

    To be called when the process has one thread. False where the operator has set malloc up, or where there is no
    glibc; then nothing changes.
    """
    if "malloc" in environ.get("GLIBC_TUNABLES", "") or any(name.startswith("MALLOC_") for name in environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    settings = {
        _M_MMAP_THRESHOLD: _LONGEST_KEPT_BYTES,
        _M_TRIM_THRESHOLD: _MOST_KEPT_BYTES,
        _M_ARENA_MAX: 1,
    }
    return 0 not in [mallopt(name, value) for name, value in settings.items()]
