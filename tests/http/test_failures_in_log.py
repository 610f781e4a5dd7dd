"""The `X-Request-ID` of an answer leads to what the log tells of its failure, the traceback included."""

from __future__ import annotations

import logging

import pytest
from served import GUARD_S, NOT_FINITE, POISON, Gate, sums

V1, V2 = "/v1/models/m:predict", "/v2/models/m/infer"


def body_of(path: str, number: int) -> dict:
    if path == V2:
        return {"inputs": [{"name": "input", "datatype": "FP64", "shape": [1, 1], "data": [number]}]}
    return {"instances": [[number]]}


def lines_about(caplog: pytest.LogCaptureFixture, request_id: str) -> list[logging.LogRecord]:
    return [
        record for record in caplog.records if record.levelno >= logging.ERROR and request_id in record.getMessage()
    ]


@pytest.mark.parametrize("path", ["/predict", V1, V2])
def test_the_traceback_of_the_model_stands_under_the_id_of_the_answer(served, caplog, path):
    server = served()
    answer = server.post(body_of(path, POISON), path)
    assert answer.status_code == 500
    server.close()  # the worker wakes the caller before it tells the log
    tracebacks = [line for line in lines_about(caplog, answer.headers["X-Request-ID"]) if line.exc_info]
    assert [type(line.exc_info[1]) for line in tracebacks] == [ValueError]


def test_a_neighbour_in_the_batch_is_not_named_for_another_ones_failure(served, caplog):
    gate = Gate()

    def gated(rows):
        gate(rows)
        return sums(rows)

    server = served(gated, max_batch_size=2)
    first = server.in_thread(lambda: server.predict([1]))
    assert gate.started.wait(GUARD_S)
    waiting = [server.in_thread(lambda number=number: server.predict([number])) for number in (2, POISON)]
    server.wait_queued(2)
    gate.release.set()
    answers = [first(), *(wait() for wait in waiting)]
    assert [answer.status_code for answer in answers] == [200, 200, 500]
    server.close()
    told = [len(lines_about(caplog, answer.headers["X-Request-ID"])) for answer in answers]
    assert told == [0, 0, 2]  # what the model raised, and what was answered


@pytest.mark.parametrize("model, number", [(lambda rows: [], 1), (sums, NOT_FINITE)])
def test_a_failure_without_a_traceback_stands_there_too(served, caplog, model, number):
    answer = served(model).predict([number])
    assert answer.status_code == 500
    assert lines_about(caplog, answer.headers["X-Request-ID"])


def test_the_end_of_the_worker_names_those_whose_batch_it_was(served, caplog):
    def dies(rows):
        raise SystemExit

    server = served(dies)
    answer = server.predict([1])
    assert answer.status_code == 503
    server.close()
    (line,) = lines_about(caplog, answer.headers["X-Request-ID"])
    assert line.levelno == logging.CRITICAL
    assert isinstance(line.exc_info[1], SystemExit)
