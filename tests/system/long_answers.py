"""An app with answers that are long, or come in parts."""

from __future__ import annotations

from scripted import app

__all__ = ["app"]


@app.get("/long")
def long():
    return b"x" * 5_000_000


@app.get("/stream")
def stream():
    return (str(digit).encode() for digit in range(10))


@app.get("/fails")
def fails():
    def parts():
        yield b"first"
        raise RuntimeError("in the middle")

    return parts()
