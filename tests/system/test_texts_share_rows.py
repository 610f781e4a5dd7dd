"""Real servers whose short texts share rows of the model: what it computes, and that the answers stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

STORY = "a very good film about bad weather and a terrible cook who is happy at the end of a wonderful long day"
TEXTS = [STORY[:length] for length in (102, 6, 11, 16, 90, 20, 6, 26)]
SHARED = {"WEB_WORKERS": 2, "MODEL_SHARING": "one"}


@pytest.mark.parametrize("settings", [{}, {"MODEL_INSTANCES": 2}, SHARED], ids=["one copy", "two copies", "shared"])
def test_hardly_any_padding_is_computed_and_each_text_gets_the_answer_that_it_gets_alone(
    start: Any, demo_models: Path, settings: dict[str, Any]
) -> None:
    values = {"MODEL_PATH": demo_models / "sentiment", "MODEL_FORMAT": "", "DEVICE": "cpu"}
    server = start(app="service:create_app()", **values, MAX_BATCH_SIZE=len(TEXTS), **settings)
    answer = server.post({"instances": TEXTS}, "/predict?explain=1")
    assert answer.status_code == 200, answer.text
    together = answer.json()
    assert server.metric("inference_tokens_total") > 0
    # Padded to the longest, more than 40 % of it would be padding.
    assert max(row["padding_share"] for row in together["batch"]) < 0.2
    for text, one in zip(TEXTS, together["predictions"], strict=True):
        (alone,) = server.post({"instances": [text]}).json()["predictions"]
        assert one["label"] == alone["label"]
        assert one["score"] == pytest.approx(alone["score"], abs=1e-4)
