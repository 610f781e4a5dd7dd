"""Hugging Face directories: texts of any length, many threads, and weights that must be there."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from model_makers import MAX_POSITIONS, make_tokenizer

from loaders import EncodedText, MissingDependencyError, ModelHandle, ModelLoadError, OutputSpec, TextInput, load_model
from loaders.formats.text import make_encoder
from loaders.formats.transformers import _check_tokenizer


def encode(handle: ModelHandle, *texts: str) -> list[EncodedText]:
    assert isinstance(handle.input, TextInput)
    assert handle.input.encode is not None
    return [handle.input.encode(text) for text in texts]


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda directory: Path(shutil.copytree(directory, tmp_path / "copy"))


def change_json(file: Path, **changes: Any) -> None:
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | changes))


def test_labels_come_from_the_models_configuration(sentiment: Path) -> None:
    handle = load_model(sentiment)
    assert handle.output == OutputSpec(task="classification", labels=("bad", "good"), softmax=True)
    assert handle.fmt == "transformers"


def test_an_embedding_has_length_one_and_no_classes(embedder: Path) -> None:
    handle = load_model(embedder)
    assert handle.output == OutputSpec(task="embedding")
    np.testing.assert_allclose(np.linalg.norm(handle.predict_batch(encode(handle, "good", ""))[0]), 1, rtol=1e-5)


@pytest.mark.parametrize("model", ["sentiment", "embedder"])
def test_a_short_text_does_not_depend_on_long_neighbours(model: str, request: pytest.FixtureRequest) -> None:
    handle = load_model(request.getfixturevalue(model), pad_to_multiple_of=8)
    short, *long = encode(handle, "good film", *["a very " * number for number in (2, 9, 14)])
    (alone,) = handle.predict_batch([short])
    for position in range(4):
        batch = [*long[:position], short, *long[position:]]
        np.testing.assert_allclose(handle.predict_batch(batch)[position], alone, atol=1e-5)


def test_a_text_is_cut_at_the_models_last_position_and_says_so(sentiment: Path) -> None:
    handle = load_model(sentiment)
    assert isinstance(handle.input, TextInput)
    assert handle.input.max_length == MAX_POSITIONS
    for words, truncated in ((29, False), (30, False), (31, True), (5000, True)):
        (row,) = encode(handle, "good " * words)
        assert row.truncated is truncated
        assert len(row.ids) == min(words + 2, MAX_POSITIONS)
        assert np.isfinite(handle.predict_batch([row])).all()


@pytest.mark.parametrize(("declared", "length"), [(8, 8), (1000, MAX_POSITIONS)])
def test_a_bundle_can_shorten_texts_but_not_lengthen_them(
    bundle: Callable[..., Path], sentiment: Path, declared: int, length: int
) -> None:
    toml = f'[model]\nfile = "sentiment"\n[input]\nkind = "text"\nmax_length = {declared}\npad_to_multiple_of = 6\n'
    handle = load_model(bundle(toml, sentiment), pad_to_multiple_of=5)
    assert isinstance(handle.input, TextInput)
    assert (handle.input.max_length, handle.input.pad_to_multiple_of) == (length, 6)
    (row,) = encode(handle, "good " * 100)
    assert len(row.ids) == length


def test_a_length_without_room_for_a_text_is_refused(bundle: Callable[..., Path], sentiment: Path) -> None:
    toml = '[model]\nfile = "sentiment"\n[input]\nkind = "text"\nmax_length = 2\n'
    with pytest.raises(ModelLoadError, match="max_length"):
        load_model(bundle(toml, sentiment))


def test_a_bundle_gives_its_own_labels_but_as_many_as_the_model_has(
    bundle: Callable[..., Path], sentiment: Path
) -> None:
    toml = '[model]\nformat = "transformers"\nfile = "sentiment"\n[output]\nlabels = ["no", "yes"]\n'
    handle = load_model(bundle(toml, sentiment))
    assert handle.output == OutputSpec(task="classification", labels=("no", "yes"), softmax=True)
    with pytest.raises(ModelLoadError, match=r"\[output\] labels: the bundle says 3"):
        load_model(bundle(toml.replace('"no"', '"no", "maybe"')))


@pytest.mark.parametrize("table", ['kind = "tabular"', 'kind = "tensor"\nshape = [3]'])
def test_text_cannot_be_declared_to_be_something_else(bundle: Callable[..., Path], sentiment: Path, table: str) -> None:
    with pytest.raises(ModelLoadError, match=r"\[input\] kind"):
        load_model(bundle(f'[model]\nfile = "sentiment"\n[input]\n{table}\n', sentiment))


def test_many_threads_encode_at_once_and_get_their_own_text(sentiment: Path) -> None:
    handle = load_model(sentiment)
    texts = ["good " * (number % 40) + "bad" for number in range(200)]
    expected = encode(handle, *texts)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(16) as pool:
            for results in pool.map(lambda _: encode(handle, *texts), range(16)):
                assert results == expected
    finally:
        sys.setswitchinterval(before)


class Backend:
    """A tokenizer that counts how often its settings are changed."""

    def __init__(self) -> None:
        self.changes = 0

    def no_padding(self) -> None:
        self.changes += 1

    def no_truncation(self) -> None:
        self.changes += 1

    def enable_truncation(self, max_length: int) -> None:
        self.changes += 1

    def num_special_tokens_to_add(self, is_pair: bool) -> int:
        return 2

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[len(text)], overflowing=[])


@pytest.mark.parametrize("max_length", [None, 8])
def test_the_shared_tokenizer_is_never_changed_once_it_encodes(max_length: int | None) -> None:
    backend = Backend()
    encode_one = make_encoder(backend, max_length)
    changes = backend.changes
    assert [encode_one("a"), encode_one("ab")] == [EncodedText((1,)), EncodedText((2,))]
    assert backend.changes == changes == 2


def test_characters_of_every_kind_are_encoded_whole(sentiment: Path) -> None:
    handle = load_model(sentiment)
    plain, family, mixed = encode(handle, "good", "👨‍👩‍👧", "good\u202e film")
    assert len(family.ids) > 2
    assert mixed != plain


def test_missing_head_weights_are_refused(copy: Callable[[Path], Path], embedder: Path) -> None:
    directory = copy(embedder)
    change_json(directory / "config.json", architectures=["BertForSequenceClassification"])
    with pytest.raises(ModelLoadError, match=r"classifier\.(bias|weight)"):
        load_model(directory)


def test_an_unused_pooler_may_be_missing(save_bert: Callable[..., Path]) -> None:
    directory = save_bert("masked", head="BertForMaskedLM")
    assert load_model(directory).output.task == "embedding"


def test_one_output_is_a_regression_with_a_number_per_text(save_bert: Callable[..., Path]) -> None:
    handle = load_model(save_bert("regression", num_labels=1))
    assert handle.output == OutputSpec(task="regression")
    assert np.shape(handle.predict_batch(encode(handle, "good", "bad"))) == (2,)


def test_independent_labels_get_probabilities_of_their_own(save_bert: Callable[..., Path]) -> None:
    plain = load_model(save_bert("three", num_labels=3))
    handle = load_model(save_bert("multi", num_labels=3, problem_type="multi_label_classification"))
    assert not handle.output.softmax
    rows = encode(handle, "good", "bad film")
    logits = np.asarray(plain.predict_batch(rows))
    np.testing.assert_allclose(handle.predict_batch(rows), 1 / (1 + np.exp(-logits)), rtol=1e-4)


def test_weights_that_are_not_safetensors_are_not_read(copy: Callable[[Path], Path], sentiment: Path) -> None:
    import torch

    directory = copy(sentiment)
    (directory / "model.safetensors").unlink()
    torch.save({}, directory / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="copy"):
        load_model(directory)


def test_code_in_the_directory_is_not_run(copy: Callable[[Path], Path], sentiment: Path, tmp_path: Path) -> None:
    directory = copy(sentiment)
    trace = tmp_path / "the-code-ran"
    (directory / "own.py").write_text(f"open({str(trace)!r}, 'w')\nclass Own: pass\n")
    change_json(directory / "config.json", model_type="own", auto_map={"AutoConfig": "own.Own", "AutoModel": "own.Own"})
    with pytest.raises(ModelLoadError):
        load_model(directory)
    assert not trace.exists()


def test_a_directory_without_a_tokenizer_is_refused(copy: Callable[[Path], Path], sentiment: Path) -> None:
    directory = copy(sentiment)
    for file in directory.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelLoadError, match="no tokenizer"):
        load_model(directory)


def test_a_tokenizer_that_threads_cannot_share_is_refused(sentiment: Path) -> None:
    slow = SimpleNamespace(vocab_files_names={"tokenizer_file": "tokenizer.json"}, is_fast=False)
    with pytest.raises(ModelLoadError, match="fast tokenizer"):
        _check_tokenizer(slow, sentiment)


def test_a_tokenizer_with_more_words_than_the_model_is_refused(copy: Callable[[Path], Path], sentiment: Path) -> None:
    directory = copy(sentiment)
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["extra"])
    tokenizer.save_pretrained(directory)
    with pytest.raises(ModelLoadError, match="13 tokens, but the model only 12"):
        load_model(directory)


def test_a_directory_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no config\.json"):
        load_model(tmp_path, "transformers")


def test_positions_that_start_after_the_padding_are_not_counted(models: Path) -> None:
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    torch.manual_seed(1)
    directory = models / "roberta"
    config = RobertaConfig(
        vocab_size=12, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        max_position_embeddings=20, type_vocab_size=1, pad_token_id=1,
    )  # fmt: skip
    RobertaForSequenceClassification(config).save_pretrained(directory)
    make_tokenizer().save_pretrained(directory)
    handle = load_model(directory)
    assert isinstance(handle.input, TextInput)
    assert handle.input.max_length == 18
    assert np.isfinite(handle.predict_batch(encode(handle, "good " * 100))).all()


def test_a_model_that_reads_the_last_token_knows_its_padding(models: Path) -> None:
    import torch
    from transformers import GPT2Config, GPT2ForSequenceClassification

    torch.manual_seed(1)
    directory = models / "gpt"
    config = GPT2Config(vocab_size=12, n_embd=8, n_layer=1, n_head=1, n_positions=16, bos_token_id=2, eos_token_id=3)
    GPT2ForSequenceClassification(config).save_pretrained(directory)
    make_tokenizer().save_pretrained(directory)
    handle = load_model(directory)
    short, long = encode(handle, "good", "a very good film")
    np.testing.assert_allclose(handle.predict_batch([short, long])[0], handle.predict_batch([short])[0], atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "notes"),
    [
        ('{"pooling_mode_mean_tokens": true}', 0),
        ('{"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true}', 1),
        ('{"pooling_mode": "cls"}', 1),
        ("not json", 0),
    ],
)
def test_another_pooling_than_the_mean_is_noted(
    copy: Callable[[Path], Path], embedder: Path, pooling: str, notes: int
) -> None:
    directory = copy(embedder)
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text(pooling)
    assert len(load_model(directory).warnings) == notes


def test_a_missing_framework_is_answered_with_the_extra(sentiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"jitney\[transformers\]"):
        load_model(sentiment)
