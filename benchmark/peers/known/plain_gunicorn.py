"""How the Flask apps of this comparison are served."""

from __future__ import annotations

from collections.abc import Callable

from benchmark.peers.peer import SERVERS, Launch


def gunicorn(app: str, threads: int) -> Callable[[Launch], list[str]]:
    """One process with that many threads; connections are kept open, as Jitney does."""

    def command(launch: Launch) -> list[str]:
        # fmt: off
        return [
            str(launch.environment.python), "-m", "gunicorn", "--chdir", str(SERVERS),
            "--worker-class", "gthread", "--workers", "1", "--threads", str(threads),
            "--bind", f"127.0.0.1:{launch.port}", "--keep-alive", "75", "--worker-connections", "1000",
            "--timeout", "120", "--backlog", "2048", "--no-control-socket", app,
        ]
        # fmt: on

    return command
