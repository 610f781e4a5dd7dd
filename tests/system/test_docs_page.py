"""The page at `/docs` in a real browser: it is read, tried, and asks nobody but the service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import DESKTOP, PHONE, Window, browsing, hosts
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from service.demo.curl import EXAMPLE_DIGIT, EXAMPLE_ROW, EXAMPLE_SENTENCE

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("unmeasured")]

# What is answered with 200 when it is sent as the page shows it.
WORKS_AS_SHOWN = (
    *("healthz", "healthz_head", "livez", "metrics", "openapi", "docs", "models", "model", "predict_version"),
    *("v1_predict", "v1_predict_version", "v1_status", "v1_status_version"),
    *("v2_infer", "v2_infer_version", "v2_metadata", "v2_config", "v2_stats", "v2_all_stats", "v2_model_ready"),
    *("v2_index", "v2_server", "v2_live", "v2_ready"),
)


class Page(Window):
    """A browser at the page of one server."""

    def show(self, size: tuple[int, int] = DESKTOP) -> None:
        """Open the page and wait until it is drawn."""
        self.open("/docs", size)
        self.wait(lambda: self.find("#predict .send"))
        self.wait(lambda: "ready" in self.find("#model").text)

    def write(self, selector: str, text: str) -> None:
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def unfold(self) -> None:
        """Open everything that can be opened, some levels deep: a schema may hold itself."""
        for _ in range(5):
            self.browser.execute_script(
                "for (const one of document.querySelectorAll('details:not([open]) > summary')) one.click()"
            )
            # What is inside is made when the browser tells that it is open.
            self.wait(lambda: not self.all("main details.media[open]:not(:has(> :nth-child(2)))"))

    def send(self, operation: str = "predict") -> str:
        """Send the form of the operation; the text of what it shows then."""
        shown = self.find(f"#{operation} .result")
        before = self.all(f"#{operation} .outcome")
        self.find(f"#{operation} .send").click()
        self.wait(lambda: [one for one in self.all(f"#{operation} .outcome") if one not in before])
        return shown.text


@pytest.fixture
def browse(tmp_path: Path) -> Iterator[Callable[[str], Page]]:
    """A browser at the page of the server with this URL."""
    with browsing(tmp_path / "profile") as window:
        yield lambda url: Page(window(url).browser, url)


@pytest.fixture
def page(start, browse: Callable[[str], Page]) -> Page:
    """The page of a server with a model that is loaded at once: each row is [0, value], the answer is the value."""
    opened = browse(start().url)
    opened.show()
    return opened


@pytest.fixture
def page_of(start, browse, demo_models: Path) -> Callable[[str], Page]:
    """The page of a server with one of the demo models."""

    def make(name: str) -> Page:
        server = start(app="service:create_app()", MODEL_PATH=demo_models / name, MODEL_FORMAT="")
        page = browse(server.url)
        page.show()
        return page

    return make


def assert_clean(page: Page) -> None:
    assert page.complaints() == []
    requested = page.requested()
    assert hosts(requested) == {urlsplit(page.url).netloc}
    assert f"{page.url}/openapi.json" in requested


def test_rows_are_tried_and_their_answer_is_shown(page_of: Callable[[str], Page]) -> None:
    page = page_of("digits")
    assert "digits, version 1" in page.find("#model").text
    # What is there from the start is a request that works.
    assert json.loads(page.find("#predict textarea").get_property("value"))["instances"][0] == [0] * 64
    assert "200 OK" in page.send()
    page.write("#predict textarea", json.dumps({"instances": [EXAMPLE_ROW]}))
    page.find("#predict input[type=checkbox]").click()
    shown = page.send()
    assert json.loads(page.find("#predict .result pre").text)["predictions"] == [EXAMPLE_DIGIT]
    assert '"flush_reason"' in shown
    assert all(name in shown for name in ("X-Request-ID", "X-Model-Version", "Server-Timing", " ms"))
    assert_clean(page)


def test_an_error_is_shown_as_the_service_told_it(page: Page) -> None:
    page.write("#predict textarea", '{"instances": [[1]]')
    assert "Not valid JSON yet" in page.find("#predict .fault").text
    assert page.send().startswith("400")
    page.write("#predict textarea", '{"instances": [["<img src=x onerror=alert(1)>"]]}')
    shown = page.send()
    assert shown.startswith("422")
    assert "instances[0]" in shown
    # The only complaints are the browser's own about these two statuses.
    assert [entry["message"].partition("Failed to load resource")[1] for entry in page.complaints()] == [
        "Failed to load resource"
    ] * 2


def test_a_text_is_tried(page_of: Callable[[str], Page]) -> None:
    page = page_of("sentiment")
    page.write("#predict textarea", EXAMPLE_SENTENCE)
    page.send()
    assert json.loads(page.find("#predict .result pre").text)["prediction"]["label"] == "positive"
    assert page.find("#predict .scores").text.startswith("positive")
    page.find("#predict .kinds label:nth-of-type(2)").click()
    page.write("#predict textarea.code", '{"instances": ["bad", "good"]}')
    page.send()
    assert len(json.loads(page.find("#predict .result pre").text)["predictions"]) == 2
    assert_clean(page)


def test_a_picture_is_previewed_and_tried(page_of: Callable[[str], Page], demo_models: Path) -> None:
    page = page_of("imagenet")
    page.find("#predict input[type=file]").send_keys(str(demo_models / "imagenet" / "samples" / "china.jpg"))
    page.wait(lambda: page.find("#predict .previews img").get_property("naturalWidth"))
    assert "200 OK" in page.send()
    assert page.find("#predict .scores li").text.startswith("palace")
    page.find("#predict .result summary").click()
    assert "curl -s -F 'file=@china.jpg'" in page.find("#predict .result").text
    page.unfold()
    page.find("#v2_infer input[type=file]").send_keys(str(demo_models / "imagenet" / "samples" / "china.jpg"))
    shown = page.send("v2_infer")
    assert "200 OK" in shown
    assert "bytes of tensors" in shown
    assert json.loads(page.find("#v2_infer .result pre").text)["model_name"] == "imagenet"
    assert_clean(page)


def test_every_operation_can_be_read_and_every_get_be_tried(page: Page) -> None:
    page.unfold()
    text = page.find("main").text
    assert all(word in text for word in ("/models/{name}/predict", "effective_max_batch_size", "Retry-After", "429"))
    for operation in WORKS_AS_SHOWN:
        assert "200 OK" in page.send(operation), operation
    assert "http_requests_total" in page.find("#metrics .result pre").text
    assert_clean(page)


def test_a_protocol_is_folded_until_it_is_asked_for(page: Page) -> None:
    groups = page.all("details.group")
    assert [group.find_element(By.TAG_NAME, "h2").text for group in groups][:2] == ["Predict", "Models"]
    assert [group.get_property("open") for group in groups] == [True] + [False] * (len(groups) - 1)
    assert not page.find("#v2_infer").is_displayed()
    page.find("nav li:nth-of-type(5) summary").click()
    page.find("nav a[href='#v2_infer']").click()
    page.wait(lambda: page.find("#v2_infer .send").is_displayed())
    # A link from elsewhere does the same.
    page.browser.get(f"{page.url}/docs?again#v1_predict")
    page.wait(lambda: page.all("#v1_predict .send") and page.find("#v1_predict .send").is_displayed())


def test_a_key_is_sent_as_a_header_and_not_shown(start, browse: Callable[[str], Page]) -> None:
    server = start(app="keyed:app")
    page = browse(server.url)
    page.show()
    page.write("#predict textarea", '{"instances": [[0, 7]]}')
    assert page.send().startswith("401")
    page.write("#key", "sesame")
    assert "200 OK" in page.send()
    page.find("#predict .result summary").click()
    command = page.find("#predict .result details").text
    assert "$API_KEY" in command
    assert "sesame" not in command


def test_it_works_under_a_prefix(start, browse: Callable[[str], Page]) -> None:
    server = start(app="prefixed:app", wait=False)
    server.wait_until(lambda: server.get("/ml/healthz").status_code == 200)
    page = browse(f"{server.url}/ml")
    page.show()
    page.write("#predict textarea", '{"instances": [[0, 7]]}')
    page.send()
    assert json.loads(page.find("#predict .result pre").text)["predictions"] == [7]
    assert page.complaints() == []


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page: Page) -> None:
    page.show(PHONE)
    page.send()
    page.unfold()
    widest = page.browser.execute_script("return document.documentElement.scrollWidth")
    assert widest <= PHONE[0]


def test_the_keyboard_is_enough_and_every_field_has_a_name(page: Page) -> None:
    for kind in (".group", ".operation"):
        for summary in page.all(f"{kind}:not([open]) > summary"):
            summary.send_keys(Keys.ENTER)
    page.find("#predict .send").send_keys(Keys.ENTER)
    page.wait(lambda: page.all("#predict .outcome"))
    page.unfold()
    for label in page.all("#v2_infer .kinds label"):
        label.click()  # a form that is not chosen is hidden, and has no name either
        for field in page.all("#v2_infer .panel:not([hidden]) input, #v2_infer .panel:not([hidden]) textarea"):
            assert field.accessible_name, field.get_attribute("outerHTML")
    for field in page.all("input, textarea, button, pre[tabindex]"):
        if field.find_elements(By.XPATH, "ancestor::*[@hidden]"):
            continue
        assert field.accessible_name, field.get_attribute("outerHTML")
