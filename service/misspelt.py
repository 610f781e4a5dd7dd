"""Names that were meant to be others."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# How much a name must be like another to be taken for it with a slip, from 0 to 1.
_ALIKE = 0.85

# Put in front of names by those who do not expect them to be so short.
_PREFIX = "JITNEY_"


def misspelt(names: Iterable[str], known: list[str]) -> dict[str, str]:
    """Of `names`, those that look like one of `known` and are none, each with that one.

    known: in capitals. A slip, a word that is left out of several, and a prefix are seen through.
    """
    found = {}
    for name in names:
        upper = name.upper()
        if upper in known:
            continue
        bare = upper.removeprefix(_PREFIX)
        close = get_close_matches(bare, known, n=1, cutoff=_ALIKE) or _with_one_word_more(bare, known)
        if close:
            found[name] = close[0]
    return found


def _with_one_word_more(name: str, known: list[str]) -> list[str]:
    words = name.split("_")
    return [one for one in known if len(words) > 1 and words in _with_one_word_less(one.split("_"))]


def _with_one_word_less(words: list[str]) -> list[list[str]]:
    return [words[:at] + words[at + 1 :] for at in range(len(words))]
