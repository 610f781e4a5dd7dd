"""Many clients at once on real models: every caller gets what the model gives alone on that caller's input."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("unmeasured")]

CLIENTS = 64


def burst(server, bodies: list[dict]) -> list[dict]:
    """Send all bodies from 64 clients, each with a connection of its own; the answers in order.

    With the standard library's client, which leaves more of the machine to the server than others do.
    """
    host, port = server.url.removeprefix("http://").split(":")

    def client(mine: list[tuple[int, bytes]]) -> list[tuple[int, dict]]:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        answers = []
        for position, body in mine:
            connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            answers.append((position, json.loads(content)))
        connection.close()
        return answers

    encoded = [(position, json.dumps(body).encode()) for position, body in enumerate(bodies)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        shares = [encoded[number::CLIENTS] for number in range(CLIENTS)]
        answers = dict(itertools.chain.from_iterable(pool.map(client, shares)))
    return [answers[position] for position in range(len(bodies))]


def mean_batch_size(server) -> float:
    return server.metric("inference_batch_size_sum") / server.metric("inference_batch_size_count")


def test_64_clients_of_the_digits_model_get_the_answers_that_the_model_gives_alone(start, demo_models: Path):
    import joblib
    from sklearn.datasets import load_digits

    images = load_digits().data
    # A window in which rows gather also where clients leave the server little of the machine.
    window = {"MAX_BATCH_LATENCY_MS": 25}
    server = start(app="service:create_app()", MODEL_PATH=demo_models / "digits", MODEL_FORMAT="", **window)
    model = joblib.load(next((demo_models / "digits").glob("*.joblib")))
    bodies = [{"instances": [images[number].tolist()]} for number in range(len(images))]
    answers = burst(server, bodies)
    assert [answer["predictions"] for answer in answers] == [[int(model.predict([image])[0])] for image in images]
    assert mean_batch_size(server) > 4


def test_64_clients_of_the_text_model_get_the_answers_that_the_model_gives_alone(start, demo_models: Path):
    server = start(
        app="service:create_app()", MODEL_PATH=demo_models / "sentiment", MODEL_FORMAT="", SCHEDULER="grouped"
    )
    texts = [
        f"{start_} {'really ' * length}{word} {thing}."
        for start_ in ("What a", "This was a")
        for word in ("wonderful", "terrible", "boring", "delightful")
        for thing in ("film", "dinner", "day")
        for length in (0, 1, 5, 20, 60)
    ]
    alone = [server.post({"text": text}).json()["prediction"] for text in texts]
    answers = burst(server, [{"instances": [text]} for text in texts * 4])
    for answer, expected in zip(answers, alone * 4, strict=True):
        (prediction,) = answer["predictions"]
        assert prediction["label"] == expected["label"]
        assert prediction["score"] == pytest.approx(expected["score"], abs=1e-4)
    assert mean_batch_size(server) > 4


def test_clear_sentences_get_the_right_labels(start, demo_models: Path):
    server = start(app="service:create_app()", MODEL_PATH=demo_models / "sentiment", MODEL_FORMAT="")
    good = server.post({"text": "I love this, it is wonderful and makes me happy."}).json()
    bad = server.post({"text": "I hate this, it is terrible and makes me sad."}).json()
    assert (good["prediction"]["label"], bad["prediction"]["label"]) == ("positive", "negative")


@pytest.mark.parametrize("name", ["imagenet", "imagenet-torchscript"])
def test_a_photo_has_the_same_scores_as_multipart_raw_body_and_base64(start, demo_models: Path, name: str):
    server = start(app="service:create_app()", MODEL_PATH=demo_models / name, MODEL_FORMAT="")
    url = f"{server.url}/predict"
    for photo, label in (("china.jpg", "palace"), ("flower.jpg", "daisy")):
        content = (demo_models / name / "samples" / photo).read_bytes()
        form = requests.post(url, files={"file": (photo, content)}, timeout=30).json()
        raw = requests.post(url, data=content, headers={"Content-Type": "image/jpeg"}, timeout=30).json()
        text = {"b64": base64.b64encode(content).decode()}
        encoded = server.post({"instances": [text]}).json()
        assert form["prediction"] == raw["prediction"] == encoded["predictions"][0]
        assert len(form["prediction"]) == 5
        assert form["prediction"][0]["label"] == label
        assert form["prediction"][0]["score"] == pytest.approx({"palace": 0.32, "daisy": 0.36}[label], abs=0.02)
        both = requests.post(url, files=[("file", (photo, content)), ("file", (photo, content))], timeout=30).json()
        assert np.allclose(
            [head["score"] for head in both["predictions"][1]],
            [head["score"] for head in form["prediction"]],
            atol=1e-4,
        )
        assert "prediction" not in both
