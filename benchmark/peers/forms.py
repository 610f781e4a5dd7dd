"""How one input is put to a server, and how its answer is read: the body differs, what is asked for does not."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from benchmark.peers.workloads import Input
from service.bench.bodies import JSON

Numbers = list[float]


@dataclass(frozen=True, slots=True)
class Form:
    """`read`: the numbers of an answer, in the raw model's order. `headers`: the same for every body."""

    path: str
    body: Callable[[Input], bytes]
    read: Callable[[bytes], Numbers]
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self, given: Input, port: int) -> bytes:
        """The whole HTTP request, as it goes over the connection."""
        body = self.body(given)
        lines = [f"POST {self.path} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
        fields = {"Content-Type": self.content_type, **self.headers, "Content-Length": str(len(body))}
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


def plain_forms(path: str = "/predict") -> dict[str, Form]:
    """Of servers whose routes are written by hand: as little around the input as there can be."""
    return {
        "tabular": Form(path, lambda row: orjson.dumps({"features": row}), read_values),
        "text": Form(path, lambda text: orjson.dumps({"text": text}), read_values),
        "picture": Form(path, as_it_is, read_values, content_type="image/jpeg"),
    }


def as_it_is(file: Input) -> bytes:
    """The file of a picture."""
    assert isinstance(file, bytes)
    return file


def in_base64(file: Input) -> str:
    """The file of a picture, for protocols that carry JSON alone."""
    return base64.b64encode(as_it_is(file)).decode()


def read_values(content: bytes) -> Numbers:
    """Of servers that answer by `work.encode`."""
    return _numbers(orjson.loads(content)["values"])


def read_v2(content: bytes) -> Numbers:
    """Of an answer of the open inference protocol with one output."""
    return _numbers(orjson.loads(content)["outputs"][0]["data"])


def v2_body(shape: list[int], datatype: str, data: Any, **more: Any) -> bytes:
    """A body of the open inference protocol with one input."""
    given = {"name": "x", "shape": shape, "datatype": datatype, "data": data}
    return orjson.dumps({"inputs": [{**given, **more}]})


def _numbers(values: list[Any]) -> Numbers:
    return [float(value) for value in values]
