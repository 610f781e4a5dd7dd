"""Talks to a running Jitney that serves a demo model: one request of each kind, then a burst from many clients.

    python examples/client_request.py --url http://127.0.0.1:8000 --concurrency 64 --requests 2000

Every answer of the burst is compared with the answer that the same input got when it was asked alone.
Exit status: 0 when all of them agree, 1 on any wrong answer or error.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

TIMEOUT_S = 60.0
SCORE_TOLERANCE = 1e-4
SEED = 7
PHOTOS = ("china.jpg", "flower.jpg")

# fmt: off
SEVEN = [
    0, 0, 3, 8, 12, 15, 16, 2, 0, 0, 12, 14, 10, 13, 15, 0, 0, 0, 1, 1, 2, 14, 6, 0, 0, 0, 2, 8, 13, 16, 8, 0,
    0, 0, 9, 16, 16, 10, 5, 0, 0, 0, 1, 8, 12, 1, 0, 0, 0, 0, 0, 14, 8, 0, 0, 0, 0, 0, 2, 16, 5, 0, 0, 0,
]
# fmt: on

WORDS = ["wonderful", "great", "excellent", "beautiful", "brilliant", "terrible", "awful", "boring", "rude", "useless"]
THINGS = ["film", "hotel", "phone", "dinner", "concert", "book", "garden", "journey"]
FRAMES = [
    "{word} {thing}",
    "The {thing} was {word}.",
    "What a {word} {thing}!",
    "My friends say that this {thing} is {word}, and after a long day I have to agree with every one of them.",
]


class CheckError(Exception):
    """An answer is not what it must be."""


@dataclass(frozen=True)
class Server:
    """Where the server listens and which model it serves."""

    url: str
    model: str

    def predict(self, session: requests.Session, **request: Any) -> dict[str, Any]:
        """The answer to one POST /predict; raises CheckError for any status but 200."""
        response = session.post(f"{self.url}/predict", timeout=TIMEOUT_S, **request)
        if response.status_code != 200:
            raise CheckError(f"status {response.status_code}: {response.text[:300]}")
        answer: dict[str, Any] = response.json()
        return answer

    def predict_one(self, session: requests.Session, instance: Any) -> Any:
        """The prediction for a single instance."""
        (prediction,) = self.predict(session, json={"instances": [instance]})["predictions"]
        return prediction


def connect(url: str) -> Server:
    """Ask the server which model it serves."""
    health = requests.get(f"{url}/healthz", timeout=TIMEOUT_S).json()
    if health["status"] != "ready":
        raise CheckError(f"the server is not ready: {health.get('reasons')}")
    return Server(url, health["model"]["name"])


def same(left: Any, right: Any) -> bool:
    """Whether two predictions agree: labels exactly, scores within SCORE_TOLERANCE."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(itertools.starmap(same, zip(left, right, strict=True)))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and isinstance(right, float | int):
        return abs(left - right) <= SCORE_TOLERANCE
    return bool(left == right)


def as_base64(data: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(data).decode()}


# One request of each kind


def show_digits(server: Server, session: requests.Session, _photos: Path) -> None:
    print("JSON instances:", server.predict(session, json={"instances": digit_rows(2)})["predictions"])


def show_sentiment(server: Server, session: requests.Session, _photos: Path) -> None:
    good, bad = "What a wonderful, delightful film!", "This was terrible and I hated every minute."
    short = server.predict(session, json={"text": good})["prediction"]
    print("JSON text:", short)
    both = server.predict(session, json={"instances": [good, bad]})["predictions"]
    print("JSON instances:", both)
    if not same(short, both[0]):
        raise CheckError("the same sentence got two answers")


def show_imagenet(server: Server, session: requests.Session, photos: Path) -> None:
    for name in PHOTOS:
        data = (photos / name).read_bytes()
        answers = {
            "multipart": server.predict(session, files={"file": (name, data, "image/jpeg")})["prediction"],
            "raw body": server.predict(session, data=data, headers={"Content-Type": "image/jpeg"})["prediction"],
            "base64": server.predict_one(session, as_base64(data)),
        }
        for way, answer in answers.items():
            print(f"{name} as {way}: {answer[0]['label']} {answer[0]['score']:.3f}")
            if not same(answer, answers["multipart"]):
                raise CheckError(f"{name} got different scores as {way} and as multipart")


# Distinct inputs for the burst


def digit_rows(count: int) -> list[list[int]]:
    """The digit 7, and the same picture with noise: whatever digit the model then sees, it must see it again."""
    rng = random.Random(SEED)
    noisy = [[min(16, max(0, pixel + rng.randint(-6, 6))) for pixel in SEVEN] for _ in range(count - 1)]
    return [SEVEN, *noisy]


