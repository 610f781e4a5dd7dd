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


_VARIABLE = re.compile(r"<[^>]*>")


class PlainName(BaseConverter):
    """A part of a path without a colon: what stands behind one is a verb, and only the rule of that verb answers."""

    regex = "[^/:]+"
    part_isolating = True


class OwnPaths:
    """The paths of Jitney's rules and everything under them, with any number of slashes in the place of one.

    Of a path that lies under a rule of Jitney's and under one of the app's, the longer rule decides whose it is, then
    the one that has more of it in so many words; where both say the same, it is the app's.
    """

    def __init__(self, app: Flask) -> None:
        self._app = app

    def include(self, path: str) -> bool:
        """Whether a path that matches no rule, or no method of one, is for Jitney to answer."""
        ours: list[str] = []
        theirs: list[str] = []
        for rule in self._app.url_map.iter_rules():
            (ours if rule.endpoint.startswith(OWN_ENDPOINTS) else theirs).append(rule.rule)
        return _closest(tuple(ours), path) > _closest(tuple(theirs), path)


def _closest(rules: tuple[str, ...], path: str) -> tuple[int, int]:
    """How many parts, and how many parts that are no variables, the rule has that leads to `path` or above it."""
    return max((rank for pattern, rank in _patterns(rules) if pattern.fullmatch(path)), default=(0, 0))


@lru_cache(maxsize=16)
def _patterns(rules: tuple[str, ...]) -> list[tuple[re.Pattern[str], tuple[int, int]]]:
    return [_of_rule(rule) for rule in dict.fromkeys(rules) if rule.strip("/")]


def _of_rule(rule: str) -> tuple[re.Pattern[str], tuple[int, int]]:
    """A part of the path that is a variable is any text between two slashes."""
    parts = rule.strip("/").split("/")
    texts = (
        "".join("[^/]+" if _VARIABLE.fullmatch(text) else re.escape(text) for text in re.split(r"(<[^>]*>)", part))
        for part in parts
    )
    literal = sum(_VARIABLE.search(part) is None for part in parts)
    return re.compile("/*" + "/+".join(texts) + "(?:/.*)?", re.DOTALL), (len(parts), literal)
