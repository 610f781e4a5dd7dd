"""From the bytes of a body to the JSON document in them; one way to read it, for every protocol."""

from __future__ import annotations

from typing import Any

import orjson

from service.errors import MalformedBody
from service.inputs.json_text import refuse_if_costly
from service.inputs.nesting import too_deep


def parse_json(data: bytes, max_instances: int) -> Any:
    """The document; it may still nest deeper than is allowed, which `refuse_if_deep` tells where something is wrong.

    max_instances: as MAX_INSTANCES sets it; text with many more values under one key is not parsed at all.
    Raises MalformedBody for what is no JSON, and what `refuse_if_costly` raises.
    """
    refuse_if_costly(data, max_instances)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("depth limit"):  # orjson's own, far above ours
            raise too_deep() from None
        raise MalformedBody(
            f"the body is not valid JSON in UTF-8 (line {error.lineno}, column {error.colno})"
        ) from None
