"""The scripted app behind a gateway that lets only those in who have the key."""

from __future__ import annotations

from flask import request
from scripted import app


@app.before_request
def ask_for_the_key():
    if request.path.endswith("/predict") and request.headers.get("X-API-Key") != "sesame":
        return {"title": "Key needed"}, 401
    return None
