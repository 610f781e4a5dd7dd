"""What the name of a model file tells about its format."""

from __future__ import annotations

from pathlib import Path

FORMAT_OF_SUFFIX = {
    ".pkl": "pickle",
    ".pickle": "pickle",
    ".joblib": "joblib",
    ".onnx": "onnx",
    ".pt": "torchscript",
    ".pt2": "pt2",
    ".torchscript": "torchscript",
}


def model_files(directory: Path) -> list[str]:
    """The names of the files in `directory` that look like models, sorted."""
    return sorted(entry.name for entry in directory.iterdir() if entry.suffix.lower() in FORMAT_OF_SUFFIX)
