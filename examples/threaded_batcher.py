"""The batcher alone, in a program of your own: many threads, one function that likes batches.

python examples/threaded_batcher.py
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from service import ThreadedBatcher

sizes: Counter[int] = Counter()


def norms(rows: list[np.ndarray]) -> np.ndarray:
    """A model that costs nearly as much for one row as for thirty-two."""
    sizes[len(rows)] += 1
    time.sleep(0.002)
    return np.linalg.norm(np.stack(rows), axis=1)


def main() -> None:
    vectors = np.random.default_rng(0).normal(size=(1000, 64))
    with (
        ThreadedBatcher(norms, max_batch_size=32, max_batch_latency_s=0.005) as batcher,
        ThreadPoolExecutor(64) as clients,
    ):
        answers = list(clients.map(lambda vector: batcher.submit([vector], timeout_s=5)[0], vectors))
    assert np.allclose(answers, np.linalg.norm(vectors, axis=1))
    calls = sum(sizes.values())
    print(f"{len(vectors)} rows in {calls} calls, {len(vectors) / calls:.1f} rows per call; every answer is right")


if __name__ == "__main__":
    main()
