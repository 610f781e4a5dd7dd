"""Sizes the numeric libraries' thread pools to the container; must run before numpy or torch is imported."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

# Each is read once, when its library is loaded.
POOL_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def size_thread_pools(cpus: int, processes: int = 1, environ: MutableMapping[str, str] = os.environ) -> int:
    """Give each of `processes` its share of `cpus`; what the operator has set already stays. Returns the share.

    The tokenizers' own thread pool is switched off: texts are tokenised one by one, on many request threads.
    """
    share = max(1, cpus // processes)
    asked = environ.get("OMP_NUM_THREADS")
    for variable in POOL_VARIABLES:
        environ.setdefault(variable, asked or str(share))
    environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return share
