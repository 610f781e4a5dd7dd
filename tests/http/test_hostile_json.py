"""JSON that is small to send and dear to take: it is refused, soon, and for little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from loaders.handle import ModelHandle
from loaders.signature import TabularInput, TensorInput, TextInput

MEMORY_BYTES = 64 * 1024 * 1024

# Far above what a quiet machine needs, and far below what a walk over every element again and again takes.
CPU_GUARD_S = 3.0

BODIES: dict[str, tuple[int, Callable[[], bytes]]] = {
    "20,000 deep": (400, lambda: b'{"instances":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
    "1,000 deep": (400, lambda: b'{"instances":' + b"[" * 1_000 + b"]" * 1_000 + b"}"),
    "1,000 deep in a parameter": (
        400,
        lambda: b'{"instances":[[1]],"parameters":{"p":' + b"[" * 999 + b"]" * 999 + b"}}",
    ),
    "a megabyte of openings": (400, lambda: b"[" * 1_000_000),
    "a megabyte of objects": (400, lambda: b'{"a":' * 200_000),
    "a megabyte of digits": (400, lambda: b"9" * 1_000_000),
    "a number of a megabyte": (400, lambda: b'{"instances":[[' + b"9" * 1_000_000 + b"]]}"),
    "500,000 keys": (422, lambda: b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(500_000)) + b"}"),
    "500,000 parameters": (
        413,
        lambda: b'{"instances":[[1]],"parameters":{' + b",".join(b'"%d":1' % i for i in range(500_000)) + b"}}",
    ),
    "1,000,000 strings": (413, lambda: b'{"instances":[' + b",".join([b'"a"'] * 1_000_000) + b"]}"),
    "a wrong one after a million numbers": (422, lambda: b'{"instances":[[' + b"1," * 1_000_000 + b"true]]}"),
    "wide and deep": (400, lambda: b'{"instances":[[' + b"1," * 500_000 + b"[" * 40 + b"]" * 40 + b"]]}"),
}


@pytest.mark.parametrize("spec", [TabularInput(), TextInput(), TensorInput()], ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_dear_to_take_is_refused_for_little(served, name, spec):
    status, make = BODIES[name]
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec))
    body = make()
    tracemalloc.start()
    try:
        began = time.process_time()
        answer = server.client.post("/predict", data=body, content_type="application/json")
        took_s = time.process_time() - began
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
    assert ("32 deep" in answer.json["detail"]) == ("deep" in name or "openings" in name or "objects" in name)
    assert peak_bytes < MEMORY_BYTES
    assert took_s < CPU_GUARD_S
    good = "a" if isinstance(spec, TextInput) else [1]
    assert server.predict(good).status_code == 200
