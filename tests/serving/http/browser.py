"""A real browser that looks at pages: dark and light, wide and narrow, and what axe says of each.

With ``SITE_SCREENSHOTS`` set, it leaves pictures in that folder: of what is seen first, and of whole pages in
its folder ``whole``.
"""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By

from tests.environments import python_with

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
IS_HERE = CHROMIUM is not None and DRIVER is not None
SIZES = {"wide": (1280, 720), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
SCRIPT_SECONDS_MAX = 300
"""axe takes seconds for a page of a hundred tables, and minutes where the machine is busy."""
OPEN_ALL = "for (const one of document.querySelectorAll('main details')) one.open = true"


@contextmanager
def chromium() -> Iterator[Any]:
    """Its driver."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(SCRIPT_SECONDS_MAX)
    try:
        yield driver
    finally:
        driver.quit()


@lru_cache
def axe() -> str:
    """The script of axe-core that ``requirements/axe.txt`` locks."""
    environment = python_with("axe.txt").parents[1]
    (script,) = environment.glob("lib/python*/site-packages/axe_playwright_python/axe.min.js")
    return script.read_text()


def shown(browser: Any, url: str, size: str, scheme: str) -> None:
    width, height = SIZES[size]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == "narrow"},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(url)


def leave_pictures(browser: Any, name: str) -> None:
    """Of what is seen first, and of the whole page with everything open; where they are asked for."""
    folder = os.environ.get("SITE_SCREENSHOTS")
    if not folder:
        return
    (Path(folder) / "whole").mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(f"{folder}/{name}.png")
    browser.execute_script(OPEN_ALL)
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
    (Path(folder) / "whole" / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def check(browser: Any, name: str) -> None:
    """Nothing serious by axe, nothing that the policy refused, and no need to scroll sideways."""
    leave_pictures(browser, name)
    browser.execute_script(OPEN_ALL)
    sideways = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(sideways) <= 0
    here = browser.current_url.partition("/tables")[0].rstrip("/")
    severe = [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]
    # A page of a server that is gone may still have asked it; a page that is not there is logged, too.
    assert [one for one in severe if here in one and "status of 4" not in one] == []
    browser.execute_script(axe())
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    assert len(found["passes"]) > 10, "it looked"
    serious = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []


def wait_for(browser: Any, text: str) -> None:
    """Until a page shows a text."""
    until = time.monotonic() + 30
    while not _is_shown(browser, text):
        assert time.monotonic() < until, f"{text} is not shown"
        time.sleep(0.1)


def _is_shown(browser: Any, text: str) -> bool:
    try:
        return text in browser.find_element(By.TAG_NAME, "body").text
    except StaleElementReferenceException:  # the page was replaced meanwhile
        return False
