"""The `parameters` of a request, of its inputs and of the outputs it asks for."""

from __future__ import annotations

from typing import Any

from service.errors import InvalidInput

Parameters = dict[str, str | int | float | bool]

# Seconds in the protocol's unit of time.
_MICROSECOND_S = 1e-6

# Beyond it a float holds no more microseconds; longer than any deadline.
MAX_TIMEOUT_US = 2**53

# Words with a meaning of their own. A model's options are what remains.
_RESERVED = frozenset(
    {"binary_data_output", "headers", "priority", "sequence_end", "sequence_id", "sequence_start", "timeout"}
)
_RESERVED_PREFIX = "triton_"


def read_parameters(value: Any, loc: str) -> Parameters:
    """An object of strings, numbers and booleans, or nothing; raises InvalidInput."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput.at(loc, "must be an object")
    if not all(isinstance(item, str | int | float | bool) for item in value.values()):
        # Their names are the caller's own text, which is not repeated.
        raise InvalidInput.at(loc, "must be strings, numbers or booleans")
    return value


def flag(parameters: Parameters, name: str, loc: str) -> bool | None:
    """A boolean parameter, None when it is not given; raises InvalidInput."""
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidInput.at(f"{loc}.{name}", "must be true or false")
    return value


def timeout_s(parameters: Parameters) -> float | None:
    """The caller's deadline in seconds; None without one, which 0 means too."""
    microseconds = parameters.get("timeout", 0)
    if type(microseconds) is not int or not 0 <= microseconds <= MAX_TIMEOUT_US:
        raise InvalidInput.at("parameters.timeout", "must be a whole number of microseconds, 0 for the default")
    return microseconds * _MICROSECOND_S or None


def priority(parameters: Parameters) -> int:
    """1 is the highest, 0 the default."""
    value = parameters.get("priority", 0)
    if type(value) is not int or value < 0:
        raise InvalidInput.at("parameters.priority", "must be a whole number, 1 for the highest and 0 for the default")
    return value


def options(parameters: Parameters) -> Parameters:
    """What may be an option of the model; raises InvalidInput for a part of a sequence, which nothing here keeps."""
    if parameters.get("sequence_id") not in (None, 0, ""):
        raise InvalidInput.at("parameters.sequence_id", "sequences are not served: every request stands alone")
    return {
        name: value
        for name, value in parameters.items()
        if name not in _RESERVED and not name.startswith(_RESERVED_PREFIX)
    }
