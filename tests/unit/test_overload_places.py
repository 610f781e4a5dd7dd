from __future__ import annotations

import pytest

from service.server.overload import Overload, Place, Way

PROBE = b"GET /livez HTTP/1.1\r\n\r\n"
PREDICT = b"POST /predict HTTP/1.1\r\n\r\n"


def overload(queued_rows: int = 0) -> Overload:
    return Overload(threads=4, limit=6, queued_rows=lambda: queued_rows, patience_s=30.0)


@pytest.mark.parametrize("head", [PROBE, PREDICT])
@pytest.mark.parametrize("is_stopping", [True, False])
def test_as_long_as_a_thread_is_free_it_takes_whatever_comes(head, is_stopping):
    assert overload(queued_rows=100).place(3, head, is_stopping=is_stopping) == Place(Way.MAIN)


@pytest.mark.parametrize(
    "inside, queued_rows, place",
    [
        (4, 0, Place(Way.MAIN, 0)),
        (9, 0, Place(Way.MAIN, 5)),
        (10, 0, Place(Way.SURPLUS, 6)),
        (4, 5, Place(Way.MAIN, 5)),
        (4, 6, Place(Way.SURPLUS, 6)),
        (7, 2, Place(Way.MAIN, 5)),
        (7, 3, Place(Way.SURPLUS, 6)),
    ],
)
def test_rows_in_the_queue_and_requests_without_a_thread_share_one_limit(inside, queued_rows, place):
    assert overload(queued_rows).place(inside, PREDICT, is_stopping=False) == place


@pytest.mark.parametrize("inside", [4, 9, 10, 1000])
@pytest.mark.parametrize("is_stopping", [True, False])
def test_a_probe_has_threads_of_its_own_when_the_others_are_taken(inside, is_stopping):
    assert overload().place(inside, PROBE, is_stopping=is_stopping).way is Way.PROBE


def test_a_stopping_server_has_nobody_wait_for_a_thread_only_to_be_refused():
    assert overload().place(4, PREDICT, is_stopping=True).way is Way.SURPLUS


@pytest.mark.parametrize("inside, waiting", [(0, 0), (4, 0), (5, 1), (10, 6)])
def test_those_wait_who_are_more_than_there_are_threads(inside, waiting):
    assert overload().waiting(inside) == waiting
