"""The page at `/` in a real browser: it follows what the service does, and says so when it cannot."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from browser import PHONE, Window, browsing, hosts
from selenium.webdriver.common.keys import Keys

from service.demo.curl import EXAMPLE_DIGIT, EXAMPLE_ROW

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("unmeasured")]

KEY = "a-key-for-the-numbers"


@pytest.fixture
def browse(tmp_path: Path) -> Iterator[Callable[[str], Window]]:
    with browsing(tmp_path / "profile") as open_window:
        yield open_window


@contextmanager
def load(url: str, clients: int = 8, row: object = (3, 5)) -> Iterator[None]:
    """Clients that ask again and again; by default each batch takes 5 ms."""
    stop = threading.Event()

    def ask() -> None:
        with requests.Session() as session:
            while not stop.is_set():
                session.post(f"{url}/predict", json={"instances": [row]}, timeout=20)

    threads = [threading.Thread(target=ask, name=f"client-{number}") for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)


def number(page: Window, tile: int) -> float:
    """The value of a tile; -1 while there is none."""
    shown = page.text(f".tile:nth-child({tile}) .tile-value").split(" ")[0].replace(",", "")
    return float(shown) if shown[:1].isdigit() else -1.0


def assert_clean(page: Window) -> None:
    assert page.complaints() == []
    assert hosts(page.requested()) == {urlsplit(page.url).netloc}


def test_the_numbers_move_under_load(start, browse: Callable[[str], Window]) -> None:
    server = start(BATCH_POLICY="window")
    page = browse(server.url)
    page.open("/")
    page.wait(lambda: page.text("#state") == "ready")
    page.wait(lambda: number(page, 1) == 0)
    assert "scripted, version 1" in page.text("#model")
    assert page.text(".detail") == "No batch has run yet."
    with load(server.url):
        page.wait(lambda: number(page, 1) > 10)
        page.wait(lambda: number(page, 2) > 10)
        page.wait(lambda: number(page, 4) > 1)
        page.wait(lambda: "p95" in page.text("#latency") and "ms" in page.text("#latency"))
        page.wait(lambda: page.find("#throughput .line-0[d]").get_attribute("d").count("L") >= 2)
        first = page.text(".detail")
        assert first.startswith("Latest: Batch ")
        page.wait(lambda: page.text(".detail") != first)
        assert len(page.all(".batch")) > 10
        assert "latency" in page.text("#flushes")
        assert "rows" in page.text("#sizes")
        assert "in the model" in page.text("#time")
        assert page.text("#models").count("loaded") == 1
        page.find("label[for=span-minute]").click()
        assert "batches" in page.text("#sizes")
    page.wait(lambda: number(page, 1) == 0)
    assert_clean(page)


def test_batches_of_several_worker_threads_have_a_lane_each(start, browse) -> None:
    server = start(MODEL_INSTANCES=2, MAX_BATCH_SIZE=1)
    page = browse(server.url)
    with load(server.url, clients=4, row=(3, 30)):
        page.open("/")
        page.wait(lambda: len(page.all(".batch")) > 20)
        page.find("#pause").click()
    assert "2 worker threads" in page.text("#timeline .tick")
    lanes: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for bar in page.all(".batch"):
        y, x, wide = (float(bar.get_attribute(name)) for name in ("y", "x", "width"))
        assert y + float(bar.get_attribute("height")) in (65, 130)
        is_second = "by worker thread 2" in bar.accessible_name
        assert is_second == (y >= 65)
        lanes[is_second].append((x, x + wide))
    for bars in map(sorted, lanes.values()):
        assert len(bars) > 3
        ends_before_next = [end <= following + 0.2 for (_, end), (following, _) in pairwise(bars)]
        assert all(ends_before_next[:-1])  # the last one is moved in from the edge
    assert_clean(page)


def test_a_batch_tells_more_of_itself_to_the_keyboard_and_keeps_the_focus(start, browse) -> None:
    server = start(BATCH_POLICY="window")
    page = browse(server.url)
    for value in range(3):
        server.predict([0, value])
    page.open("/")
    page.wait(lambda: len(page.all(".batch")) == 3)
    assert [bar.get_attribute("tabindex") for bar in page.all(".batch")] == ["-1", "-1", "0"]
    page.browser.execute_script("document.querySelector('.batch[tabindex=\"0\"]').focus()")
    page.browser.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    assert page.text(".detail").startswith("Batch 2 of scripted 1: 1 row, left for latency")
    server.predict([0, 3])
    page.wait(lambda: len(page.all(".batch")) == 4)
    assert page.browser.switch_to.active_element.accessible_name.startswith("Batch 2 of scripted 1")
    assert page.text(".detail").startswith("Batch 2 of scripted 1")


def test_what_went_wrong_is_told_by_reason(start, browse) -> None:
    server = start()
    page = browse(server.url)
    assert server.predict([1, 0]).status_code == 500
    assert server.predict([3, 200], timeout=20).status_code == 200
    assert server.post({"instances": [[3, 100]], "timeout_ms": 1}).status_code == 504
    page.open("/")
    page.wait(lambda: "the model failed" in page.text("#failures"))
    assert "deadline passed" in page.text("#failures")
    assert page.all(".batch.failed")
    assert_clean(page)


def test_loading_ready_and_lost_are_told_as_they_come(start, browse) -> None:
    server = start(wait=False, LOAD_S=6)
    server.wait_until(lambda: server.get("/livez").status_code == 200)
    page = browse(server.url)
    page.open("/")
    page.wait(lambda: page.text("#state") == "not ready")
    assert page.text("#notice") == "Not ready: loading."
    page.wait(lambda: page.text("#state") == "ready")
    assert not page.find("#notice").is_displayed()
    page.wait(lambda: page.all("#trial .send"))
    assert_clean(page)
    assert server.stop() == 0
    page.wait(lambda: page.text("#state") == "connection lost")
    assert page.text("#notice").startswith("The service does not answer; the numbers below are the last that came.")
    assert "stale" in page.find("#board").get_attribute("class")
    assert page.browser.title.startswith("connection lost")


def test_it_asks_less_often_while_nobody_answers(start, browse) -> None:
    server = start()
    page = browse(server.url)
    page.open("/")
    page.wait(lambda: page.text("#state") == "ready")
    server.stop()
    waits = [page.wait(lambda text=f"Next try in {wait} s.": text in page.text("#notice")) for wait in (4, 8, 16)]
    assert all(waits)


def test_a_paused_page_asks_nothing_until_it_goes_on(start, browse) -> None:
    server = start()
    page = browse(server.url)
    page.open("/")
    page.wait(lambda: page.text("#state") == "ready")
    page.find("#pause").click()
    asked = 'http_requests_total{method="GET",route="/status.json",status="200"}'

    def times() -> str:
        return next(line for line in server.get("/metrics").text.splitlines() if line.startswith(asked))

    before = times()
    page.browser.execute_async_script("setTimeout(arguments[0], 3000)")
    assert times() == before
    page.find("#pause").click()
    page.wait(lambda: times() != before)


def test_the_model_is_tried(start, browse, demo_models: Path) -> None:
    server = start(app="service:create_app()", MODEL_PATH=demo_models / "digits", MODEL_FORMAT="")
    page = browse(server.url)
    page.open("/")
    page.wait(lambda: page.all("#trial textarea"))
    field = page.find("#trial textarea")
    field.clear()
    field.send_keys(json.dumps({"instances": [EXAMPLE_ROW]}))
    page.find("#trial .send").click()
    page.wait(lambda: page.all("#trial .outcome"))
    assert "200 OK" in page.text("#trial .outcome")
    assert json.loads(page.text("#trial .result pre"))["predictions"] == [EXAMPLE_DIGIT]
    page.wait(lambda: len(page.all(".batch")) == 1)
    # What has been written and answered outlives the next numbers.
    assert "200 OK" in page.text("#trial .outcome")
    assert_clean(page)


def test_a_picture_is_tried(start, browse, demo_models: Path) -> None:
    server = start(app="service:create_app()", MODEL_PATH=demo_models / "imagenet", MODEL_FORMAT="")
    page = browse(server.url)
    page.open("/")
    page.wait(lambda: page.all("#trial input[type=file]"))
    page.find("#trial input[type=file]").send_keys(str(demo_models / "imagenet" / "samples" / "china.jpg"))
    page.find("#trial .send").click()
    page.wait(lambda: "palace" in page.text("#trial .result"))
    assert_clean(page)


def test_the_numbers_are_shown_to_who_has_their_key(start, browse) -> None:
    server = start(METRICS_KEY=KEY)
    page = browse(server.url)
    page.open("/")
    page.wait(lambda: page.text("#state") == "key needed")
    page.find("#metrics-key").send_keys(KEY, Keys.ENTER)
    page.wait(lambda: page.text("#state") == "ready")
    assert not page.find("#unlock").is_displayed()
    assert KEY not in page.browser.current_url


def test_it_works_under_a_prefix(start, browse) -> None:
    server = start(app="prefixed:app", wait=False)
    server.wait_until(lambda: server.get("/ml/healthz").status_code == 200)
    page = browse(f"{server.url}/ml")
    page.open("/")
    page.wait(lambda: page.text("#state") == "ready")
    page.wait(lambda: page.all("#trial .send"))
    page.find("#trial textarea").clear()
    page.find("#trial textarea").send_keys('{"instances": [[0, 7]]}')
    page.find("#trial .send").click()
    page.wait(lambda: page.text("#trial .outcome").startswith("200"))
    assert page.complaints() == []


def test_a_phone_shows_all_of_it_without_scrolling_sideways(start, browse) -> None:
    server = start()
    page = browse(server.url)
    server.predict([0, 1])
    page.open("/", PHONE)
    page.wait(lambda: page.all(".batch") and page.all("#trial .send"))
    assert page.browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]


def test_every_field_and_picture_has_a_name(start, browse) -> None:
    server = start()
    page = browse(server.url)
    server.predict([0, 1])
    page.open("/")
    page.wait(lambda: page.all(".batch") and page.all("#trial .send"))
    page.find("#pause").click()
    for part in page.all("input, textarea, button, [role=img], [role=group], [role=region], section"):
        if part.is_displayed():
            assert part.accessible_name, part.get_attribute("outerHTML")
