"""The texts that are waiting: short ones and long ones, mixed in any share."""

from __future__ import annotations

import random

# Shortest and longest text of either kind, tokens.
SHORT_TOKENS = (5, 15)
LONG_TOKENS = (80, 128)

# All of them are one token in the vocabularies of the models that are measured.
WORDS = ["the", "a", "good", "bad", "film", "story", "was", "is", "very", "not", "and", "but", "of", "in", "it", "this"]

# What a model's tokeniser puts around a text, tokens.
SPECIAL_TOKENS = 2


def text_lengths(count: int, short_share: float, seed: int) -> list[int]:
    """Tokens of `count` texts in the order in which they arrive; the same for the same seed."""
    rng = random.Random(seed)
    return [rng.randint(*(SHORT_TOKENS if rng.random() < short_share else LONG_TOKENS)) for _ in range(count)]


def text_of(tokens: int, rng: random.Random) -> str:
    """A text of so many tokens, special ones included."""
    return " ".join(rng.choices(WORDS, k=tokens - SPECIAL_TOKENS))
