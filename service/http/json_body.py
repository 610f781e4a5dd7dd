"""From the bytes of a body to the JSON document in them; one way to read it, for every protocol."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import orjson

from service.errors import InvalidInput, MalformedBody
from service.inputs.json_text import refuse_if_costly
from service.inputs.nesting import refuse_if_deep, too_deep

# An integer beyond 64 bits has 20 digits or more, or 19 and a sign.
_LONG_INTEGER = re.compile(rb"(?<![0-9.eE+-])(?:-[0-9]|[0-9]{2})[0-9]{18}")

T = TypeVar("T")

Translate = Callable[[dict[str, Any], Callable[[], T] | None], T]


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


def read_object(data: bytes, max_instances: int, example: str, translate: Translate[T]) -> T:
    """What `translate(document, reread)` makes of the JSON object in `data`.

    reread: gives the same with integers beyond 64 bits as they were sent, where the document has the floats next to
    them; None the second time. example: what a body looks like, for those who sent no object.
    Raises MalformedBody, TooLarge, and what `translate` raises.
    """
    document = parse_json(data, max_instances)
    try:
        return translate(_object(document, example), lambda: _reread(data, document, translate))
    except InvalidInput:
        refuse_if_deep(document)
        raise


def _reread(data: bytes, document: dict[str, Any], translate: Translate[T]) -> T:
    if _LONG_INTEGER.search(data):
        refuse_if_deep(document)
        try:
            document = json.loads(data)
        except ValueError as error:
            raise MalformedBody("the body has an integer of too many digits") from error
    return translate(document, None)


def _object(document: Any, example: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidInput.at("", f"the body must be a JSON object, e.g. {example}")
    return document
