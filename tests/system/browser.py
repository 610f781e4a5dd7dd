"""A real browser at one page of a server: what it shows, what it complains about, and whom it asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

GUARD_S = 20.0
DESKTOP = (1280, 900)
PHONE = (390, 844)


class Window:
    """A browser window. `url` is that of the server, without a slash at its end."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self.browser = browser
        self.url = url

    def open(self, path: str, size: tuple[int, int] = DESKTOP) -> None:
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.browser.get(self.url + path)

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text of what may be drawn anew at any moment."""
        return str(
            self.browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        )

    def wait(self, holds: Callable[[], Any]) -> Any:
        waiting = WebDriverWait(self.browser, GUARD_S, ignored_exceptions=[StaleElementReferenceException])
        try:
            return waiting.until(lambda _: holds())
        except TimeoutException:
            log = self.browser.get_log("browser")
            pytest.fail(f"it did not come true; the browser's log: {log}; the page: {self.browser.page_source[:4000]}")

    def complaints(self) -> list[Any]:
        return [entry for entry in self.browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]

    def requested(self) -> list[str]:
        """The URLs that the page asked for since this was last called; those of the browser itself are none of them."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent if one["documentURL"].startswith(self.url)]


def hosts(urls: list[str]) -> set[str]:
    """Whom requests for these URLs reach over a network."""
    split = [urlsplit(url) for url in urls]
    return {url.netloc for url in split if url.scheme in ("http", "https", "ws", "wss")}


@contextmanager
def browsing(profile: Path) -> Iterator[Callable[[str], Window]]:
    """A browser with nothing in its profile; skips the test where none is installed."""
    driver, chromium = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or chromium is None:
        pytest.skip("needs chromium and chromedriver")
    options = ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = Chrome(options, Service(driver))
    try:
        yield lambda url: Window(browser, url)
    finally:
        browser.quit()
