"""Real models, made once per run: each with the framework's own answer to compare with."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_makers import Digits, bert_config, export_pt2, export_sklearn, linear_onnx, make_tokenizer


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def digits() -> Digits:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    data, target = load_digits(return_X_y=True)
    estimator = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(data[:500], target[:500])
    return Digits(estimator, data)


@pytest.fixture(scope="session")
def digits_pickle(models: Path, digits: Digits) -> Path:
    path = models / "digits.pkl"
    path.write_bytes(pickle.dumps(digits.estimator))
    return path


@pytest.fixture(scope="session")
def digits_joblib(models: Path, digits: Digits) -> Path:
    import joblib

    path = models / "digits.joblib"
    joblib.dump(digits.estimator, path)
    return path


@pytest.fixture(scope="session")
def digits_onnx(models: Path, digits: Digits) -> Path:
    return export_sklearn(
        digits.estimator, 64, models / "digits.onnx", options={id(digits.estimator): {"zipmap": False}}
    )


@pytest.fixture(scope="session")
def zipmap_onnx(models: Path, digits: Digits) -> Path:
    return export_sklearn(digits.estimator, 64, models / "zipmap.onnx")


@pytest.fixture(scope="session")
def net() -> Any:
    """A small network with batch normalisation and dropout, in evaluation mode."""
    import torch

    torch.manual_seed(3)
    layers = (torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3))
    network = torch.nn.Sequential(*layers)
    network(torch.randn(64, 4))
    return network.eval()


@pytest.fixture(scope="session")
def traced(models: Path, net: Any) -> Path:
    import torch

    path = models / "net.pt"
    torch.jit.trace(net, torch.randn(2, 4)).save(str(path))
    return path


@pytest.fixture(scope="session")
def exported(models: Path, net: Any) -> Path:
    import torch

    return export_pt2(models / "net.pt2", net, torch.randn(2, 4))


@pytest.fixture(scope="session")
def net_onnx(models: Path, net: Any) -> Path:
    return linear_onnx(models / "affine.onnx")


@pytest.fixture(scope="session")
def save_bert(models: Path) -> Callable[..., Path]:
    """Save a tiny, randomly initialised BERT under a name; `head` is the class to save."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()

    def save(name: str, head: str = "BertForSequenceClassification", **changes: Any) -> Path:
        torch.manual_seed(5)
        directory = models / name
        getattr(transformers, head)(bert_config(**changes)).eval().save_pretrained(directory)
        make_tokenizer(model_max_length=512).save_pretrained(directory)
        return directory

    return save


@pytest.fixture(scope="session")
def sentiment(save_bert: Callable[..., Path]) -> Path:
    return save_bert("sentiment", num_labels=2, id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})


@pytest.fixture(scope="session")
def embedder(save_bert: Callable[..., Path]) -> Path:
    return save_bert("embedder", head="BertModel")


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[..., Path]:
    """Put a `jitney.toml` beside copies, or links, of artifacts in a fresh directory."""

    def make(toml: str, *artifacts: Path) -> Path:
        directory = tmp_path / "bundle"
        directory.mkdir(exist_ok=True)
        (directory / "jitney.toml").write_text(toml, encoding="utf-8")
        for artifact in artifacts:
            if artifact.is_dir():
                shutil.copytree(artifact, directory / artifact.name)
            else:
                shutil.copy(artifact, directory / artifact.name)
        return directory

    return make
