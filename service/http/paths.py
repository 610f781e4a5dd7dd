"""Which paths are Jitney's, in an app that may have others."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from flask import Flask
from werkzeug.routing import BaseConverter

# The endpoints of Jitney's rules begin so.
BLUEPRINT = "jitney"
OWN_ENDPOINTS = f"{BLUEPRINT}."

# Options of a rule, whatever the app's own map says: paths match exactly, because a redirect would make clients
# repeat a POST as a GET.
EXACT: dict[str, Any] = {"merge_slashes": False, "strict_slashes": True}


# As a converter of the map of URLs: `<plain_name:name>`.
PLAIN_NAME = "plain_name"

_VARIABLE = re.compile(r"<[^>]*>")


class PlainName(BaseConverter):
    """A part of a path without a colon: what stands behind one is a verb, and only the rule of that verb answers."""

    regex = "[^/:]+"
    part_isolating = True


class OwnPaths:
    """The paths of Jitney's rules and everything under them, with any number of slashes in the place of one."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def include(self, path: str) -> bool:
        """Whether a path that matches no rule is for Jitney to answer."""
        rules = tuple(rule.rule for rule in self._app.url_map.iter_rules() if rule.endpoint.startswith(OWN_ENDPOINTS))
        return _pattern(rules).fullmatch(path) is not None


@lru_cache(maxsize=16)
def _pattern(rules: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("(?:" + "|".join(map(_of_rule, rules)) + ")(?:/.*)?", re.DOTALL)


def _of_rule(rule: str) -> str:
    """A part of the path that is a variable is any text between two slashes."""
    parts = (
        "".join("[^/]+" if _VARIABLE.fullmatch(text) else re.escape(text) for text in re.split(r"(<[^>]*>)", part))
        for part in rule.strip("/").split("/")
    )
    return "/+" + "/+".join(parts)
