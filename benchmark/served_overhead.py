"""The apps whose requests are compared, and what those cost behind gunicorn, in the same worker class and in turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

from flask import Flask

from loaders import ModelHandle
from loaders.signature import TabularInput
from service import Settings, create_app
from service.bench.bodies import json_body
from service.bench.client import Client
from service.bench.measure import measure
from service.bench.own_server import own_server
from service.bench.pattern import Kind, Pattern

WIDTH = 64
ROW = [round(number * 0.37, 2) for number in range(WIDTH)]

BARE, OURS = "bare Flask route", "POST /predict"
CALLERS = (1, 32)

_APPS = {BARE: "served_overhead:bare_app()", OURS: "served_overhead:our_app()"}
_HERE = Path(__file__).parent


def bare_app() -> Flask:
    """The least that Flask answers a POST with."""
    app = Flask("bare")

    @app.post("/predict")
    def constant() -> bytes:
        return b'{"predictions":[0]}'

    @app.get("/healthz")
    def ready() -> str:
        return "ready"

    return app


def our_app(settings: Settings | None = None) -> Flask:
    """Jitney around a model that does nothing. settings: None for those of the environment."""
    model = ModelHandle.from_callable(lambda rows: [0] * len(rows), name="empty", input=TabularInput(width=WIDTH))
    return create_app(settings, model_handle=model)


def through_gunicorn(rounds: int, seconds: float) -> list[str]:
    """A table of what a request costs with one caller and with several. seconds: of each load in each round."""
    figures: dict[tuple[str, int], list[float]] = {key: [] for key in product(_APPS, CALLERS)}
    with ExitStack() as servers:
        clients = {name: servers.enter_context(_client(servers, app)) for name, app in _APPS.items()}
        for _, (name, callers) in product(range(rounds), figures):
            figures[name, callers].append(_cpu_us(clients[name], callers, seconds))
    return list(_table(figures))


def _client(servers: ExitStack, app: str) -> Client:
    path = os.pathsep.join([str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")])
    url = servers.enter_context(own_server({"PYTHONPATH": path, "LOG_LEVEL": "info", "MODEL_PATH": ""}, app=app))
    return Client(url, connections=max(CALLERS))


def _cpu_us(client: Client, callers: int, seconds: float) -> float:
    bodies = [json_body({"instances": [ROW]})]
    measured = measure(client, bodies, Pattern(Kind.CLOSED, seconds, callers=callers), warm_up_s=seconds / 4)
    assert not measured.clients.errors, measured.clients.errors
    assert measured.cpu_ms_per_request is not None, "the CPU time of servers can be told on Linux only"
    return measured.cpu_ms_per_request * 1000


def _table(figures: dict[tuple[str, int], list[float]]) -> Iterator[str]:
    median = {key: statistics.median(values) for key, values in figures.items()}
    yield ""
    yield (
        "| through gunicorn, all processes | " + " | ".join(f"CPU µs per request, callers: {n}" for n in CALLERS) + " |"
    )
    yield "|---" * (len(CALLERS) + 1) + "|"
    for name in _APPS:
        yield f"| {name} | " + " | ".join(f"{median[name, callers]:.0f}" for callers in CALLERS) + " |"
    ratios = (median[OURS, callers] / median[BARE, callers] for callers in CALLERS)
    yield "| ratio | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |"
