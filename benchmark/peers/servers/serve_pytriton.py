"""Triton, as the wheel of pytriton brings it: its HTTP front and batcher, the model in this process behind sockets."""

from __future__ import annotations

import sys

import numpy as np
import work
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

IS_TABLE = work.WORKLOAD == "tabular"


def main(port: int) -> None:
    model = work.load()

    @batch
    def infer(x: np.ndarray) -> dict[str, np.ndarray]:
        if work.WORKLOAD == "tabular":
            items = list(x)
        elif work.WORKLOAD == "text":
            items = [model.item(text[0].decode()) for text in x]
        else:
            items = [model.item(file[0]) for file in x]
        return {"y": np.stack(model.predict(items)).astype(np.float32)}

    config = TritonConfig(
        http_port=port,
        http_address="127.0.0.1",
        grpc_port=port + 1,
        grpc_address="127.0.0.1",
        allow_metrics=False,
        http_thread_count=4,
        log_verbose=0,
    )
    given = Tensor(name="x", dtype=np.float64, shape=(64,)) if IS_TABLE else Tensor(name="x", dtype=bytes, shape=(1,))
    batcher = DynamicBatcher(max_queue_delay_microseconds=int(work.WINDOW_MS * 1000))
    with Triton(config=config) as triton:
        triton.bind(
            model_name="m",
            infer_func=infer,
            inputs=[given],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(model.width,))],
            config=ModelConfig(max_batch_size=work.MAX_BATCH_SIZE, batching=True, batcher=batcher),
        )
        triton.serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
