from __future__ import annotations

import resource
from types import SimpleNamespace

import pytest

from service import gunicorn_config
from service.server import open_files


class Limits:
    """Stands in for the system's limit of open files."""

    RLIMIT_NOFILE = resource.RLIMIT_NOFILE
    RLIM_INFINITY = resource.RLIM_INFINITY

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)

    def getrlimit(self, _which: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, _which: int, limits: tuple[int, int]) -> None:
        self.now = limits


@pytest.mark.parametrize(
    "limits, allowed, after",
    [
        ((1024, 4096), 2000, (2000, 4096)),
        ((1024, 1500), 1500, (1500, 1500)),
        ((5000, 6000), 5000, (5000, 6000)),
        ((1024, resource.RLIM_INFINITY), 2000, (2000, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 2000, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
    ],
)
def test_the_limit_is_raised_as_far_as_the_system_allows_and_never_lowered(monkeypatch, limits, allowed, after):
    system = Limits(*limits)
    monkeypatch.setattr(open_files, "resource", system)
    assert open_files.allow_open_files(2000) == allowed
    assert system.now == after


class Server:
    """What gunicorn's master hands to its hooks."""

    def __init__(self, worker_connections: int) -> None:
        self.cfg = SimpleNamespace(
            address=[],
            preload_app=False,
            worker_class_str="gthread",
            threads=100,
            workers=1,
            worker_connections=worker_connections,
            set=lambda name, value: setattr(self.cfg, name, value),
        )
        self.warnings: list[str] = []
        self.log = SimpleNamespace(warning=lambda text, *values: self.warnings.append(text % values))


@pytest.mark.parametrize("possible, connections, warned", [(5256, 5000, 0), (1256, 1000, 1), (50, 101, 1)])
def test_there_are_never_more_connections_than_files_may_be_open(monkeypatch, possible, connections, warned):
    monkeypatch.setattr(open_files, "resource", Limits(possible, possible))
    server = Server(worker_connections=5000)
    gunicorn_config.on_starting(server)
    assert server.cfg.worker_connections == connections
    assert len(server.warnings) == warned
    assert all("ulimit -n 5256" in warning for warning in server.warnings)
