"""Counting batches, rows and what went wrong with them, by model and version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from prometheus_client import CollectorRegistry, Counter, Histogram

from service.batching.faults import FaultKind
from service.batching.tickets import BatchInfo
from service.errors import PredictionFailed
from service.metrics.buckets import ROWS, SECONDS
from service.metrics.families import family
from service.metrics.group_histogram import GroupHistogram
from service.metrics.present import ModelIdentity, StatusOf, present_state

_MODEL = ("model", "version")


@dataclass(frozen=True, slots=True)
class Counted:
    """The counters of one version of a model: rows, requests (`rejected`), batches (`flushes`) or calls (`retries`),
    by their reasons.
    """

    flushes: dict[str, int]
    errors: dict[str, int]
    rejected: dict[str, int]
    retries: dict[str, int]
    abandoned: int
    tokens: int
    padding_tokens: int


class BatchMetrics:
    """Everything counted under a model's name. Only models that are loaded ever become labels."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._known: dict[tuple[str, str], _Series] = {}

        def counter(name: str, text: str, *more: str) -> Counter:
            return family(Counter, name, text, (*_MODEL, *more), registry)

        def seconds(name: str, text: str) -> Histogram:
            return family(Histogram, name, text, _MODEL, registry, buckets=SECONDS)

        self._size = family(Histogram, "inference_batch_size", "Rows per batch", _MODEL, registry, buckets=ROWS)
        self._queue_wait = family(
            GroupHistogram,
            "inference_queue_wait_seconds",
            "Time of a row between admission and its batch",
            _MODEL,
            registry,
            buckets=SECONDS,
        )
        self._model_s = seconds("inference_model_seconds", "Time of a batch in the model")
        self._preprocess = seconds("inference_preprocess_seconds", "Time of a request in validation and preparation")
        self._flushes = counter("inference_flushes_total", "Batches, by why they left", "reason")
        self._rows = counter(
            "inference_rows_total", "Rows that the model has seen, each once, however often its batch was tried"
        )
        self._abandoned = counter("inference_abandoned_total", "Rows whose client had gone")
        self._errors = counter("inference_errors_total", "Rows that failed, by why", "reason")
        self._rejected = counter("inference_rejected_total", "Requests without an answer, by why", "reason")
        self._retries = counter("inference_batch_retries_total", "Model calls that failed and were split", "reason")
        self._tokens = counter("inference_tokens_total", "Tokens of the rows themselves")
        self._padding = counter("inference_padding_tokens_total", "Tokens added to make rows of a batch equally long")
        self._present = present_state(registry)

    def loaded(self, model: ModelIdentity, status: StatusOf | None) -> None:
        """A model is ready; `status` tells its gauges how much waits for it, None where another process shows them.

        Series that count failures start at zero, so that the first failure is seen as an increase.
        """
        if status is not None:
            self._present.show(model, status)
        series = self._series(model)
        for reason in ("model", "oom", "output_count", "non_finite", "scheduler"):
            series.errors(reason)
        for reason in ("queue_full", "deadline", "draining", "worker_dead"):
            series.rejected(reason)

    def unloaded(self, model: ModelIdentity, replaced_by: ModelIdentity | None = None) -> None:
        """A model is served no longer: what tells its present state goes, what counts its past stays.

        replaced_by: the same version, loaded anew, if that is why.
        """
        self._present.hide(model, replaced_by)

    def ended(self) -> None:
        """The models are freed, and none will be loaded any more."""
        self._present.end()

    def refresh(self) -> None:
        """The gauges are about to be read."""
        self._present.refresh()

    def counted(self, name: str, version: str) -> Counted:
        """What has been counted of a version that is, or was, loaded."""
        return Counted(
            flushes=_by_reason(self._flushes, name, version),
            errors=_by_reason(self._errors, name, version),
            rejected=_by_reason(self._rejected, name, version),
            retries=_by_reason(self._retries, name, version),
            abandoned=_sum(self._abandoned, name, version),
            tokens=_sum(self._tokens, name, version),
            padding_tokens=_sum(self._padding, name, version),
        )

    def batch(
        self, model: ModelIdentity, info: BatchInfo, waits_s: Sequence[float], errors: Sequence[PredictionFailed]
    ) -> None:
        """A batch has run."""
        series = self._series(model)
        series.size.observe(info.size)
        series.model_s.observe(info.model_s)
        series.flushes(info.reason).inc()
        series.rows.inc(info.size)
        series.tokens.inc(info.tokens)
        if info.padding_tokens:
            series.padding.inc(info.padding_tokens)
        series.queue_wait.observe_all(waits_s)
        for error in errors:
            series.errors(error.reason).inc()

    def split(self, model: ModelIdentity, kind: FaultKind) -> None:
        """A model call failed, and its rows are tried again in two halves."""
        self._series(model).retries(kind).inc()

    def failed_rows(self, model: ModelIdentity, reason: str, count: int) -> None:
        """Rows that their callers got an error for."""
        self._series(model).errors(reason).inc(count)

    def preprocessed(self, model: ModelIdentity, seconds: float) -> None:
        """A request's rows are ready for the queue."""
        self._series(model).preprocess.observe(seconds)

    def rejected(self, model: ModelIdentity, reason: str) -> None:
        """A request that was admitted to no batch, or gave up waiting."""
        self._series(model).rejected(reason).inc()

    def abandoned(self, model: ModelIdentity, rows: int) -> None:
        """Rows whose client closed its connection."""
        self._series(model).abandoned.inc(rows)

    def _series(self, model: ModelIdentity) -> _Series:
        labels = (model.name, model.version)
        series = self._known.get(labels)
        if series is None:
            series = self._known[labels] = _Series(self, labels)
        return series


class _Series:
    """The series of one version of a model: finding one by its labels costs more than counting."""

    def __init__(self, families: BatchMetrics, labels: tuple[str, str]) -> None:
        self.size = families._size.labels(*labels)
        self.queue_wait = families._queue_wait.labels(*labels)
        self.model_s = families._model_s.labels(*labels)
        self.preprocess = families._preprocess.labels(*labels)
        self.rows = families._rows.labels(*labels)
        self.abandoned = families._abandoned.labels(*labels)
        self.tokens = families._tokens.labels(*labels)
        self.padding = families._padding.labels(*labels)
        # By reason: there are a handful of them.
        self.flushes = lru_cache(partial(families._flushes.labels, *labels))
        self.errors = lru_cache(partial(families._errors.labels, *labels))
        self.rejected = lru_cache(partial(families._rejected.labels, *labels))
        self.retries = lru_cache(partial(families._retries.labels, *labels))


def _values(counter: Counter, name: str, version: str) -> Iterator[tuple[dict[str, str], int]]:
    """The labels and values of the counter's series of one version of a model."""
    for collected in counter.collect():
        for sample in collected.samples:
            labels = sample.labels
            if sample.name.endswith("_total") and (labels["model"], labels["version"]) == (name, version):
                yield labels, int(sample.value)


def _by_reason(counter: Counter, name: str, version: str) -> dict[str, int]:
    return {labels["reason"]: value for labels, value in _values(counter, name, version)}


def _sum(counter: Counter, name: str, version: str) -> int:
    return sum(value for _, value in _values(counter, name, version))
