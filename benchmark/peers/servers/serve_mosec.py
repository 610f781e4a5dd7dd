"""Mosec: HTTP and batching in Rust, the model in a Python process behind a socket."""

from __future__ import annotations

from typing import Any

import work
from mosec import Server, Worker


class Model(Worker):
    def __init__(self) -> None:
        self.model = work.load()

    def deserialize(self, data: bytes) -> Any:
        return self.model.decode(data)

    def forward(self, data: list[Any]) -> list[Any]:
        return self.model.predict(data)

    def serialize(self, data: Any) -> bytes:
        return work.encode(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1, max_batch_size=work.MAX_BATCH_SIZE, max_wait_time=max(1, int(work.WINDOW_MS)))
    server.run()
