"""Flask's rules for URLs, without what they prepare for the day when a URL is built from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from werkzeug.routing import Rule

Builder = Callable[..., tuple[str, str]]


class BuiltWhenAsked(Rule):
    """A rule that is matched like any other, and learns to build URLs when it is first asked for one.

    Werkzeug compiles two functions for every rule of an app, which serve `url_for`. That is three quarters of what it
    costs to make an app; tests make thousands of apps and few URLs.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Builder:
        compiled = cache(partial(super()._compile_builder, append_unknown))

        def build(rule: Rule, /, **values: Any) -> tuple[str, str]:
            return compiled()(rule, **values)

        return build
