"""Where the threads of a process run best, by what its models cost: a pure function, and its thresholds."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from service.placement.gil_cost import SEVERAL_CORES, CallCost

# Preparation that leaves Python to others for longer than this for a row, seconds, is spread over the cores: on one
# core only one picture at a time would be decoded.
FREE_PREPARATION_S = 0.0003

# A call of the model that is shorter than this, seconds, is over before another core could have been woken for it.
SHORT_CALL_S = 0.002

# A call that leaves Python to others for less than this part of it cannot run beside them, whatever cores there are.
GIL_FREE_SHARE = 0.5


class PlacementMode(StrEnum):
    """`auto`: as the models' cost tells; `pin`: HTTP threads on one core whatever preparation costs; `off`: nowhere."""

    AUTO = "auto"
    OFF = "off"
    PIN = "pin"


class WorkerPlace(StrEnum):
    """Where the worker thread runs, from the most bound to the least."""

    SHARED = "shared"  # on the core of the HTTP threads
    BETWEEN_CALLS = "between_calls"  # there too, but on any core while the model runs
    FREE = "free"  # on any core


class ModelCost(NamedTuple):
    """What a model's rows cost. `prepare`: one row on its HTTP thread. `single`, `full`: batches of one row and of
    MAX_BATCH_SIZE, or of as many as do not take long.
    """

    prepare: CallCost
    single: CallCost
    full: CallCost


class Unmeasured(StrEnum):
    """Why it is not known what a model costs."""

    NEVER = "never"  # it cannot be measured here, or is not to be
    YET = "yet"  # others use the cores; it is tried again


Cost = ModelCost | Unmeasured


class Choice(NamedTuple):
    """`on_one_core`: the HTTP threads share a core. `why`: in words, for people. `is_makeshift`: what is best will only
    be known when something has been measured that could not be yet.
    """

    on_one_core: bool
    worker: WorkerPlace
    why: str
    is_makeshift: bool = False


def choose(
    mode: PlacementMode,
    cores: int,
    costs: Collection[Cost],
    *,
    has_other_work: bool = False,
    instances: int = 1,
) -> Choice:
    """Where the threads run.

    cores: how many the process may use. costs: of every loaded model.
    has_other_work: the HTTP threads do more than these models' requests. instances: worker threads, which stay free
    where there are several: they are there to use as many cores.
    """
    if mode is PlacementMode.OFF:
        return _nowhere("THREAD_PLACEMENT=off")
    if cores < 2:
        return _nowhere("there is one core only" if cores else "this system does not place threads")
    if mode is PlacementMode.PIN:
        place = WorkerPlace.FREE if instances > 1 else _worker_place(costs)
        return Choice(True, place, "THREAD_PLACEMENT=pin")
    if instances > 1:
        # As beside native threads: those that are kept to one core could not move out of the way of any of them.
        return _nowhere(f"MODEL_INSTANCES={instances}: so many worker threads keep as many cores busy")
    return _by_cost(costs, has_other_work=has_other_work)


def _by_cost(costs: Collection[Cost], *, has_other_work: bool) -> Choice:
    if has_other_work:
        return _nowhere("the app has routes of its own, and nobody knows what those cost")
    if Unmeasured.NEVER in costs or not costs:
        return _nowhere(
            "what a model costs cannot be measured (WARMUP=false, no row can be made up, or it failed or took "
            "too long at that); "
            "THREAD_PLACEMENT=pin needs no measurement"
        )
    if Unmeasured.YET in costs:
        why = "the machine was too busy to measure what a model costs, which is tried again when nothing waits"
        return _nowhere(why)._replace(is_makeshift=True)
    measured = [cost for cost in costs if isinstance(cost, ModelCost)]
    prepare = max((cost.prepare for cost in measured), key=lambda cost: cost.gil_free_s)
    if prepare.gil_free_s > FREE_PREPARATION_S:
        return _nowhere(f"preparation runs beside other threads for {prepare.gil_free_s * 1000:.2f} ms of a row")
    busiest = max(cost.full.cores for cost in measured)
    if busiest > SEVERAL_CORES:
        # One of them runs on any core, and HTTP threads that are kept to one could not move out of its way. *Source:* a
        # text model with two threads on two cores gave 5 to 40 % more answers so when nobody else used these, and a
        # third to a sixth of them when somebody did.
        return _nowhere(f"the model's native threads keep {busiest:.1f} cores busy")
    call = max((cost.full for cost in measured), key=lambda cost: cost.wall_s)
    told = f"{call.wall_s * 1000:.2f} ms for a batch, {call.gil_free_share:.0%} of it beside Python"
    return Choice(True, _worker_place(costs), f"preparation needs Python all the time; the model takes {told}")


def _worker_place(costs: Collection[Cost]) -> WorkerPlace:
    """The least bound of the places of the models; a model whose cost is not known is called on any core."""
    order = list(WorkerPlace)
    places = [_place_of(cost) if isinstance(cost, ModelCost) else WorkerPlace.BETWEEN_CALLS for cost in costs]
    return max(places, key=order.index, default=WorkerPlace.BETWEEN_CALLS)


def _place_of(cost: ModelCost) -> WorkerPlace:
    call = cost.full
    if call.cores > SEVERAL_CORES:
        return WorkerPlace.FREE
    is_beside_python = call.wall_s >= SHORT_CALL_S and call.gil_free_share >= GIL_FREE_SHARE
    return WorkerPlace.FREE if is_beside_python else WorkerPlace.SHARED


def why_copies_gain_nothing(cost: ModelCost) -> str | None:
    """Why several worker threads, each with a copy of the model, serve no more than one; None where they may."""
    call = cost.full
    if call.cores > SEVERAL_CORES or call.gil_free_share >= GIL_FREE_SHARE:
        return None
    took_ms, kept = call.wall_s * 1000, 1 - call.gil_free_share
    return f"a batch of it takes {took_ms:.2f} ms and keeps Python to itself for {kept:.0%} of that"


def _nowhere(why: str) -> Choice:
    return Choice(False, WorkerPlace.FREE, why)
