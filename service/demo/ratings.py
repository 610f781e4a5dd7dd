"""Sentences and words that people have rated from very negative (-4) to very positive (4)."""

from __future__ import annotations

import io
import random
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.demo.sources import VADER, DemoError

_ROOT = f"{VADER.package}-{VADER.version}"
_WORDS = f"{_ROOT}/vaderSentiment/vader_lexicon.txt"
_SENTENCES = f"{_ROOT}/additional_resources/hutto_ICWSM_2014.tar.gz"
_KINDS = ("amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets", "tweets")

_FRAMES = (
    "{}", "it was {}", "this is {}", "i am {}", "so {}!", "what a {} day", "very {}.", "a {} film", "{} and {}",
    "the {} and {} movie", "{}, {}.", "i think it is {} and {}", "the food was {}", "the service is {} and {}",
)  # fmt: skip
_DENIALS = ("not {}", "it was not {}", "this is not {} at all", "i am not {}", "it isn't {}", "i do not {} it")
_DENIED_SHARE = 0.2
# How far a denial turns a rating round. Source: the negation constant of the same package's rules.
_DENIAL_FACTOR = -0.74


@dataclass(frozen=True, slots=True)
class Rated:
    """A text and the mean of its ratings, -4 to 4."""

    text: str
    rating: float


def read_ratings(sdist: Path) -> tuple[list[Rated], list[Rated]]:
    """All rated sentences, and all rated words that are made of letters, in the order of the archive."""
    with tarfile.open(sdist) as archive:
        words = _member(archive, _WORDS).decode("utf-8")
        inner = _member(archive, _SENTENCES)
    sentences: list[Rated] = []
    with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
        for kind in _KINDS:
            table = _member(archive, f"hutto_ICWSM_2014/{kind}_GroundTruth.txt").decode("utf-8", "replace")
            for line in table.splitlines():
                _number, rating, text = line.split("\t", 2)
                sentences.append(Rated(text, float(rating)))
    return sentences, list(_plain_words(words))


def phrases(words: Sequence[Rated], count: int, rng: random.Random) -> list[Rated]:
    """`count` short texts around rated words, rated accordingly: they teach words that no sentence holds."""
    positive = [word for word in words if word.rating > 0]
    negative = [word for word in words if word.rating <= 0]
    return [_phrase(words, positive, negative, rng) for _ in range(count)]


def _phrase(words: Sequence[Rated], positive: Sequence[Rated], negative: Sequence[Rated], rng: random.Random) -> Rated:
    word = rng.choice(words)
    if rng.random() < _DENIED_SHARE:
        return Rated(rng.choice(_DENIALS).format(word.text), _DENIAL_FACTOR * word.rating)
    # A frame with two places gets two words of one side.
    other = rng.choice(positive if word.rating > 0 else negative)
    frame = rng.choice(_FRAMES)
    used = (word, other)[: frame.count("{}")]
    return Rated(frame.format(*(each.text for each in used)), sum(each.rating for each in used) / len(used))


def _plain_words(lexicon: str) -> Iterator[Rated]:
    for line in lexicon.splitlines():
        word, rating, *_ = line.split("\t")
        if word.isalpha():
            yield Rated(word, float(rating))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise DemoError(f"{VADER} holds no file {name}")
    return file.read()
