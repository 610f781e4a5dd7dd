"""`jitney pin`: writes a bundle's SHA-256 into its `jitney.toml`."""

from __future__ import annotations

from pathlib import Path

import click

from loaders.errors import ModelError


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False, path_type=Path))
def pin(bundle: Path) -> None:
    """Trust the model file that BUNDLE holds now: pin its SHA-256."""
    from loaders.bundle import BUNDLE_FILE, read_bundle
    from loaders.bundle import pin as pin_bundle

    try:
        described = read_bundle(bundle).tables.model
        sha256 = pin_bundle(bundle)
    except ModelError as error:
        raise click.ClickException(str(error)) from None
    what = "the directory itself" if described.file == "." else described.file
    before = described.sha256
    if before is not None and before.lower() == sha256:
        click.echo(f"nothing changed: {what} is pinned already\nsha256 {sha256}")
        return
    click.echo(f"pinned {what} in {bundle / BUNDLE_FILE}\nsha256 {sha256}")
    if before is not None:
        click.echo(f"in place of {before.lower()}")
