"""What the tests of this room share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.placement.cores import all_threads, let_push


@pytest.fixture
def threads_left_as_they_were() -> Iterator[None]:
    """For tests that place the threads of this process: servers that later tests start inherit their class."""
    yield
    let_push(all_threads())
