"""For each demo model a curl line that works as it stands, and what it should answer."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

DEFAULT_URL = "http://127.0.0.1:8000"

# A row of scikit-learn's digits that is held out from the training; it shows EXAMPLE_DIGIT.
EXAMPLE_DIGIT = 7
# fmt: off
EXAMPLE_ROW = (
    0, 0, 3, 8, 12, 15, 16, 2,
    0, 0, 12, 14, 10, 13, 15, 0,
    0, 0, 1, 1, 2, 14, 6, 0,
    0, 0, 2, 8, 13, 16, 8, 0,
    0, 0, 9, 16, 16, 10, 5, 0,
    0, 0, 1, 8, 12, 1, 0, 0,
    0, 0, 0, 14, 8, 0, 0, 0,
    0, 0, 2, 16, 5, 0, 0, 0,
)
# fmt: on
EXAMPLE_SENTENCE = "What a wonderful, delightful film!"


@dataclass(frozen=True, slots=True)
class Example:
    """A command for a shell, and the answer to expect, in words."""

    command: str
    expected: str

    def __str__(self) -> str:
        return f"# {self.expected}\n{self.command}"


def example_request(name: str, bundle: Path, url: str = DEFAULT_URL) -> Example:
    """One request to the demo model `name` whose bundle lies in `bundle`; the server listens at `url`.

    Raises `KeyError` for a name that is no demo model.
    """
    predict = shlex.quote(f"{url}/predict")
    if name.startswith("imagenet"):
        photo = shlex.quote(f"file=@{bundle / 'samples' / 'china.jpg'}")
        return Example(f"curl -s -F {photo} {predict}", "expected: the best label is palace")
    body, expected = {
        "digits": ({"instances": [EXAMPLE_ROW]}, f"expected: the digit {EXAMPLE_DIGIT}"),
        "sentiment": ({"text": EXAMPLE_SENTENCE}, "expected: positive"),
    }[name]
    data = shlex.quote(json.dumps(body, separators=(",", ":") if name == "digits" else None))
    return Example(f"curl -s -H 'Content-Type: application/json' -d {data} {predict}", expected)
