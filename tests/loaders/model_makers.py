"""Functions that make small real models."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "very", "##s", "not"]
MAX_POSITIONS = 32


@dataclass(frozen=True)
class Digits:
    """A fitted pipeline and the data to ask it about."""

    estimator: Any
    data: np.ndarray


def export_sklearn(estimator: Any, width: int, path: Path, **options: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from skl2onnx import to_onnx

        model = to_onnx(estimator, np.zeros((1, width), np.float32), target_opset=18, **options)
    path.write_bytes(model.SerializeToString())
    return path


def linear_onnx(
    path: Path, *, batch: int | str = "n", dtype: str = "FLOAT", width: int = 4, external: str | None = None
) -> Path:
    """y = 2 x, with the weights inside the model or in the file named `external` beside it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    kind = getattr(TensorProto, dtype)
    numpy_kind = helper.tensor_dtype_to_np_dtype(kind)
    factor = numpy_helper.from_array(np.full((width,), 2, dtype=numpy_kind), "factor")
    if external is not None:
        raw = factor.raw_data
        factor.ClearField("raw_data")
        factor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", external), ("offset", "0"), ("length", str(len(raw)))):
            entry = factor.external_data.add()
            entry.key, entry.value = key, value
        (path.parent / external).resolve().write_bytes(raw)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", kind, [batch, width])],
        [helper.make_tensor_value_info("y", kind, [batch, width])],
        [factor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(onnx.ModelProto.SerializeToString(model))
    return path


def make_tokenizer(**limits: Any) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordPiece({word: number for number, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **limits,
    )


def bert_config(**changes: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=0.5,
        **changes,
    )


def value_onnx(
    path: Path,
    nodes: list[tuple[str, list[str], str, dict[str, Any]]],
    *,
    inputs: list[str] | None = None,
    outputs: list[str],
    kind: str = "FLOAT",
    batch: int | str | None = "n",
    row: list[int] | None = None,
) -> Path:
    """Any small graph; `nodes` are (operator, inputs, output, attributes)."""
    from onnx import TensorProto, helper

    dtype = getattr(TensorProto, kind)
    shape = ([] if batch is None else [batch]) + ([4] if row is None else row)
    graph = helper.make_graph(
        [
            helper.make_node(operator, sources, [output], **attributes)
            for operator, sources, output, attributes in nodes
        ],
        "values",
        [helper.make_tensor_value_info(name, dtype, shape) for name in inputs or ["x"]],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def token_onnx(
    directory: Path, tokenizer: Any, *, batch: int | str = "n", length: int | str = "l", dtype: str = "INT64"
) -> Path:
    """One number per token, its id times its mask, with the tokenizer beside the model."""
    from onnx import TensorProto, helper, numpy_helper

    kind = getattr(TensorProto, dtype)
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["input_ids", "attention_mask"], ["product"]),
            helper.make_node("Cast", ["product"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["numbers", "axis"], ["y"]),
        ],
        "tokens",
        [helper.make_tensor_value_info(name, kind, [batch, length]) for name in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, length, 1])],
        [numpy_helper.from_array(np.array([2]), "axis")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = directory / "tokens.onnx"
    path.write_bytes(model.SerializeToString())
    tokenizer.backend_tokenizer.save(str(directory / "tokenizer.json"))
    return path


def export_pt2(path: Path, module: Any, example: Any, *, free: dict[int, Any] | None = None) -> Path:
    """Export with a batch dimension of any size; `free` gives other dimensions, {} fixes all of them."""
    import torch

    sizes = {0: torch.export.Dim("batch")} if free is None else free
    program = torch.export.export(module, (example,), dynamic_shapes=(sizes,))
    torch.export.save(program, path)
    return path


# Inputs and outputs of the wide model, and the size of its one matrix in float32.
WIDE = 2000, 5000
WIDE_MB = 40


def wide_model(directory: Path, fmt: str) -> None:
    """A bundle whose model is one matrix of `WIDE_MB` megabytes."""
    from loaders import pin

    width, _ = WIDE
    if fmt == "joblib":
        wide_estimator(directory / "model.joblib")
    elif fmt == "onnx":
        wide_onnx(directory / "model.onnx")
    else:
        wide_torch(directory, fmt)
    (directory / "jitney.toml").write_text(f'[input]\nkind = "tabular"\nwidth = {width}\n')
    pin(directory)


def wide_estimator(path: Path) -> None:
    import joblib
    from sklearn.linear_model import LinearRegression

    width, outputs = WIDE
    estimator = LinearRegression(fit_intercept=False)
    # In float64, of which half as many take the same room.
    estimator.coef_, estimator.intercept_ = np.ones((outputs // 2, width)), 0.0
    estimator.n_features_in_ = width
    joblib.dump(estimator, path)


def wide_onnx(path: Path) -> None:
    from onnx import TensorProto, helper, numpy_helper

    width, outputs = WIDE
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])],
        [numpy_helper.from_array(np.ones(WIDE, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    path.write_bytes(model.SerializeToString())


def wide_torch(directory: Path, fmt: str) -> None:
    import torch

    width, outputs = WIDE
    module = torch.nn.Linear(width, outputs, bias=False).eval()
    rows = torch.zeros(2, width)
    if fmt == "pt2":
        export_pt2(directory / "model.pt2", module, rows, free={0: torch.export.Dim("batch")})
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(module, rows).save(str(directory / "model.pt"))
