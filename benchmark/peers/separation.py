"""What separates Jitney from the best of the others, said from the figures alone."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.peers.registry import PEERS
from benchmark.peers.rows import Row, medians

# Below this difference two figures are called equal: so far rounds on a quiet machine lie apart.
_EQUAL_SHARE = 0.05

_NO_FIGURES = "Jitney and another server have not both been measured."


def separation(rows: Sequence[Row]) -> str:
    """Throughput at each number of callers; and, at one of them, the CPU time by part."""
    found = {(row.peer, row.callers): row for row in medians(rows) if not row.fault}
    levels = sorted({callers for peer, callers in found if peer == "jitney"})
    told = []
    for callers in levels:
        others = [row for (peer, level), row in found.items() if level == callers and peer not in ("jitney", "raw")]
        if others:
            best = max(others, key=lambda row: row.requests_per_s)
            told.append(_throughput(found["jitney", callers], best))
    if not told:
        return _NO_FIGURES
    middle = _middle(levels)
    return " ".join([*told, *_by_part(found, middle)])


def _throughput(ours: Row, best: Row) -> str:
    who = f"With {ours.callers} caller{'s' * (ours.callers > 1)}"
    name = PEERS[best.peer].title
    ratio = ours.requests_per_s / best.requests_per_s
    if abs(ratio - 1) <= _EQUAL_SHARE:
        return f"{who} Jitney and {name}, the best of the others, answer as many requests."
    return f"{who} Jitney answers {ratio:.2f} times as many requests as {name}, the best of the others."


def _by_part(found: dict[tuple[str, int], Row], callers: int) -> list[str]:
    """The model's own part is what the raw model needs; the rest is the server's."""
    ours, raw = found["jitney", callers], found.get(("raw", callers))
    others = [row for (peer, level), row in found.items() if level == callers and peer not in ("jitney", "raw")]
    if raw is None or not others:
        return []
    best = max(others, key=lambda row: row.requests_per_s)
    return [
        f"CPU per request with {callers} callers: the raw model spends {raw.cpu_ms_per_request:.2f} ms on decoding, "
        f"batches and encoding; Jitney {_beside(ours, raw)}, and {PEERS[best.peer].title} {_beside(best, raw)}. That "
        "difference is HTTP, checks, counting, the way to the model and back, and what batches lose that are less "
        "full, or gain that are better chosen."
    ]


def _beside(row: Row, raw: Row) -> str:
    apart = row.cpu_ms_per_request - raw.cpu_ms_per_request
    return f"{row.cpu_ms_per_request:.2f} ms ({apart:+.2f} ms)"


def _middle(levels: Sequence[int]) -> int:
    """The largest but one: there batches are full, and a queue does not decide yet."""
    return levels[-2] if len(levels) > 1 else levels[-1]
