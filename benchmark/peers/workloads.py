"""The three things that every server is asked to do, and what all of them are given to do it with."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from service.bench.made import text_of

# Different inputs in turns, so that nothing can be answered from a cache, and texts of all lengths meet.
INPUTS = 64
SHORT_TEXTS = 0.7
SHORT_WORDS, LONG_WORDS = (5, 15), (60, 120)

# A photo of this width at this quality has about 30 KB.
PHOTO_WIDTH_PX = 400
PHOTO_QUALITY = 82

Input = list[float] | str | bytes


@dataclass(frozen=True, slots=True)
class Workload:
    """`native_threads`, `max_batch_size` and `window_ms`: the same for every server, unless its tuning says otherwise.

    tolerance: how far a number of an answer may be from the raw model's. seconds: how long a load lasts by default.
    """

    name: str
    title: str
    inputs: Callable[[], list[Input]]
    native_threads: int
    max_batch_size: int
    window_ms: float
    tolerance: float
    seconds: float


def _rows() -> list[Input]:
    from sklearn.datasets import load_digits

    rows = load_digits().data
    return [rows[number].tolist() for number in random.Random(0).sample(range(len(rows)), INPUTS)]


def _texts() -> list[Input]:
    rng = random.Random(0)
    return [
        text_of(rng.randint(*(SHORT_WORDS if rng.random() < SHORT_TEXTS else LONG_WORDS)), rng) for _ in range(INPUTS)
    ]


def _photos() -> list[Input]:
    """Cuts of scikit-learn's two photographs, each at another place."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = random.Random(0)
    photos = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    files: list[Input] = []
    for number in range(INPUTS):
        photo = photos[number % len(photos)]
        width = rng.randint(240, 400)
        height = round(width * rng.uniform(0.8, 1.0))
        left, top = rng.randint(0, photo.width - width), rng.randint(0, photo.height - height)
        cut = photo.crop((left, top, left + width, top + height))
        file = io.BytesIO()
        cut.resize((PHOTO_WIDTH_PX, PHOTO_WIDTH_PX * height // width)).save(file, "JPEG", quality=PHOTO_QUALITY)
        files.append(file.getvalue())
    return files


_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="tabular",
            title="One row of 64 numbers into a scikit-learn pipeline",
            inputs=_rows,
            # A batch takes a fraction of a millisecond: a second thread would only cost the handing over.
            native_threads=1,
            max_batch_size=32,
            window_ms=1.0,
            tolerance=1e-5,
            seconds=3.0,
        ),
        Workload(
            name="text",
            title="One text of mixed length into MiniLM",
            inputs=_texts,
            native_threads=_CORES,
            # Texts of all lengths are padded to the longest of a batch: larger batches give fewer texts per second.
            max_batch_size=8,
            window_ms=3.0,
            tolerance=1e-3,
            # Batches take up to half a second: of a short load, those that its end cuts off would be a good part.
            seconds=20.0,
        ),
        Workload(
            name="picture",
            title="One JPEG file of 30 KB into EfficientNet-Lite0",
            inputs=_photos,
            native_threads=_CORES,
            max_batch_size=8,
            window_ms=3.0,
            # Class numbers are compared too, and must be equal.
            tolerance=1e-3,
            seconds=10.0,
        ),
    )
}
