"""What an error of a model says, short enough for a message; the whole belongs into the log."""

from __future__ import annotations

from service.batching.faults import text_of

_MAX_CHARS = 300


def last_words(error: BaseException) -> str:
    """The type of the error and the line that matters, on one line.

    An interpreter that runs inside another writes its traceback into the text, with the reason at the end; elsewhere
    the reason comes first, and advice after it.
    """
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = lines[-1] if any(part.startswith("Traceback") for part in lines) else lines[0]
    name = type(error).__name__
    shown = line if line.startswith(f"{name}:") else f"{name}: {line}"
    return shown if len(shown) <= _MAX_CHARS else f"{shown[:_MAX_CHARS]}..."
