"""Every request of a run with its end, and the judgement over each."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from benchmark.endurance.client import End
from benchmark.endurance.traffic import Sent

# A model that is short of a result fails all rows of its call: it cannot be known which of them is missing.
SHARED_FAILURE = "Wrong output count"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault that the run has caused, from the moment before it to the one when the server was whole again.

    `statuses`: what requests meanwhile may be answered with. `closes`: connections may end without an answer.
    `only_kept`: but only those that had carried a request before, so that their clients may send again.
    """

    name: str
    began: float
    ended: float
    statuses: frozenset[int] = frozenset()
    closes: bool = False
    only_kept: bool = False

    def excuses(self, sent: Sent) -> bool:
        reply = sent.reply
        if reply.ended < self.began or reply.began > self.ended:
            return False
        if reply.end is End.ANSWERED:
            return reply.status in self.statuses
        if reply.end is End.CUT:
            return self.closes and not self.only_kept
        return reply.end is End.CLOSED and self.closes and (reply.reused or not self.only_kept)


class Ledger:
    """*Thread:* any may add; the rest is for when all clients are idle.

    The lock guards `_entries`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Sent] = []
        self.disturbances: list[Disturbance] = []

    def add(self, sent: Sent) -> None:
        """A request has ended."""
        with self._lock:
            self._entries.append(sent)

    def since(self, began: float) -> list[Sent]:
        """The requests that ended after a moment."""
        with self._lock:
            return [sent for sent in self._entries if sent.reply.ended >= began]

    def violations(self) -> list[str]:
        """What came of requests that must not come of any."""
        found = []
        for sent in self.since(0.0):
            if (fault := _fault(sent)) and not any(one.excuses(sent) for one in self.disturbances):
                found.append(f"{sent.kind}: {fault}, {sent.reply.ended - sent.reply.began:.2f} s")
        return found

    def cost(self, disturbance: Disturbance) -> Counter[str]:
        """How many requests ended in which way because of a fault."""
        hit = [sent for sent in self.since(0.0) if _fault(sent) and disturbance.excuses(sent)]
        return Counter(str(sent.reply.status or sent.reply.end) for sent in hit)

    def table(self) -> str:
        """How many requests of each kind ended in which way."""
        counts = Counter((sent.kind, str(sent.reply.status or sent.reply.end)) for sent in self.since(0.0))
        kinds, ends = sorted({kind for kind, _ in counts}), sorted({end for _, end in counts})
        lines = [f"{'':16}" + "".join(f"{end:>9}" for end in ends)]
        lines += [f"{kind:16}" + "".join(f"{counts[kind, end] or '':>9}" for end in ends) for kind in kinds]
        return "\n".join(lines)


def _fault(sent: Sent) -> str:
    """What is wrong with the end of a request that nothing excuses; empty where all is well."""
    reply = sent.reply
    if reply.end is End.ABORTED:
        return ""
    if reply.end is not End.ANSWERED:
        return f"{reply.end} ({'kept' if reply.reused else 'new'} connection)"
    if reply.status == 200:
        return "" if sent.is_right else "200 with a wrong answer"
    problem = reply.json()
    title = problem.get("title") if isinstance(problem, dict) else None
    if reply.status in sent.statuses:
        return "" if title else f"{reply.status} that is no problem document"
    if reply.status == 429 and int(reply.headers.get("Retry-After", 0)) >= 1:
        return ""
    if reply.status == 500 and title == SHARED_FAILURE and sent.values is not None:
        return ""
    return f"{reply.status} {title}"
