"""How a benchmark tells what it found: on the terminal, and in the document that is kept of it."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
from pathlib import Path


def add_write(parser: argparse.ArgumentParser, what: str = "tables") -> None:
    """The option that names the document."""
    parser.add_argument("--write", type=Path, help=f"write the {what} there, too")


def when_and_where(cores: int | None = None) -> str:
    """Today, and the machine, as a document says it. cores: those of the machine by default."""
    cores = os.cpu_count() if cores is None else cores
    return f"{datetime.date.today()}, Python {platform.python_version()}, {cores} cores, {platform.machine()}"


def publish(text: str, document: Path | None) -> None:
    """Print it, and write the document where one was named."""
    print(text)
    if document is not None:
        document.write_text(text, encoding="utf-8")
