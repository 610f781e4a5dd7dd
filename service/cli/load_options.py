"""Types of options that several commands take, and files that are read for them."""

from __future__ import annotations

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


class Header(click.ParamType[tuple[str, str]]):
    """A header on the command line."""

    name = "name:value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, colon, text = str(value).partition(":")
        if not colon or not name.strip() or not value.isprintable():
            self.fail("must be NAME:VALUE", param, ctx)
        return name.strip(), text.strip()


def read_or_fail(path: Path, reader: Callable[[Path], T]) -> T:
    """What `reader` makes of a file; what is wrong with it is told in a line."""
    try:
        return reader(path)
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from None
    except ValueError as error:
        raise click.ClickException(f"{path}: {error}") from None
