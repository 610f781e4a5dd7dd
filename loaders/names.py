"""What a model and its versions may be called: what stands in a URL, a header, a label and a directory as it is."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


def is_name(value: object) -> bool:
    """Whether a URL reaches a model, or a version, of this name, and no directory of it lies anywhere else."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def checked_name(value: str) -> str:
    """`value`; raises ValueError for what is no name."""
    if not is_name(value):
        raise ValueError(
            "must be 1 to 128 letters (a-z), digits, dots, dashes or underscores, with a letter or digit first"
        )
    return value
