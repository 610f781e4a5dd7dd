"""A model's running totals as the protocol's statistics extension has them: counts, and nanoseconds."""

from __future__ import annotations

from typing import Any

from service.statistics import Total, Totals

_NANOSECONDS = 1e9
_MILLISECONDS = 1e3


def model_stats(name: str, version: str, totals: Totals) -> dict[str, Any]:
    """One entry of `model_stats`.

    `inference_count` counts rows and `execution_count` batches: that the second is smaller shows that batching works.
    Checking and preparing rows is `compute_input`, presenting and writing the answer `compute_output`; reading the body
    counts for the whole request alone. Within a batch none takes part, since all run on the requests' threads.
    """
    nothing = _duration(Total())
    return {
        "name": name,
        "version": version,
        "last_inference": round(totals.last_at_s * _MILLISECONDS),
        "inference_count": totals.rows,
        "execution_count": totals.batches,
        "inference_stats": {
            "success": _duration(totals.succeeded),
            "fail": _duration(totals.failed),
            "queue": _duration(totals.queued),
            "compute_input": _duration(totals.prepared),
            "compute_infer": _duration(totals.in_model),
            "compute_output": _duration(totals.presented),
            "cache_hit": nothing,
            "cache_miss": nothing,
        },
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _duration(Total(in_model.count)),
                "compute_infer": _duration(in_model),
                "compute_output": _duration(Total(in_model.count)),
            }
            for size, in_model in totals.batch_model.items()
        ],
    }


def _duration(total: Total) -> dict[str, int]:
    return {"count": total.count, "ns": round(total.seconds * _NANOSECONDS)}
