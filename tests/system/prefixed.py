"""The scripted app under `/ml`, behind a proxy that takes the prefix away without a word to the service."""

from __future__ import annotations

from scripted import app as scripted_app

PREFIX = "/ml"


def app(environ, start_response):
    if not environ["PATH_INFO"].startswith(f"{PREFIX}/"):
        # What is asked for outside the prefix would go to another service, and here is a mistake.
        start_response("410 Gone", [("Content-Length", "0")])
        return []
    return scripted_app({**environ, "PATH_INFO": environ["PATH_INFO"].removeprefix(PREFIX)}, start_response)
