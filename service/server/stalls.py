"""What follows a batch that does not end: it is told of, and where that is wanted the process ends."""

from __future__ import annotations

from typing import Any

from service.server.watchdog import Watchdog

_watchdogs: list[Watchdog] = []


def watch(runtime: Any, log: Any) -> None:
    """Tell of a batch that makes the process not live, and have the process end where nothing else would replace it."""

    def tell(busy_s: float) -> None:
        log.error("a batch has been running for %.1f s and is not done (STALL_LIMIT_MS): not live", busy_s)

    def end(busy_s: float) -> None:
        runtime.batcher().close(timeout_s=0.0)  # everyone who waits is told now, and nobody else enters
        runtime.on_fatal(f"a batch has been running for {busy_s:.1f} s (STALL_LIMIT_MS, EXIT_ON_STALL)")

    limit_s = runtime.settings.stall_limit_ms / 1000
    watched = [(limit_s, tell)]
    if runtime.settings.exit_on_stall:
        watched.append((2 * limit_s, end))
    for after_s, on_stall in watched:
        watchdog = Watchdog(lambda: runtime.batcher().status().busy_s, after_s, on_stall)
        _watchdogs.append(watchdog)
        watchdog.start()


def watch_no_more() -> None:
    """This process is about to end."""
    for watchdog in _watchdogs:
        watchdog.close()
