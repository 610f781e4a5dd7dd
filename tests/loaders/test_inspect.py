"""`jitney inspect` on models of every kind, and on what is no model."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from model_makers import Digits, value_onnx

from loaders import ModelHandle, load_model, pin
from loaders.bundle import digest
from loaders.signature import TabularInput, TensorInput
from service.cli import main
from service.cli.model_card import curl
from service.cli.model_text import _size
from service.cli.trial import tried
from service.settings import Settings


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The command reads the environment and ./.env."""
    before = dict(os.environ)
    for name in Settings.model_fields:
        os.environ.pop(name.upper(), None)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.clear()
    os.environ.update(before)


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def card(*arguments: object) -> dict[str, Any]:
    result = inspect(*arguments, "--json")
    assert result.exit_code == 0, result.output
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


@pytest.fixture
def digits_bundle(bundle: Callable[..., Path], digits_joblib: Path) -> Path:
    return bundle('[model]\nname = "digits"\nversion = "7"\nfile = "digits.joblib"\n', digits_joblib)


def test_a_pinned_estimator_is_told_with_all_that_matters(digits_bundle: Path, digits: Digits) -> None:
    sha256 = pin(digits_bundle)
    facts = card(digits_bundle)
    assert (facts["name"], facts["version"], facts["format"], facts["device"]) == ("digits", "7", "joblib", "cpu")
    size = (digits_bundle / "digits.joblib").stat().st_size
    assert facts["file"] == {"name": "digits.joblib", "bytes": size, "sha256": sha256, "pinned": True}
    assert facts["input"] == {
        "kind": "tabular", "columns": None, "width": 64, "allow_null": False, "dtype": "float64",
        "without_null": [],
    }  # fmt: skip
    assert facts["output"] == {"task": None, "labels": list(range(10)), "top_k": None, "softmax": False}
    assert (facts["parameters"], facts["warnings"]) == (["proba"], [])
    assert facts["answer"] == digits.estimator.predict(np.zeros((1, 64)))[0]
    text = inspect(digits_bundle).stdout
    for part in ("digits, version 7 (joblib, on cpu)", f"{sha256} (pinned)", "64 numbers, float64, no null", "proba",
                 "10 classes (0, 1, 2, 3, 4, ...)", facts["request"]["curl"]):  # fmt: skip
        assert part in text


def test_a_pickle_is_loaded_only_when_the_service_would(digits_bundle: Path) -> None:
    refused = inspect(digits_bundle)
    assert refused.exit_code == 1
    assert "ALLOW_PICKLE=true" in refused.stderr
    os.environ["ALLOW_PICKLE"] = "true"
    (warning,) = card(digits_bundle)["warnings"]
    assert "not pinned" in warning
    text = inspect(digits_bundle).stdout
    assert f"not pinned; `jitney pin {digits_bundle}` does" in text
    assert warning in text


