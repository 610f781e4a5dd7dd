"""The three models, as every server here runs them: the same files, the same steps, the same answers.

Imported by scripts that run in the environment of a peer, so it needs nothing of Jitney's. Where the steps run, on
which thread or in which process, is the server's own affair.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import orjson

MODELS = Path(os.environ.get("PEER_MODELS", "."))
WORKLOAD = os.environ.get("PEER_WORKLOAD", "tabular")
MAX_BATCH_SIZE = int(os.environ.get("PEER_MAX_BATCH_SIZE", "32"))
WINDOW_MS = float(os.environ.get("PEER_WINDOW_MS", "1"))
NATIVE_THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))

TOP = 5
MAX_TOKENS = 256


class Model(Protocol):
    """`decode` and `encode` are for one request and may run on any thread; `predict` takes one batch at a time."""

    # Numbers of an answer.
    width: ClassVar[int]

    def decode(self, body: bytes) -> Any: ...

    def item(self, value: Any) -> Any:
        """What `decode` makes of a body, for servers that have parsed it already."""

    def predict(self, items: Sequence[Any]) -> list[np.ndarray]:
        """A row of `width` numbers for each item."""


class Tabular:
    """64 numbers to the probabilities of ten digits."""

    width: ClassVar[int] = 10

    def __init__(self) -> None:
        import joblib

        self.pipeline = joblib.load(MODELS / "digits" / "model.joblib")

    def decode(self, body: bytes) -> np.ndarray:
        return self.item(orjson.loads(body)["features"])

    def item(self, value: Any) -> np.ndarray:
        return np.asarray(value, dtype=np.float64)

    def predict(self, items: Sequence[np.ndarray]) -> list[np.ndarray]:
        return list(self.pipeline.predict_proba(np.stack(items)))


class Text:
    """A text to an embedding of length 1, the mean over its tokens."""

    width: ClassVar[int] = 384

    def __init__(self) -> None:
        import torch
        from tokenizers import Tokenizer
        from transformers import AutoModel

        torch.set_num_threads(NATIVE_THREADS)
        self.torch = torch
        self.tokenizer = Tokenizer.from_file(str(MODELS / "minilm" / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS)
        self.model = AutoModel.from_pretrained(str(MODELS / "minilm"), local_files_only=True).eval()

    def decode(self, body: bytes) -> list[int]:
        return self.item(orjson.loads(body)["text"])

    def item(self, value: str) -> list[int]:
        return self.tokenizer.encode(value).ids

    def predict(self, items: Sequence[list[int]]) -> list[np.ndarray]:
        longest = max(map(len, items))
        ids = np.zeros((len(items), longest), dtype=np.int64)
        mask = np.zeros((len(items), longest), dtype=np.int64)
        for row, tokens in enumerate(items):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        tensors = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        with self.torch.inference_mode():
            hidden = self.model(**{name: self.torch.from_numpy(array) for name, array in tensors.items()})
            weights = self.torch.from_numpy(mask)[..., None].float()
            mean = (hidden.last_hidden_state * weights).sum(1) / weights.sum(1)
            return list(self.torch.nn.functional.normalize(mean, dim=1).numpy())


class Picture:
    """A JPEG file to the five likeliest of a thousand classes: their five numbers, then their five probabilities."""

    width: ClassVar[int] = 2 * TOP
    side_px: ClassVar[int] = 224
    shorter_px: ClassVar[int] = 256

    def __init__(self) -> None:
        import onnxruntime
        from PIL import Image

        self.image = Image
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = NATIVE_THREADS
        options.inter_op_num_threads = 1
        # Threads that wait by spinning take the CPU from those that decode the next pictures.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = str(MODELS / "imagenet" / "model.onnx")
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def decode(self, body: bytes) -> np.ndarray:
        picture = self.image.open(io.BytesIO(body)).convert("RGB")
        # The middle of the picture with its shorter side scaled, without computing the rest of it.
        scale = self.shorter_px / min(picture.size)
        scaled = [round(side * scale) for side in picture.size]
        start = [round((side - self.side_px) / 2) for side in scaled]
        per_px = [side / new for side, new in zip(picture.size, scaled, strict=True)]
        box = [edge * per for edge, per in zip(start, per_px, strict=True)]
        box += [(edge + self.side_px) * per for edge, per in zip(start, per_px, strict=True)]
        centre = picture.resize((self.side_px, self.side_px), self.image.Resampling.BICUBIC, box=tuple(box))
        return np.ascontiguousarray(((np.asarray(centre, dtype=np.float32) - 127) / 128).transpose(2, 0, 1))

    item = decode

    def predict(self, items: Sequence[np.ndarray]) -> list[np.ndarray]:
        (logits,) = self.session.run(None, {"image": np.stack(items)})
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        best = np.argsort(-shares, axis=1)[:, :TOP]
        scores = np.take_along_axis(shares, best, axis=1)
        return list(np.concatenate([best.astype(np.float32), scores], axis=1))


_MODELS = {"tabular": Tabular, "text": Text, "picture": Picture}


def load(workload: str = WORKLOAD) -> Model:
    return _MODELS[workload]()


def encode(row: np.ndarray) -> bytes:
    return orjson.dumps({"values": np.ascontiguousarray(row)}, option=orjson.OPT_SERIALIZE_NUMPY)
