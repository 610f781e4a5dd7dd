"""The models that the comparisons serve, and the app around the one that BENCH_MODEL names.

Their weights are random, which costs what trained ones do, and nothing has to be fetched:

* `dense`: three layers of 1,024 numbers. One row has to read all 8 MB of weights, and so has a batch: its cost grows
  far slower than its rows.
* `decomposition`: the singular values of four 48 x 48 matrices for each row, one after the other. A batch costs what
  its rows cost alone: the case in which batching cannot pay.
* `transformer`: two layers, 128 wide, for texts of up to 128 words; padded to the longest text of a batch, or all to
  128 words where PAD_TO_MULTIPLE_OF=128.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import numpy as np

from loaders import ModelHandle
from loaders.signature import EncodedText, TabularInput, TextInput
from service import create_app

WIDTH = 64
MAX_WORDS = 128
_VOCABULARY = 4096


def dense() -> ModelHandle:
    rng = np.random.default_rng(0)
    shapes = [(WIDTH, 1024), (1024, 1024), (1024, 1024), (1024, 10)]
    layers = [rng.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[0]) for shape in shapes]

    def predict(rows: list[Any]) -> list[int]:
        batch = np.stack(rows)
        for layer in layers[:-1]:
            batch = np.maximum(batch @ layer, 0)
        return [int(score) for score in (batch @ layers[-1]).argmax(axis=1)]

    return ModelHandle.from_callable(predict, name="dense", input=TabularInput(width=WIDTH, dtype="float32"))


def decomposition() -> ModelHandle:
    bases = np.random.default_rng(0).standard_normal((4, 48, 48))

    def largest(row: Any) -> float:
        return max(np.linalg.svd(basis + np.resize(row, (48, 48)), compute_uv=False)[0] for basis in bases)

    def predict(rows: list[Any]) -> list[float]:
        return [round(float(largest(row)), 4) for row in rows]

    return ModelHandle.from_callable(predict, name="decomposition", input=TabularInput(width=WIDTH))


def transformer() -> ModelHandle:
    import torch

    torch.manual_seed(0)
    embed = torch.nn.Embedding(_VOCABULARY, 128)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    spec = TextInput(_encoded, MAX_WORDS, int(os.environ.get("PAD_TO_MULTIPLE_OF") or 1))

    @torch.inference_mode()
    def predict(rows: list[EncodedText]) -> list[float]:
        lengths = torch.tensor([len(row.ids) for row in rows])
        longest = spec.padded_length(int(lengths.max()))
        ids = torch.zeros(len(rows), longest, dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, : len(row.ids)] = torch.tensor(row.ids)
        is_padding = torch.arange(longest)[None] >= lengths[:, None]
        out = encoder(embed(ids), src_key_padding_mask=is_padding)
        return [float(value) for value in out[:, 0, :8].sum(dim=1)]

    return ModelHandle.from_callable(predict, name="transformer", input=spec)


def _encoded(text: str) -> EncodedText:
    words = text.split()
    ids = tuple(zlib.crc32(word.encode()) % _VOCABULARY for word in words[:MAX_WORDS])
    return EncodedText(ids or (0,), len(words) > MAX_WORDS)


MODELS = {"dense": dense, "decomposition": decomposition, "transformer": transformer}


def app() -> Any:
    return create_app(model_handle=MODELS[os.environ["BENCH_MODEL"]]())
