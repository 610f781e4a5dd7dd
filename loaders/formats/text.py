"""Texts for models that take tokens: encoded one by one on the request's thread, padded together on the worker's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.dependencies import require
from loaders.errors import ModelLoadError
from loaders.signature import EncodedText, TextInput

# transformers writes int(1e30) for "no limit"; no model takes a text this long.
_UNLIMITED_TOKENS = 1_000_000


def text_input(backend: Any, metadata: Mapping[str, Any], limits: Sequence[int | None]) -> TextInput:
    """The input of a model that takes tokens.

    backend: a `tokenizers.Tokenizer`, changed here for good. limits: tokens that model and tokenizer can take, None
    where they do not say. The bundle's `[input]` can only make the shortest of them shorter.
    """
    declared = metadata.get("input", {})
    known = [
        limit for limit in (*limits, declared.get("max_length")) if limit is not None and limit < _UNLIMITED_TOKENS
    ]
    max_length = min(known, default=None)
    return TextInput(
        encode=make_encoder(backend, max_length),
        max_length=max_length,
        pad_to_multiple_of=declared.get("pad_to_multiple_of") or metadata.get("pad_to_multiple_of"),
    )


def make_encoder(backend: Any, max_length: int | None) -> Encoder:
    """What tokenises one text, cut to `max_length` tokens, special tokens included.

    *Thread:* any, several at once: truncation and padding are set here, once. Setting them again while another
    thread encodes is what a shared tokenizer answers with "Already borrowed".
    """
    backend.no_padding()
    if max_length is None:
        backend.no_truncation()
    else:
        special = backend.num_special_tokens_to_add(False)
        if max_length <= special:
            raise ModelLoadError(
                f"[input] max_length: {max_length} tokens leave no room for a text beside {special} special tokens"
            )
        backend.enable_truncation(max_length)
    return Encoder(backend, max_length)


class Encoder:
    """Tokenises one text. It can be written down, and made anew in a process that has no model."""

    def __init__(self, backend: Any, max_length: int | None) -> None:
        self._backend = backend
        self.max_length = max_length

    def __call__(self, text: str) -> EncodedText:
        """The tokens of `text`. *Thread:* any, several at once."""
        encoding = self._backend.encode(text)
        return EncodedText(tuple(encoding.ids), truncated=bool(encoding.overflowing))

    def written(self) -> str:
        """The tokenizer as the text of a `tokenizer.json`."""
        return str(self._backend.to_str())


def encoder_from(written: str, max_length: int | None) -> Encoder:
    """The encoder that gave `written`."""
    return make_encoder(require("tokenizers", extra="transformers").Tokenizer.from_str(written), max_length)


def read_tokenizer(file: Path) -> Any:
    """The `tokenizers.Tokenizer` in a `tokenizer.json`; raises `ModelLoadError` when it cannot be read."""
    tokenizers = require("tokenizers", extra="transformers")
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:
        raise ModelLoadError(f"{file.name!r} is not a tokenizer: {error}") from error


def pad(rows: Sequence[EncodedText], length: int, pad_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask, both (len(rows), length); every text stands at the left.

    An empty text keeps one padding token that is attended to: a row with none at all has no defined attention.
    """
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), length), dtype=np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = row.ids
        mask[number, : max(1, len(row.ids))] = 1
    return ids, mask


def mean_pooled(tokens: NDArray[Any], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """One vector of length 1 per text: the mean over its own tokens.

    tokens: (rows, length, width). mask: (rows, length), 1 for a token, 0 for padding, at least one 1 in each row.
    """
    weights = mask[..., None].astype(np.float32)
    return of_length_1((tokens.astype(np.float32) * weights).sum(axis=1) / weights.sum(axis=1))


def of_length_1(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The directions of vectors (rows, width); one of length 0 stays as it is."""
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(norm, np.float32(1e-12))
    return scaled
