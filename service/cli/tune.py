"""`jitney tune`: the settings for a model and a latency that must be kept."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.bench.bodies import read_bodies
from service.bench.errors import BenchError
from service.cli.load_options import FiniteRange, Header, read_or_fail
from service.demo.steps import console_report, say_for

if TYPE_CHECKING:
    from service.bench.measure import Say
    from service.tune.advice import Advice
    from service.tune.check import Attempt
    from service.tune.curve import Curve
    from service.tune.live import LiveFigures
    from service.tune.model import ModelFigures

Echo = Callable[[str], None]


@click.command()
@click.argument("model", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--url", help="Of a running service: advice from what it has measured of itself, without any load.")
@click.option("--name", help="Of the model, where the running service has several.")
@click.option(
    "--slo-ms", default=50.0, show_default=True, type=FiniteRange(min=0, min_open=True), help="The p99 to keep."
)
@click.option(
    "--bodies",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON bodies of predict requests, one per line, to measure with; otherwise they are made up.",
)
@click.option("--duration", "duration_s", default=10.0, show_default=True, type=FiniteRange(min=1), help="Of a check.")
@click.option("--check/--no-check", "has_to_check", default=True, help="Measure under load what was recommended.")
@click.option("--header", "headers", multiple=True, type=Header(), help="For --url, e.g. X-API-Key:KEY.")
@click.option("--env", "env_file", type=click.Path(dir_okay=False, path_type=Path), help="Put the settings in there.")
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
    from service.tune.instances import configured, instances_lines
    from service.tune.live import LEAST_BATCHES

    if (model is None) == (url is None):
        raise click.UsageError("give either a MODEL, or --url of a running service")
    for option, path in (("--env", env_file), ("--chart", chart)):
        if path is not None:
            refuse_if_not_writable(option, path)
    echo: Echo = partial(click.echo, err=as_json)
    say = say_for("tune", console_report())
    tried: list[Attempt] = []
    batches: Mapping[int, int] = {}
    try:
        if model is not None:
            instances = configured()
            figures = _measured(model, bodies, duration_s, say)
            curve, request_s = figures.curve, figures.request_s
            lengths = figures.by_words
        else:
            assert url is not None
            told, instances = _told(url, name, headers, echo)
            curve, request_s = told.curve, told.request_s
            lengths, batches = {}, told.batches
        advice = advise(curve, slo_ms, request_s, instances)
        lines = [*report.curve_lines(curve), *report.text_lines(lengths), "", *report.advice_lines(advice, slo_ms)]
        if batches:
            lines += report.resting_lines(advice, batches, LEAST_BATCHES)
        lines += instances_lines(instances, will_check=model is not None and has_to_check)
        echo("\n".join(lines))
        if model is not None and has_to_check and _is_worth_a_check(advice, curve, slo_ms, duration_s, echo):
            tried = _checked(model, advice, slo_ms, figures, duration_s, say, echo)
            advice = tried[-1].advice
        if as_json:  # before anything is written: what took so long must not be lost
            click.echo(json.dumps(report.as_data(curve, advice, slo_ms, tried), indent=2))
        _write(curve, advice, slo_ms, tried, env_file, chart)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    sys.exit(0 if (tried[-1].kept if tried else advice.keeps_slo) else 1)


def refuse_if_not_writable(option: str, path: Path) -> None:
    """Raise UsageError before anything has been measured for a file that could not be written afterwards."""
    place = path if path.exists() else path.absolute().parent
    if not os.access(place, os.W_OK) or not (path.exists() or place.is_dir()):
        raise click.UsageError(f"{option}: {path} cannot be written")


def _is_worth_a_check(advice: Advice, curve: Curve, slo_ms: float, duration_s: float, echo: Echo) -> bool:
    """Whether a check can turn out either way; where it cannot, say why."""
    from service.tune.check import LEAST_REQUESTS

    if curve.t1_s * 1000 >= slo_ms:
        return False  # said already: the model alone takes too long
    if advice.requests_per_s * duration_s < LEAST_REQUESTS:
        echo(f"At that rate {duration_s:g} s are too short for a check: give a longer --duration.")
        return False
    return True


def _measured(model: Path, bodies: Path | None, duration_s: float, say: Say) -> ModelFigures:
    from service.tune.model import model_figures

    given = None if bodies is None else read_or_fail(bodies, read_bodies)
    return model_figures(model, given, limit_s=duration_s, rng=random.Random(0), say=say)


def _told(url: str, name: str | None, headers: tuple[tuple[str, str], ...], echo: Echo) -> tuple[LiveFigures, int]:
    """What a running service has measured of itself, and how many worker threads it has."""
    from service.bench.client import Client
    from service.tune.instances import running
    from service.tune.learnt import learnt
    from service.tune.live import live_figures
    from service.tune.report import learnt_lines, live_lines

    with Client(url, connections=1, timeout_s=10.0, headers=dict(headers)) as client:
        figures, best_batches, instances = live_figures(client, name), learnt(client), running(client)
    lines = [f"{figures.model}, by its own measurements:", *live_lines(figures.counted), *learnt_lines(best_batches)]
    echo("\n".join([*lines, ""]))
    return figures, instances


def _checked(
    model: Path, advice: Advice, slo_ms: float, figures: ModelFigures, duration_s: float, say: Say, echo: Echo
) -> list[Attempt]:
    from service.bench.own_server import model_settings, own_server
    from service.tune.check import attempts
    from service.tune.report import attempt_line, learnt_lines

    def start(settings: Any) -> Any:
        return own_server({**model_settings(model), **settings})

    tried = []
    for attempt in attempts(advice, figures.curve, slo_ms, figures.bodies, start, duration_s=duration_s, say=say):
        echo(attempt_line(attempt, slo_ms))
        tried.append(attempt)
    for line in learnt_lines(tried[-1].best_batches):
        echo(line)
    return tried


def _write(
    curve: Curve, advice: Advice, slo_ms: float, tried: list[Attempt], env_file: Path | None, chart: Path | None
) -> None:
    from service.tune.chart import draw
    from service.tune.env_file import merged
    from service.tune.report import remarks

    try:
        if env_file is not None:
            existing = env_file.read_text(encoding="utf-8") if env_file.exists() else ""
            env_file.write_text(merged(existing, advice.settings(), remarks(advice, slo_ms, tried)), encoding="utf-8")
        if chart is not None:
            draw(curve, advice, f"What batches cost; recommended for a p99 of {slo_ms:g} ms", chart)
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"the result cannot be written: {error}") from None
