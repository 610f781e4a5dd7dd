"""`jitney inspect`: what would be served, without serving it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Never

import click

from loaders.errors import ModelError
from loaders.handle import ModelHandle
from service.cli.repository_hint import repository_hint
from service.settings import Settings, SettingsError, load_settings, read_dotenv


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def inspect(model: str, as_json: bool) -> None:
    """Load MODEL as the service would and tell what it takes and gives.

    Settings count as they do for `jitney serve`: DEVICE, ALLOW_PICKLE, MODEL_FORMAT and the others. A model that the
    service would refuse ends with the reason and status 1.
    """
    from service.cli.model_card import model_card
    from service.cli.model_text import card_lines
    from service.cli.trial import tried

    read_dotenv()
    try:
        settings = load_settings(model_path=model, model_repository=None)
        handle = _load(settings)
    except SettingsError as error:
        _fail(f"wrong settings\n{error}", as_json)
    except ModelError as error:
        _fail(f"{error}{repository_hint(Path(model))}", as_json)
    try:
        card = model_card(handle, Path(model), url_of(settings.bind))
        trial = tried(handle, settings)
    finally:
        handle.close()
    if trial.refused is not None:
        _fail(trial.refused, as_json)
    card["answer"] = trial.answer
    card["warnings"] += trial.warnings
    if as_json:
        click.echo(json.dumps(card, indent=2, ensure_ascii=False, default=str))
        return
    click.echo("\n".join(card_lines(card, Path(model))))


def _load(settings: Settings) -> ModelHandle:
    from loaders.signature import ImageInput
    from service.inputs import image
    from service.models.loading import load_configured_model

    handle = load_configured_model(settings)
    if isinstance(handle.input, ImageInput):
        image.require()
    return handle


def _fail(message: str, as_json: bool) -> Never:
    if as_json:
        click.echo(json.dumps({"error": message}, ensure_ascii=False))
        sys.exit(1)
    raise click.ClickException(message)


def url_of(bind: str) -> str:
    """Where a client on this machine finds the service; a socket has no address to show."""
    if bind.startswith(("unix:", "fd:")):
        return "http://127.0.0.1:8000"
    return f"http://127.0.0.1{bind}" if bind.startswith(":") else f"http://{bind}"
