"""What a `.pt2` archive may hold, checked before torch reads it.

`torch.export.load` unpickles some members, falls back to unsafe unpickling by itself, loads native code, and
evaluates strings of the program as Python. Here everything that a plain exported model does not need is refused, so
that what remains is a description: tensors as raw bytes, operators by name, and arithmetic on sizes.

*Source:* `torch.export.pt2_archive` and `torch._export.serde.serialize` of torch 2.13.
"""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from loaders.errors import ModelLoadError

Read = Callable[[str], bytes]

_PROGRAM = "models/model.json"
_SAMPLES = "data/sample_inputs/model.pt"
_PAYLOADS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_MEMBER = re.compile(
    r"models/model\.json|data/sample_inputs/model\.pt|data/(weights/weight|constants/tensor)_\d+|extra/.+"
    r"|data/(weights|constants)/model_(weights|constants)_config\.json"
    r"|archive_format|archive_version|byteorder|\.data/(version|serialization_id)"
)
_IDENTIFIER = re.compile(r"\w*", re.ASCII)
# Operators of torch, never its Python functions: those could be any function of any module that torch imports.
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prim|prims|higher_order|quantized|quantized_decomposed|torchvision)\.((?!__)[A-Za-z_]\w*|__(and|or|xor|lshift|rshift)__)(\.(?!__)\w+)?"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|pow|neg|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|math\.(ceil|floor|sqrt|trunc)|torch\.sym_(int|float|max|min|not|ite|sum)",
    re.ASCII,
)
_TREE_TYPES = {None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}
_FORBIDDEN_KEYS = {"as_custom_obj", "as_custom_object", "as_script_object", "as_opaque"}
_ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.Name, ast.Load, ast.keyword, ast.Call, ast.Subscript, ast.Attribute, ast.Constant,
)  # fmt: skip


def check_archive(path: Path, torch: ModuleType) -> None:
    """Raise `ModelLoadError` unless the archive is an exported program and nothing beside it."""
    try:
        # Read as torch will read it; Python's own reader must see the same members, as torch falls back to it.
        reader = torch._C.PyTorchFileReader(str(path))
        members = list(reader.get_all_records())
        with zipfile.ZipFile(path) as archive:
            listed = sorted(name.partition("/")[2] for name in archive.namelist())
    except (RuntimeError, OSError, zipfile.BadZipFile) as error:
        raise ModelLoadError(
            f"{path.name!r} is not a torch.export archive: write it with torch.export.save ({_first_line(error)})"
        ) from error
    if listed != sorted(set(members)):
        raise _refused(path, "its list of members is ambiguous")
    if _PROGRAM not in members or _SAMPLES not in members:
        raise _refused(path, "it holds no exported program of today's form; save it again with this torch")
    for member in members:
        if not _MEMBER.fullmatch(member):
            raise _refused(path, f"it holds {_shown(member)}, which is run or unpickled when it is loaded")
    read: Read = reader.get_record
    try:
        for payload in _PAYLOADS:
            _check_payload(json.loads(read(payload)), path)
        _check_samples(read(_SAMPLES), torch, path)
        for fault in _faults(json.loads(read(_PROGRAM)), ""):
            raise _refused(path, fault)
    except (ValueError, KeyError, AttributeError, TypeError, RuntimeError, RecursionError) as error:
        raise ModelLoadError(f"{path.name!r} is a damaged torch.export archive: {_first_line(error)}") from error


def _check_payload(config: Any, path: Path) -> None:
    for name, entry in config["config"].items():
        if entry["use_pickle"]:
            raise _refused(path, f"its tensor {_shown(name)} is stored as a pickle")


def _check_samples(data: bytes, torch: ModuleType, path: Path) -> None:
    """What torch reads without limits when the careful way fails, and what therefore has to pass the careful way."""
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception as error:
        raise _refused(path, "its sample inputs are more than tensors; export it with plain tensors") from error


def _faults(value: Any, key: str) -> Iterator[str]:
    """What in a part of the program is more than a description. `key`: where the part stands."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name in _FORBIDDEN_KEYS and part is not None:
                yield "it holds an object of a class of its own"
            if key.endswith("_values") and not _IDENTIFIER.fullmatch(name):
                yield f"{_shown(name)} is no name"
            yield from _faults(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from _faults(part, key)
    elif isinstance(value, str) and not _is_harmless(key, value):
        yield f"{key} holds {_shown(value)}, which is not what torch.export writes there"


def _is_harmless(key: str, text: str) -> bool:
    if key in {"target", "as_operator"}:
        return _OPERATOR.fullmatch(text) is not None
    if key in {"expr_str", "guards_code"}:
        return _is_arithmetic(text)
    if key in {"in_spec", "out_spec"}:
        return text == "" or all(kind in _TREE_TYPES for kind in _tree_types(json.loads(text)[1]))
    if key in {"name", "as_name", "forward_arg_names"}:
        return _IDENTIFIER.fullmatch(text) is not None
    return True


def _tree_types(tree: Any) -> Iterator[Any]:
    yield tree["type"]
    for child in tree["children_spec"]:
        yield from _tree_types(child)


def _is_arithmetic(text: str) -> bool:
    """Whether a string, which torch evaluates as Python, is sums and comparisons of sizes and nothing else."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, MemoryError):
        return False
    return all(isinstance(node, _ARITHMETIC) and _is_allowed(node) for node in nodes)


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        function = node.func
        # The classes of sympy and torch are written with a capital; Python's own dangerous functions are not.
        named = isinstance(function, ast.Name) and (function.id[:1].isupper() or function.id in {"max", "min", "abs"})
        sized = isinstance(function, ast.Attribute) and not node.args and not node.keywords
        return named or sized or (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name))
    if isinstance(node, ast.Attribute):
        math = isinstance(node.value, ast.Name) and node.value.id == "math"
        return node.attr in ({"ceil", "floor", "trunc", "sqrt"} if math else {"size", "stride", "storage_offset"})
    if isinstance(node, ast.Constant):
        # Names of symbols and of inputs; a text with anything more in it could be code for a function that parses it.
        return isinstance(node.value, int | float) or (
            isinstance(node.value, str) and _IDENTIFIER.fullmatch(node.value) is not None
        )
    return True


def _refused(path: Path, reason: str) -> ModelLoadError:
    return ModelLoadError(f"{path.name!r} is refused: {reason}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
