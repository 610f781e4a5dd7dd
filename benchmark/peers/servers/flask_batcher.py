"""Flask with a batcher as one writes it in an hour: a queue, a thread with the model, an event for each request."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import work
from flask import Flask, Response, request

PATIENCE_S = 60.0


@dataclass
class Job:
    item: Any
    done: threading.Event = field(default_factory=threading.Event)
    row: Any = None
    fault: Exception | None = None


def next_batch(jobs: queue.Queue[Job]) -> list[Job]:
    """The first that comes, and those that follow within the window."""
    batch = [jobs.get()]
    until = time.monotonic() + work.WINDOW_MS / 1000
    while len(batch) < work.MAX_BATCH_SIZE:
        left_s = until - time.monotonic()
        try:
            batch.append(jobs.get(timeout=left_s) if left_s > 0 else jobs.get_nowait())
        except queue.Empty:
            break
    return batch


def serve(jobs: queue.Queue[Job]) -> None:
    while True:
        batch = next_batch(jobs)
        try:
            for job, row in zip(batch, model.predict([job.item for job in batch]), strict=True):
                job.row = row
        except Exception as error:
            for job in batch:
                job.fault = error
        for job in batch:
            job.done.set()


app = Flask(__name__)
model = work.load()
waiting: queue.Queue[Job] = queue.Queue()
threading.Thread(target=serve, args=(waiting,), daemon=True).start()


@app.post("/predict")
def predict() -> Response:
    job = Job(model.decode(request.get_data()))
    waiting.put(job)
    if not job.done.wait(PATIENCE_S):
        return Response(status=504)
    if job.fault is not None:
        raise job.fault
    return Response(work.encode(job.row), content_type="application/json")
