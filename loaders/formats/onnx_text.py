"""ONNX models that take tokens, with the tokenizer that lies beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.errors import ModelLoadError
from loaders.formats.rows import rows_by_name
from loaders.formats.text import mean_pooled, pad, read_tokenizer, text_input
from loaders.signature import EncodedText, TextInput

TOKEN_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class OnnxTexts:
    """Pads a batch to its own longest text, or to the length that the model was exported for, and runs it."""

    def __init__(self, session: Any, text: TextInput, pad_id: int, fixed_length: int | None, pools: bool) -> None:
        self._session: Any = session
        self._text = text
        self._pad_id = pad_id
        self._fixed_length = fixed_length
        self._pools = pools
        self._dtypes = {
            value.name: np.dtype(np.int32 if value.type == "tensor(int32)" else np.int64)
            for value in session.get_inputs()
        }
        self._outputs = [output.name for output in session.get_outputs()]

    def __call__(self, rows: list[EncodedText]) -> Any:
        """One result per text.

        An output per token is pooled when the bundle's task is "embedding"; else each text keeps the numbers of its
        own tokens, without those of the padding.
        """
        length = self._fixed_length or self._text.padded_length(max(len(row.ids) for row in rows))
        ids, mask = pad(rows, length, self._pad_id)
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        results = self._session.run(None, {name: arrays[name].astype(dtype) for name, dtype in self._dtypes.items()})
        outputs = {name: self._per_text(result, mask) for name, result in zip(self._outputs, results, strict=True)}
        return rows_by_name(outputs, len(rows))

    def close(self) -> None:
        """Free the session and its device memory."""
        self._session = None

    def _per_text(self, result: Any, mask: NDArray[np.int64]) -> Any:
        if np.ndim(result) != 3 or result.shape[:2] != mask.shape:
            return result
        if self._pools:
            return mean_pooled(result, mask)
        return [row[: int(own.sum())] for row, own in zip(result, mask, strict=True)]


def onnx_texts(session: Any, tokenizer: Path, metadata: Mapping[str, Any]) -> tuple[OnnxTexts, TextInput]:
    """The function that runs the session on `EncodedText` rows, and the input that encodes them."""
    backend = read_tokenizer(tokenizer)
    ids = next((value for value in session.get_inputs() if value.name == "input_ids"), None)
    if ids is None or len(ids.shape) != 2:
        raise ModelLoadError("a model that takes tokens needs an input 'input_ids' of shape [batch, length]")
    if isinstance(ids.shape[0], int):
        raise ModelLoadError(f"the model was exported for batches of exactly {ids.shape[0]} texts: export it again")
    fixed_length = ids.shape[1] if isinstance(ids.shape[1], int) else None
    # Read before `text_input` switches the tokenizer's own padding and truncation off.
    padding, truncation = backend.padding or {}, backend.truncation or {}
    text = text_input(
        backend, metadata, [fixed_length, truncation.get("max_length"), *_configured_limits(tokenizer.parent)]
    )
    if fixed_length is not None:
        text = replace(text, pad_to_multiple_of=fixed_length)
    pools = metadata.get("output", {}).get("task") == "embedding"
    predict = OnnxTexts(session, text, _pad_id(backend, padding), fixed_length, pools)
    return predict, text


def _pad_id(backend: Any, padding: Mapping[str, Any]) -> int:
    candidates = (padding.get("pad_id"), backend.token_to_id("[PAD]"), backend.token_to_id("<pad>"))
    return next((int(candidate) for candidate in candidates if candidate is not None), 0)


def _configured_limits(directory: Path) -> list[int | None]:
    """The longest text that the Hugging Face files beside the model allow, as far as they are there."""
    return [
        _integer(directory / "tokenizer_config.json", "model_max_length"),
        _integer(directory / "config.json", "max_position_embeddings"),
    ]


def _integer(file: Path, key: str) -> int | None:
    try:
        value = json.loads(file.read_text(encoding="utf-8")).get(key)
    except (OSError, ValueError, AttributeError):
        return None
    return int(value) if isinstance(value, int | float) else None
