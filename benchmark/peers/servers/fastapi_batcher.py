"""FastAPI with a batcher on an asyncio.Queue; the model runs on a thread of its own beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import work
from fastapi import FastAPI, Request, Response

model = work.load()
thread = ThreadPoolExecutor(1)

Job = tuple[Any, "asyncio.Future[Any]"]


async def next_batch(jobs: asyncio.Queue[Job]) -> list[Job]:
    """The first that comes, and those that follow within the window."""
    batch = [await jobs.get()]
    try:
        async with asyncio.timeout(work.WINDOW_MS / 1000):
            while len(batch) < work.MAX_BATCH_SIZE:
                batch.append(await jobs.get())
    except TimeoutError:
        pass
    while len(batch) < work.MAX_BATCH_SIZE and not jobs.empty():
        batch.append(jobs.get_nowait())
    return batch


async def serve(jobs: asyncio.Queue[Job]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        batch = await next_batch(jobs)
        try:
            rows = await loop.run_in_executor(thread, model.predict, [item for item, _ in batch])
        except Exception as error:
            for _, answer in batch:
                answer.set_exception(error)
            continue
        for (_, answer), row in zip(batch, rows, strict=True):
            if not answer.done():
                answer.set_result(row)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.jobs = asyncio.Queue()
    task = asyncio.create_task(serve(app.state.jobs))
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
async def predict(request: Request) -> Response:
    body = await request.body()
    # Decoding a picture would hold up the loop for milliseconds.
    item = await asyncio.to_thread(model.decode, body) if work.WORKLOAD == "picture" else model.decode(body)
    answer = asyncio.get_running_loop().create_future()
    await app.state.jobs.put((item, answer))
    return Response(work.encode(await answer), media_type="application/json")
