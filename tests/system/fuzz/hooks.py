"""What JSON Schema cannot say of a request, done to those that are to be valid; and what failures are none.

Schemathesis loads this by itself. Requests that are to be refused are left as they are made, but for their path: under
a made-up name all of them would be refused for that alone.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from hashlib import sha256
from itertools import cycle, islice
from math import prod
from typing import Any

import schemathesis
from PIL import Image
from schemathesis.core import NotSet
from schemathesis.core.failures import AcceptedNegativeData, Failure, ServerError

HEADER_LENGTH = "Inference-Header-Content-Length"

# One made-up name or version in so many is sent as it is.
KEPT = 8

# Longer rows would cost time and find nothing that short ones do not.
MOST_ROWS = 3

# Below it a deadline may well pass before the model has answered.
SHORT_S = 1.0

# The largest 32-bit float. Far beyond it the scaler of the demo model of digits overflows, and the model raises.
LARGEST = 3.4e38

# What Schemathesis calls negative and is not: a body that may be left out is, or there is a header of no meaning here.
NOT_NEGATIVE = ("Invalid component: positive test case", "in header - object with unexpected properties")

RANGES = {f"INT{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
RANGES |= {f"UINT{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
RANGES |= {"FP16": (-65000.0, 65000.0), "FP32": (-LARGEST, LARGEST)}
# Integers that a 64-bit float holds exactly; one that it does not is refused. Of 64 bits it holds not the last ones.
EXACT = 2**53
LAST_BITS = 2**11


def digest(value: Any) -> bytes:
    return sha256(repr(value).encode(errors="surrogatepass")).digest()


def picture(seed: Any) -> bytes:
    """A small picture file, another one for each seed."""
    seed = digest(seed)
    mode, kind = (("RGB", "PNG"), ("L", "PNG"), ("RGBA", "PNG"), ("RGB", "JPEG"), ("RGB", "WEBP"))[seed[0] % 5]
    file = io.BytesIO()
    size = (1 + seed[1] % 24, 1 + seed[2] % 24)
    Image.frombytes(mode, size, (seed * 72)[: size[0] * size[1] * len(mode)]).save(file, kind)
    return file.getvalue()


def answerable(body: Any) -> Any:
    """`body` with what the demo models can answer: pictures in the place of any base64 text, and bounded numbers."""
    if isinstance(body, dict):
        if body.keys() == {"b64"} and isinstance(body["b64"], str):
            return {"b64": base64.b64encode(picture(body["b64"])).decode()}
        return {key: answerable(value) for key, value in body.items()}
    if isinstance(body, list):
        return [answerable(value) for value in body]
    return min(max(body, -LARGEST), LARGEST) if isinstance(body, float) else body


def flat(data: Any) -> list[Any]:
    return [element for part in data for element in flat(part)] if isinstance(data, list) else [data]


def fitting(element: Any, datatype: str) -> Any:
    """`element` as one of the datatype: a schema cannot make one value's range depend on another value."""
    if datatype in ("BYTES", "BOOL") or isinstance(element, (str, bool)):
        return element
    lowest, highest = RANGES.get(datatype, (-LARGEST, LARGEST))
    element = min(max(element, lowest), highest)
    if "INT" in datatype:
        return int(element) if abs(element) <= EXACT else int(element) // LAST_BITS * LAST_BITS
    return element if isinstance(element, float) or abs(element) <= EXACT else float(element)


def whole(value: Any) -> Any:
    """An integer for a float of the same value: JSON Schema makes no difference between them, the protocol does."""
    if isinstance(value, dict):
        return {key: whole(part) for key, part in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def fitted(tensor: dict[str, Any]) -> dict[str, Any]:
    """`tensor` with as many elements as the shape says: a schema cannot multiply."""
    rows, *extents = map(whole, tensor["shape"])
    shape, datatype = [1 + rows % MOST_ROWS, *extents], tensor["datatype"]
    found = flat(tensor["data"]) or [{"BYTES": "", "BOOL": False}.get(datatype, 0)]
    data = [fitting(element, datatype) for element in islice(cycle(found), prod(shape))]
    return tensor | {"shape": shape, "data": data}


def raw_row(model: dict[str, Any], seed: bytes) -> tuple[bytes, int]:
    """One row of the only input as bytes, without JSON."""
    if model["inputs"] == "image":
        return picture(seed), 0
    if model["inputs"] == "text":
        return seed.hex()[: 1 + seed[1] % 60].encode(), 0
    return struct.pack(f"<{model['width']}d", *islice(cycle(seed), model["width"])), 0


def behind_json(model: dict[str, Any], seed: bytes) -> tuple[bytes, int]:
    """One row as binary data behind JSON, and the length of that."""
    row, _ = raw_row(model, seed)
    is_table = model["inputs"] == "table"
    data = row if is_table else struct.pack("<I", len(row)) + row
    tensor = {
        "name": "input",
        "datatype": "FP64" if is_table else "BYTES",
        "shape": [1, model["width"]] if is_table else [1],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [tensor]}).encode()
    return head + data, len(head)


