"""Where threads run, by what the models cost."""

from __future__ import annotations

import pytest

from service.placement.gil_cost import CallCost
from service.placement.rule import (
    FREE_PREPARATION_S,
    GIL_FREE_SHARE,
    SEVERAL_CORES,
    SHORT_CALL_S,
    ModelCost,
    PlacementMode,
    Unmeasured,
    WorkerPlace,
    choose,
    why_copies_gain_nothing,
)

AUTO, OFF, PIN = PlacementMode.AUTO, PlacementMode.OFF, PlacementMode.PIN
NEVER, YET = Unmeasured.NEVER, Unmeasured.YET
SHARED, BETWEEN, FREE = WorkerPlace.SHARED, WorkerPlace.BETWEEN_CALLS, WorkerPlace.FREE


def cost(*, prepare_free_s: float = 0.0, call_s: float = 0.001, share: float = 0.0, cores: float = 1.0) -> ModelCost:
    call = CallCost(call_s, call_s * share, cores)
    return ModelCost(CallCost(0.01, prepare_free_s, 1.0), call, call)


SHORT = cost()
LONG_NATIVE = cost(call_s=0.01, share=0.9)


@pytest.mark.parametrize(
    ("model", "on_one_core", "worker"),
    [
        (SHORT, True, SHARED),
        (cost(call_s=SHORT_CALL_S * 0.9, share=1.0), True, SHARED),  # native, but over before it pays to move
        (cost(call_s=SHORT_CALL_S, share=GIL_FREE_SHARE), True, FREE),
        (cost(call_s=0.1, share=GIL_FREE_SHARE * 0.9), True, SHARED),  # long, but it keeps Python to itself
        (cost(cores=SEVERAL_CORES), True, SHARED),
        (cost(cores=SEVERAL_CORES * 1.1), False, FREE),  # its native threads would take the HTTP threads' core too
        (cost(prepare_free_s=FREE_PREPARATION_S), True, SHARED),
        (cost(prepare_free_s=FREE_PREPARATION_S * 1.1), False, FREE),
        (cost(prepare_free_s=0.002, call_s=0.01, share=0.9), False, FREE),
    ],
)
def test_auto_goes_by_the_cost_of_the_model(model, on_one_core, worker):
    choice = choose(AUTO, 2, [model])
    assert (choice.on_one_core, choice.worker) == (on_one_core, worker)


@pytest.mark.parametrize(
    ("mode", "cores", "costs", "said"),
    [
        (OFF, 2, [SHORT], "off"),
        (AUTO, 1, [SHORT], "one core"),
        (PIN, 1, [SHORT], "one core"),
        (AUTO, 0, [SHORT], "does not place"),
        (AUTO, 2, [], "cannot be measured"),
        (AUTO, 2, [SHORT, NEVER], "cannot be measured"),
        (AUTO, 2, [SHORT, YET], "tried again"),
        (AUTO, 2, [YET, NEVER], "cannot be measured"),
    ],
)
def test_nothing_is_placed_where_there_is_no_choice_or_no_knowledge(mode, cores, costs, said):
    choice = choose(mode, cores, costs)
    assert (choice.on_one_core, choice.worker) == (False, FREE)
    assert said in choice.why


@pytest.mark.parametrize(
    ("costs", "worker"),
    [
        ([SHORT], SHARED),
        ([LONG_NATIVE], FREE),
        ([NEVER], BETWEEN),
        ([YET], BETWEEN),
        ([cost(cores=SEVERAL_CORES * 1.1)], FREE),
        ([], BETWEEN),
        ([SHORT, YET], BETWEEN),
        ([NEVER, LONG_NATIVE], FREE),
        ([cost(prepare_free_s=1.0)], SHARED),
    ],
)
def test_pin_puts_http_threads_on_one_core_whatever_the_cost_but_never_a_call_that_needs_more(costs, worker):
    choice = choose(PIN, 2, costs)
    assert (choice.on_one_core, choice.worker) == (True, worker)


def test_of_several_models_the_one_that_is_bound_least_decides():
    assert choose(AUTO, 2, [SHORT, LONG_NATIVE]).worker is FREE
    assert not choose(AUTO, 2, [SHORT, cost(prepare_free_s=0.002)]).on_one_core


def test_auto_leaves_an_app_alone_that_has_routes_of_its_own():
    assert not choose(AUTO, 2, [SHORT], has_other_work=True).on_one_core
    assert choose(PIN, 2, [SHORT], has_other_work=True).on_one_core


def test_the_reason_tells_what_was_measured():
    assert "1.00 ms for a batch, 0% of it beside Python" in choose(AUTO, 2, [SHORT]).why
    assert "2.00 ms of a row" in choose(AUTO, 2, [cost(prepare_free_s=0.002)]).why
    assert "keep 2.0 cores busy" in choose(AUTO, 2, [cost(cores=2.0)]).why


def test_several_worker_threads_stay_free_and_that_is_told():
    choice = choose(AUTO, 2, [SHORT], instances=2)
    assert (choice.on_one_core, choice.worker) == (False, FREE)
    assert choice.why.startswith("MODEL_INSTANCES=2")
    pinned = choose(PIN, 2, [SHORT], instances=2)
    assert (pinned.on_one_core, pinned.worker) == (True, FREE)
    assert choose(OFF, 2, [SHORT], instances=2).why == "THREAD_PLACEMENT=off"


@pytest.mark.parametrize(
    ("mode", "costs", "instances", "is_makeshift"),
    [
        (AUTO, [YET], 1, True),
        (AUTO, [SHORT, YET], 1, True),
        (AUTO, [NEVER], 1, False),
        (AUTO, [NEVER, YET], 1, False),  # a measurement would change nothing
        (AUTO, [YET], 2, False),
        (OFF, [YET], 1, False),
        (PIN, [YET], 1, False),  # the HTTP threads are where they will stay
    ],
)
def test_a_choice_is_makeshift_where_a_measurement_may_change_it(mode, costs, instances, is_makeshift):
    assert choose(mode, 2, costs, instances=instances).is_makeshift is is_makeshift


def test_copies_gain_nothing_where_calls_keep_python_to_themselves():
    why = why_copies_gain_nothing(cost(call_s=0.001, share=0.1))
    assert why == "a batch of it takes 1.00 ms and keeps Python to itself for 90% of that"
    assert why_copies_gain_nothing(cost(share=GIL_FREE_SHARE)) is None
    assert why_copies_gain_nothing(cost(cores=SEVERAL_CORES * 1.1)) is None
