"""BentoML: one service whose method takes the rows of several requests at once."""

import base64

import bentoml
import work

Instance = list[float] if work.WORKLOAD == "tabular" else str


@bentoml.service(
    workers=1,
    threads=1,
    traffic={"timeout": 60, "max_concurrency": 1024},
    metrics={"enabled": False},
    logging={"access": {"enabled": False}},
)
class Service:
    def __init__(self) -> None:
        self.model = work.load()

    # The latency is a limit above which requests are refused; batches leave as soon as the worker is free.
    @bentoml.api(batchable=True, max_batch_size=work.MAX_BATCH_SIZE, max_latency_ms=10_000, batch_dim=0)
    def predict(self, instances: list[Instance]) -> list[list[float]]:
        if work.WORKLOAD == "picture":
            instances = [base64.b64decode(instance) for instance in instances]
        return [row.tolist() for row in self.model.predict([self.model.item(instance) for instance in instances])]
