"""ONNX models: types, fixed batches, several outputs, and files beside the model."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from model_makers import Digits, linear_onnx, make_tokenizer, token_onnx, value_onnx
from support.callers import Callers
from support.models import GUARD_S
from support.parking import GRACE_S, Parking

from loaders import (
    DeviceError,
    MissingDependencyError,
    ModelLoadError,
    OutputSpec,
    TabularInput,
    TensorInput,
    TextInput,
    UnsafePathError,
    UntrustedModelError,
    load_model,
    pin,
)
from loaders.bundle import digest
from loaders.devices import compute_threads, cpu_count
from loaders.formats.onnx import OnnxLoader, _session, _shared_session
from loaders.formats.onnx_external import external_files


@pytest.mark.parametrize(
    ("dtype", "spec"),
    [
        ("FLOAT", TabularInput(width=4, dtype="float32")),
        ("DOUBLE", TabularInput(width=4, dtype="float64")),
        ("INT64", TensorInput(shape=(4,), dtype="int64")),
        ("INT32", TensorInput(shape=(4,), dtype="int32")),
        ("FLOAT16", TensorInput(shape=(4,), dtype="float16")),
    ],
)
@pytest.mark.parametrize("given", [np.float64, np.float32, np.int64, object])
def test_rows_are_cast_to_the_type_that_the_model_declares(tmp_path: Path, dtype: str, spec: Any, given: Any) -> None:
    handle = load_model(linear_onnx(tmp_path / "m.onnx", dtype=dtype))
    assert handle.input == spec
    results = handle.predict_batch([np.array([1, 2, 3, 4], dtype=given), np.array([5, 6, 7, 8], dtype=given)])
    assert [row.tolist() for row in results] == [[2, 4, 6, 8], [10, 12, 14, 16]]
    assert results[0].dtype == np.dtype(spec.dtype)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_a_fixed_batch_dimension_serves_any_number_of_rows(tmp_path: Path, rows: int) -> None:
    handle = load_model(linear_onnx(tmp_path / "m.onnx", batch=3))
    results = handle.predict_batch([np.full(4, number, np.float32) for number in range(rows)])
    assert [row.tolist() for row in results] == [[2.0 * number] * 4 for number in range(rows)]


def test_a_fixed_batch_serves_several_outputs_and_lists(tmp_path: Path, zipmap_onnx: Path, digits: Digits) -> None:
    import onnx

    model = onnx.load(zipmap_onnx)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    path = tmp_path / "fixed.onnx"
    onnx.save(model, path)
    data = digits.data[500:503].astype(np.float32)
    results = load_model(path).predict_batch(list(data))
    flexible = load_model(zipmap_onnx).predict_batch(list(data))
    assert len(results) == 3
    for one, other in zip(results, flexible, strict=True):
        assert one["output_label"] == other["output_label"]
        assert one["output_probability"] == pytest.approx(other["output_probability"], abs=1e-5)


def test_a_zipmap_becomes_an_object_of_scores_by_label_for_each_row(zipmap_onnx: Path, digits: Digits) -> None:
    results = load_model(zipmap_onnx).predict_batch(list(digits.data[500:504].astype(np.float32)))
    expected = digits.estimator.predict_proba(digits.data[500:504])
    for row, scores in zip(results, expected, strict=True):
        assert list(row["output_probability"]) == [str(label) for label in range(10)]
        np.testing.assert_allclose(list(row["output_probability"].values()), scores, atol=1e-4)


@pytest.mark.parametrize("batch", ["n", 2])
def test_a_model_that_answers_with_too_few_results_is_not_hidden(tmp_path: Path, batch: int | str) -> None:
    path = value_onnx(tmp_path / "m.onnx", [("ReduceSum", ["x"], "y", {"keepdims": 1})], outputs=["y"], batch=batch)
    results = load_model(path).predict_batch([np.ones(4, np.float32)] * 4)
    assert len(results) == 1


def test_a_text_input_is_served_as_text(tmp_path: Path) -> None:
    for rank in (1, 2):
        path = value_onnx(
            tmp_path / f"m{rank}.onnx",
            [("Identity", ["x"], "y", {})],
            outputs=["y"],
            kind="STRING",
            row=[1] * (rank - 1),
        )
        handle = load_model(path)
        assert handle.input == TextInput()
        assert [np.ravel(row).tolist() for row in handle.predict_batch(["a", "b"])] == [["a"], ["b"]]


def test_several_texts_per_row_are_refused(tmp_path: Path) -> None:
    nodes = [("Identity", ["x"], "y", {})]
    path = value_onnx(tmp_path / "m.onnx", nodes, outputs=["y"], kind="STRING", row=[3])
    with pytest.raises(ModelLoadError, match="several texts"):
        load_model(path)


def test_an_input_without_a_batch_dimension_is_refused(tmp_path: Path) -> None:
    path = value_onnx(tmp_path / "m.onnx", [("Identity", ["x"], "y", {})], outputs=["y"], batch=None, row=[])
    with pytest.raises(ModelLoadError, match="no batch dimension"):
        load_model(path)


def test_an_input_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    import onnx

    path = value_onnx(tmp_path / "m.onnx", [("SequenceLength", ["x"], "y", {})], outputs=["y"], kind="INT64", row=[])
    model = onnx.load(path)
    model.graph.input[0].CopyFrom(onnx.helper.make_tensor_sequence_value_info("x", onnx.TensorProto.FLOAT, None))
    onnx.save(model, path)
    with pytest.raises(ModelLoadError, match="the type seq"):
        load_model(path)


def test_unknown_inputs_are_refused_by_name(tmp_path: Path) -> None:
    path = value_onnx(tmp_path / "m.onnx", [("Add", ["x", "z"], "y", {})], inputs=["x", "z"], outputs=["y"])
    with pytest.raises(ModelLoadError, match=r"takes 2 inputs \(x, z\)"):
        load_model(path)


def test_weights_beside_the_model_are_read(tmp_path: Path) -> None:
    handle = load_model(linear_onnx(tmp_path / "m.onnx", external="weights.bin"))
    assert handle.predict_batch([np.ones(4, np.float32)])[0].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("named", ['file = "m.onnx"', 'file = "m.onnx"\nformat = "onnx"'])
def test_a_pin_covers_the_weights_beside_the_model(bundle: Callable[..., Path], named: str) -> None:
    directory = bundle(f"[model]\n{named}\n")
    linear_onnx(directory / "m.onnx", external="weights.bin")
    sha256 = pin(directory)
    assert sha256 != digest(directory / "m.onnx")
    assert load_model(directory).predict_batch([np.ones(4, np.float32)])[0].tolist() == [2, 2, 2, 2]
    (directory / "weights.bin").write_bytes(np.full(4, 3, np.float32).tobytes())
    with pytest.raises(UntrustedModelError, match="not the pinned"):
        load_model(directory)
    assert pin(directory) != sha256
    assert load_model(directory).predict_batch([np.ones(4, np.float32)])[0].tolist() == [3, 3, 3, 3]


def test_a_model_without_weights_beside_it_is_pinned_by_its_own_digest(bundle: Callable[..., Path]) -> None:
    directory = bundle('[model]\nfile = "m.onnx"\n')
    linear_onnx(directory / "m.onnx")
    assert pin(directory) == digest(directory / "m.onnx")


def test_a_pin_of_what_is_no_onnx_model_is_its_own_digest(bundle: Callable[..., Path]) -> None:
    directory = bundle('[model]\nfile = "m.onnx"\n')
    (directory / "m.onnx").write_bytes(b"nothing of the kind")
    assert pin(directory) == digest(directory / "m.onnx")
    with pytest.raises(ModelLoadError, match="not an ONNX model"):
        load_model(directory)


def test_weights_outside_the_directory_are_not_read_to_be_pinned(bundle: Callable[..., Path]) -> None:
    directory = bundle('[model]\nfile = "m.onnx"\n')
    linear_onnx(directory / "m.onnx", external="../weights.bin")
    with pytest.raises(UnsafePathError, match="external data"):
        pin(directory)


@pytest.mark.parametrize("where", ["../weights.bin", "link.bin"])
def test_weights_outside_the_models_directory_are_refused(tmp_path: Path, where: str) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "link.bin").symlink_to(tmp_path / "weights.bin")
    path = linear_onnx(directory / "m.onnx", external=where)
    with pytest.raises(UnsafePathError, match="external data"):
        load_model(path)


def test_weights_of_a_nested_graph_are_found_too(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], name="w", data_location=TensorProto.EXTERNAL)
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/hostname"
    inner = helper.make_graph([], "inner", [], [], [tensor])
    outer = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=inner)], "outer", [], [])
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.ModelProto.SerializeToString(helper.make_model(outer)))
    with pytest.raises(UnsafePathError):
        external_files(path)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    path = linear_onnx(tmp_path / "m.onnx", external="weights.bin")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelLoadError, match=r"weights\.bin"):
        load_model(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x3a\x7f\x01", "longer than the message"),
        (b"\x3b", "not a wire type"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "longer than 64 bits"),
        (b"\x08\xff", "not an ONNX model"),
        (b"", "empty"),
    ],
)
def test_what_is_not_in_the_wire_format_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=reason):
        external_files(path)


def test_numbers_of_fixed_size_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x09" + b"\xff" * 8 + b"\x0d" + b"\xff" * 4)
    external_files(path)


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    content = b""
    for _ in range(60):
        for tag in (b"\x32", b"\x2a", b"\x0a"):  # attribute.g, node.attribute, graph.node
            size, length = len(content), b""
            while size > 127:
                length += bytes([size & 127 | 128])
                size >>= 7
            content = tag + length + bytes([size]) + content
    path = tmp_path / "m.onnx"
    header = len(content)
    path.write_bytes(b"\x3a" + bytes([header & 127 | 128, header >> 7]) + content)
    with pytest.raises(ModelLoadError, match="nested too deeply"):
        external_files(path)


class Runtime(types.ModuleType):
    """Stands for onnxruntime: remembers how sessions are made, and starts the providers it is told to."""

    def __init__(self, available: list[str], started: list[str]) -> None:
        super().__init__("onnxruntime")
        self.available, self.started = available, started
        self.options = types.SimpleNamespace(entries={})
        self.options.add_session_config_entry = self.options.entries.__setitem__
        self.asked: list[Any] = []

    def SessionOptions(self) -> Any:
        return self.options

    def get_available_providers(self) -> list[str]:
        return self.available

    def InferenceSession(self, path: str, *, sess_options: Any, providers: list[Any]) -> Any:
        self.asked = providers
        return types.SimpleNamespace(get_providers=lambda: self.started)


CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.mark.parametrize(
    ("requested", "available", "started", "device"),
    [
        ("cpu", [CUDA, CPU], [CPU], "cpu"),
        ("auto", [CPU], [CPU], "cpu"),
        ("auto", [CUDA, CPU], [CPU], "cpu"),
        ("auto", [CUDA, CPU], [CUDA, CPU], "cuda:0"),
        ("cuda:1", [CUDA, CPU], [CUDA, CPU], "cuda:1"),
    ],
)
def test_the_device_is_the_one_that_the_session_really_uses(
    requested: str, available: list[str], started: list[str], device: str
) -> None:
    runtime = Runtime(available, started)
    assert _session(runtime, Path("m.onnx"), requested, 1)[1] == device
    wanted = CUDA in available and requested != "cpu"
    assert runtime.asked == ([(CUDA, {"device_id": int(device[-1]) if ":" in device else 0})] if wanted else []) + [CPU]


@pytest.mark.parametrize(("available", "reason"), [([CPU], "onnx-gpu"), ([CUDA, CPU], "could not start")])
def test_a_gpu_that_is_not_there_is_an_error(available: list[str], reason: str) -> None:
    with pytest.raises(DeviceError, match=reason):
        _session(Runtime(available, [CPU]), Path("m.onnx"), "cuda", 1)


class OnCard:
    """A real session that says it runs on a card; the first run stops half-way."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.parking = Parking()
        self.runs = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_providers(self) -> list[str]:
        return [CUDA, CPU]

    def run(self, outputs: Any, feed: Any) -> Any:
        self.runs += 1
        if self.runs == 1:
            self.parking.stop_here()
            assert self.runs == 1, "another batch came in"
        return self._real.run(outputs, feed)


