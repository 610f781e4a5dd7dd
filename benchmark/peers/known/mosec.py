"""Mosec."""

from __future__ import annotations

from benchmark.peers.forms import plain_forms
from benchmark.peers.peer import Launch, Peer


def _command(launch: Launch) -> list[str]:
    # fmt: off
    return launch.script(
        "serve_mosec.py", "--address", "127.0.0.1", "--port", str(launch.port), "--timeout", "60000",
        "--capacity", "2048", "--log-level", "warning",
    )
    # fmt: on


PEER = Peer(
    name="mosec",
    title="Mosec",
    packages=("mosec",),
    tuning="one worker process",
    forms=plain_forms("/inference"),
    command=_command,
)
