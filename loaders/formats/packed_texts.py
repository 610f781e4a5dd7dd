"""Encoders that compute several texts in one row: each has its own positions, and attends to itself only."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loaders.dependencies import require
from loaders.formats.attention_apart import attend_apart
from loaders.packing import Packing, Packs
from loaders.signature import EncodedText, TextInput

# Kinds of models, `config.model_type`, whose layers know where a token stands by its position embedding, or by how far
# it is from others, whose attention is masked by nothing but what is given, and whose heads read the first token.
KINDS = frozenset({"bert", "camembert", "distilbert", "electra", "ernie", "mpnet", "roberta", "xlm-roberta"})

# What a model is proved with: a text that fills its row, and two that share one with padding; or all in one.
_PROOF_LENGTHS = (12, 6, 4)
_PROOFS = {
    Packs.ROWS: Packing(2, 12, [(0, 0), (1, 0), (1, 6)]),
    Packs.ONE_ROW: Packing(1, 22, [(0, 0), (0, 12), (0, 18)]),
}

# How far the answer to a text may be from the one it gets alone, as a share of the largest number, for packing to count
# as right: rounding, of floats and of the shorter types.
_ROUNDING, _ROUNDING_OF_HALF = 1e-4, 0.03

# From this width on a call of attention for each text costs no more than a token or two.
_WIDE = 256


def is_known(config: Any) -> bool:
    """Whether models of that configuration are known to allow it, apart from the proof that each has to give."""
    return config.model_type in KINDS and not getattr(config, "is_decoder", False)


def ways_to_pack(torch: ModuleType, model: Any, text: TextInput, device: str) -> Sequence[Packs]:
    """The best first. A call of attention for each text spares what a mask would hide; but on a card, in a narrow
    model, or where several threads would share out each of these small calls, they take longer than that.
    """
    config = model.config
    is_one_thread = device == "cpu" and torch.get_num_threads() == 1
    is_wide = getattr(config, "hidden_size", 0) >= _WIDE
    has_sdpa = getattr(config, "_attn_implementation", None) == "sdpa"
    if is_one_thread and is_wide and has_sdpa and text.pad_to_multiple_of is None:
        return Packs.ONE_ROW, Packs.ROWS
    return (Packs.ROWS,)


class PackedArrays(NamedTuple):
    """What the model is given. `ids`, `positions`, `texts`: (rows, length); `firsts`: (texts,), where each text begins.

    `texts` has the number of the text that a token is of, and for padding the number of texts.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    texts: NDArray[np.int64]
    firsts: NDArray[np.int64]


