"""Flask without batching: each request calls the model for itself."""

from __future__ import annotations

import work
from flask import Flask, Response, request

app = Flask(__name__)
model = work.load()


@app.post("/predict")
def predict() -> Response:
    (row,) = model.predict([model.decode(request.get_data())])
    return Response(work.encode(row), content_type="application/json")
