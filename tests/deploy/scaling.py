"""The numbers that replicas are scaled by, as the adapter and KEDA get them from Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import yaml

from tests.deploy.kustomize import MANIFESTS
from tests.deploy.prometheus import Prometheus


@dataclass(frozen=True)
class Scaling:
    """One metric of one autoscaler. `target`: what a pod may have of it, on average."""

    name: str
    query: str
    target: float
    is_total: bool

    def per_pod(self, prometheus: Prometheus, pods: int, at: float | None = None) -> float:
        """What a pod has, on average."""
        found = [value for _, value in prometheus.samples(self.query, at)]
        assert len(found) == (1 if self.is_total else pods), f"{self.query} gives {found}"
        return sum(found) / pods


def all_of(*pods: str) -> list[Scaling]:
    """Those of the HPA with the adapter's queries, as it fills them in for these pods, and those of KEDA."""
    return [*_of_the_adapter(pods), *_of_keda()]


def number(quantity: str) -> Decimal:
    """A quantity as Kubernetes writes it; `m` is a thousandth."""
    return Decimal(quantity[:-1]) / 1000 if quantity.endswith("m") else Decimal(quantity)


def of_the_adapter(name: str, by: str, labels: str) -> str:
    """What the Prometheus adapter asks for the metric `name` of pods that have these labels."""
    custom = _read("hpa", "prometheus-adapter-values.yaml")["rules"]["custom"]
    (query,) = [rule["metricsQuery"] for rule in custom if rule["seriesQuery"].partition("{")[0] == name]
    for gap, filling in (("<<.Series>>", name), ("<<.LabelMatchers>>", labels), ("<<.GroupBy>>", by)):
        query = query.replace(gap, filling)
    return str(query)


def _read(*parts: str) -> Any:
    return yaml.safe_load(MANIFESTS.joinpath("components", *parts).read_text())


def _of_the_adapter(pods: tuple[str, ...]) -> Iterator[Scaling]:
    spec = _read("hpa", "horizontalpodautoscaler.yaml")["spec"]
    for metric in (one["pods"] for one in spec["metrics"]):
        name, target = metric["metric"]["name"], metric["target"]["averageValue"]
        query = of_the_adapter(name, by="pod", labels=f'namespace="jitney",pod=~"{"|".join(pods)}"')
        yield Scaling(f"HPA: {name}", query, float(number(target)), is_total=False)


def _of_keda() -> Iterator[Scaling]:
    for trigger in _read("keda", "scaledobject.yaml")["spec"]["triggers"]:
        told = trigger["metadata"]
        yield Scaling(f"KEDA: {told['query']}", told["query"], float(told["threshold"]), is_total=True)
