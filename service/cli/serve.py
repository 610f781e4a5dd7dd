"""`jitney serve`: gunicorn, with Jitney's configuration and app."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from service.cli.repository_hint import repository_hint
from service.settings import Settings, SettingsError, load_settings, read_dotenv

if TYPE_CHECKING:
    from loaders.signature import InputSpec

Execute = Callable[[str, list[str]], object]


@click.command()
@click.option("--model", help="Model file or bundle directory (MODEL_PATH).")
@click.option("--repository", help="Directory of bundles <name>/<version>/ (MODEL_REPOSITORY).")
@click.option("--bind", help="Address to listen on (BIND).")
@click.argument("gunicorn_args", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def serve(
    execute: Execute | None,
    model: str | None,
    repository: str | None,
    bind: str | None,
    gunicorn_args: tuple[str, ...],
) -> None:
    """Serve a model, or a repository of several, over HTTP.

    Settings are environment variables or lines of ./.env. What follows -- goes to gunicorn, e.g.
    jitney serve --model iris -- --access-logfile -
    """
    if gunicorn_args and not gunicorn_args[0].startswith("-"):
        raise click.UsageError(f"the model is given as --model {gunicorn_args[0]}; only gunicorn's options follow --")
    if model is not None and repository is not None:
        raise click.UsageError("--model and --repository exclude each other")
    if model is not None or repository is not None:
        # An empty variable counts as none, and keeps a line of ./.env from coming back.
        os.environ |= {"MODEL_PATH": model or "", "MODEL_REPOSITORY": repository or ""}
    if bind is not None:
        os.environ["BIND"] = bind
    given = dict(os.environ)
    read_dotenv()
    try:
        settings = load_settings()
    except SettingsError as error:
        raise click.ClickException(f"wrong settings\n{error}") from None
    source = settings.model_path or settings.model_repository
    if source is None:
        raise click.UsageError(
            "which model? give --model PATH or set MODEL_PATH; for several, --repository DIRECTORY or MODEL_REPOSITORY"
        )
    _say_what_to_try(Path(source), _address(settings, gunicorn_args), _look_at(settings))
    if settings.api_keys:
        click.echo("A prediction needs one of API_KEYS: add -H 'X-API-Key: ...'\n")
    command = ["-m", "gunicorn", "-c", "python:service.gunicorn_config", *gunicorn_args, "service:create_app()"]
    sys.stdout.flush()
    # The server reads ./.env itself. As variables the lines would win over those that a later master finds there.
    for name in os.environ.keys() - given.keys():
        del os.environ[name]
    # The click context's object, where there is one, is a test that wants to see the call.
    (execute or os.execv)(sys.executable, [sys.executable, *command])


def _address(settings: Settings, gunicorn_args: Sequence[str]) -> str:
    """Where gunicorn will listen first: its own options win."""
    from service.doctor.gunicorn_values import WrongOptions, options_of

    try:
        given = options_of(gunicorn_args).get("bind") if gunicorn_args else None
    except WrongOptions:  # gunicorn says what is wrong with them
        given = None
    return str(given[0]) if given else settings.bind


def _look_at(settings: Settings) -> InputSpec | None:
    """Find out what can be found out without loading a model, before a server is started for it.

    The input that a bundle declares; None where none does.
    """
    from loaders.declared import declared_input
    from loaders.errors import ModelError
    from loaders.load import check_path
    from loaders.signature import TensorInput
    from service.batching.schedulers import NoScheduler, make_scheduler
    from service.models.repository import Repository

    try:
        make_scheduler(settings.scheduler)
        if settings.model_path is None:
            Repository(str(settings.model_repository)).names()
            return None
        table = check_path(settings.model_path, settings.model_format).input
        return None if table is None else declared_input(table, TensorInput())
    except NoScheduler as error:
        raise click.ClickException(f"SCHEDULER: {error}") from None
    except ModelError as error:
        hint = repository_hint(Path(settings.model_path)) if settings.model_path is not None else ""
        raise click.ClickException(f"{error}{hint}") from None


def _say_what_to_try(model: Path, bind: str, spec: InputSpec | None) -> None:
    """A request that works, for a demo model or where the bundle says enough; otherwise one for the model's health."""
    from service.cli.model_card import curl
    from service.demo.curl import example_request
    from service.inputs.example import is_known

    if bind.startswith(("unix:", "fd:")):
        click.echo(f"Serving {model} at {bind}.")
        return
    host, _, port = bind.rpartition(":")
    everywhere = host in ("", "0.0.0.0", "[::]")
    url = f"http://127.0.0.1:{port}" if everywhere else f"http://{bind}"
    where = f"{url} and every other address of this machine" if everywhere else url
    click.echo(f"Serving {model} at {where}. When the log says that the model is ready, try, in another terminal:\n")
    try:
        click.echo(f"{example_request(model.name, model, url)}\n")
    except KeyError:
        # Whether a table holds texts is known once its model is loaded.
        told = spec is not None and is_known(spec) and spec.kind != "tabular"
        click.echo(f"{curl(spec, url) if spec is not None and told else f'curl -s {url}/healthz'}\n")
