"""Exported programs: batches, outputs, modes, and archives that hold more than a program."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_makers import export_pt2

from loaders import ImageInput, ModelLoadError, TensorInput, load_model
from loaders.formats.pt2_archive import _is_arithmetic

Dim = torch.export.Dim


class Heads(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"twice": x * 2, "sums": (x.sum(dim=1), x.sum(dim=1) + 1)}


class Pairs(torch.nn.Module):
    """Takes an even number of columns only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], -1, 2).sum(dim=1)


class Memory(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x[0])
        return x + self.total


def numbered(count: int, width: int = 3) -> list[Any]:
    return [np.full(width, number, np.float32) for number in range(count)]


@pytest.fixture(scope="module")
def linear() -> torch.nn.Module:
    torch.manual_seed(2)
    return torch.nn.Linear(3, 2).eval()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_a_fixed_batch_dimension_serves_any_number_of_rows(models: Path, linear: torch.nn.Module, rows: int) -> None:
    path = models / "fixed.pt2"
    if not path.exists():
        export_pt2(path, linear, torch.ones(3, 3), free={})
    results = load_model(path).predict_batch(numbered(rows))
    expected = linear(torch.tensor(np.stack(numbered(rows)))).detach()
    assert len(results) == rows
    np.testing.assert_allclose(np.stack(results), expected, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 4, 5, 6, 9, 11])
def test_the_bounds_of_a_batch_dimension_are_kept(models: Path, rows: int) -> None:
    path = models / "bounded.pt2"
    if not path.exists():
        export_pt2(path, Heads(), torch.ones(5, 3), free={0: Dim("batch", min=4, max=5)})
    results = load_model(path).predict_batch(numbered(rows))
    assert [row["twice"].tolist() for row in results] == [[2.0 * number] * 3 for number in range(rows)]
    assert [float(row["sums_0"]) for row in results] == [3.0 * number for number in range(rows)]
    assert [float(row["sums_1"]) for row in results] == [3.0 * number + 1 for number in range(rows)]


def test_the_input_is_what_the_program_says(models: Path, exported: Path) -> None:
    assert load_model(exported).input == TensorInput(shape=(4,), dtype="float32")
    path = export_pt2(models / "any-width.pt2", Heads(), torch.ones(2, 3), free={0: Dim.AUTO, 1: Dim.AUTO})
    assert load_model(path).input == TensorInput(shape=(None,), dtype="float32")
    embedding = torch.nn.Embedding(5, 2).eval()
    path = export_pt2(models / "whole-numbers.pt2", embedding, torch.ones(2, 3, dtype=torch.int64), free={})
    handle = load_model(path)
    assert handle.input == TensorInput(shape=(3,), dtype="int64")
    assert handle.predict_batch([np.array([1, 2, 3])])[0].shape == (3, 2)


def test_a_row_of_a_size_that_the_program_excludes_is_an_error_of_its_own(models: Path) -> None:
    path = export_pt2(models / "pairs.pt2", Pairs(), torch.ones(3, 8), free={0: Dim.AUTO, 1: Dim.AUTO})
    handle = load_model(path)
    assert handle.predict_batch([np.arange(6, dtype=np.float32)])[0].tolist() == [6, 9]
    with pytest.raises(AssertionError, match="Guard failed"):
        handle.predict_batch([np.arange(7, dtype=np.float32)])


def test_weights_in_bfloat16_take_float32_rows_and_give_float32_results(models: Path) -> None:
    module = torch.nn.Linear(3, 2).to(torch.bfloat16).eval()
    path = export_pt2(models / "half.pt2", module, torch.ones(2, 3, dtype=torch.bfloat16))
    handle = load_model(path)
    assert handle.input == TensorInput(shape=(3,), dtype="float32")
    (result,) = handle.predict_batch(numbered(1))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, module(torch.zeros(1, 3, dtype=torch.bfloat16))[0].detach().float())


def test_another_type_than_the_programs_own_is_refused(bundle: Callable[..., Path], exported: Path) -> None:
    directory = bundle('[model]\nfile = "net.pt2"\ndtype = "float32"\n', exported)
    assert load_model(directory).fmt == "pt2"
    directory = bundle('[model]\nfile = "net.pt2"\ndtype = "bfloat16"\n')
    with pytest.raises(ModelLoadError, match=r"\[model\] dtype: .*fixed when it is exported.*float32"):
        load_model(directory)


