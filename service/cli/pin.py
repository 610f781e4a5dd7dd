"""`jitney pin`: writes a bundle's SHA-256 into its `jitney.toml`."""

from __future__ import annotations

from pathlib import Path

import click

from loaders.errors import ModelError


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
def pin(bundle: Path) -> None:
    """Trust the model file that BUNDLE holds now: pin its SHA-256."""
    from loaders.bundle import pin as pin_bundle

    try:
        click.echo(f"pinned sha256 {pin_bundle(bundle)}")
    except ModelError as error:
        raise click.ClickException(str(error)) from None
