"""Attention in one row of several texts, each by itself: nothing is computed that a mask would hide."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

from loaders.dependencies import require

_NAME = "jitney_apart"


def attend_apart(torch: ModuleType, model: Any) -> None:
    """Let the attention of a transformers model take as its mask where in the row each text begins.

    Such a mask is an int64 tensor (1, 1, 1, texts + 1), of which the last number is the length of the row: so it is
    handed on unchanged, as masks of four dimensions are. With any other the model works as with torch's own attention.
    """
    attention = require("transformers.modeling_utils", extra="transformers").ALL_ATTENTION_FUNCTIONS
    masks = require("transformers.masking_utils", extra="transformers").ALL_MASK_ATTENTION_FUNCTIONS
    together = attention["sdpa"]

    def apart(module: Any, query: Any, key: Any, value: Any, mask: Any, *options: Any, **named: Any) -> Any:
        if mask is None or mask.dtype != torch.int64:
            return together(module, query, key, value, mask, *options, **named)
        bounds = mask.flatten().tolist()
        outputs = [
            together(module, *(part[:, :, start:end] for part in (query, key, value)), None, *options, **named)[0]
            for start, end in pairwise(bounds)
        ]
        return torch.cat(outputs, dim=1), None

    attention.register(_NAME, apart)
    masks.register(_NAME, masks["sdpa"])
    model.set_attn_implementation(_NAME)
