"""What all routes share: the blueprint with its error answers, and the runtime of the app."""

from __future__ import annotations

from flask import Blueprint, current_app
from werkzeug.exceptions import HTTPException

from service.errors import JitneyError
from service.http import problems
from service.http.paths import BLUEPRINT
from service.runtime import Runtime

blueprint = Blueprint(BLUEPRINT, "service")

blueprint.register_error_handler(JitneyError, problems.from_error)
blueprint.register_error_handler(HTTPException, problems.from_http_exception)
blueprint.register_error_handler(Exception, problems.from_surprise)


def runtime() -> Runtime:
    """The runtime of the app that answers this request, started."""
    here: Runtime = current_app.extensions["jitney"]
    here.ensure_started()
    return here
