"""`jitney bench`: load on a running server."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from service.bench.answers import TOLERANCE
from service.bench.bodies import Body, read_bodies
from service.bench.client import MAX_CONNECTIONS, Client
from service.bench.errors import BenchError
from service.bench.made import WORDS, made_bodies
from service.bench.mix import Mix
from service.bench.pattern import Kind, Pattern
from service.cli.load_options import FiniteRange, Header, MixOfSizes, read_or_fail
from service.demo.steps import console_report, say_for

if TYPE_CHECKING:
    from service.bench.measure import Measurement

# As many as an open loop may need while the server stalls.
_OPEN_CONNECTIONS = 512

# So little that it is nothing, and so much that it is not lost beside a week.
_AFTER_THE_LAST_S = 1e-6

# Far above what this program can send, which is some thousands; each request that was due is kept in memory.
_MAX_RATE_PER_S = 100_000


def load_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say how requests follow each other."""
    at_least_1 = click.IntRange(min=1)
    options = [
        click.option(
            "--concurrency",
            "-c",
            default=32,
            show_default=True,
            type=click.IntRange(1, MAX_CONNECTIONS),
            help="Callers of a closed loop.",
        ),
        click.option("--rate", type=FiniteRange(0, _MAX_RATE_PER_S, min_open=True), help="Requests/s of an open loop."),
        click.option(
            "--arrivals",
            type=click.Choice([Kind.CONSTANT.value, Kind.POISSON.value, Kind.BURSTS.value]),
            default=Kind.POISSON.value,
            show_default=True,
            help="How the requests of an open loop come.",
        ),
        click.option("--burst", default=16, show_default=True, type=at_least_1, help="Requests at once, for bursts."),
        click.option(
            "--replay",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Recorded arrivals, one per line: seconds, or ISO 8601.",
        ),
        click.option(
            "--duration",
            "duration_s",
            default=10.0,
            show_default=True,
            type=FiniteRange(min=0, min_open=True),
            help="Seconds; a replay ends with its last time.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("url")
@load_options
@click.option("--warm-up", "warm_up_s", default=1.0, show_default=True, type=FiniteRange(min=0), help="Seconds.")
@click.option(
    "--bodies",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON bodies of predict requests, one per line; otherwise they are made up from what the server tells.",
)
@click.option("--rows", type=MixOfSizes(), default="1", show_default=True, help="Of made-up bodies, e.g. 1,1,4-8.")
@click.option("--words", type=MixOfSizes(), default=WORDS, help="Of made-up texts; default: 5-15,5-15,60-120.")
@click.option("--distinct", default=64, show_default=True, type=click.IntRange(min=1), help="Made-up bodies.")
@click.option("--tolerance", default=TOLERANCE, show_default=True, type=FiniteRange(min=0), help="Of scores.")
@click.option(
    "--timeout",
    "timeout_s",
    default=60.0,
    show_default=True,
    type=FiniteRange(min=0, min_open=True),
    help="Of a request, seconds.",
)
@click.option("--connections", type=click.IntRange(1, MAX_CONNECTIONS), help="Of an open loop, at most; default: 512.")
@click.option("--header", "headers", multiple=True, type=Header(), help="For each request, e.g. X-API-Key:KEY.")
@click.option("--seed", default=0, show_default=True, help="Of everything that is drawn.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def bench(
    url: str,
    warm_up_s: float,
    bodies: Path | None,
    rows: Mix,
    words: Mix,
    distinct: int,
    tolerance: float,
    timeout_s: float,
    connections: int | None,
    headers: tuple[tuple[str, str], ...],
    seed: int,
    as_json: bool,
    **load: Any,
) -> None:
    """Put load on the server at URL and tell what it came to.

    Without --rate or --replay, --concurrency callers wait for their answers (a closed loop). With them requests come at
    times of their own (an open loop), and latencies count from when each was due. Each answer is compared with the one
    that the same body got alone. Exits with 1 when an answer was wrong or missing.
    """
    from service.bench.measure import measure
    from service.bench.report import as_data, as_lines

    refuse_what_has_no_effect(click.get_current_context())
    pattern = pattern_of(**load)
    wanted = pattern.connections or connections or _OPEN_CONNECTIONS
    say = say_for("bench", console_report())
    rng = random.Random(seed)
    try:
        with Client(url, connections=wanted, timeout_s=timeout_s, headers=dict(headers)) as client:
            sent = (
                made_for(client, count=distinct, rows=rows, words=words, rng=rng)
                if bodies is None
                else read_or_fail(bodies, read_bodies)
            )
            done = measure(client, sent, pattern, warm_up_s=warm_up_s, tolerance=tolerance, seed=seed, say=say)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps(as_data(done), indent=2) if as_json else "\n".join(as_lines(done)))
    sys.exit(1 if _has_failed(done) else 0)


def refuse_what_has_no_effect(context: click.Context) -> None:
    """Raise UsageError for an option that was given and belongs to another kind of load: nobody must be misled."""
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    is_open = given & {"rate", "replay"}
    if given >= {"rate", "replay"}:
        raise click.UsageError("--rate and --replay exclude each other")
    if is_open and "concurrency" in given:
        raise click.UsageError("--concurrency is for a closed loop, without --rate and --replay")
    if "rate" not in given and given & {"arrivals", "burst"}:
        raise click.UsageError("--arrivals and --burst need a --rate")
    if "burst" in given and context.params["arrivals"] != Kind.BURSTS:
        raise click.UsageError("--burst is for --arrivals bursts")
    if not is_open and "connections" in given:
        raise click.UsageError("--connections is for an open loop; in a closed one each caller has its own")


def pattern_of(
    *,
    concurrency: int,
    rate: float | None,
    arrivals: str,
    burst: int,
    replay: Path | None,
    duration_s: float,
) -> Pattern:
    """What the options of a load ask for."""
    from service.bench.arrivals import replay as recorded_times

    if replay is not None:
        recorded = tuple(read_or_fail(replay, recorded_times))
        # All of them, the last included: --duration is for loads that have no end of their own.
        return Pattern(Kind.REPLAY, recorded[-1] + _AFTER_THE_LAST_S, callers=concurrency, recorded=recorded)
    if rate is None:
        return Pattern(Kind.CLOSED, duration_s, callers=concurrency)
    return Pattern(Kind(arrivals), duration_s, callers=concurrency, rate_per_s=rate, burst=burst)


def made_for(client: Client, **wanted: Any) -> list[Body]:
    """Bodies that the server at the other end takes; `wanted`: see `made_bodies`."""
    outcome, content = client.get("/openapi.json")
    if not outcome.isdecimal():
        where = f"{client.host}, port {client.port}"
        raise click.ClickException(
            f"no server answers at {where} ({outcome}): is the address right, its port included?"
        )
    if outcome != "200":
        raise click.ClickException(f"the server's /openapi.json ends with {outcome}; is it there? else give --bodies")
    try:
        return made_bodies(json.loads(content), **wanted)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise click.ClickException("the server's /openapi.json does not describe a Jitney; give --bodies") from None


def _has_failed(done: Measurement) -> bool:
    clients = done.clients
    return bool(clients.wrong_answers or clients.errors) or not clients.requests
