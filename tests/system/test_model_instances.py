"""A real server with two copies of a real text model on one queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.placement.cores import allowed_cores

pytestmark = pytest.mark.system

STORY = "a very good film about bad weather and a terrible cook who is happy at the end of a wonderful long day"
TEXTS = [STORY[start : start + length] for start in range(8) for length in (10, 25, 70)]


def test_two_copies_answer_every_caller_as_one_does(start, demo_models: Path):
    model = demo_models / "sentiment"
    settings = {"MODEL_PATH": model, "MODEL_FORMAT": "", "MAX_BATCH_SIZE": 4, "MODEL_INSTANCES": 2, "DEVICE": "cpu"}
    server = start(app="service:create_app()", **settings)

    def first_of(*texts: str) -> dict[str, Any]:
        answer = server.predict(*texts)
        assert answer.status_code == 200, answer.text
        first: dict[str, Any] = answer.json()["predictions"][0]
        return first

    alone = {text: first_of(text) for text in TEXTS}
    with ThreadPoolExecutor(32) as callers:
        together = list(callers.map(lambda text: (text, first_of(text)), TEXTS * 8))
        in_several_batches = list(callers.map(lambda text: (text, first_of(text, *TEXTS[:9])), TEXTS * 2))
    for text, answer in [*together, *in_several_batches]:
        assert answer["label"] == alone[text]["label"]
        assert answer["score"] == pytest.approx(alone[text]["score"], abs=1e-4)
    health = server.get("/healthz").json()
    assert health["instances"]["count"] == 2
    if len(allowed_cores()) > 1:
        assert health["thread_placement"]["reason"].startswith("MODEL_INSTANCES=2")
    assert '"model_instances":2' in server.text()
    assert server.stop() == 0
