"""`jitney serve`: gunicorn, with Jitney's configuration and app."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from service.settings import SettingsError, load_settings, read_dotenv

Execute = Callable[[str, list[str]], object]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--model", help="Model file or bundle directory (MODEL_PATH).")
@click.option("--bind", help="Address to listen on (BIND).")
@click.argument("gunicorn_args", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def serve(execute: Execute | None, model: str | None, bind: str | None, gunicorn_args: tuple[str, ...]) -> None:
    """Serve a model over HTTP.

    Settings are environment variables or lines of ./.env; what follows -- goes to gunicorn.
    """
    for name, value in {"MODEL_PATH": model, "BIND": bind}.items():
        if value is not None:
            os.environ[name] = value
    read_dotenv()
    try:
        settings = load_settings()
    except SettingsError as error:
        raise click.ClickException(f"wrong settings\n{error}") from None
    if settings.model_path is None:
        raise click.UsageError("which model? give --model PATH or set MODEL_PATH")
    _say_what_to_try(Path(settings.model_path), settings.bind)
    command = ["-m", "gunicorn", "-c", "python:service.gunicorn_config", *gunicorn_args, "service:create_app()"]
    sys.stdout.flush()
    # The click context's object, where there is one, is a test that wants to see the call.
    (execute or os.execv)(sys.executable, [sys.executable, *command])


def _say_what_to_try(model: Path, bind: str) -> None:
    """A request that works, when the model is one of the demo models."""
    from service.demo.curl import example_request

    if bind.startswith(("unix:", "fd:")):
        click.echo(f"Serving {model} at {bind}.")
        return
    url = f"http://{bind}" if bind[0] != ":" else f"http://127.0.0.1{bind}"
    click.echo(f"Serving {model} at {url}. When the log says that the model is ready, try, in another terminal:\n")
    try:
        click.echo(f"{example_request(model.name, model, url)}\n")
    except KeyError:
        click.echo(f"curl -s {url}/healthz\n")
