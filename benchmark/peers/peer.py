"""What is known of a peer: how it is installed, started and asked, how it was tuned, and why it may be missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmark.peers.environments import Environment
from benchmark.peers.forms import Form
from benchmark.peers.workloads import Workload

SERVERS = Path(__file__).parent / "servers"


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of a server. `port` and the three after it are free; `scratch` is its own folder, empty."""

    environment: Environment
    workload: Workload
    port: int
    scratch: Path
    models: Path

    def script(self, name: str, *arguments: str) -> list[str]:
        """The command for a script of `servers/`."""
        return [str(self.environment.python), str(SERVERS / name), *arguments]


def nothing(_launch: Launch) -> dict[str, str]:
    """No environment variables beyond those that every server gets."""
    return {}


def runs_anywhere() -> None:
    """Needs nothing but its packages."""


@dataclass(frozen=True, slots=True)
class Peer:
    """`forms`: by workload; `without_forms`: why a workload has none. `tuning`: for readers, a sentence.

    command: starts the server in the foreground; None for the raw model, which is called where it is.
    has_own_packages: those of `requirements/NAME.txt`, otherwise the running environment's.
    packages: those whose versions are shown. lacks: what of the machine is missing, None where it has everything.
    interpreter: of its environment.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    tuning: str
    forms: Mapping[str, Form]
    command: Callable[[Launch], list[str]] | None
    has_own_packages: bool = True
    environ: Callable[[Launch], Mapping[str, str]] = nothing
    without_forms: str = ""
    lacks: Callable[[], str | None] = runs_anywhere
    interpreter: str = sys.executable
