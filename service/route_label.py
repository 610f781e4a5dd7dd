"""What a route is called where requests are counted, logged and traced; imports nothing, as every side needs it."""

from __future__ import annotations

# What Jitney's own rules call a part of a path without a colon, for the map of URLs: `<plain_name:name>`.
PLAIN_NAME = "plain_name"

_OWN_CONVERTER = f"<{PLAIN_NAME}:"


def route_label(rule: str) -> str:
    """`rule`, as it is, but for how Jitney's own rules tell each other apart, which is nobody else's business."""
    return rule.replace(_OWN_CONVERTER, "<")
