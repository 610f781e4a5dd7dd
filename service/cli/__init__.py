"""The `jitney` command; each subcommand is a module, imported when it is called."""

from __future__ import annotations

import click

from service.cli.bench import bench
from service.cli.demo import demo
from service.cli.doctor import doctor
from service.cli.inspect import inspect
from service.cli.pin import pin
from service.cli.serve import serve
from service.cli.tune import tune


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jitney")
def main() -> None:
    """Dynamic batching for models behind Flask and Gunicorn."""


main.add_command(serve)
main.add_command(demo)
main.add_command(inspect)
main.add_command(pin)
main.add_command(doctor)
main.add_command(bench)
main.add_command(tune)