def sentences(count: int) -> list[str]:
    """Different sentences of very different lengths, good and bad."""
    made = [frame.format(thing=thing, word=word) for thing in THINGS for frame in FRAMES for word in WORDS]
    return random.Random(SEED).sample(made, min(count, len(made)))


def photo_instances(photos: Path) -> list[Any]:
    return [as_base64((photos / name).read_bytes()) for name in PHOTOS]


KINDS: dict[str, tuple[Callable[[Server, requests.Session, Path], None], Callable[[int, Path], list[Any]]]] = {
    "digits": (show_digits, lambda count, _photos: digit_rows(count)),
    "sentiment": (show_sentiment, lambda count, _photos: sentences(count)),
    "imagenet": (show_imagenet, lambda _count, photos: photo_instances(photos)),
}


# The burst


def burst(
    server: Server, inputs: list[Any], expected: list[Any], concurrency: int, requests_total: int
) -> tuple[float, list[float], list[str]]:
    """Ask for single instances from many threads and check every answer: seconds, latencies in ms, faults."""
    numbers = itertools.count()
    latencies_ms: list[float] = []
    faults: list[str] = []
    start_line = threading.Barrier(concurrency + 1)

    def client() -> None:
        with requests.Session() as session:
            start_line.wait(TIMEOUT_S)
            # next() on a count and append() on a list are each one step in CPython, so no lock is needed.
            while (number := next(numbers)) < requests_total:
                which = number % len(inputs)
                started = time.perf_counter()
                try:
                    answer = server.predict_one(session, inputs[which])
                except (CheckError, requests.RequestException, ValueError, KeyError) as error:
                    faults.append(f"request {number}: {error!r}")
                    continue
                latencies_ms.append((time.perf_counter() - started) * 1000)
                if not same(answer, expected[which]):
                    faults.append(f"request {number}: {answer} instead of {expected[which]}")

    with ThreadPoolExecutor(concurrency) as pool:
        clients = [pool.submit(client) for _ in range(concurrency)]
        start_line.wait(TIMEOUT_S)
        started = time.perf_counter()
        for done in clients:
            done.result()
        return time.perf_counter() - started, sorted(latencies_ms), faults


def batch_totals(url: str) -> tuple[float, float]:
    """Rows and batches that the server has run so far, over all models."""
    totals = {"inference_batch_size_sum": 0.0, "inference_batch_size_count": 0.0}
    for line in requests.get(f"{url}/metrics", timeout=TIMEOUT_S).text.splitlines():
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        if name in totals:
            totals[name] += float(value)
    return totals["inference_batch_size_sum"], totals["inference_batch_size_count"]


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def run(options: argparse.Namespace) -> int:
    server = connect(options.url.rstrip("/"))
    family = server.model.removesuffix("-torchscript")
    if family not in KINDS:
        raise CheckError(f"the server serves {server.model!r}, which is none of the demo models: {', '.join(KINDS)}")
    show, make_inputs = KINDS[family]
    photos = options.photos or Path("demo-models", server.model, "samples")
    print(f"{server.url} serves {server.model}")
    with requests.Session() as session:
        show(server, session, photos)
        inputs = make_inputs(options.distinct, photos)
        expected = [server.predict_one(session, instance) for instance in inputs]

    rows_before, batches_before = batch_totals(server.url)
    seconds, latencies_ms, faults = burst(server, inputs, expected, options.concurrency, options.requests)
    rows_after, batches_after = batch_totals(server.url)
    rows, batches = rows_after - rows_before, batches_after - batches_before

    p50, p95, p99 = (percentile(latencies_ms, share) for share in (0.50, 0.95, 0.99))
    print(f"{options.requests} requests over {len(inputs)} inputs from {options.concurrency} clients")
    print(f"throughput {len(latencies_ms) / seconds:.0f} requests/s")
    print(f"latency p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms")
    print(f"mean batch size {rows / batches:.1f}" if batches else "mean batch size unknown: no batch was counted")
    for fault in faults[:10]:
        print(fault, file=sys.stderr)
    print(f"wrong answers and errors: {len(faults)}")
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--concurrency", type=int, default=64, help="clients at the same time")
    parser.add_argument("--requests", type=int, default=2000, help="requests of all clients together")
    parser.add_argument("--distinct", type=int, default=200, help="different inputs, asked alone before the burst")
    parser.add_argument("--photos", type=Path, help="directory with china.jpg and flower.jpg (default: the bundle's)")
    try:
        return run(parser.parse_args())
    except (CheckError, requests.RequestException, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