def test_a_bundle_says_that_the_rows_are_pictures(models: Path, bundle: Callable[..., Path]) -> None:
    path = export_pt2(models / "flat.pt2", torch.nn.Flatten(), torch.ones(2, 3, 4, 6))
    toml = '[model]\nfile = "flat.pt2"\n[input]\nkind = "image"\nsize = [4, 6]\n'
    handle = load_model(bundle(toml, path))
    assert handle.input == ImageInput(height=4, width=6)
    assert handle.predict_batch([np.ones((3, 4, 6), np.float32)])[0].shape == (72,)
    with pytest.raises(ModelLoadError, match=r"\[input\] size"):
        load_model(bundle(toml.replace("[4, 6]", "[6, 4]")))


@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3)])
def test_a_program_exported_in_training_mode_is_refused(models: Path, layer: torch.nn.Module) -> None:
    path = export_pt2(models / f"{type(layer).__name__}.pt2", layer.train(), torch.ones(2, 3))
    with pytest.raises(ModelLoadError, match="training mode"):
        load_model(path)


def test_a_program_that_remembers_earlier_calls_is_refused(models: Path) -> None:
    with pytest.raises(ModelLoadError, match="keeps state between calls"):
        load_model(export_pt2(models / "memory.pt2", Memory(), torch.ones(2, 3)))


def test_a_program_with_two_inputs_or_a_named_one_is_refused(models: Path) -> None:
    two = torch.export.export(torch.nn.Bilinear(2, 2, 1).eval(), (torch.ones(1, 2), torch.ones(1, 2)))
    named = torch.export.export(torch.nn.Linear(2, 1).eval(), (), {"input": torch.ones(1, 2)})
    for name, program in {"two": two, "named": named}.items():
        path = models / f"{name}.pt2"
        torch.export.save(program, path)
        with pytest.raises(ModelLoadError, match="exactly one, given by position"):
            load_model(path)


def test_a_file_of_another_name_is_loaded_when_its_format_is_said(tmp_path: Path, exported: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(exported.read_bytes())
    assert load_model(path, "pt2").fmt == "pt2"


# --- archives that hold more than a program --------------------------------------------------------------------


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


Change = Callable[[dict[str, bytes]], None]


@pytest.fixture
def changed(tmp_path: Path, exported: Path) -> Callable[[Change], Path]:
    """A copy of a good archive whose members were changed by a function."""

    def make(change: Change) -> Path:
        path = tmp_path / "changed.pt2"
        with zipfile.ZipFile(exported) as archive:
            members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        change(members)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"changed/{name}", content)
        return path

    return make


def in_program(change: Callable[[Any], None]) -> Change:
    def apply(members: dict[str, bytes]) -> None:
        program = json.loads(members["models/model.json"])
        change(program)
        members["models/model.json"] = json.dumps(program).encode()

    return apply


def set_target(target: str) -> Change:
    return in_program(lambda program: program["graph_module"]["graph"]["nodes"][0].update(target=target))


def set_guards(*guards: str) -> Change:
    return in_program(lambda program: program.update(guards_code=list(guards)))


def set_tree(kind: str) -> Change:
    tree = json.dumps([1, {"type": kind, "context": "null", "children_spec": []}])
    return in_program(lambda program: program["graph_module"]["module_call_graph"][0]["signature"].update(in_spec=tree))


def set_expression(text: str) -> Change:
    def change(program: Any) -> None:
        values = program["graph_module"]["graph"]["tensor_values"]
        values["input"]["sizes"][0]["as_expr"]["expr_str"] = text

    return in_program(change)


def mark_as_pickle(members: dict[str, bytes]) -> None:
    name = "data/weights/model_weights_config.json"
    members[name] = members[name].replace(b'"use_pickle": false', b'"use_pickle": true', 1)


def without_program(members: dict[str, bytes]) -> None:
    del members["models/model.json"]