def test_a_dotenv_file_and_other_settings_count(digits_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("ALLOW_PICKLE=true\nMODEL_NAME=other\nBIND=:9000\n")
    facts = card(digits_bundle)
    assert facts["name"] == "other"
    assert "http://127.0.0.1:9000/predict" in facts["request"]["curl"]


def test_a_text_model_is_told_with_its_length_labels_and_precision(
    bundle: Callable[..., Path], sentiment: Path
) -> None:
    toml = '[model]\nfile = "sentiment"\ndtype = "bfloat16"\n[input]\nkind = "text"\nmax_length = 16\n'
    facts = card(bundle(toml, sentiment))
    packs = facts["input"].pop("packs")
    assert packs in {"one row", "rows"}, "as the threads of this machine have it"
    assert facts["input"] == {
        "kind": "text",
        "tokenised": True,
        "max_length": 16,
        "pad_to_multiple_of": None,
    }
    assert facts["output"] == {"task": "classification", "labels": ["bad", "good"], "top_k": None, "softmax": True}
    assert facts["dtype"] == "bfloat16"
    assert facts["answer"]["label"] in {"bad", "good"}
    text = inspect(Path("bundle")).stdout
    assert "(transformers, on cpu, bfloat16)" in text
    assert f"cut after 16 tokens, several in {packs}" in text
    assert "text, cut after 16 tokens" in text
    assert "2 classes (bad, good)" in text


def test_a_picture_model_is_told_with_its_preparation(bundle: Callable[..., Path], tmp_path: Path) -> None:
    path = value_onnx(tmp_path / "m.onnx", [("Flatten", ["x"], "y", {})], outputs=["y"], row=[3, 2, 4])
    toml = (
        '[model]\nfile = "m.onnx"\n[input]\nkind = "image"\nsize = [2, 4]\nresize_shorter = 5\nmean = [0.5, 0.4, 0.3]\n'
    )
    text = inspect(bundle(toml, path)).stdout
    assert "image: 2 x 4 (height x width), channels first, float32" in text
    assert "shorter side to 5, centre 2 x 4, bilinear; (pixel x 0.00392157 - [0.5, 0.4, 0.3]) / 1" in text
    assert "curl -s -F file=@photo.jpg http://127.0.0.1:8000/predict" in text
    assert f"{digest(path)} (not pinned" in text


def test_a_bare_model_is_told_and_what_it_does_not_say(exported: Path, traced: Path, sentiment: Path) -> None:
    text = inspect(exported).stdout
    assert "net, version 1 (pt2, on cpu)" in text
    assert "tensor: [4], float32" in text
    assert "not pinned; a jitney.toml can pin it" in text
    assert "of a shape that the file does not tell" in inspect(traced).stdout
    assert "not pinned; a jitney.toml can pin it" in inspect(sentiment).stdout


def test_a_model_that_fails_on_made_up_rows_is_refused_as_by_the_service(tmp_path: Path) -> None:
    path = value_onnx(tmp_path / "m.onnx", [("MatMul", ["x", "x"], "y", {})], outputs=["y"])
    result = inspect(path)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
    assert "the warm-up batch of 1 row" in result.stderr
    assert "WARMUP=false" in result.stderr
    assert "the warm-up batch of 1 row" in json.loads(inspect(path, "--json").stdout)["error"]
    os.environ["WARMUP"] = "false"
    (warning,) = card(path)["warnings"]
    assert "fails on a made-up row" in warning


def test_a_declared_shape_that_the_model_rejects_is_told_in_a_line(bundle: Callable[..., Path], traced: Path) -> None:
    result = inspect(bundle('[model]\nfile = "net.pt"\n[input]\nkind = "tensor"\nshape = [5]\n', traced))
    assert result.exit_code == 1
    assert "mat1 and mat2 shapes cannot be multiplied (1x5 and 4x8)" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_model_that_cannot_take_a_full_batch_is_refused(tmp_path: Path) -> None:
    one_by_one = ModelHandle.from_callable(
        lambda rows: [1.0] * min(len(rows), 2), name="m", input=TabularInput(width=1)
    )
    assert "one result for each row" in str(tried(one_by_one, Settings()).refused)
    assert tried(one_by_one, Settings(max_batch_size=2)).refused is None
    assert tried(one_by_one, Settings(warmup=False, self_check="off")).answer == 1.0


def test_a_model_of_columns_is_told_with_their_types_and_a_request_that_it_answers(tmp_path: Path) -> None:
    import pandas
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    frame = pandas.DataFrame(
        {"age": [3.0, 40, 50, 60], "city": ["Graz", "Bern"] * 2, "zip": [7, 8] * 2, "own": [True, False] * 2}
    )
    columns = make_column_transformer((OneHotEncoder(), ["city", "zip", "own"]), remainder="passthrough")
    path = tmp_path / "m.pkl"
    path.write_bytes(pickle.dumps(make_pipeline(columns, LogisticRegression()).fit(frame, ["no", "yes"] * 2)))
    os.environ["ALLOW_PICKLE"] = "true"
    facts = card(path)
    assert facts["input"]["column_types"] == ["numeric", "text", "number", "boolean"]
    assert '{"age": 0, "city": "Bern", "zip": 7, "own": false}' in facts["request"]["curl"]
    assert facts["answer"] in ("no", "yes")
    text = inspect(path).stdout
    assert "4 columns (age: numeric, city: text, zip: number, own: boolean)" in text
    assert "An answer, here to this request:" in text


def test_a_request_of_unknown_shape_is_shown_as_a_guess(traced: Path, exported: Path) -> None:
    text = inspect(traced).stdout
    assert "how many numbers, the model does not tell; put a row of yours there" in text
    assert card(traced)["request"]["is_whole"] is False
    assert "put a row of yours" not in inspect(exported).stdout


@pytest.mark.parametrize(
    "model", ["digits_joblib", "digits_onnx", "zipmap_onnx", "net_onnx", "traced", "exported", "sentiment", "embedder"]
)
def test_the_request_shown_for_a_model_is_one_that_it_takes(model: str, request: pytest.FixtureRequest) -> None:
    from service.inputs import InputLimits, prepare

    os.environ["ALLOW_PICKLE"] = "true"
    path = request.getfixturevalue(model)
    words = shlex.split(card(path)["request"]["curl"])
    (row,) = prepare(load_model(path, allow_pickle=True).input, json.loads(words[words.index("-d") + 1])["instances"],
                     InputLimits(1, 100))  # fmt: skip
    assert row is not None


def test_a_repository_is_told_from_a_model(tmp_path: Path) -> None:
    for version in ("9", "10"):
        (tmp_path / "models" / "iris" / version).mkdir(parents=True)
        (tmp_path / "models" / "iris" / version / "jitney.toml").touch()
    for given in ("models", "models/iris"):
        result = inspect(given)
        assert result.exit_code == 1
        assert "`jitney serve --repository models`" in result.stderr
        assert "`jitney inspect models/iris/10`" in result.stderr
    assert "--repository" not in inspect(tmp_path).stderr


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[model]\nfile = "nothing.onnx"\n', "[model] file: 'nothing.onnx' cannot be read"),
        ('[model]\nfile = "../x"\n', "[model] file leads outside"),
        ("[model\n", "not valid TOML"),
        ('[model]\nsize = 3\n[input]\nkind = "sound"\n', "[model] size"),
    ],
)
def test_a_broken_bundle_is_told_in_one_line_without_a_traceback(
    bundle: Callable[..., Path], toml: str, said: str
) -> None:
    directory = bundle(toml)
    result = inspect(directory)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    for_programs = inspect(directory, "--json")
    assert for_programs.exit_code == 1
    assert said in json.loads(for_programs.stdout)["error"]