class PackedTexts:
    """Runs the encoder of `model` on packed texts, and the model's head, if it has one, on what comes out.

    For one row the attention of `model` is changed for good, see `attend_apart`; for padded texts it works as before.
    packs: how the texts share rows. padding_position: None where positions count from 0. Else a padding token has this
    one, and the others count from the next one, as in the RoBERTa family.
    """

    def __init__(
        self,
        torch: ModuleType,
        model: Any,
        packs: Packs,
        *,
        classifies: bool,
        pad_id: int,
        padding_position: int | None,
    ) -> None:
        self._torch = torch
        self._packs = packs
        self._encoder = getattr(model, model.base_model_prefix) if classifies else model
        self._head = _head_of(model) if classifies else None
        self._takes_segments = "token_type_ids" in inspect.signature(self._encoder.forward).parameters
        self._pad_id = pad_id
        self._padding_position = padding_position
        if packs is Packs.ONE_ROW:
            attend_apart(torch, model)

    def arrays(self, rows: Sequence[EncodedText], packing: Packing) -> PackedArrays:
        """The texts where `packing` has them. An empty one is one padding token, as it is alone."""
        shape = packing.rows, packing.length
        arrays = PackedArrays(
            ids=np.full(shape, self._pad_id, dtype=np.int64),
            positions=np.full(shape, self._padding_position or 0, dtype=np.int64),
            texts=np.full(shape, len(rows), dtype=np.int64),
            firsts=np.array([row * packing.length + start for row, start in packing.places], dtype=np.int64),
        )
        for number, (text, (row, start)) in enumerate(zip(rows, packing.places, strict=True)):
            ids = np.array(text.ids or (self._pad_id,), dtype=np.int64)
            place = row, slice(start, start + len(ids))
            arrays.ids[place], arrays.texts[place] = ids, number
            arrays.positions[place] = self._positions(ids)
        return arrays

    def compute(self, ids: Any, positions: Any, texts: Any, firsts: Any) -> Any:
        """(texts, width) means over the tokens of each text, or (texts, classes) logits.

        The arrays as tensors on the device of the model.
        """
        segments = {"token_type_ids": self._torch.zeros_like(ids)} if self._takes_segments else {}
        mask = self._lengths(ids, firsts) if self._packs is Packs.ONE_ROW else self._mask(texts)
        output = self._encoder(input_ids=ids, position_ids=positions, attention_mask=mask, **segments)
        tokens = output.last_hidden_state.flatten(0, 1)
        if self._head is not None:
            return self._head(inputs_embeds=tokens[firsts][:, None]).logits
        tokens, owners = tokens.float(), texts.flatten()
        # One more than there are texts: it takes what is of the padding. Nothing here makes a card's caller wait.
        sums = tokens.new_zeros((len(firsts) + 1, tokens.shape[1])).index_add_(0, owners, tokens)
        counts = tokens.new_zeros(len(sums)).index_add_(0, owners, tokens.new_ones(len(owners)))
        return (sums / counts[:, None])[:-1]

    def _lengths(self, ids: Any, firsts: Any) -> Any:
        """What `attend_apart` asks for."""
        return self._torch.cat([firsts, firsts.new_tensor([ids.numel()])]).diff()[None, None, None]

    def _mask(self, texts: Any) -> Any:
        """(rows, 1, length, length): what attention adds; as yes and no, each layer would make numbers out of it."""
        is_other = (texts[:, :, None] != texts[:, None, :])[:, None]
        return is_other.new_zeros(is_other.shape, dtype=self._encoder.dtype).masked_fill_(is_other, float("-inf"))

    def _positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._padding_position is None:
            return np.arange(len(ids))
        # These models do not count tokens that look like padding, wherever they stand.
        counted = ids != self._padding_position
        positions: NDArray[np.int64] = np.cumsum(counted) * counted + self._padding_position
        return positions


def answers_alike(
    alone: Callable[[list[EncodedText]], NDArray[Any]],
    together: Callable[[list[EncodedText], Packing], NDArray[Any]],
    way: Packs,
    tokens: int,
    *,
    is_half: bool,
) -> bool:
    """Whether made-up texts get the same answers in rows that they share as each alone.

    tokens: how many the model knows. is_half: it computes in one of the 16-bit types. Raises what the model raises.
    """
    rng = np.random.default_rng(0)
    texts = [EncodedText(tuple(rng.integers(0, tokens, length).tolist())) for length in _PROOF_LENGTHS]
    expected = np.concatenate([alone([text]) for text in texts])
    given = together(texts, _PROOFS[way])
    rounding = _ROUNDING_OF_HALF if is_half else _ROUNDING
    return given.shape == expected.shape and bool(np.abs(given - expected).max() <= rounding * np.abs(expected).max())


def _head_of(model: Any) -> Any:
    """The model, but with what it is given as `inputs_embeds` in place of its encoder's output; weights are shared."""
    outputs = require("transformers.modeling_outputs", extra="transformers")
    name = model.base_model_prefix
    pooler = getattr(getattr(model, name), "pooler", None)

    def given(*_: Any, inputs_embeds: Any, **__: Any) -> Any:
        pooled = None if pooler is None else pooler(inputs_embeds)
        return outputs.BaseModelOutputWithPooling(last_hidden_state=inputs_embeds, pooler_output=pooled)

    head = copy.copy(model)
    head._modules = {key: module for key, module in model._modules.items() if key != name}
    head.__dict__[name] = given
    return head
