"""A Flask app that a team already has, with batching added in two ways.

1. `Jitney(app, ...)` adds the whole service: `POST /predict`, `/healthz`, `/livez`, `/metrics`.
2. A `ThreadedBatcher` of its own inside one of the app's views, for a function that is no model of the service.

    gunicorn -c gunicorn.conf.py --chdir examples existing_flask_app:app
    curl -s -H 'Content-Type: application/json' -d '{"instances": [[3, 4]]}' http://127.0.0.1:8000/predict
    curl -s http://127.0.0.1:8000/square/12
"""

from __future__ import annotations

import atexit

import numpy as np
from flask import Flask, jsonify

from loaders import ModelHandle
from service import Jitney, ThreadedBatcher

app = Flask(__name__)


@app.get("/")
def home() -> str:
    return "our own page, as before"


Jitney(app, model_handle=ModelHandle.from_callable(lambda rows: np.linalg.norm(np.stack(rows), axis=1), name="norm"))

squares = ThreadedBatcher(lambda rows: [row * row for row in rows], max_batch_latency_s=0.002, name="squares")
atexit.register(squares.close)


@app.get("/square/<int:number>")
def square(number: int):
    # Started at the first request, so that it belongs to the process that answers, not to one that forks.
    squares.start()
    squares.wait_started(5)
    return jsonify(square=squares.submit([number], timeout_s=1)[0])
