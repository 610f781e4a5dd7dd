"""Transformers that compute several texts in one row: each gets the answer that it gets alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from model_makers import MAX_POSITIONS, VOCABULARY, make_tokenizer

from loaders import EncodedText, ModelHandle, TextInput, load_model
from loaders.formats import packed_texts, transformers
from loaders.packing import Packs

SMALL = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.5,
    "pad_token_id": 0,
}
SMALL_DISTILBERT = SMALL | {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
KINDS = ["Bert", "Camembert", "DistilBert", "Electra", "Ernie", "MPNet", "Roberta", "XLMRoberta"]
HEADS = ["Model", "ForSequenceClassification"]


Make = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """A directory with a small model of a kind, its weights random."""

    def make(kind: str, head: str = "Model", **changes: Any) -> Path:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        sizes = SMALL_DISTILBERT if kind == "DistilBert" else SMALL
        transformers.set_seed(0)
        config = getattr(transformers, f"{kind}Config")(**(sizes | changes))
        directory = tmp_path / f"{kind}{head}"
        getattr(transformers, f"{kind}{head}")(config).save_pretrained(directory)
        make_tokenizer().save_pretrained(directory)
        return directory

    return make


def packs(handle: ModelHandle) -> Packs | None:
    assert isinstance(handle.input, TextInput)
    return handle.input.packs


def texts(*lengths: int, seed: int = 0) -> list[EncodedText]:
    """Of any tokens, padding too: a text may name it."""
    rng = random.Random(seed)
    return [EncodedText(tuple(rng.randrange(len(VOCABULARY)) for _ in range(length))) for length in lengths]


def answers(handle: ModelHandle, rows: list[EncodedText]) -> np.ndarray[Any, Any]:
    return np.array(handle.predict_batch(rows))


def answers_alone(handle: ModelHandle, rows: list[EncodedText]) -> np.ndarray[Any, Any]:
    return np.array([handle.predict_batch([row])[0] for row in rows])


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let models be packed in the first of these ways that suits them, whatever device and threads there are."""
    return lambda *ways: monkeypatch.setattr(transformers, "_ways_to_pack", lambda *_: ways)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", Packs)
def test_texts_that_share_rows_get_the_answers_of_each_alone(
    made: Make, tried: Callable[..., None], way: Packs, kind: str, head: str
) -> None:
    tried(way, Packs.ROWS)
    handle = load_model(made(kind, head), pack=True)
    assert packs(handle) is (Packs.ROWS if kind == "MPNet" else way), "the attention of MPNet is its own"
    rows = texts(20, 3, 0, 9, 1, 4, 2, 16, 5, 5, 7, 20)
    np.testing.assert_allclose(answers(handle, rows), answers_alone(handle, rows), atol=1e-5)


@pytest.mark.parametrize(
    ("device", "threads", "attention", "first"),
    [
        ("cpu", 1, "sdpa", Packs.ONE_ROW),
        ("cpu", 2, "sdpa", Packs.ROWS),
        ("cpu", 1, "eager", Packs.ROWS),
        ("cuda:0", 1, "sdpa", Packs.ROWS),
    ],
)
def test_texts_follow_each_other_in_one_row_where_one_thread_computes_a_batch(
    device: str, threads: int, attention: str, first: Packs
) -> None:
    torch = SimpleNamespace(get_num_threads=lambda: threads)
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation=attention))
    assert transformers._ways_to_pack(torch, model, device)[0] is first  # type: ignore[arg-type]


def test_every_kind_that_is_packed_is_compared_here() -> None:
    import transformers

    compared = {getattr(transformers, f"{kind}Config").model_type for kind in KINDS}
    assert compared == packed_texts.KINDS


@pytest.mark.parametrize(
    "changes",
    [{"num_labels": 1}, {"num_labels": 3, "problem_type": "multi_label_classification"}],
    ids=["regression", "several labels"],
)
def test_what_becomes_of_a_heads_numbers_is_the_same(
    made: Make, tried: Callable[..., None], changes: dict[str, Any]
) -> None:
    tried(Packs.ROWS)
    directory = made("Bert", "ForSequenceClassification", **changes)
    together, alone = load_model(directory, pack=True), load_model(directory)
    assert (packs(together), packs(alone)) == (Packs.ROWS, None)
    rows = texts(12, 3, 4, 5)
    np.testing.assert_allclose(answers(together, rows), answers_alone(alone, rows), atol=1e-5)


