"""The service that one writes without Jitney: a Flask route that calls the model for each request.

One call at a time: calls of several threads at once fight for the same cores, and are many times slower.
"""

from __future__ import annotations

import os
import threading

import numpy as np
from flask import Flask, jsonify, request
from served_models import MODELS


def app() -> Flask:
    model = MODELS[os.environ["BENCH_MODEL"]]()
    flask = Flask("direct")
    one_at_a_time = threading.Lock()

    @flask.get("/healthz")
    def healthz() -> str:
        return "ready"

    @flask.post("/predict")
    def predict():
        rows = [np.array(row, dtype=np.float32) for row in request.get_json()["instances"]]
        with one_at_a_time:
            predictions = model.predict_batch(rows)
        return jsonify(predictions=predictions)

    return flask
