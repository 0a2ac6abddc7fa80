"""A real browser, Chromium without a window, as a person uses it; what it shows can be kept as pictures."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

T = TypeVar("T")

REQUIRED = "SPARK_RECOVERY_REQUIRE_BROWSER"
"""Set to 1, a missing browser fails the tests that need it in place of skipping them."""
PICTURES = "SPARK_RECOVERY_SCREENSHOTS"
"""Names a folder to keep pictures in."""
INSTALL = "apt-get install --no-install-recommends chromium chromium-driver fonts-dejavu-core"

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@contextmanager
def chromium(profile: Path, *, width: int = 1280, height: int = 900) -> Iterator[WebDriver]:
    """Open a browser with an empty profile; skip the test where there is none, unless that is forbidden."""
    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        reason = f"not installed: {', '.join(missing)}; on Debian: {INSTALL}"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    for flag in (*_FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(str(programs["chromedriver"])))
    try:
        yield driver
    finally:
        driver.quit()


class Person:
    """Somebody who looks at pages, waits for what they expect, and presses buttons."""

    def __init__(self, browser: WebDriver) -> None:
        self.browser = browser

    def wait_for(self, what: str, look: Callable[[], T], timeout: float = 60) -> T:
        """Wait until *look* finds something; a picture tells what was there in its place."""

        def attempt(_: WebDriver) -> T | None:
            try:
                return look()
            except (NoSuchElementException, StaleElementReferenceException, ElementNotInteractableException):
                return None

        try:
            found = WebDriverWait(self.browser, timeout, poll_frequency=0.2).until(
                attempt, f"did not come in time: {what}"
            )
        except Exception:
            picture(self.browser, "failure")
            raise
        assert found is not None
        return found

    def click(self, path: str) -> None:
        """Click what an XPath leads to, as soon as it can be clicked."""

        def clicked() -> bool:
            element = self.browser.find_element(By.XPATH, path)
            if not element.is_enabled():
                return False
            element.click()
            return True

        self.wait_for(path, clicked)

    def text(self, selector: str) -> str:
        return self.wait_for(selector, lambda: self.browser.find_element(By.CSS_SELECTOR, selector).text)

    def css(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def cells(self) -> dict[str, str]:
        """The letters of the partitions that the recovery page has drawn, by vertex."""
        script = (
            "return [...document.querySelectorAll('.vertex')]"
            ".map(v => [v.querySelector('h3').textContent, v.querySelector('canvas').states])"
        )
        return dict(self.wait_for("the grids", lambda: self.browser.execute_script(script)))


def dark(driver: Any, on: bool) -> None:
    """Let the browser prefer dark pages, or light ones."""
    features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def picture(driver: Any, name: str, *, whole: bool = False, until: str = "") -> Path | None:
    """Keep what the browser shows, if somebody wants pictures.

    :param whole: the whole page, not only what fits into the window
    :param until: the selector of the last thing to be on the picture
    """
    folder = os.environ.get(PICTURES)
    if not folder:
        return None
    size = driver.execute_cdp_cmd("Page.getLayoutMetrics", {})
    area = size["cssContentSize" if whole else "cssLayoutViewport"]
    clip = {"x": 0, "y": 0, "scale": 1}
    clip |= {
        "width": area.get("width", area.get("clientWidth")),
        "height": area.get("height", area.get("clientHeight")),
    }
    if until:
        bottom = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom + window.scrollY"
        clip["height"] = min(clip["height"], driver.execute_script(bottom, until) + 12)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": whole})
    path = Path(folder) / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(shot["data"]))
    return path


def complaints(driver: Any) -> list[str]:
    """Errors on the browser's console since the last call: scripts that fail, content that a policy keeps out."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
