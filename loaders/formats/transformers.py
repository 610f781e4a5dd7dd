"""Hugging Face directories: sequence classification, or one embedding per text."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from loaders.dependencies import require
from loaders.errors import ModelLoadError
from loaders.formats.packed_texts import PackedTexts, answers_alike, is_known, ways_to_pack
from loaders.formats.text import mean_pooled, of_length_1, pad, text_input
from loaders.formats.torch_runtime import declared_dtype, free, run_on, torch_on
from loaders.handle import ModelHandle
from loaders.packing import Packing, Packs
from loaders.signature import EncodedText, OutputSpec, TextInput

_log = logging.getLogger("jitney")

# Nothing is fetched, no code of the directory is run, and weights come from safetensors only.
_LOCAL = {"local_files_only": True, "trust_remote_code": False}

# What a model is given of a batch; the last only where it takes it.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class TransformersLoader:
    """Loads a local directory with config.json, model.safetensors and a fast tokenizer."""

    fmt: ClassVar[str] = "transformers"

    def load(self, path: Path, *, name: str, version: str, metadata: Mapping[str, Any] | None = None) -> ModelHandle:
        """The model as a handle; an `EncodedText` is a row.

        Raises `ModelLoadError` when weights are missing: they would be random.
        """
        metadata = metadata or {}
        if not (path / "config.json").is_file():
            raise ModelLoadError(f"{path.name!r} is not a Hugging Face directory: it has no config.json")
        transformers = require("transformers", extra="transformers")
        torch, device = torch_on(str(metadata.get("device", "auto")), metadata.get("instances", 1))
        transformers.utils.logging.disable_progress_bar()
        config = transformers.AutoConfig.from_pretrained(str(path), **_LOCAL)
        classifies = any("ForSequenceClassification" in kind for kind in config.architectures or ())
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(path), **_LOCAL)
        _check_tokenizer(tokenizer, path)
        auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModel
        model, report = auto.from_pretrained(str(path), use_safetensors=True, output_loading_info=True, **_LOCAL)
        _check_complete(report, classifies, path)
        embeddings = model.get_input_embeddings().num_embeddings
        if len(tokenizer) > embeddings:
            # Met in a request, such a token is an index error, or on a GPU the end of the process.
            raise ModelLoadError(
                f"{path.name!r}: the tokenizer knows {len(tokenizer)} tokens, but the model only {embeddings}"
            )

        pad_id = _pad_id(tokenizer, config)
        if model.config.pad_token_id is None:
            # Models that read the last token need to know which tokens are padding.
            model.config.pad_token_id = pad_id
        # Half precision makes a row's answer depend on its neighbours by more than 1e-4, so it has to be asked for.
        model = model.to(declared_dtype(metadata, torch) or torch.float32).eval().to(device)
        text = text_input(tokenizer.backend_tokenizer, metadata, [_positions(model), tokenizer.model_max_length])
        segments = "token_type_ids" in tokenizer.model_input_names
        takes_segments = segments and "token_type_ids" in inspect.signature(model.forward).parameters
        is_compiled = bool(metadata.get("model", {}).get("compile"))
        if is_compiled:
            # One program for all lengths and batch sizes; made at the first batch, which is the warm-up's.
            model = torch.compile(model, dynamic=True)
        predict = _Texts(torch, model, device, text, pad_id, takes_segments, classifies)
        if metadata.get("pack") and not is_compiled and is_known(config):
            text = predict.packing_from_now_on(ways_to_pack(torch, model, text, device))
        return ModelHandle(
            name=name,
            version=version,
            fmt=self.fmt,
            predict=predict,
            input=text,
            output=_output(config) if classifies else OutputSpec(task="embedding"),
            path=path,
            device=device,
            metadata={**metadata, "score_counts": (config.num_labels,)} if classifies else metadata,
            warnings=() if classifies else _pooling_notes(path),
            release=predict.close,
            is_thread_safe=device != "cpu",  # there a `CudaPipeline` runs it
        )


class _Texts:
    """Pads a batch to its own longest text, or packs it, and runs the model."""

    def __init__(
        self,
        torch: ModuleType,
        model: Any,
        device: str,
        text: TextInput,
        pad_id: int,
        takes_segments: bool,
        classifies: bool,
    ) -> None:
        self._torch = torch
        self._model = model
        self._device = device
        self._run_on = run_on(torch, device)
        self._text = text
        self._pad_id = pad_id
        self._takes_segments = takes_segments
        self._classifies = classifies
        self._packed: PackedTexts | None = None
        self._independent_labels = getattr(model.config, "problem_type", None) == "multi_label_classification"

    def __call__(self, rows: list[EncodedText]) -> NDArray[Any]:
        """(rows, classes) scores, (rows,) numbers of a regression, or (rows, width) embeddings of length 1; float32."""
        if self._packed is None or len(rows) == 1:
            return self._alone(rows)
        packing = self._text.packing([len(row.ids) or 1 for row in rows])
        if packing.rows == len(rows):
            return self._alone(rows)
        results = self._together(self._packed, rows, packing)
        # A text of whose numbers one is none makes none of whatever shares its row: no mask hides that.
        return results if np.isfinite(results).all() else self._alone(rows)

    def packing_from_now_on(self, ways: Sequence[Packs]) -> TextInput:
        """Pack texts in the first of these ways in which they get the answers that each gets alone; the input then."""
        for way in ways:
            try:
                packed = PackedTexts(
                    self._torch,
                    self._model,
                    way,
                    classifies=self._classifies,
                    pad_id=self._pad_id,
                    padding_position=_padding_position(self._model),
                )
                tokens = self._model.get_input_embeddings().num_embeddings
                is_half = self._model.dtype.itemsize < 4
                if answers_alike(self._alone, partial(self._together, packed), way, tokens, is_half=is_half):
                    self._packed, self._text = packed, replace(self._text, packs=way)
                    return self._text
                _log.warning("texts do not share %s: the model answers them otherwise than each alone", way)
            except Exception as error:
                _log.warning("texts do not share %s: the model does not take them so", way, exc_info=error)
        return self._text

    def _alone(self, rows: list[EncodedText]) -> NDArray[Any]:
        """Each text has a row."""
        length = self._text.padded_length(max(len(row.ids) for row in rows))
        ids, mask = pad(rows, length, self._pad_id)
        segments = [np.zeros_like(ids)] if self._takes_segments else []
        result = self._run_on(self._compute, ids, mask, *segments)
        return _without_one_column(result) if self._classifies else mean_pooled(result, mask)

    def _together(self, packed: PackedTexts, rows: list[EncodedText], packing: Packing) -> NDArray[Any]:
        """Texts share rows."""
        result = self._run_on(partial(self._compute_packed, packed), *packed.arrays(rows, packing))
        return _without_one_column(result) if self._classifies else of_length_1(result)

    def _compute(self, *tensors: Any) -> Any:
        output = self._model(**dict(zip(_INPUTS, tensors, strict=False)))
        return self._scores(output.logits) if self._classifies else output.last_hidden_state

    def _compute_packed(self, packed: PackedTexts, *tensors: Any) -> Any:
        result = packed.compute(*tensors)
        return self._scores(result) if self._classifies else result

    def _scores(self, logits: Any) -> Any:
        return logits.sigmoid() if self._independent_labels else logits

    def close(self) -> None:
        """Free the model and its device memory."""
        self._model = self._packed = None
        free(self._torch, self._device)


def _check_tokenizer(tokenizer: Any, path: Path) -> None:
    # Without its files, transformers makes an empty tokenizer to which every word is unknown.
    files = [str(file) for file in tokenizer.vocab_files_names.values()]
    if not any((path / file).is_file() for file in files):
        raise ModelLoadError(f"{path.name!r} has no tokenizer: none of {', '.join(files)} is there")
    if not getattr(tokenizer, "is_fast", False):
        raise ModelLoadError(f"{path.name!r} has no fast tokenizer (tokenizer.json), which threads can share")


def _check_complete(report: Mapping[str, Any], classifies: bool, path: Path) -> None:
    # Mean pooling leaves the pooler unused, and many embedding models are saved without one.
    missing = [str(key) for key in report["missing_keys"] if classifies or "pooler" not in str(key)]
    missing += [str(key) for key in report.get("mismatched_keys", ())]
    if missing:
        raise ModelLoadError(
            f"{path.name!r} lacks weights, which would be random: {', '.join(sorted(missing)[:5])}"
            f"{' and more' if len(missing) > 5 else ''}; save the fine-tuned model, head included"
        )


def _output(config: Any) -> OutputSpec:
    if config.num_labels == 1:
        return OutputSpec(task="regression")
    labels = tuple(str(config.id2label[number]) for number in range(config.num_labels))
    # Several labels may be true at once: their scores are probabilities of their own, which softmax would mix.
    softmax = config.problem_type != "multi_label_classification"
    return OutputSpec(task="classification", labels=labels, softmax=softmax)


def _pad_id(tokenizer: Any, config: Any) -> int:
    candidates = (tokenizer.pad_token_id, config.pad_token_id, tokenizer.eos_token_id)
    return next((int(candidate) for candidate in candidates if candidate is not None), 0)


def _positions(model: Any) -> int | None:
    """Tokens that the model has positions for, None where it does not say."""
    if (embedding := _counted_from_padding(model)) is not None:
        return int(embedding.num_embeddings) - int(embedding.padding_idx) - 1
    positions = getattr(model.config, "max_position_embeddings", None)
    return int(positions) if isinstance(positions, int) and positions > 0 else None


def _padding_position(model: Any) -> int | None:
    """The position of a padding token, where the model counts positions from the one after it."""
    embedding = _counted_from_padding(model)
    return None if embedding is None else int(embedding.padding_idx)


def _counted_from_padding(model: Any) -> Any:
    """The position embedding that has a padding's position, as those of the RoBERTa family have; None in others."""
    for module_name, module in model.named_modules():
        if module_name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return module
    return None


def _without_one_column(scores: NDArray[Any]) -> NDArray[Any]:
    return scores[:, 0] if scores.shape[1] == 1 else scores


def _pooling_notes(path: Path) -> tuple[str, ...]:
    """A note when sentence-transformers' own file asks for another pooling than the mean."""
    try:
        pooling = json.loads((path / "1_Pooling" / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    if pooling.get("pooling_mode_mean_tokens", pooling.get("pooling_mode") == "mean"):
        return ()
    return ("the model was trained with another pooling than the mean over its tokens, which is what is served here",)
