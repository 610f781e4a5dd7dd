"""A request without any JSON: the whole body is the data of one row of the only input.

It is what `curl --data-binary @picture.jpg` sends with the header `Inference-Header-Content-Length: 0`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from service.errors import InvalidInput
from service.http.v2.binary import from_bytes
from service.http.v2.datatypes import Datatype, element_bytes
from service.http.v2.declared import ANY, DeclaredTensor


def read_raw(data: memoryview, declared: Sequence[DeclaredTensor]) -> dict[str, npt.NDArray[Any]]:
    """The only input by its name, one row; the one extent that may vary follows from the length of `data`.

    BYTES are one element without a length in front. Raises InvalidInput when the model's inputs do not allow it.
    """
    if len(declared) != 1:
        raise InvalidInput.at("inputs", f"must be named in JSON: this model takes {len(declared)} of them")
    tensor = declared[0]
    if tensor.datatype is Datatype.BYTES:
        if tensor.shape[1:] != (1,):
            raise InvalidInput.at("inputs", "must be described in JSON: this model takes several BYTES in a row")
        element = np.empty((1, 1), object)
        element[0, 0] = bytes(data)
        return {tensor.name: element}
    fixed = [extent for extent in tensor.shape[1:] if extent != ANY]
    variable = len(tensor.shape) - 1 - len(fixed)
    if variable > 1:
        raise InvalidInput.at("inputs", "must be described in JSON: more than one dimension of the input may vary")
    extent, rest = divmod(len(data), max(1, math.prod(fixed)) * element_bytes(tensor.datatype))
    if rest or not data or (not variable and extent != 1):
        raise InvalidInput.at("inputs", f"is {len(data)} bytes long, which is not one row of {tensor.datatype}")
    shape = (1, *(extent if size == ANY else size for size in tensor.shape[1:]))
    return {tensor.name: from_bytes(data, tensor.datatype, shape, "inputs[0]")}
