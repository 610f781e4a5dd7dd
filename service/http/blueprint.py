"""What all routes share: the blueprint with its error answers, and the runtime of the app."""

from __future__ import annotations

from flask import Blueprint, current_app
from werkzeug.exceptions import HTTPException

from service.errors import JitneyError
from service.http import problems
from service.http.paths import BLUEPRINT, PLAIN_NAME, PlainName
from service.runtime import Runtime

blueprint = Blueprint(BLUEPRINT, "service")

# Before any rule that uses it.
blueprint.record(lambda state: state.app.url_map.converters.update({PLAIN_NAME: PlainName}))
blueprint.register_error_handler(JitneyError, problems.from_error)
blueprint.register_error_handler(HTTPException, problems.from_http_exception)
blueprint.register_error_handler(Exception, problems.from_surprise)


def runtime() -> Runtime:
    """The runtime of the app that answers this request, started."""
    here: Runtime = current_app.extensions["jitney"]
    here.ensure_started()
    return here
