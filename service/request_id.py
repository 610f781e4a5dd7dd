"""The id under which a request stands in its answer and in the log; imports nothing of ours, as every side needs it."""

from __future__ import annotations

import random
import re

_ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def accepted_id(text: str | None) -> str | None:
    """`text` where it can be the id of a request, else None."""
    return text if text is not None and _ACCEPTED.fullmatch(text) else None


def new_id() -> str:
    """16 hexadecimal digits; a name and no secret, for which it need not come from the system's own source."""
    return f"{random.getrandbits(64):016x}"