@pytest.mark.parametrize("way", Packs)
def test_the_model_computes_as_many_rows_as_its_input_says(
    made: Make, monkeypatch: pytest.MonkeyPatch, tried: Callable[..., None], way: Packs
) -> None:
    tried(way)
    handle = load_model(made("Bert"), pack=True)
    assert isinstance(handle.input, TextInput)
    seen: list[tuple[int, ...]] = []
    compute = packed_texts.PackedTexts.compute

    def watched(self: Any, ids: Any, *others: Any) -> Any:
        seen.append(tuple(ids.shape))
        return compute(self, ids, *others)

    monkeypatch.setattr(packed_texts.PackedTexts, "compute", watched)
    rows = texts(20, 3, 9, 4, 0)
    handle.predict_batch(rows)
    packing = handle.input.packing([20, 3, 9, 4, 1])
    assert seen == [(packing.rows, packing.length)]
    assert packing.rows < len(rows)


def test_texts_that_cannot_share_rows_have_their_own(
    made: Make, monkeypatch: pytest.MonkeyPatch, tried: Callable[..., None]
) -> None:
    tried(Packs.ROWS)
    handle = load_model(made("Bert"), pack=True)
    monkeypatch.setattr(packed_texts.PackedTexts, "compute", None)
    rows = texts(9, 9)
    np.testing.assert_allclose(answers(handle, rows), answers_alone(handle, rows), atol=1e-5)


def test_nothing_is_packed_unasked(made: Make) -> None:
    assert not packs(load_model(made("Bert")))


def test_a_model_of_another_kind_has_a_row_for_each_text(made: Make) -> None:
    handle = load_model(made("Albert"), pack=True)
    assert not packs(handle)
    rows = texts(12, 3, 4, 5)
    np.testing.assert_allclose(answers(handle, rows), answers_alone(handle, rows), atol=1e-5)


def test_a_model_whose_texts_see_each_other_has_a_row_for_each(
    made: Make, monkeypatch: pytest.MonkeyPatch, tried: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    tried(Packs.ONE_ROW, Packs.ROWS)
    mask = packed_texts.PackedTexts._mask
    monkeypatch.setattr(packed_texts.PackedTexts, "_mask", lambda self, texts: mask(self, texts * 0))
    bounds = packed_texts.PackedTexts._bounds
    monkeypatch.setattr(packed_texts.PackedTexts, "_bounds", lambda self, ids, firsts: bounds(self, ids, firsts[:1]))
    handle = load_model(made("Bert", "ForSequenceClassification"), pack=True)
    assert not packs(handle)
    assert "texts do not share one row: the model answers them otherwise than each alone" in caplog.text
    assert "texts do not share rows: the model answers them otherwise than each alone" in caplog.text
    rows = texts(12, 3, 4, 5)
    np.testing.assert_allclose(answers(handle, rows), answers_alone(handle, rows), atol=1e-5)


def test_a_model_that_fails_on_packed_texts_has_a_row_for_each(
    made: Make, monkeypatch: pytest.MonkeyPatch, tried: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    tried(Packs.ONE_ROW)

    def fail(*_: Any) -> None:
        raise ValueError("no such mask")

    monkeypatch.setattr(packed_texts.PackedTexts, "compute", fail)
    handle = load_model(made("Bert"), pack=True)
    assert not packs(handle)
    assert "texts do not share one row: the model does not take them so" in caplog.text
    assert len(handle.predict_batch(texts(12, 3, 4, 5))) == 4


def test_half_precision_is_packed_within_its_rounding(made: Make, bundle: Callable[..., Path]) -> None:
    directory = made("Bert")
    handle = load_model(bundle(f'[model]\nfile = "{directory.name}"\ndtype = "bfloat16"\n', directory), pack=True)
    assert packs(handle)
    rows = texts(20, 3, 9, 4)
    np.testing.assert_allclose(answers(handle, rows), answers_alone(handle, rows), atol=0.05)


def test_a_bundle_that_declares_the_input_keeps_it_packed(made: Make, bundle: Callable[..., Path]) -> None:
    directory = made("Bert")
    toml = f'[model]\nfile = "{directory.name}"\n[input]\nkind = "text"\nmax_length = 9\n'
    handle = load_model(bundle(toml, directory), pack=True)
    assert packs(handle)
    assert isinstance(handle.input, TextInput)
    assert handle.input.max_length == 9
