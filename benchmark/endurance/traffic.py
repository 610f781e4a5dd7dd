"""The requests of the fault run: what they ask for, and which answers to them are right."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmark.endurance.client import Client, Reply
from benchmark.endurance.rows import Action, expected

MAX_ROWS = 20


@dataclass(frozen=True, slots=True)
class Sent:
    """One request and its end. `rows`: how many of them may have reached the queue. `statuses`: those that are right
    whatever else happens. `values`: what was to be echoed, None where no prediction is expected.
    """

    kind: str
    rows: int
    statuses: frozenset[int]
    values: list[float] | None
    reply: Reply

    @property
    def is_right(self) -> bool:
        """Whether an answer with status 200 is the one to this very request."""
        body = self.reply.json()
        if self.values is None or not isinstance(body, dict):
            return False
        version = str(body.get("model_version"))
        told = self.reply.headers.get("X-Model-Version")
        return told == version and body.get("predictions") == [expected(value, version) for value in self.values]


Row = list[float]


def echo(rng: random.Random) -> Row:
    return [Action.ECHO, rng.randrange(1, 1_000_000)]


def single(client: Client, rng: random.Random) -> Sent:
    return _predict("single row", client, [echo(rng)])


def several(client: Client, rng: random.Random) -> Sent:
    return _predict("several rows", client, [echo(rng) for _ in range(rng.randint(2, MAX_ROWS))])


def slow(client: Client, rng: random.Random) -> Sent:
    return _predict("slow", client, [[Action.SLEEP, rng.randint(20, 80)], echo(rng)])


def blocking(client: Client, rng: random.Random) -> Sent:
    """So slow that others wait for it, and clients are seen to leave meanwhile."""
    return _predict("blocking", client, [[Action.SLEEP, rng.randint(400, 600)]])


def poison(client: Client, rng: random.Random) -> Sent:
    rows = [echo(rng) for _ in range(rng.randint(0, 3))]
    rows.insert(rng.randint(0, len(rows)), [Action.RAISE, 0])
    return _predict("poison", client, rows, statuses={500})


def short(client: Client, _rng: random.Random) -> Sent:
    return _predict("wrong count", client, [[Action.SHORT, 0]], statuses={500})


def hurried(client: Client, rng: random.Random) -> Sent:
    rows = [[Action.SLEEP, 40.0]]
    return _predict("short deadline", client, rows, statuses={200, 504}, timeout_ms=rng.randint(1, 60))


def invalid(client: Client, rng: random.Random) -> Sent:
    json_type = {"Content-Type": "application/json"}
    status, path, body, headers = rng.choice(
        [
            (422, "/predict", b'{"instances": []}', json_type),
            (400, "/predict", b'{"instances": [[1', json_type),
            (415, "/predict", b'{"instances": [[0, 1]]}', {"Content-Type": "text/plain"}),
            (413, "/predict", json.dumps({"instances": [[0, 1]] * 200}).encode(), json_type),
            (404, "/nowhere", b"{}", json_type),
        ]
    )
    return Sent("invalid", 0, frozenset({status}), None, client.ask("POST", path, body, headers))


def aborted(client: Client, rng: random.Random) -> Sent:
    rows = [[Action.SLEEP, 50.0], echo(rng)]
    return Sent("aborted", len(rows), frozenset(), None, client.abort(json.dumps({"instances": rows}).encode(), rng))


def fault(client: Client, action: Action) -> Sent:
    """The row that ends, or blocks, the worker thread."""
    return _predict("fault", client, [[action, 0.0]], statuses={503})


MIX: dict[Callable[[Client, random.Random], Sent], int] = {
    single: 40,
    several: 15,
    slow: 10,
    blocking: 1,
    poison: 8,
    short: 3,
    hurried: 6,
    invalid: 8,
    aborted: 10,
}


def any_of_mix(client: Client, rng: random.Random) -> Sent:
    """One request of the mix."""
    (kind,) = rng.choices(list(MIX), weights=list(MIX.values()))
    return kind(client, rng)


def _predict(
    kind: str, client: Client, rows: list[Row], *, statuses: set[int] | None = None, timeout_ms: int | None = None
) -> Sent:
    body: dict[str, Any] = {"instances": rows}
    if timeout_ms is not None:
        body["timeout_ms"] = timeout_ms
    right = frozenset(statuses or {200})
    values = [row[1] for row in rows] if 200 in right else None
    return Sent(kind, len(rows), right, values, client.predict(body))