@pytest.mark.parametrize(
    ("model", "said"),
    [("nope", "no model at 'nope'"), ("http://host/m.onnx", "'http://host/m.onnx' is a URL"), (".", "is not a model")],
)
def test_what_is_no_model_is_told(model: str, said: str) -> None:
    result = inspect(model)
    assert result.exit_code == 1
    assert said in result.stderr


def test_a_wrong_setting_is_told_by_its_name(exported: Path) -> None:
    os.environ["DEVICE"] = "tpu"
    result = inspect(exported)
    assert result.exit_code == 1
    assert "DEVICE='tpu'" in result.stderr


@pytest.mark.parametrize(
    "spec",
    [
        TabularInput(width=3),
        TabularInput(columns=("it's", 'a "name"')),
        TabularInput(columns=tuple(f"column {number}" for number in range(100))),
        TabularInput(width=2000),
        TensorInput(shape=(2, None, 3), dtype="int64"),
        TensorInput(shape=(50, 40), dtype="bool"),
        TensorInput(),
    ],
)
def test_the_request_shown_is_one_that_the_input_takes(spec: Any) -> None:
    from service.inputs import InputLimits, prepare

    command = curl(spec, "http://127.0.0.1:8000")
    assert len(command) < 3000
    # The shell itself reads it, with a program in curl's place that prints the body.
    shown = f'curl() {{ while [ $# -gt 1 ]; do if [ "$1" = -d ]; then body=$2; fi; shift; done; \
        if [ "$body" = @- ]; then cat; else printf %s "$body"; fi; }}; {command}'
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/sh", "-c", shown], capture_output=True, check=True, env=environ)
    (row,) = prepare(spec, json.loads(done.stdout)["instances"], InputLimits(1, 1))
    assert row is not None
    assert shlex.split(command)[-1] == "http://127.0.0.1:8000/predict"


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 bytes"), (999, "999 bytes"), (8137, "8.14 KB"), (3_110_000_000, "3.11 GB")]
)
def test_sizes_are_shown_with_a_unit(size: int, shown: str) -> None:
    assert _size(size) == shown


def test_a_model_whose_rows_mix_is_told_and_refused_where_the_service_refuses_it() -> None:
    model = ModelHandle.from_callable(
        lambda rows: np.stack(rows) - np.stack(rows).mean(axis=0), name="m", input=TabularInput(width=2)
    )
    (finding,) = tried(model, Settings()).warnings
    assert "an answer depends on its neighbours" in finding
    assert "it is not served" in str(tried(model, Settings(self_check="strict")).refused)
    assert tried(model, Settings(self_check="strict", warmup=False)).warnings == (finding,)
    assert tried(model, Settings(self_check="off")).warnings == ()
