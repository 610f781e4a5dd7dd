"""`jitney demo`: builds the demo models."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from service.demo.steps import console_report


@click.command()
@click.argument("names", nargs=-1)
@click.option("--into", "target", default="demo-models", show_default=True, type=click.Path(path_type=Path))
@click.option("--missing", is_flag=True, help="Build only those that are not there yet.")
def demo(names: tuple[str, ...], target: Path, missing: bool) -> None:
    """Build demo models: digits, sentiment, imagenet, imagenet-torchscript; all of them when none is named."""
    from service.demo.build import RECIPES, build, is_built

    unknown = sorted(set(names) - set(RECIPES))
    if unknown:
        raise click.UsageError(f"no demo model {', '.join(unknown)}; there are {', '.join(RECIPES)}")
    wanted = [name for name in names or RECIPES if not (missing and is_built(name, target))]
    if not wanted:
        return
    result = build(wanted, target, console_report())
    for name, reason in result.failed.items():
        click.echo(f"{name} could not be built: {reason}", err=True)
    sys.exit(1 if result.failed else 0)
