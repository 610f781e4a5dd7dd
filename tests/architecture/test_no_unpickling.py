"""Nothing unpickles what a client sent, and model files only where their digest has been checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

# Where a trusted file may be unpickled: the function that checks the trust calls it.
ALLOWED = {"loaders/formats/pickled.py: pickle.load"}
UNSAFE = {"pickle.load", "pickle.loads", "joblib.load", "dill.load", "marshal.loads", "numpy.load", "np.load"}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            yield ast.unparse(node.func), node


def is_limited(node: ast.Call) -> bool:
    return any(keyword.arg == "weights_only" and ast.unparse(keyword.value) == "True" for keyword in node.keywords)


def unsafe_calls(path: Path) -> Iterator[str]:
    for name, node in calls(path):
        unlimited = name.endswith("torch.load") and not is_limited(node)
        if name in UNSAFE or unlimited or name in {"eval", "exec"}:
            yield name


def test_no_other_code_unpickles_or_evaluates_anything():
    found = set()
    for package in ("service", "loaders"):
        for path in sorted((ROOT / package).rglob("*.py")):
            found |= {f"{path.relative_to(ROOT).as_posix()}: {name}" for name in unsafe_calls(path)}
    assert found == ALLOWED


def test_the_search_finds_what_it_looks_for(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import torch\ntorch.load(f)\ntorch.load(f, weights_only=True)\npickle.loads(b)\neval('1')\n")
    assert sorted(unsafe_calls(path)) == ["eval", "pickle.loads", "torch.load"]


def test_remote_code_and_the_network_are_off_wherever_a_directory_is_read():
    text = (ROOT / "loaders/formats/transformers.py").read_text(encoding="utf-8")
    reads = [node for name, node in calls(ROOT / "loaders/formats/transformers.py") if name.endswith("from_pretrained")]
    assert len(reads) >= 3
    for node in reads:
        assert any(keyword.arg is None and ast.unparse(keyword.value) == "_LOCAL" for keyword in node.keywords)
    assert '"local_files_only": True, "trust_remote_code": False' in text
