"""Real servers whose short texts share rows of the model: what it computes, and that the answers stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

STORY = "a very good film about bad weather and a terrible cook who is happy at the end of a wonderful long day"
TEXTS = [STORY[:length] for length in (102, 6, 11, 16, 90, 20, 6, 26)]
SHARED = {"WEB_WORKERS": 2, "MODEL_SHARING": "one"}


def asked(start: Any, model: Path, **settings: Any) -> tuple[list[Any], set[float]]:
    """The answers to all texts in one request, and the shares of padding in its batches."""
    values = {"MODEL_PATH": model, "MODEL_FORMAT": "", "DEVICE": "cpu", "MAX_BATCH_SIZE": len(TEXTS)}
    server = start(app="service:create_app()", **values, **settings)
    answer = server.post({"instances": TEXTS}, "/predict?explain=1")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert server.metric("inference_tokens_total") > 0
    return told["predictions"], {row["padding_share"] for row in told["batch"]}


@pytest.mark.parametrize("settings", [{}, {"MODEL_INSTANCES": 2}, SHARED], ids=["one copy", "two copies", "shared"])
def test_hardly_any_padding_is_computed_and_the_answers_are_the_same(
    start: Any, demo_models: Path, settings: dict[str, Any]
) -> None:
    alone, most = asked(start, demo_models / "sentiment", SCHEDULER="fifo", **settings)
    together, least = asked(start, demo_models / "sentiment", **settings)
    assert min(most) > 0.4
    assert max(least) < 0.2
    for one, other in zip(together, alone, strict=True):
        assert one["label"] == other["label"]
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)
