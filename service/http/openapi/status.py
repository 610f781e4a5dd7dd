"""The operations of the status page, which are there as long as STATUS_PAGE is on."""

from __future__ import annotations

from typing import Any

from service.batching.policy import BatchPolicy
from service.batching.tickets import FlushReason
from service.http.keys import Access
from service.http.openapi.answers import answer
from service.http.openapi.operation import Operation
from service.http.openapi.references import ref
from service.http.openapi.served import Served

_COUNT = {"type": "integer", "minimum": 0}
_MEASURE = {"type": "number", "minimum": 0}
_TEXT = {"type": "string"}
_COUNTS = {"type": "object", "additionalProperties": _COUNT}


def _object(properties: dict[str, Any], description: str = "") -> dict[str, Any]:
    """All of them are always there, and nothing else."""
    told = {"description": description} if description else {}
    return {
        "type": "object",
        **told,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_SETTINGS = _object(
    {
        "max_batch_size": _COUNT,
        "max_batch_latency_ms": _MEASURE,
        "max_queue_size": _COUNT,
        "batch_policy": {"type": "string", "enum": [policy.value for policy in BatchPolicy]},
        "scheduler": _TEXT,
    },
    "What the numbers are to be measured by.",
)

_TOTALS = _object(
    {
        "model": _TEXT,
        "version": _TEXT,
        "requests": _object({"succeeded": _COUNT, "failed": _COUNT}),
        "rows": _COUNT | {"description": "Rows that the model has answered."},
        "batches": _COUNT,
        "batch_sizes": _COUNTS | {"description": "Batches by their rows."},
        "seconds": _object(
            dict.fromkeys(("total", "prepare", "queue", "model", "present"), _MEASURE),
            "Of the requests that succeeded, and the parts of that time.",
        ),
        "flushes": _COUNTS | {"description": "Batches by why they left."},
        "errors": _COUNTS | {"description": "Rows that failed, by why."},
        "rejected": _COUNTS | {"description": "Requests without an answer, by why."},
        "retries": _COUNTS | {"description": "Model calls that failed and were split, by why."},
        "abandoned_rows": _COUNT,
        "tokens": _COUNT,
        "padding_tokens": _COUNT,
    },
    "Of one version of a model, since the start; also when it is served no longer.",
)

_LATENCY = _object(
    {
        "window_s": _MEASURE,
        "count": _COUNT,
        **{f"p{percent}_ms": {"type": ["number", "null"], "minimum": 0} for percent in (50, 95, 99)},
    },
    "Of the last requests that were answered well, those of the window at most; null where there were none.",
)

_BATCH = _object(
    {
        "batch_id": _COUNT,
        "model": _TEXT,
        "version": _TEXT,
        "instance": _COUNT | {"description": "Number of the worker thread that ran it, from 0."},
        "started_at_s": {"type": "number", "description": "Since the start of the service."},
        "size": {"type": "integer", "minimum": 1},
        "reason": {"type": "string", "enum": [reason.value for reason in FlushReason]},
        "runs": _COUNT | {"description": "Model calls: 1 unless the batch was split."},
        "failed_rows": _COUNT,
        "longest_wait_ms": {"type": "number", "description": "Of its rows, in the queue."},
        "model_ms": _MEASURE,
        "padding_share": {"type": "number", "minimum": 0, "maximum": 1},
    }
)

_STATUS = _object(
    {
        "service_version": _TEXT,
        "started_at": {
            "type": "string",
            "format": "date-time",
            "description": "When another one stands here, all totals began anew.",
        },
        "uptime_s": _MEASURE,
        "health": ref("Readiness"),
        "settings": _SETTINGS,
        "models": {"type": "array", "items": ref("Model")},
        "totals": {"type": "array", "items": _TOTALS},
        "latency": _LATENCY,
        "recent_batches": {"type": "array", "items": _BATCH, "description": "Oldest first."},
    }
)


def status_schemas(served: Served) -> dict[str, Any]:
    """The components that these operations need."""
    return {"Status": _STATUS} if served.settings.status_page else {}


def _page(_: Served) -> dict[str, Any]:
    return {"responses": {"200": answer("A page.", "text/html", _TEXT)}}


def _numbers(_: Served) -> dict[str, Any]:
    return {"responses": {"200": answer("All numbers of one moment.", "application/json", ref("Status"))}}


STATUS = (
    Operation("get", "/", "status_page", "Health", "What the service does, live, as a page", _page),
    Operation("get", "/status.json", "status", "Health", "The numbers on that page", _numbers, Access.METRICS),
)
