"""Which worker class serves: Jitney's own, or gunicorn's threaded one where that is needed for what is configured."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

OWN = "service.server.worker.Worker"
STOCK = "gthread"

# Hooks around each request are given gunicorn's own objects, which are not made here.
_HOOKS = ("pre_request", "post_request")

# What gunicorn's C parser does not do, or the own worker does not ask it for.
_FLAGS = (
    "permit_obsolete_folding",
    "strip_header_spaces",
    "permit_unconventional_http_method",
    "permit_unconventional_http_version",
    "casefold_http_method",
)


def reasons_for_stock(cfg: Any) -> list[str]:
    """What is configured, in the words of the configuration, that only gunicorn's own threaded worker does."""
    reasons = [name for name in (*_HOOKS, *_FLAGS) if cfg.settings[name].get() != cfg.settings[name].default]
    found = {
        "no Linux": sys.platform != "linux",
        "TLS": cfg.is_ssl,
        "http_protocols": list(cfg.http_protocols) != ["h1"],
        "protocol": cfg.protocol != "http",
        "proxy_protocol": cfg.proxy_protocol not in (False, "off"),
        "http_parser": cfg.http_parser == "python",
        "forwarder_headers": bool(cfg.forwarder_headers),
        "header_map": cfg.header_map != "drop",
        "secure_scheme_headers": any("_" in name for name in cfg.secure_scheme_headers),
        "limit_request_line=0": cfg.limit_request_line == 0,
        "gunicorn_h1c is not installed": not _has_c_parser(),
    }
    return reasons + [name for name, holds in found.items() if holds]


def choose(server: Any) -> None:
    """Have gunicorn's master make its stock threaded worker where the own one would not do, and say so.

    server: the master, which has read its configuration and made no process with it yet.
    """
    if server.cfg.worker_class_str != OWN:
        return
    reasons = reasons_for_stock(server.cfg)
    if not reasons:
        return
    server.cfg.set("worker_class", STOCK)
    server.worker_class = server.cfg.worker_class
    server.log.warning(
        "gunicorn's own worker class %s serves, and not Jitney's, which does not do this: %s. Requests that wait for a "
        "thread are not seen, nor refused, and slow clients hold threads: keep nginx in front",
        *(STOCK, ", ".join(reasons)),
    )


def _has_c_parser() -> bool:
    """Whether gunicorn's C parser is there, and new enough to tell its limits."""
    if importlib.util.find_spec("gunicorn_h1c") is None:
        return False
    import gunicorn_h1c

    return hasattr(gunicorn_h1c, "LimitRequestLine")
