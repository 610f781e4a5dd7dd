"""The sentiment demo: a small BERT, trained from nothing on rated sentences, that tells good from bad English.

The ratings are used as they are: a sentence rated 0.2 is taught as "a little more likely positive", one
rated 3 as "surely positive", so that no line between positive, negative and neutral has to be drawn.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.demo.bundles import write_bundle
from service.demo.ratings import Rated, phrases, read_ratings
from service.demo.sources import VADER, DemoError, Sources
from service.demo.steps import Say

SEED = 7
LABELS = ("negative", "positive")
HELD_OUT_SENTENCES = 2500
# A held-out sentence counts when its raters took a side; between -1 and 1 they mostly disagree with each other.
CLEAR_RATING = 1.0
# A build that learns less than this is broken; about .80 is usual.
LEAST_ACCURACY = 0.75

MAX_TOKENS = 128
_VOCABULARY = 10_000
_ENDINGS = 1000
_ENDING_LENGTHS = range(2, 7)
_HIDDEN = 64
_EPOCHS = 3
_BATCH = 64
_LEARNING_RATE = 3e-3
_PHRASES_PER_SENTENCE = 0.4
# Nothing is learnt from a sentence that its raters found neutral.
_NEUTRAL_RATING = 0.25
# Share of the words that are masked in training, so that no single word decides.
_MASKED_SHARE = 0.05
# Sentences are cut after so many tokens in training; that is most of a review's text, in half the time.
_TRAINED_TOKENS = 64
# Turns a rating into the probability of "positive": 1 into .82, 2 into .95.
_RATING_SLOPE = 1.5
_PAD, _UNKNOWN, _START, _END, _MASK = _SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True, slots=True)
class _Encoded:
    ids: list[int]
    rating: float


def build(directory: Path, sources: Sources, say: Say) -> None:
    """Train and write the bundle; the same machine and packages give the same model."""
    say("fetching the rated sentences")
    sentences, words = read_ratings(sources.path(VADER))
    rng = random.Random(SEED)  # noqa: S311 - shuffling, not secrets
    rng.shuffle(sentences)
    held_out = sentences[:HELD_OUT_SENTENCES]
    train = [rated for rated in sentences[HELD_OUT_SENTENCES:] if abs(rated.rating) >= _NEUTRAL_RATING]

    say("learning a vocabulary")
    tokenizer = _train_tokenizer([rated.text for rated in (*train, *words)])
    with _repeatable():
        model = _new_model(tokenizer.get_vocab_size())
        _train(model, tokenizer, train, words, rng, say)
    accuracy = _accuracy(model, tokenizer, [rated for rated in held_out if abs(rated.rating) >= CLEAR_RATING])
    say(f"held-out accuracy {accuracy:.3f} (sentences rated at least {CLEAR_RATING:g} from neutral)")
    if not accuracy >= LEAST_ACCURACY:
        raise DemoError(f"sentiment reached only {accuracy:.3f} on held-out sentences, {LEAST_ACCURACY} is expected")

    _save(model, tokenizer, directory / "model")
    write_bundle(
        directory,
        name="sentiment",
        fmt="transformers",
        file="model",
        input={"kind": "text", "max_length": MAX_TOKENS},
        output={"task": "classification", "labels": LABELS, "softmax": True},
        notes=[
            f"Trained here on the rated sentences of package {VADER} ({VADER.licence}).",
            f"Held-out accuracy {accuracy:.3f} on sentences rated at least {CLEAR_RATING:g} from neutral.",
        ],
    )


@contextmanager
def _repeatable() -> Iterator[None]:
    """Seeded, on one thread: the same sums in the same order, and no waiting for a second core that is busy."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            yield
    finally:
        torch.set_num_threads(threads)


