"""The operations of those who watch the service: readiness, liveness, metrics."""

from __future__ import annotations

from typing import Any

from service.http.keys import Access
from service.http.openapi.answers import answer, empty
from service.http.openapi.operation import Operation
from service.http.openapi.references import ref

_REASONS = {"type": "array", "items": {"type": "string"}, "description": "Why not; empty when all is well."}
_COUNT = {"type": "integer", "minimum": 0}
_MODEL = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("name", "version", "format", "device")},
    "required": ["name", "version", "format", "device"],
    "additionalProperties": False,
}

_MS = {"type": "number", "minimum": 0}
_BEST_BATCH = {
    "type": "object",
    "properties": {
        "tokens": _COUNT | {"description": "Length of the longest text."},
        "rows": _COUNT | {"description": "How many of them cost least for each."},
        "ms_per_row": _MS,
        "smallest_rows": _COUNT | {"description": "The smallest batch that was measured, for comparison."},
        "smallest_ms_per_row": _MS,
    },
    "required": ["tokens", "rows", "ms_per_row", "smallest_rows", "smallest_ms_per_row"],
    "additionalProperties": False,
}

_SECONDS = {"type": "number", "minimum": 0}
_TO_BE_MEASURED = {
    "type": ["object", "null"],
    "description": "What could not be measured on a machine that was too busy; null where there is no such thing.",
    "properties": {
        "models": {"type": "array", "items": {"type": "string"}, "description": "As name/version."},
        "for_s": _SECONDS | {"description": "How long the first of them has been served so."},
        "next_try_s": _SECONDS | {"description": "When it is tried again, if no rows wait then."},
    },
    "required": ["models", "for_s", "next_try_s"],
    "additionalProperties": False,
}

_PLACEMENT = {
    "type": "object",
    "description": "Where the threads of the process run, and why; only under a server that places them.",
    "properties": {
        "setting": {"type": "string", "enum": ["auto", "off", "pin"]},
        "http_threads": {"type": "string"},
        "worker_thread": {"type": "string"},
        "wakes_gently": {"type": "boolean", "description": "A thread that is woken does not push another one aside."},
        "reason": {"type": "string"},
        "to_be_measured": _TO_BE_MEASURED,
    },
    "required": ["setting", "http_threads", "worker_thread", "wakes_gently", "reason", "to_be_measured"],
    "additionalProperties": False,
}

READINESS = {
    "type": "object",
    "properties": {
        "status": {"type": "string", "enum": ["ready", "not ready"]},
        "reasons": _REASONS,
        "model": {
            "anyOf": [_MODEL, {"type": "null"}],
            "description": "What answers where none is named; null until it is loaded, or where one must be named.",
        },
        "queue_depth": _COUNT | {"description": "Rows that wait."},
        "oldest_wait_ms": {"type": "number", "minimum": 0},
        "worker_alive": {"type": "boolean"},
        "last_batch_age_s": {"type": ["number", "null"], "minimum": 0, "description": "Null before the first batch."},
        "thread_placement": _PLACEMENT,
        "effective_max_batch_size": _COUNT | {"description": "Less than MAX_BATCH_SIZE while memory is short."},
        "instances": {
            "type": "object",
            "description": "The worker threads; only where there are several.",
            "properties": {
                "count": _COUNT,
                "busy": _COUNT | {"description": "Those in which a batch runs now."},
                "copies": _COUNT | {"description": "Of the default model; 1 where the threads share it."},
            },
            "required": ["count", "busy"],
            "additionalProperties": False,
        },
        "best_batches": {
            "type": "array",
            "items": _BEST_BATCH,
            "description": "What the scheduler has learnt of the default model's batches; only where it learns.",
        },
    },
    "required": [
        "status",
        "reasons",
        "model",
        "queue_depth",
        "oldest_wait_ms",
        "worker_alive",
        "last_batch_age_s",
        "effective_max_batch_size",
    ],
    "additionalProperties": False,
}

LIVENESS = {
    "type": "object",
    "properties": {"status": {"type": "string", "enum": ["live", "not live"]}, "reasons": _REASONS},
    "required": ["status", "reasons"],
    "additionalProperties": False,
}

_READY = ("A prediction would be answered now.", "It would not; `reasons` tell why.")
_LIVE = ("The process is worth keeping.", "It is not: the worker is dead, or a batch has run past STALL_LIMIT_MS.")


def _probe(schema: str, good: str, bad: str) -> dict[str, Any]:
    return {
        "responses": {
            "200": answer(good, "application/json", ref(schema)),
            "503": answer(bad, "application/json", ref(schema)),
        }
    }


def _head(good: str, bad: str) -> dict[str, Any]:
    return {
        "responses": {
            "200": empty(good),
            "503": empty(bad),
        }
    }


def _metrics(_: object) -> dict[str, Any]:
    page = answer("All series.", "text/plain", {"type": "string"})
    page["content"]["application/openmetrics-text"] = {"schema": {"type": "string"}}
    return {
        "parameters": [
            {
                "name": "name[]",
                "in": "query",
                "description": "Only these series.",
                "schema": {"type": "array", "items": {"type": "string"}},
            }
        ],
        "responses": {"200": page},
    }


PROBES = (
    Operation("get", "/healthz", "healthz", "Health", "Is it ready?", lambda _: _probe("Readiness", *_READY)),
    Operation("head", "/healthz", "healthz_head", "Health", "Is it ready? (status only)", lambda _: _head(*_READY)),
    Operation("get", "/livez", "livez", "Health", "Is it alive?", lambda _: _probe("Liveness", *_LIVE)),
    Operation("head", "/livez", "livez_head", "Health", "Is it alive? (status only)", lambda _: _head(*_LIVE)),
    Operation("get", "/metrics", "metrics", "Health", "Metrics, as Prometheus reads them", _metrics, Access.METRICS),
)
