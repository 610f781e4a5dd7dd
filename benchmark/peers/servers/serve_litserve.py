"""LitServe: a FastAPI front and a worker process, with queues between them.

It looks at the annotations of `decode_request` themselves, so they must not be put off.
"""

import sys
from typing import Annotated, Any

import litserve
import work
from fastapi import Body, Request, Response


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:  # noqa: ARG002
        self.model = work.load()

    if work.WORKLOAD == "picture":

        def decode_request(self, request: Annotated[bytes, Body()]) -> Any:
            return self.model.decode(request)

    else:

        def decode_request(self, request: Request) -> Any:
            return self.model.item(request["features" if work.WORKLOAD == "tabular" else "text"])

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, items: list[Any]) -> list[Any]:
        return self.model.predict(items)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> Response:
        return Response(work.encode(output), media_type="application/json")


if __name__ == "__main__":
    api = Api(max_batch_size=work.MAX_BATCH_SIZE, batch_timeout=work.WINDOW_MS / 1000)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60, fast_queue=True)
    server.run(
        port=int(sys.argv[1]),
        host="127.0.0.1",
        log_level="warning",
        generate_client_file=False,
        num_api_servers=1,
        access_log=False,
    )