def model_of(operation: Any) -> dict[str, Any]:
    """What the served model takes, as its own description tells it."""
    instance = operation.schema.raw_schema["components"]["schemas"]["Instance"]
    if instance["type"] == "array":
        return {"inputs": "table", "width": instance["maxItems"]}
    return {"inputs": "text" if instance["type"] == "string" else "image"}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Set right what is to be valid. Bytes go into `kwargs`: in the case itself they would count as an invalid body."""
    name_what_is_served(case)
    is_infer, media_type = case.operation.path.endswith("/infer"), str(case.media_type)
    if is_infer and media_type == "application/json" and str(case.headers.get(HEADER_LENGTH, "")).isdecimal():
        # All of this body is JSON, whatever number was made up.
        del case.headers[HEADER_LENGTH]
    if case.meta is None or case.meta.generation.mode.is_negative:
        return
    if media_type == "application/octet-stream":
        seed = digest(case.body)
        make = raw_row if seed[0] % 2 else behind_json
        kwargs["data"], length = make(model_of(case.operation), seed)
        case.headers[HEADER_LENGTH] = str(length)
    elif media_type == "multipart/form-data":
        kwargs["files"] = [("file", ("x", picture(part))) for part in case.body["file"]]
        kwargs["data"] = {name: value for name, value in case.body.items() if name != "file"}
    elif media_type.startswith("image/"):
        kwargs["data"] = picture(case.body)
    elif is_infer:
        case.body["inputs"] = [fitted(tensor) for tensor in case.body["inputs"]]
        if "parameters" in case.body:
            case.body["parameters"] = whole(case.body["parameters"])
    elif media_type == "application/json":
        case.body = answerable(case.body)


def name_what_is_served(case: Any) -> None:
    """Put the served model's name and version into the path; one made-up name in so many is sent as it is."""
    for parameter in case.operation.definition.raw.get("parameters", ()):
        made_up = case.path_parameters.get(parameter["name"]) if parameter["in"] == "path" else None
        if isinstance(made_up, str) and "example" in parameter and digest(made_up)[0] % KEPT:
            case.path_parameters[parameter["name"]] = parameter["example"]


def deadline_s(body: Any) -> float:
    """The deadline that a request gave itself; very long without one."""
    if not isinstance(body, dict):
        return 1e9
    parameters = body.get("parameters")
    microseconds = parameters.get("timeout") if isinstance(parameters, dict) else None
    if microseconds:
        return float(microseconds) / 1e6
    milliseconds = body.get("timeout_ms")
    return float(milliseconds) / 1e3 if milliseconds else 1e9


def largest_in(body: Any) -> float:
    if isinstance(body, dict):
        return max(map(largest_in, body.values()), default=0.0)
    if isinstance(body, list):
        return max(map(largest_in, body), default=0.0)
    return abs(body) if isinstance(body, (int, float)) else 0.0


@schemathesis.hook
def filter_failure(context: Any, failure: Failure, case: Any, response: Any) -> bool:
    """False for what is no failure."""
    if isinstance(failure, ServerError) and response.status_code == 504:
        return deadline_s(case.body) >= SHORT_S  # a shorter one passes because the caller wants it to
    if isinstance(failure, ServerError) and b"the model failed on this input" in response.content:
        return largest_in(case.body) <= LARGEST  # beyond it the model raises, and the answer says so
    if isinstance(failure, AcceptedNegativeData):
        return not (is_empty_text(case) or any(told in failure.message for told in NOT_NEGATIVE))
    return True


def is_empty_text(case: Any) -> bool:
    """Whether a missing body is one row without JSON, of no characters: a text like any other."""
    is_raw = str(case.headers.get(HEADER_LENGTH, "")) == "0" and isinstance(case.body, NotSet)
    return is_raw and model_of(case.operation)["inputs"] == "text"
