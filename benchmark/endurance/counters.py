"""Whether the counters of `/metrics` add up to what the clients saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from benchmark.endurance.client import End
from benchmark.endurance.traffic import Sent

# Where the requests of the mix are counted; the others are probes, reloads and this page itself.
ROUTES = ("/predict", "unmatched")


@dataclass(frozen=True, slots=True)
class Counted:
    """One reading. `requests`: by status; `rejected`: by reason; the others are rows."""

    requests: Counter[int]
    rejected: Counter[str]
    rows: int
    failed: int
    abandoned: int

    @classmethod
    def read(cls, page: str) -> Counted:
        """From the text of `/metrics`."""
        requests: Counter[int] = Counter()
        rejected: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                value = int(sample.value) if sample.name.endswith("_total") else 0
                sums[sample.name] += value
                if sample.name == "http_requests_total" and sample.labels["route"] in ROUTES:
                    requests[int(sample.labels["status"])] += value
                elif sample.name == "inference_rejected_total":
                    rejected[sample.labels["reason"]] += value
        return cls(
            requests,
            rejected,
            rows=sums["inference_rows_total"],
            failed=sums["inference_errors_total"],
            abandoned=sums["inference_abandoned_total"],
        )

    def __str__(self) -> str:
        by_status = " ".join(f"{status}:{count}" for status, count in sorted(self.requests.items()) if count)
        by_reason = " ".join(f"{reason}:{count}" for reason, count in sorted(self.rejected.items()) if count)
        return (
            f"requests {by_status}; rows {self.rows}, failed {self.failed}, abandoned {self.abandoned}; "
            f"rejected {by_reason or 'none'}"
        )


def differences(counted: Counted, sent: Sequence[Sent], *, lost_rows: int = 0) -> list[str]:
    """What does not add up, as sentences; empty when everything does.

    What became of a request whose client did not see its end is not known, so such a one may be under any status, or
    under none; every other has been counted exactly once, and nothing else has. lost_rows: how many rows a killed
    process may have answered without having counted their batch.
    """
    seen = Counter(one.reply.status for one in sent if one.reply.end is End.ANSWERED and one.reply.status)
    unseen = [one for one in sent if one.reply.end is not End.ANSWERED]
    answered_rows = sum(one.rows for one in sent if one.reply.status == 200)
    other_rows = sum(one.rows for one in sent if one.reply.status != 200)
    unseen_rows = sum(one.rows for one in unseen)
    failed_rows = sum(one.rows for one in sent if one.reply.status == 500)
    late_rows = sum(one.rows for one in sent if one.reply.status in (503, 504))
    found: list[str] = []

    def within(what: str, value: int, least: int, most: int) -> None:
        if not least <= value <= most:
            found.append(f"{what}: {value}, which must be {least}" + (f" to {most}" if most != least else ""))

    for status in sorted(seen.keys() | counted.requests.keys()):
        within(f"requests with {status}", counted.requests[status], seen[status], seen[status] + len(unseen))
    within("all requests", counted.requests.total(), seen.total(), seen.total() + len(unseen))
    within("rows", counted.rows, answered_rows - lost_rows, answered_rows + other_rows)
    within("failed rows", counted.failed, seen[500] - lost_rows, failed_rows + late_rows + unseen_rows)
    gone = counted.requests[499]
    within("abandoned rows", counted.abandoned, gone, unseen_rows)
    for reason, status in (("queue_full", 429), ("deadline", 504)):
        within(f"rejected, {reason}", counted.rejected[reason], seen[status], seen[status] + len(unseen))
    stopped = counted.rejected["worker_dead"] + counted.rejected["draining"]
    within("rejected, worker_dead and draining", stopped, 0, seen[503] + len(unseen))
    return found