def test_a_session_on_a_card_is_shared_by_threads_and_runs_one_batch_at_a_time(
    digits_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = OnCard(onnxruntime.InferenceSession(str(digits_onnx)))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda path, **options: session)
    handle = OnnxLoader().load(digits_onnx, name="m", version="1", metadata={"device": "cuda"})
    assert handle.is_pipelined
    rows, callers = [np.ones(64, np.float32)], Callers()
    callers.start(lambda: handle.predict_batch(rows))
    assert session.parking.parked.wait(GUARD_S)
    callers.start(lambda: handle.predict_batch(rows * 3))
    assert not threading.Event().wait(GRACE_S)
    session.parking.go.set()
    assert [len(outcome) for outcome in callers.finish()] == [1, 3]


def test_threads_are_counted_and_do_not_spin() -> None:
    runtime = Runtime([CPU], [CPU])
    _shared_session(runtime, Path("m.onnx"), "cpu", 1, cpu_count())
    assert runtime.options.intra_op_num_threads == compute_threads()
    assert runtime.options.inter_op_num_threads == 1
    assert runtime.options.entries["session.intra_op.allow_spinning"] == "0"


def test_a_missing_runtime_is_answered_with_the_extra(digits_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependencyError, match=r"jitney\[onnx\]"):
        OnnxLoader().load(digits_onnx, name="m", version="1")


