"""Binary data inside JSON: `{"b64": "..."}`."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from service.errors import InvalidInput
from service.inputs.rows import name_of_type

# RFC 2397, as browsers write it: `data:image/png;base64,`. A prefix is short; the bound keeps the search short too.
_DATA_URI = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)

_ALPHABET = "the alphabet is A-Z a-z 0-9 + / ="


def decode_base64(instance: Any, loc: str) -> bytes:
    """The bytes of `{"b64": "..."}`; never empty.

    The standard alphabet, with or without padding, line breaks and a data-URI prefix. Raises InvalidInput.
    """
    if type(instance) is not dict:
        raise InvalidInput.at(loc, f'must be an object {{"b64": "..."}}, not {name_of_type(instance)}')
    if instance.keys() != {"b64"}:
        raise InvalidInput.at(loc, 'must have the key "b64" and no other')
    loc += ".b64"
    text = instance["b64"]
    if type(text) is not str:
        raise InvalidInput.at(loc, f"must be a string, not {name_of_type(text)}")
    if prefix := _DATA_URI.match(text):
        text = text[prefix.end() :]
    text = text.replace("\r", "").replace("\n", "")
    if not text:
        raise InvalidInput.at(loc, "must not be empty")
    if not text.isascii():
        raise InvalidInput.at(loc, f"is not base64: it holds characters outside ASCII ({_ALPHABET})")
    if " " in text:
        raise InvalidInput.at(loc, "is not base64: it holds spaces; a + may have been lost in a form or query string")
    if "-" in text or "_" in text:
        raise InvalidInput.at(loc, f"is not base64: it uses the url-safe alphabet; here {_ALPHABET}")
    text = text.rstrip("=")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput.at(loc, f"is not base64: {_ALPHABET}") from error
    if not data:
        raise InvalidInput.at(loc, "must not be empty")
    if _is_base64_again(data):
        raise InvalidInput.at(loc, "is encoded twice: what it decodes to is base64 again")
    return data


def _is_base64_again(data: bytes) -> bool:
    # No picture consists of these characters alone: each type's first bytes are outside them.
    return len(data) >= 16 and re.fullmatch(rb"[A-Za-z0-9+/\r\n]+={0,2}[\r\n]*", data) is not None
