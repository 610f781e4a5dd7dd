"""The CPU time of a server on this machine, found by the port that it listens on; Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

# The state of a listening socket. Source: Linux, include/net/tcp_states.h.
_LISTENS = "0A"

# Fields of /proc/PID/stat behind the command name in brackets, from 0. Source: proc(5).
_PARENT, _USER_TICKS, _SYSTEM_TICKS, _STARTED = 1, 11, 12, 19


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds, user and system, of each process by its id and start: a process that ends in between is left out."""

    seconds: dict[tuple[int, int], float]

    def since(self, earlier: CpuTimes) -> float:
        """Seconds spent since `earlier`."""
        return sum(spent - earlier.seconds.get(process, 0.0) for process, spent in self.seconds.items())


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
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return CpuTimes(
        {
            (pid, int(stats[pid][_STARTED])): (int(stats[pid][_USER_TICKS]) + int(stats[pid][_SYSTEM_TICKS])) * tick_s
            for pid in family
        }
    )


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
