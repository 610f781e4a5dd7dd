"""`jitney doctor`: what is wrong with a deployment, and which value mends it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import click

# Where nothing tells how wide the output is shown, as in a log.
_WIDTH_CHARS = 100

_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@click.command()
@click.option("--nginx", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its configuration file.")
@click.option("--load", "has_to_load", is_flag=True, help="Load the model too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
@click.argument("gunicorn_args", nargs=-1, type=click.UNPROCESSED)
def doctor(nginx: Path | None, has_to_load: bool, as_json: bool, gunicorn_args: tuple[str, ...]) -> None:
    """Look for what would go wrong, and tell the value that mends it.

    Settings count as they do for `jitney serve`, MODEL_PATH for the model, and so do gunicorn's options behind --.
    Exits with 1 when there is an error, with 0 otherwise.
    """
    if gunicorn_args and not gunicorn_args[0].startswith("-"):
        model = gunicorn_args[0]
        raise click.UsageError(f"give the model as MODEL_PATH={model} jitney doctor; only gunicorn's options follow --")
    from service.doctor.examination import examine
    from service.doctor.findings import Verdict, worst
    from service.doctor.report import as_data, as_table

    findings = list(examine(gunicorn_args, nginx=nginx, has_to_load=has_to_load))
    if as_json:
        click.echo(json.dumps(as_data(findings), indent=2, ensure_ascii=False))
    else:

        def paint(text: str, verdict: Verdict) -> str:
            return text if "NO_COLOR" in os.environ else click.style(text, fg=_COLOURS[verdict])

        # Click leaves the colours out where the output is no terminal.
        click.echo("\n".join(as_table(findings, shutil.get_terminal_size((_WIDTH_CHARS, 24)).columns, paint)))
    sys.exit(1 if worst(findings) is Verdict.ERROR else 0)
