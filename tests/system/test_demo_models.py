"""The demo models are real: built from their sources, and asked directly through their frameworks."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders import load_model
from loaders.bundle import read_bundle, verify
from service.demo import digits
from service.demo.build import RECIPES
from service.demo.curl import EXAMPLE_DIGIT, EXAMPLE_ROW, EXAMPLE_SENTENCE
from service.inputs import InputLimits, prepare
from service.inputs.example import example_instance

pytestmark = pytest.mark.system

# Written for this test; none of them stands in the training data.
GOOD = [
    EXAMPLE_SENTENCE,
    "I love this phone, it works perfectly.",
    "The food was delicious and the staff were friendly.",
    "Best day ever, I am so happy!",
    "An excellent product, highly recommended.",
    "She did a great job and everyone was pleased.",
    "The battery life is amazing.",
    "This is the most beautiful song I have heard.",
    "A brilliant and moving story.",
    "Thank you so much, you are awesome.",
    "We had a fantastic holiday.",
    "I am thrilled with the results.",
]
BAD = [
    "This was terrible and I hated every minute.",
    "The worst movie I have ever seen.",
    "The food was awful and the waiter was rude.",
    "It broke after one day, complete waste of money.",
    "A boring, stupid and ugly mess.",
    "I feel sad and angry today.",
    "The screen is horrible and the sound is bad.",
    "What a disgusting place.",
    "He lost his job and is miserable.",
    "The service was slow and the room was dirty.",
    "This product is useless.",
    "My head hurts and I feel sick.",
]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_bundle_is_readable_and_its_pinned_digest_is_right(demo_models: Path, name: str) -> None:
    bundle = read_bundle(demo_models / name)
    assert bundle.tables.model.name == name
    assert verify(bundle)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_the_example_shown_for_a_model_is_one_that_it_takes(demo_models: Path, name: str) -> None:
    model = load_model(demo_models / name, device="cpu")
    (row,) = prepare(model.input, [example_instance(model.input)], InputLimits(10_000, 100))
    assert len(model.predict_batch([row.payload])) == 1


def test_the_digits_pipeline_reads_digits_that_it_has_not_seen(demo_models: Path) -> None:
    import joblib

    path = demo_models / "digits" / "model.joblib"
    table = tomllib.loads((demo_models / "digits" / "jitney.toml").read_text())
    assert sha256(path.read_bytes()).hexdigest() == table["model"]["sha256"]
    model = joblib.load(path)
    _, rows, _, shown = digits.held_out_split()
    assert model.score(rows, shown) > 0.95
    assert model.predict([EXAMPLE_ROW]).tolist() == [EXAMPLE_DIGIT]
    assert list(EXAMPLE_ROW) in rows.tolist()


def test_plain_english_sentences_get_their_labels(demo_models: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # it would leave a thread behind
    directory = demo_models / "sentiment" / "model"
    assert (directory / "model.safetensors").is_file()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForSequenceClassification.from_pretrained(directory).eval()
    assert model.config.id2label == {0: "negative", 1: "positive"}

    def label(text: str) -> str:
        with torch.inference_mode():
            return model.config.id2label[int(model(**tokenizer(text, return_tensors="pt")).logits.argmax())]

    assert {text: label(text) for text in GOOD} == dict.fromkeys(GOOD, "positive")
    assert {text: label(text) for text in BAD} == dict.fromkeys(BAD, "negative")


Infer = Callable[[Any], Any]


def onnx_infer(bundle: Path) -> Infer:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(bundle / "model.onnx"), providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {session.get_inputs()[0].name: images})[0]


def torchscript_infer(bundle: Path) -> Infer:
    import torch

    model = torch.jit.load(str(bundle / "model.pt")).eval()

    def infer(images: Any) -> Any:
        with torch.inference_mode():
            return model(torch.from_numpy(images)).numpy()

    return infer


def as_model_input(photo: Path, table: dict[str, Any]) -> Any:
    """The photo as the bundle describes it: shorter side, centre crop, normalised, [C, H, W] float32."""
    from PIL import Image

    with Image.open(photo) as opened:
        image = opened.convert("RGB")
    factor = table["resize_shorter"] / min(image.size)
    image = image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC)
    height, width = table["crop"]
    left, top = (image.width - width) // 2, (image.height - height) // 2
    pixels = np.asarray(image.crop((left, top, left + width, top + height)), dtype=np.float32)
    return ((pixels * table["scale"] - table["mean"]) / table["std"]).astype(np.float32).transpose(2, 0, 1)


@pytest.mark.parametrize("name, load", [("imagenet", onnx_infer), ("imagenet-torchscript", torchscript_infer)])
def test_the_two_photos_show_a_palace_and_a_daisy(demo_models: Path, name: str, load: Callable[[Path], Infer]) -> None:
    bundle = demo_models / name
    table = tomllib.loads((bundle / "jitney.toml").read_text())
    labels = (bundle / table["output"]["labels"]).read_text().splitlines()
    images = np.stack(
        [as_model_input(bundle / "samples" / photo, table["input"]) for photo in ("china.jpg", "flower.jpg")]
    )
    logits = load(bundle)(images)
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert [labels[best] for best in scores.argmax(axis=1)] == ["palace", "daisy"]
    assert scores.max(axis=1) == pytest.approx([0.32, 0.36], abs=0.05)
    assert len(labels) == len(set(labels)) == 1000
