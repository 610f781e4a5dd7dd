"""What an exception of the model means for the batch that raised it."""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from enum import StrEnum
from types import TracebackType


class FaultKind(StrEnum):
    """The values are metric labels."""

    MODEL = "model"  # some row may be at fault: split and retry
    OUT_OF_MEMORY = "oom"  # the batch was too large: split, retry, and lower the ceiling
    FATAL = "device"  # the device has lost its context: nothing will work again in this process


# CUDA errors after which every further call of the process fails (CUDA runtime API, "sticky" errors).
_STICKY = (
    "device-side assert",
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "unspecified launch failure",
    "uncorrectable ECC",
    "launch timed out",
    "context is destroyed",
)

_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "DefaultCPUAllocator",
    "Failed to allocate memory",
    "STATUS_ALLOC_FAILED",
)

# These are about the input, and may quote it: what a caller wrote must not pass for a word of the device.
_ABOUT_INPUT = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, AssertionError)


def classify(error: Exception) -> FaultKind:
    """Tell the three kinds apart by type and, for frameworks that raise plain RuntimeErrors, by message.

    Names are compared instead of types, so that no framework is imported to ask. Never raises, whatever the error is.
    """
    names = {cls.__name__ for cls in type(error).__mro__}
    if "MemoryError" in names or "OutOfMemoryError" in names:
        return FaultKind.OUT_OF_MEMORY
    if issubclass(type(error), _ABOUT_INPUT):
        return FaultKind.MODEL
    text = text_of(error)
    if "CUDA" in text and any(sign in text for sign in _STICKY):
        return FaultKind.FATAL
    if any(sign in text for sign in _OUT_OF_MEMORY):
        return FaultKind.OUT_OF_MEMORY
    return FaultKind.MODEL


def text_of(error: BaseException) -> str:
    """What an error says, also when its own `__str__` fails: an error comes from a model or a plug-in."""
    try:
        return "".join(str(error))
    except Exception:
        return "(an error whose text cannot be shown)"


def log_error(log: logging.Logger, level: int, message: str, *args: object, error: BaseException | None) -> None:
    """Log `message` with the traceback of `error`. Never raises, and loses no line, whatever they do."""
    with suppress(Exception):
        log.log(level, message, *args, exc_info=None if error is None else _exc_info(error))


def _exc_info(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """For `exc_info`; an error that cannot be formatted is replaced by one that says where it came from."""
    try:
        traceback.format_exception(error)
    except Exception:
        shown = RuntimeError(f"{type(error).__name__}, which cannot be shown")
        return RuntimeError, shown, error.__traceback__
    return type(error), error, error.__traceback__
