"""What all routes share: the blueprint with its error answers, and the runtime of the app."""

from __future__ import annotations

import logging
from typing import Any

from flask import Blueprint, current_app, request
from werkzeug.exceptions import HTTPException

from service.errors import JitneyError
from service.http import problems
from service.http.paths import BLUEPRINT, PlainName
from service.route_label import PLAIN_NAME
from service.runtime import Runtime

_log = logging.getLogger("jitney")

blueprint = Blueprint(BLUEPRINT, "service")

# Before any rule that uses it.
blueprint.record(lambda state: state.app.url_map.converters.update({PLAIN_NAME: PlainName}))
blueprint.register_error_handler(JitneyError, problems.from_error)
blueprint.register_error_handler(HTTPException, problems.from_http_exception)
blueprint.register_error_handler(Exception, problems.from_surprise)


def runtime() -> Runtime:
    """The runtime of the app that answers this request, started."""
    here: Runtime = current_app.extensions["jitney"]
    if here.ensure_started():
        warn_if_alone(request.environ)
    return here


def warn_if_alone(environ: dict[str, Any]) -> None:
    """Say so where gunicorn's sync worker, its default, hands over one request at a time."""
    if "gunicorn.socket" in environ and not environ.get("wsgi.multithread", True):
        _log.warning(
            "gunicorn's worker class serves one request at a time: no rows ever share a batch; "
            "start it with `gunicorn -c python:service.gunicorn_config`, or at least with -k gthread and --threads"
        )
