"""Small models, and an app around one of them with a client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from flask import Flask
from flask.testing import FlaskClient

from loaders.handle import ModelHandle
from loaders.signature import ImageInput

GUARD_S = 5.0
POISON = 666
NOT_FINITE = 777


def sums(rows: list[Any]) -> list[float]:
    """Fails on a row that starts with POISON; NaN for one that starts with NOT_FINITE; else the row's sum."""
    if any(row[0] == POISON for row in rows):
        raise ValueError("/srv/secret/model.bin cannot take this row")
    return [float("nan") if row[0] == NOT_FINITE else float(row.sum()) for row in rows]


def mean_colour(rows: list[Any]) -> list[Any]:
    return [row.mean(axis=(1, 2)) for row in rows]


def upper(rows: list[str]) -> list[str]:
    return [row.upper() for row in rows]


SMALL_PICTURE = ImageInput(height=4, width=4)


class Gate:
    """A model that says when it is called and answers when it is let go; it records every row it saw."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.release = threading.Event()
        self.seen: list[float] = []

    def __call__(self, rows: list[Any]) -> list[float]:
        self.seen += [float(row[0]) for row in rows]
        self.started.set()
        assert self.release.wait(GUARD_S)
        return [float(row[0]) for row in rows]


class Served:
    """An app, a client for it, and its runtime."""

    def __init__(self, app: Flask) -> None:
        self.app = app
        self.client: FlaskClient = app.test_client()
        self.runtime = app.extensions["jitney"]
        self._threads: list[threading.Thread] = []

    def predict(self, *rows: Any, path: str = "/predict", **more: Any) -> Any:
        """POST `rows` as instances; `more` are further keys of the body."""
        return self.client.post(path, json={"instances": list(rows), **more})

    def post(self, body: object, path: str = "/predict") -> Any:
        """POST a JSON body."""
        return self.client.post(path, json=body)

    def in_thread(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """Make a call in a thread of its own; the result is a function that waits for its answer."""
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(call()), name="caller")
        thread.start()
        self._threads.append(thread)

        def wait() -> Any:
            thread.join(GUARD_S)
            assert not thread.is_alive()
            return answers[0]

        return wait

    def wait_queued(self, rows: int) -> None:
        """Wait until so many rows are in the queue."""
        deadline = time.monotonic() + GUARD_S
        while self.runtime.status().queued < rows:
            assert time.monotonic() < deadline, self.runtime
            time.sleep(0.001)

    def metric(self, line_start: str) -> float:
        """The value of the one line of `/metrics` that starts so; 0 when there is none."""
        text = self.client.get("/metrics").text
        values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(line_start)]
        assert len(values) <= 1, values
        return float(values[0]) if values else 0.0

    def close(self) -> None:
        assert self.runtime.close(GUARD_S)
        for thread in self._threads:
            thread.join(GUARD_S)
            assert not thread.is_alive()


def as_handle(model: ModelHandle | Callable[..., Any]) -> ModelHandle:
    return model if isinstance(model, ModelHandle) else ModelHandle.from_callable(model, name="m", version="3")