def test_a_model_of_tokens_with_a_tokenizer_takes_text(tmp_path: Path) -> None:
    handle = load_model(token_onnx(tmp_path, make_tokenizer()))
    assert isinstance(handle.input, TextInput)
    assert handle.input.encode is not None
    rows = [handle.input.encode(text) for text in ("good", "a very good film")]
    short, long = handle.predict_batch(rows)
    # The model gives each token's id times its mask: the padding's numbers are gone, and each text's own are whole.
    assert short.ravel().tolist() == list(rows[0].ids)
    assert long.ravel().tolist() == list(rows[1].ids)


def test_a_model_of_tokens_is_pooled_when_its_task_is_embedding(tmp_path: Path, bundle: Callable[..., Path]) -> None:
    token_onnx(tmp_path, make_tokenizer())
    directory = bundle(
        '[model]\nfile = "tokens.onnx"\n[output]\ntask = "embedding"\n',
        tmp_path / "tokens.onnx",
        tmp_path / "tokenizer.json",
    )
    handle = load_model(directory)
    assert handle.output == OutputSpec(task="embedding")
    assert isinstance(handle.input, TextInput)
    assert handle.input.encode is not None
    results = handle.predict_batch([handle.input.encode(text) for text in ("good", "a very good film")])
    assert np.asarray(results).tolist() == [[1.0], [1.0]]


