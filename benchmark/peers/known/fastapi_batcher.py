"""The same idea on an event loop."""

from __future__ import annotations

from benchmark.peers.forms import plain_forms
from benchmark.peers.peer import SERVERS, Launch, Peer


def _command(launch: Launch) -> list[str]:
    # fmt: off
    return [
        str(launch.environment.python), "-m", "uvicorn", "--app-dir", str(SERVERS), "--host", "127.0.0.1",
        "--port", str(launch.port), "--no-access-log", "--loop", "uvloop", "--http", "httptools", "fastapi_batcher:app",
    ]
    # fmt: on


PEER = Peer(
    name="fastapi_batcher",
    title="FastAPI + asyncio.Queue",
    packages=("fastapi", "uvicorn"),
    tuning="uvicorn, one process, uvloop and httptools, no validation model; pictures are decoded on threads",
    forms=plain_forms(),
    command=_command,
)
