"""Memory that a batch has freed is there for the next one, in a process that serves."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch

from service.freed_memory import keep_freed_memory

IS_GLIBC = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
ROWS, WIDTH = 512, 4

# What the arrays of a batch take; a page has 4 KB. Left to glibc, between a twentieth and all of them are asked for.
PAGES = 7 * 6 * 256


class Wide(torch.nn.Module):
    """For a batch of 512 rows it has seven arrays of 6 MB at a time, which it then frees."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, 3072) for _ in range(7))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        parts = [layer(rows) for layer in self.layers]
        return sum(part.mean(dim=1) for part in parts)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "wide.pt"
    torch.jit.trace(Wide(), torch.ones(1, WIDTH)).save(str(path))
    return path


def pages_asked_for(server: Any) -> float:
    """By the processes of the service, for each of ten requests of one batch, when some have been answered before."""
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    pids = [pid for task in tasks for pid in (task / "children").read_text().split()]

    def so_far() -> int:
        # Behind the name of the program, which may hold anything: its state, its parent, and seven more.
        return sum(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7]) for pid in pids)

    rows = [[1.0] * WIDTH] * ROWS
    for _ in range(5):
        assert server.predict(*rows).status_code == 200
    before = so_far()
    for _ in range(10):
        assert server.predict(*rows).status_code == 200
    return (so_far() - before) / 10


@pytest.mark.skipif(not IS_GLIBC, reason="malloc can be set up in glibc only")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_computes_in_the_memory_of_the_one_before(start, wide, workers):
    settings = {
        "MODEL_PATH": wide,
        "MODEL_FORMAT": "torchscript",
        "MAX_BATCH_SIZE": ROWS,
        "OMP_NUM_THREADS": 1,
        "WEB_WORKERS": workers,
    }
    server = start(app="service:create_app()", MODEL_SHARING="one", **settings)
    assert pages_asked_for(server) < PAGES / 20


@pytest.mark.parametrize("environ", [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}])
def test_what_the_operator_has_set_up_is_left_alone(environ):
    assert not keep_freed_memory(environ)


@pytest.mark.parametrize("fault", [OSError, AttributeError])
def test_where_there_is_no_glibc_nothing_is_done(monkeypatch, fault):
    def no_library(_name: object) -> object:
        raise fault

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert not keep_freed_memory({})
