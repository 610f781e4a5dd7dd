"""Settings put into a `.env` file beside what stands there already."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

# How remarks begin that an earlier call has left.
MARK = "# By jitney tune"


def merged(existing: str, settings: Mapping[str, str], remarks: Sequence[str]) -> str:
    """`existing` with these settings at its end, and each of them in no other line; all else stays as it is.

    remarks: what is said of the settings; those of an earlier call make way for them.
    """
    names = "|".join(map(re.escape, settings))
    set_elsewhere = re.compile(rf"\s*(export\s+)?({names})\s*=")
    kept = [line for line in existing.splitlines() if not set_elsewhere.match(line) and not line.startswith(MARK)]
    while kept and not kept[-1].strip():
        kept.pop()
    told = [f"{MARK}: {remark}" for remark in remarks]
    return "\n".join([*kept, *[""] * bool(kept), *told, *(f"{name}={value}" for name, value in settings.items()), ""])
