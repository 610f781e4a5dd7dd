"""The CPU time of a server on this machine, found by the port that it listens on; Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

# The state of a listening socket. Source: Linux, include/net/tcp_states.h.
_LISTENS = "0A"

# Fields of /proc/PID/stat behind the command name in brackets, from 0: user and system time, and the same of children
# that have ended and were waited for. Source: proc(5).
_PARENT, _TICKS, _STARTED = 1, slice(11, 15), 19


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds, user and system, of all processes of a server.

    A process that ends takes its time along to its parent, so that nothing is lost when workers are replaced.
    `processes`: by id and start; `roots`: those without a parent among them.
    """

    total_s: float
    processes: frozenset[tuple[int, int]]
    roots: frozenset[tuple[int, int]]

    def since(self, earlier: CpuTimes) -> float | None:
        """Seconds spent since `earlier`; None where the server itself is not the same any more."""
        return self.total_s - earlier.total_s if self.roots == earlier.roots else None


def cpu_times(port: int, proc: Path = Path("/proc")) -> CpuTimes | None:
    """Of the processes that listen on `port` and their descendants; None where none can be seen."""
    try:
        return cpu_times_of(set(_holders(_listening(port, proc), proc)), proc)
    except OSError:
        return None


def cpu_times_of(processes: Set[int], proc: Path = Path("/proc")) -> CpuTimes | None:
    """Of these processes and their descendants; None where none can be seen. Raises OSError without a /proc."""
    stats = dict(_stats(proc))
    family = {pid for pid in stats if processes & set(_ancestry(pid, stats))}
    if not family:
        return None
    ticks = sum(int(spent) for pid in family for spent in stats[pid][_TICKS])
    started = {pid: (pid, int(stats[pid][_STARTED])) for pid in family}
    roots = frozenset(start for pid, start in started.items() if int(stats[pid][_PARENT]) not in family)
    return CpuTimes(ticks / os.sysconf("SC_CLK_TCK"), frozenset(started.values()), roots)


def _listening(port: int, proc: Path) -> set[str]:
    """The links that files of processes have to the sockets that listen there."""
    links = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (proc / table).read_text().splitlines()[1:]
        except FileNotFoundError:  # a machine without that protocol
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                links.add(f"socket:[{fields[9]}]")
    return links


def _holders(links: set[str], proc: Path) -> Iterator[int]:
    for directory in proc.iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            if any(os.readlink(file) in links for file in (directory / "fd").iterdir()):
                yield int(directory.name)
        except OSError:  # somebody else's, or it has just ended
            continue


def _stats(proc: Path) -> Iterator[tuple[int, list[str]]]:
    for directory in proc.iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            # A command's name may hold anything, brackets too.
            yield int(directory.name), (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue


def _ancestry(pid: int, stats: dict[int, list[str]]) -> Iterator[int]:
    """The process and those that it descends from."""
    while pid in stats:
        yield pid
        pid = int(stats[pid][_PARENT])
