"""What is installed: whether it is what a model needs, whether it is there twice, and what devices it can use.

Nothing is imported to find out: the frameworks take seconds, and some take memory of the device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

from loaders.devices import cuda_index
from service.doctor.findings import Finding, error, ok, warning

# Format -> what its loader imports, and the extra that brings it.
_NEEDS = {
    "joblib": (("joblib", "sklearn"), "sklearn"),
    "onnx": (("onnxruntime",), "onnx"),
    "pickle": (("sklearn",), "sklearn"),
    "pt2": (("torch",), "torch"),
    "torchscript": (("torch",), "torch"),
    "transformers": (("torch", "transformers", "tokenizers", "safetensors"), "transformers"),
}
_TORCH_FORMATS = frozenset({"pt2", "torchscript", "transformers"})
_ONNX_WHEELS = ("onnxruntime", "onnxruntime-gpu")

_CUDA_LINE = re.compile(r"^cuda\b.*=\s*(None|'[^']+')", re.MULTILINE)

IsThere = Callable[[str], bool]


def is_importable(module: str) -> bool:
    """Whether there is a module of this name, which is not imported."""
    return find_spec(module) is not None


def is_installed(name: str) -> bool:
    """Whether there is a distribution of this name."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def check_format(fmt: str, *, has_pictures: bool, is_importable: IsThere = is_importable) -> Iterator[Finding]:
    """What a model of this format needs. has_pictures: its input is images, as far as its bundle tells."""
    modules, extra = _NEEDS.get(fmt, ((), ""))
    missing = [module for module in modules if not is_importable(module)]
    if missing and fmt == "pickle":
        found = "scikit-learn is not installed; a pickle of something else does not need it"
        yield warning("packages", found, f"pip install 'jitney[{extra}]'")
    elif missing:
        yield error("packages", f"{fmt} models need {', '.join(missing)}", f"pip install 'jitney[{extra}]'")
    elif modules:
        yield ok("packages", f"{', '.join(modules)} for {fmt} models")
    if has_pictures and not is_importable("PIL"):
        yield error("packages", "a model of pictures needs PIL", "pip install 'jitney[images]'")


def check_onnx_wheels(is_installed: IsThere = is_installed) -> Finding | None:
    """Both wheels of onnxruntime fill one import folder; None where there is none."""
    there = [name for name in _ONNX_WHEELS if is_installed(name)]
    if len(there) > 1:
        fix = "pip uninstall onnxruntime onnxruntime-gpu; pip install 'jitney[onnx]' or 'jitney[onnx-gpu]'"
        return error("onnxruntime", "two wheels share one folder, and the last one installed has won", fix)
    return ok("onnxruntime", f"{there[0]} alone") if there else None


def check_http_parser(is_importable: IsThere = is_importable) -> Finding:
    """How requests are parsed: by gunicorn_h1c, or in Python."""
    if is_importable("gunicorn_h1c"):
        return ok("HTTP parser", "gunicorn_h1c, in C")
    told = "in Python, by gunicorn's own worker class: a request costs several times the CPU, slow clients hold threads"
    return warning("HTTP parser", told, "pip install 'jitney[fast]'")


def check_device(device: str, fmt: str | None, cards: int, torch_cuda: str | None, has_onnx_gpu: bool) -> Finding:
    """DEVICE against the machine and the frameworks.

    cards: CUDA devices of the machine. torch_cuda: the version that torch was built for; None for none, or no torch.
    """
    if device == "cpu":
        return ok("DEVICE", "cpu")
    can_use = torch_cuda is not None if fmt in _TORCH_FORMATS else has_onnx_gpu if fmt == "onnx" else True
    if device == "auto":
        if cards and not can_use:
            found = f"auto: the machine has {cards} CUDA devices, but the {fmt} framework installed here is for CPUs"
            return warning("DEVICE", found, _cuda_build(fmt))
        return ok("DEVICE", f"auto: {'the first CUDA device' if cards and can_use else 'the CPU'}")
    if cuda_index(device) >= cards:
        found = f"{device} was asked for, and {cards or 'no'} CUDA devices can be seen here"
        return error("DEVICE", found, "DEVICE=auto" if not cards else f"DEVICE=cuda:{cards - 1}")
    if not can_use:
        return error("DEVICE", f"{device}: the {fmt} framework installed here is for CPUs", _cuda_build(fmt))
    return ok("DEVICE", f"{device}, of {cards} CUDA devices")


def cuda_cards(environ: Mapping[str, str], dev: Path = Path("/dev")) -> int:
    """CUDA devices that this process may use, as far as their files show; the driver itself is not asked.

    A container sees the files of its own devices only. Under Windows there is one file for all of them, taken for one.
    """
    there = sum(1 for node in dev.glob("nvidia*") if node.name.removeprefix("nvidia").isdecimal())
    there = there or int((dev / "dxg").exists())
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    # Entries behind one that is no device count no more (CUDA C++ Programming Guide, "CUDA environment variables").
    named = takewhile(lambda entry: entry.strip() not in ("", "-1"), visible.split(","))
    return min(there, len(list(named)))


def directory_of(package: str) -> Path | None:
    """Where a package is installed; None where it is not."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def torch_cuda_version(torch: Path | None) -> str | None:
    """The CUDA version that the torch in this directory was built for; None for a CPU build, or for no torch."""
    if torch is None:
        return None
    try:
        match = _CUDA_LINE.search((torch / "version.py").read_text(encoding="utf-8"))
    except OSError:
        return None
    return None if match is None or match[1] == "None" else match[1].strip("'")


def check_import_names(directories: Iterable[Path], own: Path) -> Iterator[Finding]:
    """Whether something else has the name of our packages on Python's path. own: the directory that holds ours."""
    clashes, copies = [], []
    for directory in dict.fromkeys(each.resolve() for each in directories):
        if directory == own.resolve():
            continue
        names = [name for name in ("service", "loaders") if _holds(directory, name)]
        if names and (directory / "service" / "batching" / "batcher.py").is_file():
            copies.append(str(directory))
        else:
            clashes += [f"{name} in {directory}" for name in names]
    if copies:
        found = f"there is another copy of Jitney, which may be the one that serves: {'; '.join(copies)}"
        yield warning("import names", found, "remove one, or start in another directory")
    if clashes:
        found = f"Python may take these for Jitney's packages: {'; '.join(clashes)}"
        yield error("import names", found, "rename them, or start in another directory")
    elif not copies:
        yield ok("import names", "nothing else is called service or loaders")


def _holds(directory: Path, name: str) -> bool:
    """Whether Python would find a module there; a directory without __init__.py gives way to a package elsewhere."""
    return (directory / name / "__init__.py").is_file() or (directory / f"{name}.py").is_file()


def _cuda_build(fmt: str | None) -> str:
    if fmt == "onnx":
        return "pip uninstall onnxruntime; pip install 'jitney[onnx-gpu]'"
    return "install torch's CUDA build (pytorch.org)"
