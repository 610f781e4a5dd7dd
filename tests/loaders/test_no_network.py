"""Loading a model reaches out to nobody, and a model from elsewhere is refused at once."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from loaders import ModelError, UnsafePathError, load_model


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempt to look up a name or to open a connection, each of which fails."""
    attempts: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> Any:
        attempts.append(arguments)
        raise OSError("there is no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    return attempts


@pytest.mark.parametrize("model", ["sentiment", "embedder", "traced", "exported", "digits_onnx", "digits_joblib"])
def test_no_connection_is_opened_to_load_a_model(calls: list[Any], request: pytest.FixtureRequest, model: str) -> None:
    load_model(request.getfixturevalue(model), allow_pickle=True).close()
    assert calls == []


def test_a_hub_name_in_a_configuration_is_not_followed(calls: list[Any], sentiment: Path, tmp_path: Path) -> None:
    """A directory without its weights or its tokenizer names, in its configuration, where they could be had."""
    (tmp_path / "config.json").write_text(
        (sentiment / "config.json").read_text().replace("{", '{"_name_or_path": "bert-base-uncased",', 1)
    )
    with pytest.raises(ModelError):
        load_model(tmp_path)
    assert calls == []


@pytest.mark.parametrize("model", ["http://host/m.onnx", "s3://bucket/m.onnx", "hf://bert", "bert-base/uncased"])
def test_a_model_from_elsewhere_is_refused_without_asking_for_it(calls: list[Any], model: str) -> None:
    with pytest.raises(UnsafePathError):
        load_model(model)
    assert calls == []
