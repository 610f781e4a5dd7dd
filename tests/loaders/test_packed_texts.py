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
    return lambda *ways: monkeypatch.setattr(transformers, "ways_to_pack", lambda *_: ways)


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
    ("device", "threads", "attention", "width", "multiple", "first"),
    [
        ("cpu", 1, "sdpa", 384, None, Packs.ONE_ROW),
        ("cpu", 2, "sdpa", 384, None, Packs.ROWS),
        ("cpu", 1, "eager", 384, None, Packs.ROWS),
        ("cpu", 1, "sdpa", 128, None, Packs.ROWS),
        ("cpu", 1, "sdpa", 384, 8, Packs.ROWS),
        ("cuda:0", 1, "sdpa", 384, None, Packs.ROWS),
    ],
)
def test_texts_follow_each_other_in_one_row_where_one_thread_computes_a_batch(
    device: str, threads: int, attention: str, width: int, multiple: int | None, first: Packs
) -> None:
    torch = SimpleNamespace(get_num_threads=lambda: threads)
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation=attention, hidden_size=width))
    text = TextInput(None, None, multiple)
    assert packed_texts.ways_to_pack(torch, model, text, device)[0] is first  # type: ignore[arg-type]


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
    lengths = packed_texts.PackedTexts._lengths
    monkeypatch.setattr(packed_texts.PackedTexts, "_lengths", lambda self, ids, firsts: lengths(self, ids, firsts[:1]))
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


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("way", Packs)
def test_a_text_without_numbers_leaves_those_beside_it_their_answers(
    made: Make, tried: Callable[..., None], way: Packs, head: str
) -> None:
    directory = made("Bert", head)
    alone = load_model(directory)
    tried(way)
    handle = load_model(directory, pack=True)
    assert packs(handle) is way
    bad, good = len(VOCABULARY) - 1, [text for text in texts(12, 3, 4, 9) if len(VOCABULARY) - 1 not in text.ids]
    for one in (handle, alone):
        one.predict._model.get_input_embeddings().weight.data[bad] = np.nan  # type: ignore[attr-defined]
    rows = [*good[:2], EncodedText((bad, 2)), *good[2:]]
    given = answers(handle, rows)
    np.testing.assert_allclose(given, answers_alone(alone, rows), atol=1e-5)
    assert [bool(np.isfinite(one).all()) for one in given].count(False) == 1


def test_a_model_that_reads_from_left_to_right_has_a_row_for_each_text(made: Make) -> None:
    assert packs(load_model(made("Bert", is_decoder=True), pack=True)) is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_small_differences_show_when_a_model_is_proved(
    made: Make, tried: Callable[..., None], monkeypatch: pytest.MonkeyPatch, bundle: Callable[..., Path], dtype: str
) -> None:
    """Of a wide embedding each number is small, and a tenth of it is far more than rounding."""
    tried(Packs.ROWS)
    compute = packed_texts.PackedTexts.compute

    def a_little_off(self: Any, ids: Any, *others: Any) -> Any:
        results = compute(self, ids, *others)
        results[:, 0] += 0.1 * results.abs().max()
        return results

    monkeypatch.setattr(packed_texts.PackedTexts, "compute", a_little_off)
    directory = made("Bert", hidden_size=256, initializer_range=0.02)
    toml = f'[model]\nfile = "{directory.name}"\ndtype = "{dtype}"\n'
    assert packs(load_model(bundle(toml, directory), pack=True)) is None
