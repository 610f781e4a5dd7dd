"""Texts: checked strings, tokenised on the request's thread when the model has a tokeniser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loaders.signature import TextInput
from service.errors import Fault, InvalidInput, TooLarge
from service.inputs.rows import PreparedRow, name_of_type, raise_if_any


def prepare(spec: TextInput, instances: list[Any], max_chars: int) -> list[PreparedRow]:
    """One row per text; its payload is EncodedText, or the string itself without `spec.encode`.

    The string reaches the tokeniser as it came: blanks, NUL and control characters included.
    max_chars: code points per text. All texts are checked before the first is tokenised.
    Raises InvalidInput for what is not a text, TooLarge for one that is too long.
    """
    raise_if_any(_faults(instances))
    for i, text in enumerate(instances):
        if len(text) > max_chars:
            raise TooLarge(f"the text of {len(text)} characters in instances[{i}]", max_chars, "MAX_TEXT_CHARS")
    if spec.encode is None:
        return [PreparedRow(text) for text in instances]
    rows = []
    for i, text in enumerate(instances):
        encoded = spec.encode(text)
        if not encoded.ids:
            raise InvalidInput.at(f"instances[{i}]", "holds nothing that the model's tokeniser knows")
        rows.append(PreparedRow(encoded, length=len(encoded.ids), truncated=encoded.truncated))
    return rows


def _faults(instances: list[Any]) -> Iterator[Fault]:
    for i, text in enumerate(instances):
        if type(text) is not str:
            yield Fault(f"instances[{i}]", f"must be a string, not {name_of_type(text)}")
        elif not _is_unicode(text):
            yield Fault(f"instances[{i}]", "holds half of a surrogate pair, which is no Unicode text")


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
