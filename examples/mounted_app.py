"""A Flask app that a team already has, with its login and a blueprint, and predictions beside it under `/ml`.

gunicorn -c python:service.gunicorn_config --chdir examples mounted_app:app
curl -s -H 'Content-Type: application/json' -d '{"instances": [[3, 4]]}' http://127.0.0.1:8000/ml/predict
curl -s -H 'Authorization: Bearer team' http://127.0.0.1:8000/orders/12
"""

from __future__ import annotations

import numpy as np
from flask import Blueprint, Flask, abort, jsonify, request
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from loaders import ModelHandle
from service import create_app

orders = Blueprint("orders", __name__, url_prefix="/orders")


@orders.get("/<int:number>")
def order(number: int):
    return jsonify(order=number, state="packed")


app = Flask(__name__)
app.register_blueprint(orders)


@app.before_request
def check_login() -> None:
    # Holds for the team's own pages; what is under /ml has API_KEYS.
    if request.headers.get("Authorization") != "Bearer team":
        abort(401)


ml = create_app(
    model_handle=ModelHandle.from_callable(lambda rows: np.linalg.norm(np.stack(rows), axis=1), name="norm")
)
app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/ml": ml})  # type: ignore[method-assign]
