"""Types of options that several commands take, and files that are read for them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from service.bench.mix import Mix

T = TypeVar("T")


class MixOfSizes(click.ParamType[Mix]):
    """A mixture of sizes on the command line."""

    name = "mix"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Mix:
        if isinstance(value, Mix):
            return value
        try:
            return Mix.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FiniteRange(click.FloatRange):
    """A number within bounds. The words `nan` and `inf`, which are numbers to Python, are within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail("must be a finite number", param, ctx)
        return number


# What can stand in a request. Source: RFC 9110, sections 5.1 and 5.5.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class Header(click.ParamType[tuple[str, str]]):
    """A header on the command line."""

    name = "name:value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, colon, text = str(value).partition(":")
        is_name = _HEADER_NAME.fullmatch(name.strip())
        if not colon or not is_name or not _HEADER_VALUE.fullmatch(text):
            self.fail("must be NAME:VALUE, of characters that a header may hold", param, ctx)
        return name.strip(), text.strip()


def read_or_fail(path: Path, reader: Callable[[Path], T]) -> T:
    """What `reader` makes of a file; what is wrong with it is told in a line."""
    try:
        return reader(path)
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from None
