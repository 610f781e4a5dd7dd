"""When Jitney's own worker class serves, and when gunicorn's."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from gunicorn.config import Config
from gunicorn.workers.gthread import ThreadWorker
from support.front_end import config

from service.server import worker_choice
from service.server.worker_choice import OWN, choose, reasons_for_stock


def hook(worker, request):
    return None


def test_what_the_service_is_configured_for_needs_no_other_worker():
    assert reasons_for_stock(config()) == []


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("pre_request", hook, "pre_request"),
        ("post_request", hook, "post_request"),
        ("certfile", __file__, "TLS"),
        ("http_protocols", "h2,h1", "http_protocols"),
        ("protocol", "uwsgi", "protocol"),
        ("proxy_protocol", "v1", "proxy_protocol"),
        ("http_parser", "python", "http_parser"),
        ("forwarder_headers", "SCRIPT_NAME", "forwarder_headers"),
        ("header_map", "refuse", "header_map"),
        ("secure_scheme_headers", {"X_SCHEME": "https"}, "secure_scheme_headers"),
        ("limit_request_line", 0, "limit_request_line=0"),
        ("permit_obsolete_folding", True, "permit_obsolete_folding"),
        ("strip_header_spaces", True, "strip_header_spaces"),
        ("permit_unconventional_http_method", True, "permit_unconventional_http_method"),
        ("permit_unconventional_http_version", True, "permit_unconventional_http_version"),
        ("casefold_http_method", True, "casefold_http_method"),
    ],
)
def test_what_the_own_worker_does_not_do_is_a_reason_for_gunicorns(name, value, reason):
    cfg = config()
    cfg.set(name, value)
    assert reasons_for_stock(cfg) == [reason]


def test_so_is_another_system_or_a_parser_that_is_missing_or_too_old(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert reasons_for_stock(config()) == ["no Linux"]
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "gunicorn_h1c", SimpleNamespace(__spec__=object()))
    assert reasons_for_stock(config()) == ["gunicorn_h1c is not installed"]
    monkeypatch.undo()
    monkeypatch.setattr(worker_choice.importlib.util, "find_spec", lambda _: None)
    assert reasons_for_stock(config()) == ["gunicorn_h1c is not installed"]


class Master:
    """As much of gunicorn's master as chooses."""

    def __init__(self, cfg: Config, worker_class: str) -> None:
        cfg.set("worker_class", worker_class)
        self.cfg, self.worker_class = cfg, cfg.worker_class
        self.said: list[str] = []
        self.log = SimpleNamespace(warning=lambda text, *values: self.said.append(text % values))


def test_the_choice_is_said_with_its_reasons():
    master = Master(config(proxy_protocol="v1", post_request=hook), OWN)
    choose(master)
    assert master.worker_class is ThreadWorker
    (said,) = master.said
    assert "post_request, proxy_protocol" in said


@pytest.mark.parametrize("worker_class, values", [(OWN, {}), ("gthread", {"proxy_protocol": "v1"})])
def test_where_nothing_has_to_be_chosen_nothing_is_said(worker_class, values):
    master = Master(config(**values), worker_class)
    before = master.worker_class
    choose(master)
    assert (master.worker_class, master.said) == (before, [])
