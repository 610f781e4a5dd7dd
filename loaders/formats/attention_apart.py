"""Attention in one row of several texts, each by itself: nothing is computed that a mask would hide."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from loaders.dependencies import require

_NAME = "jitney_apart"


def attend_apart(torch: ModuleType, model: Any) -> None:
    """Let the attention of a transformers model take as its mask how many tokens of the row each text has.

    Such a mask is an int64 tensor (1, 1, 1, texts): so it is handed on unchanged, as masks of four dimensions are. With
    any other the model works as with torch's own attention. Nothing is dropped out and no text is causal, as in an
    encoder that predicts.
    """
    attention = require("transformers.modeling_utils", extra="transformers").ALL_ATTENTION_FUNCTIONS
    masks = require("transformers.masking_utils", extra="transformers").ALL_MASK_ATTENTION_FUNCTIONS
    together, attend = attention["sdpa"], torch.nn.functional.scaled_dot_product_attention

    def apart(
        module: Any, query: Any, key: Any, value: Any, mask: Any, *, scaling: float | None = None, **named: Any
    ) -> Any:
        if mask is None or mask.dtype != torch.int64:
            return together(module, query, key, value, mask, scaling=scaling, **named)
        lengths = mask.flatten().tolist()
        texts = zip(*(part.split(lengths, dim=2) for part in (query, key, value)), strict=True)
        return torch.cat([attend(*text, scale=scaling).transpose(1, 2) for text in texts], dim=1), None

    attention.register(_NAME, apart)
    masks.register(_NAME, masks["sdpa"])
    model.set_attn_implementation(_NAME)
