"""Sizes the numeric libraries' thread pools to the container; must run before numpy or torch is imported."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

# Each is read once, when its library is loaded.
POOL_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def size_thread_pools(cpus: int, shares: int = 1, environ: MutableMapping[str, str] = os.environ) -> int:
    """Have the pools be one of `shares` equal shares of `cpus`; what the operator has set already stays. Returns it.

    shares: processes on these CPUs times the copies of a model that run side by side in each.

    The tokenizers' own thread pool is switched off: texts are tokenised one by one, on many request threads.
    """
    share = max(1, cpus // shares)
    asked = environ.get("OMP_NUM_THREADS")
    for variable in POOL_VARIABLES:
        environ.setdefault(variable, asked or str(share))
    environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return share
