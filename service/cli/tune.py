"""`jitney tune`: the settings for a model and a latency that must be kept."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.bench.bodies import read_bodies
from service.bench.errors import BenchError
from service.cli.load_options import Header, read_or_fail
from service.demo.steps import console_report, say_for

if TYPE_CHECKING:
    from service.bench.measure import Say
    from service.tune.advice import Advice
    from service.tune.check import Attempt
    from service.tune.curve import Curve
    from service.tune.model import ModelFigures

Echo = Callable[[str], None]


@click.command()
@click.argument("model", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--url", help="Of a running service: advice from what it has measured of itself, without any load.")
@click.option("--name", help="Of the model, where the running service has several.")
@click.option(
    "--slo-ms", default=50.0, show_default=True, type=click.FloatRange(min=0, min_open=True), help="The p99 to keep."
)
@click.option(
    "--bodies",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON bodies of predict requests, one per line, to measure with; otherwise they are made up.",
)
@click.option(
    "--duration", "duration_s", default=10.0, show_default=True, type=click.FloatRange(min=1), help="Of a check."
)
@click.option("--check/--no-check", "has_to_check", default=True, help="Measure under load what was recommended.")
@click.option("--header", "headers", multiple=True, type=Header(), help="For --url, e.g. X-API-Key:KEY.")
@click.option("--env", "env_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the settings there.")
@click.option("--chart", type=click.Path(dir_okay=False, path_type=Path), help="Draw what batches cost there, as SVG.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def tune(
    model: Path | None,
    url: str | None,
    name: str | None,
    slo_ms: float,
    bodies: Path | None,
    duration_s: float,
    has_to_check: bool,
    headers: tuple[tuple[str, str], ...],
    env_file: Path | None,
    chart: Path | None,
    as_json: bool,
) -> None:
    """Recommend the settings with which MODEL carries the most load while p99 stays below --slo-ms.

    Its batches of 1 to 64 rows are measured in a server of its own on this machine, and so is what is recommended;
    where that misses, less load and smaller batches are tried. Settings count as they do for `jitney serve`. Exits
    with 1 when nothing kept the latency.
    """
    from service.tune import report
    from service.tune.advice import advise

    if (model is None) == (url is None):
        raise click.UsageError("give either a MODEL, or --url of a running service")
    echo: Echo = partial(click.echo, err=as_json)
    say = say_for("tune", console_report())
    tried: list[Attempt] = []
    try:
        if model is not None:
            figures = _measured(model, bodies, duration_s, say)
            curve, request_s = figures.curve, figures.request_s
            lengths = figures.by_words
        else:
            assert url is not None
            curve, request_s = _told(url, name, headers, echo)
            lengths = {}
        advice = advise(curve, slo_ms, request_s)
        lines = [*report.curve_lines(curve), *report.text_lines(lengths), "", *report.advice_lines(advice, slo_ms)]
        echo("\n".join(lines))
        if model is not None and has_to_check:
            tried = _checked(model, advice, slo_ms, figures, duration_s, say, echo)
            advice = tried[-1].advice
        _write(curve, advice, slo_ms, tried, env_file, chart)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(report.as_data(curve, advice, slo_ms, tried), indent=2))
    sys.exit(0 if (tried[-1].kept if tried else advice.keeps_slo) else 1)


def _measured(model: Path, bodies: Path | None, duration_s: float, say: Say) -> ModelFigures:
    from service.tune.model import model_figures

    given = None if bodies is None else read_or_fail(bodies, read_bodies)
    return model_figures(model, given, limit_s=duration_s, rng=random.Random(0), say=say)


def _told(url: str, name: str | None, headers: tuple[tuple[str, str], ...], echo: Echo) -> tuple[Curve, float]:
    """What a running service has measured of itself."""
    from service.bench.client import Client
    from service.tune.live import live_figures
    from service.tune.report import live_lines

    with Client(url, connections=1, timeout_s=10.0, headers=dict(headers)) as client:
        figures = live_figures(client, name)
    echo("\n".join([f"{figures.model}, by its own measurements:", *live_lines(figures.counted), ""]))
    return figures.curve, figures.request_s


def _checked(
    model: Path, advice: Advice, slo_ms: float, figures: ModelFigures, duration_s: float, say: Say, echo: Echo
) -> list[Attempt]:
    from service.bench.own_server import model_settings, own_server
    from service.tune.check import attempts
    from service.tune.report import attempt_line

    def start(settings: Any) -> Any:
        return own_server({**model_settings(model), **settings})

    tried = []
    for attempt in attempts(advice, figures.curve, slo_ms, figures.bodies, start, duration_s=duration_s, say=say):
        echo(attempt_line(attempt, slo_ms))
        tried.append(attempt)
    return tried


def _write(
    curve: Curve, advice: Advice, slo_ms: float, tried: list[Attempt], env_file: Path | None, chart: Path | None
) -> None:
    from service.tune.chart import draw
    from service.tune.report import env_text

    try:
        if env_file is not None:
            env_file.write_text(env_text(advice, slo_ms, tried), encoding="utf-8")
        if chart is not None:
            draw(curve, advice, f"What batches cost; recommended for a p99 of {slo_ms:g} ms", chart)
    except OSError as error:
        raise click.ClickException(f"the result cannot be written: {error}") from None
