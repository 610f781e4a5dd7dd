"""How many worker threads will run the batches: advice is reckoned for one, and has to say so where there are more."""

from __future__ import annotations

import os
from collections.abc import Iterator

import orjson

from service.bench.client import Client
from service.settings import read_dotenv

_VARIABLE = "MODEL_INSTANCES"


def configured() -> int:
    """As a server that is started here would have it; 1 for what is no number, with which none starts."""
    environ = dict(os.environ)
    read_dotenv(environ=environ)
    text = environ.get(_VARIABLE, "").strip()
    return int(text) if text.isdecimal() and int(text) else 1


def running(client: Client) -> int:
    """As a running service tells at `/healthz`, which is silent about a single one."""
    _, content = client.get("/healthz")
    try:
        return int(orjson.loads(content)["instances"]["count"])
    except (ValueError, TypeError, LookupError):
        return 1


def instances_lines(instances: int, *, will_check: bool) -> Iterator[str]:
    """What of the expectation does not hold with several."""
    if instances < 2:
        return
    yield (
        f"{_VARIABLE}={instances}: what is expected is reckoned for one worker thread. {instances} that share the CPUs "
        "take longer for a batch each, and have more of them at a time."
    )
    yield (
        f"The check runs all {instances} of them."
        if will_check
        else "Only a load on the service tells what it comes to."
    )
