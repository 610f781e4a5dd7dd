"""JSON that is small to send and dear to take: it is refused, soon, and for little memory."""

from __future__ import annotations

import gzip
import random
import time
import tracemalloc
from collections.abc import Callable
from functools import lru_cache

import pytest

from loaders.handle import ModelHandle
from loaders.signature import TabularInput, TensorInput, TextInput

MEMORY_BYTES = 64 * 1024 * 1024

# Far above what a quiet machine needs, and far below what a walk over every element again and again takes.
CPU_GUARD_S = 6.0

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


@lru_cache(maxsize=1)
def made(make: Callable[[], bytes]) -> bytes:
    """A body, which the tests that send it to models of several kinds, one after the other, share."""
    return make()


@pytest.mark.parametrize("spec", [TabularInput(), TextInput(), TensorInput()], ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_dear_to_take_is_refused_for_little(served, name, spec):
    status, make = BODIES[name]
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec))
    answer = posted_for_little(server, "/predict", made(make))
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
    assert ("32 deep" in answer.json["detail"]) == ("deep" in name or "openings" in name or "objects" in name)
    good = "a" if isinstance(spec, TextInput) else [1]
    assert server.predict(good).status_code == 200


INPUT = b'{"inputs":[{"name":"input","datatype":"%s","shape":[1,1000000],%s}]}'

V2_BODIES: dict[str, tuple[int, Callable[[], bytes]]] = {
    "a megabyte of digits": (400, lambda: b"9" * 1_000_000),
    "a megabyte of blanks": (400, lambda: b" " * 1_000_000),
    "a megabyte of noise": (400, lambda: random.Random(1).randbytes(1_000_000)),
    "20,000 deep": (400, lambda: INPUT % (b"FP64", b'"data":' + b"[" * 20_000 + b"]" * 20_000)),
    "1,000 deep": (400, lambda: INPUT % (b"FP64", b'"data":' + b"[" * 1_000 + b"]" * 1_000)),
    "a megabyte of openings": (400, lambda: b"[" * 1_000_000),
    "a megabyte of objects": (400, lambda: b'{"a":' * 200_000),
    "500,000 keys": (400, lambda: b"{" + many_keys() + b"}"),
    "500,000 parameters": (413, lambda: b'{"inputs":[],"parameters":{' + many_keys() + b"}}"),
    "500,000 keys of an input": (413, lambda: INPUT % (b"FP64", many_keys())),
    "500,000 parameters of an input": (413, lambda: INPUT % (b"FP64", b'"parameters":{' + many_keys() + b"}")),
    "500,000 inputs": (413, lambda: b'{"inputs":[' + b",".join([b"{}"] * 500_000) + b"]}"),
    "500,000 outputs": (413, lambda: b'{"outputs":[' + b",".join([b"{}"] * 500_000) + b"]}"),
    "1,000,000 strings": (413, lambda: INPUT % (b"BYTES", b'"data":[' + b",".join([b'"a"'] * 1_000_000) + b"]")),
    "a wrong one after a million numbers": (400, lambda: INPUT % (b"FP64", b'"data":[' + b"1," * 999_999 + b"true]")),
    "a shape of a million": (400, lambda: INPUT % (b"FP64", b'"shape":[' + b"1," * 999_999 + b'1],"data":[1]')),
}


def many_keys() -> bytes:
    return b",".join(b'"k%d":%d' % (i, i) for i in range(500_000))


@pytest.mark.parametrize("spec", [TabularInput(), TextInput(), TensorInput()], ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("name", V2_BODIES)
def test_a_body_of_the_open_inference_protocol_that_is_dear_to_take_is_refused_for_little(served, name, spec):
    status, make = V2_BODIES[name]
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m", input=spec))
    answer = posted_for_little(server, "/v2/models/m/infer", made(make))
    assert (answer.status_code, answer.json.keys()) == (status, {"error"}), answer.json
    good = {"datatype": "BYTES", "data": ["a"]} if isinstance(spec, TextInput) else {"datatype": "FP32", "data": [1]}
    shape = [1] if isinstance(spec, TextInput) else [1, 1]
    assert server.post({"inputs": [{"name": "input", "shape": shape, **good}]}, "/v2/models/m/infer").status_code == 200


@pytest.mark.parametrize("name", BODIES)
def test_nor_does_the_front_of_tensorflow_serving_take_it(served, name):
    status, make = BODIES[name]
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m"))
    answer = posted_for_little(server, "/v1/models/m:predict", made(make))
    assert answer.json.keys() == {"error"}
    assert answer.status_code in (status, 422), answer.json
    assert server.post({"instances": [[1]]}, "/v1/models/m:predict").status_code == 200


@pytest.mark.parametrize("path", ["/predict", "/v1/models/m:predict", "/v2/models/m/infer"])
def test_a_bomb_is_not_opened_beyond_the_limit(served, path):
    server = served(ModelHandle.from_callable(lambda rows: [0 for _ in rows], name="m"))
    answer = posted_for_little(server, path, gzip.compress(bytes(100_000_000)), {"Content-Encoding": "gzip"})
    assert answer.status_code == 413
    assert "MAX_BODY_BYTES" in answer.text


def posted_for_little(server, path: str, body: bytes, headers: dict[str, str] | None = None):
    """The answer to a JSON body, which took neither long nor much memory."""
    tracemalloc.start()
    try:
        began = time.process_time()
        answer = server.client.post(path, data=body, content_type="application/json", headers=headers)
        took_s = time.process_time() - began
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < MEMORY_BYTES
    assert took_s < CPU_GUARD_S
    return answer
