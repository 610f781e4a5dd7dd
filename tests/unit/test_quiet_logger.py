from __future__ import annotations

import logging
from typing import Any

import pytest
from gunicorn.config import Config

from service.server.logger import QuietLogger


@pytest.fixture
def make(monkeypatch):
    """Makes gunicorn's logger for some options; the process's loggers are as before afterwards."""
    names = ("gunicorn.error", "gunicorn.access")
    before = {
        name: (log.level, log.propagate, list(log.handlers)) for name in names if (log := logging.getLogger(name))
    }

    def logger(**options: Any) -> QuietLogger:
        config = Config()
        for name, value in options.items():
            config.set(name, value)
        return QuietLogger(config)

    yield logger
    for name, (level, propagate, handlers) in before.items():
        log = logging.getLogger(name)
        log.level, log.propagate, log.handlers = level, propagate, handlers


class Untouchable:
    """Stands for a request and its answer; whoever collects something of them finds out."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was collected")


def test_a_configuration_of_the_log_is_no_wish_for_an_access_log(make):
    nothing: Any = Untouchable()
    config = {"version": 1, "incremental": True, "handlers": {}, "loggers": {}, "root": {}}
    make(logconfig_dict=config).access(nothing, nothing, nothing, nothing)


def test_an_access_log_can_still_be_asked_for(make):
    assert make(accesslog="-").access_log_enabled
    assert not make().access_log_enabled
