"""Each fault once, under load: every request has one right end, the counters add up, and `/healthz` tells the truth."""

from __future__ import annotations

import pytest

from benchmark.endurance.fault_run import fault_run

pytestmark = pytest.mark.system


@pytest.mark.parametrize("workers", [1, 2])
def test_whatever_goes_wrong_every_request_ends_once_and_is_counted_once(tmp_path, workers):
    report = fault_run(tmp_path, seconds=0, workers=workers, seed=1)
    log = (tmp_path / "server.log").read_text(errors="replace")
    assert report.clean, f"{report}\n{log[-4000:]}"
    assert report.probes > 0
