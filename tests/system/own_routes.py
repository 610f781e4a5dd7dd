"""An app with a page of its own beside Jitney's routes: `gunicorn -c gunicorn.conf.py own_routes:app`."""

from __future__ import annotations

from flask import Flask

from loaders import ModelHandle
from loaders.signature import TabularInput
from service import Jitney

app = Flask("own_routes")
Jitney(app, model_handle=ModelHandle.from_callable(lambda rows: [0] * len(rows), name="m", input=TabularInput(width=2)))


@app.get("/page")
def page():
    return "a page"