def test_a_copy_without_changes_is_loaded(changed: Callable[[Change], Path], exported: Path) -> None:
    rows = [np.ones(4, np.float32)]
    copied, original = load_model(changed(lambda members: None)), load_model(exported)
    np.testing.assert_array_equal(copied.predict_batch(rows), original.predict_batch(rows))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (mark_as_pickle, "stored as a pickle"),
        (lambda members: members.update({"data/constants/opaque_obj_0": b"x"}), "opaque_obj_0"),
        (lambda members: members.update({"data/constants/custom_obj_0": b"x"}), "custom_obj_0"),
        (lambda members: members.update({"data/weights/model.pt": b"x"}), "model.pt"),
        (lambda members: members.update({"data/aotinductor/model/model.so": b"x"}), "aotinductor"),
        (lambda members: members.update({"serialized_state_dict.json": b"x"}), "serialized_state_dict"),
        (without_program, "no exported program"),
        (set_target("torch.os.system"), "target holds 'torch.os.system'"),
        (set_target("torch.load"), "target holds"),
        (set_target("torch.ops.load_library.__call__"), "target holds"),
        (set_guards("__import__('os').system('true')"), "guards_code holds"),
        (set_guards("L['x'].size()[0] > 0", "exit()"), "guards_code holds"),
        (set_expression("eval('1')"), "expr_str holds"),
        (set_tree("collections.defaultdict"), "in_spec holds"),
        (set_tree("enum.Enum"), "in_spec holds"),
    ],
)
def test_an_archive_that_could_run_code_is_refused(
    changed: Callable[[Change], Path], change: Change, reason: str
) -> None:
    with pytest.raises(ModelLoadError, match=rf"refused: .*{reason}"):
        load_model(changed(change), allow_pickle=True)


def test_sample_inputs_are_never_unpickled_without_limits(changed: Callable[[Change], Path], tmp_path: Path) -> None:
    trace = tmp_path / "the-payload-ran"
    buffer = io.BytesIO()
    torch.save(Payload(trace), buffer)
    path = changed(lambda members: members.update({"data/sample_inputs/model.pt": buffer.getvalue()}))
    with pytest.raises(ModelLoadError, match="sample inputs"):
        load_model(path, allow_pickle=True)
    assert not trace.exists()
    torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    assert trace.exists(), "the payload must be one that runs"


def test_members_that_stand_there_twice_are_refused(tmp_path: Path, exported: Path) -> None:
    path = tmp_path / "twice.pt2"
    path.write_bytes(exported.read_bytes())
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("net/models/model.json", b"{}")
    with pytest.raises(ModelLoadError, match="ambiguous"):
        load_model(path)


@pytest.mark.parametrize("content", [b"[]", b"{}", b"not json", b'{"config": {"a": {}}}'])
def test_a_damaged_description_is_told(changed: Callable[[Change], Path], content: bytes) -> None:
    path = changed(lambda members: members.update({"data/weights/model_weights_config.json": content}))
    with pytest.raises(ModelLoadError, match=r"damaged torch\.export archive"):
        load_model(path)


def test_a_plain_pickle_or_zip_is_no_exported_program(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    trace = tmp_path / "the-payload-ran"
    path.write_bytes(pickle.dumps(Payload(trace)))
    with pytest.raises(ModelLoadError, match=r"torch\.export\.save"):
        load_model(path, allow_pickle=True)
    torch.save(Payload(trace), path)
    with pytest.raises(ModelLoadError, match="refused"):
        load_model(path, allow_pickle=True)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("L['x'].size()[2] >= 3", True),
        ("(1 + (((-3) + L['x'].size()[2]) // 2)) != 1 and True", True),
        ("Mul(Integer(7), Max(Integer(1), Symbol('s53', positive=True, integer=True)))", True),
        ("math.floor(L['x'].size()[1] / 2) == 4", True),
        ("math.sin(1)", False),
        ("Symbol('os.system(1)')", False),
        ("().__class__", False),
        ("L['x'].size().__class__", False),
        ("[1 for x in y]", False),
        ("lambda: 1", False),
        ("f'{x}'", False),
        ("breakpoint()", False),
        ("x if y else z", False),
        ("(", False),
    ],
)
def test_only_arithmetic_on_sizes_is_evaluated(text: str, allowed: bool) -> None:
    assert _is_arithmetic(text) is allowed