def _train_tokenizer(texts: Sequence[str]) -> Any:
    """A WordPiece tokenizer without case, for `texts`; it cuts after `_TRAINED_TOKENS`."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    normalizer = normalizers.BertNormalizer(lowercase=True)
    splitter = pre_tokenizers.BertPreTokenizer()
    words = Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    vocabulary = {piece: number for number, piece in enumerate(_word_pieces(words))}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token=_UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{_START} $A {_END}",
        pair=f"{_START} $A {_END} $B:1 {_END}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (_START, _END)],
    )
    tokenizer.enable_truncation(_TRAINED_TOKENS)
    return tokenizer


def _word_pieces(words: Counter[str]) -> list[str]:
    """The special tokens, every letter, the most frequent endings, and the most frequent whole words.

    Counted here and not by the tokenizer's own trainer, which breaks ties differently in every process.
    """
    letters = {letter for word in words for letter in word}
    endings = Counter(word[-size:] for word in words for size in _ENDING_LENGTHS if len(word) > size + 2)
    pieces = [*_SPECIAL, *sorted(letters), *(f"##{letter}" for letter in sorted(letters))]
    pieces += [f"##{ending}" for ending in _most_frequent(endings, _ENDINGS)]
    known = set(pieces)
    pieces += [word for word in _most_frequent(words, len(words)) if word not in known]
    return pieces[:_VOCABULARY]


def _most_frequent(counts: Counter[str], most: int) -> list[str]:
    """At most `most` keys, by falling count, equal ones in alphabetical order."""
    return sorted(counts, key=lambda key: (-counts[key], key))[:most]


def _new_model(vocabulary: int) -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=_HIDDEN,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=2 * _HIDDEN,
            max_position_embeddings=MAX_TOKENS,
            hidden_dropout_prob=0.1,
            # Dropout inside attention would rule out the fast kernel, and so double the time.
            attention_probs_dropout_prob=0.0,
            initializer_range=0.05,
            id2label=dict(enumerate(LABELS)),
            label2id={label: index for index, label in enumerate(LABELS)},
        )
    )


def _train(
    model: Any, tokenizer: Any, sentences: Sequence[Rated], words: Sequence[Rated], rng: random.Random, say: Say
) -> None:
    import torch

    phrase_count = int(len(sentences) * _PHRASES_PER_SENTENCE)
    steps = _EPOCHS * -(-(len(sentences) + phrase_count) // _BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps, pct_start=0.15)
    encoded = _encode(tokenizer, sentences)
    message = f"training on {len(sentences):,} rated sentences"
    model.train()
    done = 0
    for _epoch in range(_EPOCHS):
        for batch in _batches(encoded + _encode(tokenizer, phrases(words, phrase_count, rng)), rng):
            ids, attention, ratings = _tensors(batch)
            masked = (torch.rand(ids.shape) < _MASKED_SHARE) & (ids >= len(_SPECIAL))
            ids = torch.where(masked, torch.tensor(tokenizer.token_to_id(_MASK)), ids)
            positive = torch.sigmoid(_RATING_SLOPE * ratings)
            logits = model(input_ids=ids, attention_mask=attention).logits
            loss = torch.nn.functional.cross_entropy(logits, torch.stack([1 - positive, positive], dim=1))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            done += 1
            say(message, done / steps)
    model.eval()


def _accuracy(model: Any, tokenizer: Any, texts: Sequence[Rated]) -> float:
    """The share of `texts` whose label has the sign of their rating."""
    import torch

    right = 0
    encoded = _encode(tokenizer, texts)
    with torch.inference_mode():
        for start in range(0, len(encoded), _BATCH):
            ids, attention, ratings = _tensors(encoded[start : start + _BATCH])
            chosen = model(input_ids=ids, attention_mask=attention).logits.argmax(dim=1)
            right += int((chosen == (ratings > 0)).sum())
    return right / len(encoded)


def _save(model: Any, tokenizer: Any, directory: Path) -> None:
    """Write a Hugging Face directory that the Auto classes load, without their progress bar."""
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import logging

    # Cutting is the server's choice, so it is not baked into the file.
    tokenizer.no_truncation()
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(directory, safe_serialization=True)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            model_max_length=MAX_TOKENS,
            model_input_names=["input_ids", "attention_mask"],
            pad_token=_PAD,
            unk_token=_UNKNOWN,
            cls_token=_START,
            sep_token=_END,
            mask_token=_MASK,
        ).save_pretrained(directory)
    finally:
        if shown:
            logging.enable_progress_bar()


def _encode(tokenizer: Any, texts: Sequence[Rated]) -> list[_Encoded]:
    encodings = tokenizer.encode_batch([rated.text for rated in texts])
    return [_Encoded(encoding.ids, rated.rating) for encoding, rated in zip(encodings, texts, strict=True)]


def _batches(examples: list[_Encoded], rng: random.Random) -> list[list[_Encoded]]:
    """Batches in random order, each of texts of about one length, so that little is padding."""
    rng.shuffle(examples)
    # The last batch of a window may be smaller only at the very end: a window is a whole number of batches.
    window = 32 * _BATCH
    batches = []
    for start in range(0, len(examples), window):
        alike = sorted(examples[start : start + window], key=lambda example: len(example.ids))
        batches += [alike[at : at + _BATCH] for at in range(0, len(alike), _BATCH)]
    rng.shuffle(batches)
    return batches


def _tensors(batch: Sequence[_Encoded]) -> tuple[Any, Any, Any]:
    """Token ids and attention mask, (n, longest) int64 padded with 0, and ratings, (n,) float32."""
    import torch

    sequences = [torch.tensor(example.ids) for example in batch]
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    return ids, (ids != 0).long(), torch.tensor([example.rating for example in batch])