def test_a_fixed_length_is_padded_to_and_never_passed(tmp_path: Path) -> None:
    handle = load_model(token_onnx(tmp_path, make_tokenizer(), length=6, dtype="INT32"))
    spec = handle.input
    assert isinstance(spec, TextInput)
    assert spec.encode is not None
    assert (spec.max_length, spec.padded_length(3)) == (6, 6)
    cut = spec.encode("a very very good film not bad")
    assert cut.truncated
    (result,) = handle.predict_batch([cut])
    assert result.ravel().tolist() == list(cut.ids)


def test_the_files_beside_a_model_of_tokens_limit_its_texts(tmp_path: Path) -> None:
    path = token_onnx(tmp_path, make_tokenizer())
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 9}')
    (tmp_path / "tokenizer_config.json").write_text("[]")
    handle = load_model(path)
    assert isinstance(handle.input, TextInput)
    assert handle.input.max_length == 9


def test_a_model_of_tokens_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    path = token_onnx(tmp_path, make_tokenizer())
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json"):
        load_model(path)


def test_a_broken_tokenizer_is_refused(tmp_path: Path) -> None:
    path = token_onnx(tmp_path, make_tokenizer())
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match="not a tokenizer"):
        load_model(path)


def test_a_model_of_tokens_for_a_fixed_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="exactly 2 texts"):
        load_model(token_onnx(tmp_path, make_tokenizer(), batch=2))


def test_a_mask_alone_is_not_enough(tmp_path: Path) -> None:
    path = value_onnx(
        tmp_path / "m.onnx", [("Identity", ["attention_mask"], "y", {})], inputs=["attention_mask"], outputs=["y"]
    )
    make_tokenizer().backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelLoadError, match="input_ids"):
        load_model(path)
