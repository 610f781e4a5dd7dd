"""Whether `/healthz` ever says 200 while a prediction fails for lack of a worker."""

from __future__ import annotations

import random

from benchmark.endurance.client import Client, End
from benchmark.endurance.ledger import Ledger
from benchmark.endurance.traffic import single


class Prober:
    """Asks `/healthz`, predicts, and asks again, on one connection, which is one process.

    A fault may come between the first two; so a prediction counts against the service only where both answers, before
    and after it, were 200. *Thread:* one, and `lies` is for when it has ended.
    """

    def __init__(self, client: Client, ledger: Ledger, rng: random.Random) -> None:
        self._client = client
        self._ledger = ledger
        self._rng = rng
        self.asked = 0
        self.lies: list[str] = []

    def __call__(self) -> None:
        """One look."""
        before = self._client.ask("GET", "/healthz")
        if before.status != 200:
            return
        sent = single(self._client, self._rng)
        self._ledger.add(sent)
        after = self._client.ask("GET", "/healthz")
        self.asked += 1
        failed = sent.reply.end is End.HUNG or sent.reply.status in (503, 504)
        if failed and after.status == 200 and after.process == before.process:
            self.lies.append(f"/healthz said 200 before and after a prediction that ended with {sent.reply.status}")
