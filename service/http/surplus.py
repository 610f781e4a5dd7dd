"""Requests that have a thread only to be refused, because too many others wait already."""

from __future__ import annotations

from flask import Request, Response

from service.errors import JitneyError
from service.http import problems
from service.http.keys import Access, access_of
from service.http.paths import OWN_ENDPOINTS
from service.prediction import admit, no_room
from service.probe_paths import PROBE_PATHS
from service.runtime import Runtime


def refuse(request: Request, runtime: Runtime, ahead: int) -> Response | None:
    """The refusal of anything but a probe, in the words that the queue itself refuses with; None for a probe.

    What a probe is, the rule of the URL decides, and nothing else that the request says of itself. An app's own pages
    are refused like predictions: they would hold a thread that others need to be told at once. Only what asks a model
    is counted as a rejection of that model. ahead: how many rows and requests wait.
    """
    rule, arguments = request.url_rule, request.view_args or {}
    is_own = rule is not None and rule.endpoint.startswith(OWN_ENDPOINTS)
    if is_own and rule is not None and rule.rule in PROBE_PATHS:
        return None
    try:
        if is_own and rule is not None and _asks_model(rule.endpoint, request.method):
            admit(runtime, arguments.get("name"), arguments.get("version"), was_accepted=False, ahead=ahead)
        raise no_room(runtime, ahead)
    except JitneyError as error:
        return problems.from_error(error)


def _asks_model(endpoint: str, method: str) -> bool:
    return method == "POST" and access_of(endpoint, reads=False) is Access.INFERENCE
