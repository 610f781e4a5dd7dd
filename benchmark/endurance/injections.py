"""The faults of the fault run: each disturbs a running server and returns when it is whole again."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmark.endurance.client import Client
from benchmark.endurance.ledger import Disturbance, Ledger
from benchmark.endurance.rows import Action
from benchmark.endurance.server import Server
from benchmark.endurance.traffic import fault

MODEL = "faulty"
ADMIN_TOKEN = "only-for-the-fault-run"


@dataclass(frozen=True)
class Scene:
    """What an injection works on. `count`: worker processes."""

    server: Server
    count: int
    client: Client
    ledger: Ledger
    rng: random.Random


def reload_model(scene: Scene) -> None:
    """Another version of the model becomes the default, over HTTP; nobody may notice."""
    version = str(scene.rng.randint(1, 2))
    body = json.dumps({"parameters": {"version": version}}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN_TOKEN}"}
    reply = scene.client.ask("POST", f"/v2/repository/models/{MODEL}/load", body, headers)
    if reply.status != 200:
        raise AssertionError(f"the model could not be loaded over HTTP: {reply.status} {reply.body!r}")


def kill_worker_thread(scene: Scene) -> None:
    """A row raises SystemExit in the model: the process answers everyone and is replaced."""
    _hit(scene, Action.DIE)


def hang_model(scene: Scene) -> None:
    """A batch never ends: the process is given up after twice STALL_LIMIT_MS, and replaced."""
    _hit(scene, Action.HANG)


def reload_server(scene: Scene) -> None:
    """SIGHUP to the master: every process is replaced."""
    old = scene.server.workers()
    scene.server.process.send_signal(signal.SIGHUP)
    scene.server.wait_ready(scene.count, old)


def kill_process(scene: Scene) -> None:
    """SIGKILL to a worker process: what is inside it is lost."""
    victim = scene.rng.choice(sorted(scene.server.workers()))
    os.kill(victim, signal.SIGKILL)
    scene.server.wait_ready(scene.count, {victim})


def _hit(scene: Scene, action: Action) -> None:
    """Send the row that ends a process, and wait until another has taken its place."""
    sent = fault(scene.client, action)
    scene.ledger.add(sent)
    if sent.reply.process is None or sent.reply.status != 503:
        raise AssertionError(f"the fault was not answered with 503, but {sent.reply.end} {sent.reply.status}")
    scene.server.wait_ready(scene.count, {sent.reply.process})


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault and what it excuses; see `Disturbance`. `kills`: what the process has not counted yet is lost."""

    name: str
    run: Callable[[Scene], None]
    statuses: frozenset[int] = frozenset()
    closes: bool = False
    only_kept: bool = False
    kills: bool = False

    def inject(self, scene: Scene) -> Disturbance:
        """Cause it, wait until it is over, and write it down."""
        began = time.monotonic()
        self.run(scene)
        disturbance = Disturbance(self.name, began, time.monotonic(), self.statuses, self.closes, self.only_kept)
        scene.ledger.disturbances.append(disturbance)
        return disturbance


AWAY = frozenset({503, 504})

INJECTIONS = (
    Injection("model reload over HTTP", reload_model),
    Injection("worker thread killed", kill_worker_thread, AWAY, closes=True),
    Injection("SIGHUP", reload_server, closes=True, only_kept=True),
    Injection("model hangs", hang_model, AWAY, closes=True),
    Injection("process killed", kill_process, AWAY, closes=True, kills=True),
)
