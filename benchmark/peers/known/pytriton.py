"""Triton, from the wheel that brings its server along."""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

import orjson

from benchmark.peers.forms import Form, as_it_is, read_v2, v2_body
from benchmark.peers.peer import Peer
from benchmark.peers.workloads import Input

_PATH = "/v2/models/m/infer"

# The part of JSON before the bytes of a picture is filled up to this, so that one header fits every request.
_HEAD_BYTES = 256

# What the programs of the wheel were linked against. Source: the tag of its file name, manylinux_2_35.
_NEEDED_GLIBC = (2, 35)

# Its server runs the model in an interpreter of the system's library, which must find the files of the same version.
_SYSTEM = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")


def _row(row: Input) -> bytes:
    return v2_body([1, 64], "FP64", row)


def _text(text: Input) -> bytes:
    return v2_body([1, 1], "BYTES", [text])


def _picture(file: Input) -> bytes:
    data = struct.pack("<I", len(as_it_is(file))) + as_it_is(file)
    given = {"name": "x", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": len(data)}}
    return orjson.dumps({"inputs": [given]}).ljust(_HEAD_BYTES) + data


def _lacks() -> str | None:
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(map(int, version.split(".")[:2])) < _NEEDED_GLIBC:
        needed = ".".join(map(str, _NEEDED_GLIBC))
        return f"its programs need glibc {needed}, here is {library or 'another library'} {version}"
    return None


PEER = Peer(
    name="pytriton",
    title="Triton (pytriton)",
    packages=("nvidia-pytriton",),
    tuning="the system's own Python; dynamic batching with a queue delay of the window, four HTTP threads, metrics "
    "off; pictures as binary tensors",
    forms={
        "tabular": Form(_PATH, _row, read_v2),
        "text": Form(_PATH, _text, read_v2),
        "picture": Form(
            _PATH,
            _picture,
            read_v2,
            content_type="application/octet-stream",
            headers={"Inference-Header-Content-Length": str(_HEAD_BYTES)},
        ),
    },
    command=lambda launch: launch.script("serve_pytriton.py", str(launch.port)),
    environ=lambda launch: {"PYTRITON_HOME": str(launch.scratch)},
    lacks=_lacks,
    interpreter=str(_SYSTEM) if _SYSTEM.exists() else sys.executable,
)
