from __future__ import annotations

import pytest

from loaders.errors import BundleError, ModelError
from service import errors
from service.sharing.failures import described, described_load_error, restored, restored_load_error
from service.sharing.frames import FrameError


def loaded_wrong() -> errors.PredictionFailed:
    class OfAPlugIn(errors.PredictionFailed):
        pass

    return OfAPlugIn("its own words")


@pytest.mark.parametrize(
    "error",
    [
        errors.QueueFull(3, 1023, 1024, 0.25),
        errors.NotReady("the model is still loading"),
        errors.NotReady("not now", 30.0),
        errors.Draining("the service is stopping"),
        errors.WorkerDead("it has ended"),
        errors.ModelFailed("the model failed on this input", (0, 2)),
        errors.OutOfMemory("there is not enough memory"),
        errors.SchedulerFailed("the scheduler failed", (1,)),
        errors.OutputCountMismatch("output count"),
        errors.NonFiniteOutput("not finite"),
        errors.PredictionFailed("some other way"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_arrives_as_the_same_class_with_the_same_words_and_data(error):
    again = restored(described(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_failure_of_a_class_that_front_ends_do_not_have_keeps_its_words():
    again = restored(described(loaded_wrong()))
    assert type(again) is errors.PredictionFailed
    assert str(again) == "its own words"


def test_what_is_no_failure_of_a_batcher_is_not_told():
    again = restored(described(KeyError("/secret/path")))
    assert type(again) is errors.WorkerDead
    assert "secret" not in str(again)


@pytest.mark.parametrize("told", [None, [], ["Exception", "x"], ["QueueFull", 1], ["ModelFailed"], 7])
def test_anything_else_is_refused(told):
    with pytest.raises(FrameError):
        restored(told)


def test_a_failed_load_is_told_in_its_own_words_or_named():
    known = restored_load_error(described_load_error(BundleError("no table")))
    assert (type(known), str(known)) == (BundleError, "no table")
    other = restored_load_error(described_load_error(KeyError("x")))
    assert (type(other), str(other)) == (ModelError, "KeyError: 'x'")
    with pytest.raises(FrameError):
        restored_load_error("nothing of the kind")
