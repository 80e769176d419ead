"""The pages of a demo that stays up, as somebody walks through them: a real broker, Spark and server.

The demo is started as a user types it, and each page is looked at as in `test_site_in_browser`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import httpx
import pytest

from tests.mutation import ROOT

pytest.importorskip("selenium")

from selenium.webdriver.common.by import By

from tests.serving.http.browser import IS_HERE, SCHEMES, SIZES, check, chromium, shown, wait_for

pytestmark = [
    pytest.mark.browser,
    pytest.mark.demo,
    pytest.mark.full,
    pytest.mark.skipif(not IS_HERE, reason="there is no Chromium with its driver"),
]

ARGUMENTS: Final = ("--keep", "--seconds", "6", "--rows", "2000", "--rate", "300", "--users", "200")
UP_SECONDS_MAX: Final = 400.0
STAYS: Final = re.compile(
    r"It stays up until Ctrl-C, at (\S+),.*?export THERMOCLINE_KEY_FILE=(\S+)", re.DOTALL
)


class Demo(NamedTuple):
    """A demo that stays up."""

    url: str
    key: str


@contextmanager
def staying(folder: Path) -> Iterator[Demo]:
    """It is ended as a user ends it."""
    said = folder / "said.txt"
    with said.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "thermocline", "demo", *ARGUMENTS],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            until = time.monotonic() + UP_SECONDS_MAX
            while (found := STAYS.search(said.read_text())) is None:
                assert process.poll() is None, said.read_text()
                assert time.monotonic() < until, said.read_text()
                time.sleep(0.2)
            yield Demo(found[1], (folder / found[2]).read_text().strip())
        finally:
            process.send_signal(signal.SIGINT)
            code = process.wait(120)
    assert code == 0, said.read_text()


def a_row(demo: Demo) -> dict[str, Any]:
    """One that the server has."""
    headers = {"Authorization": f"Bearer {demo.key}", "Accept": "application/x-ndjson"}
    answer = httpx.post(f"{demo.url}/v1/tables/profiles/extract", headers=headers, timeout=60)
    row: dict[str, Any] = json.loads(answer.raise_for_status().text.partition("\n")[0])
    return row


def test_every_page_of_a_running_demo_can_be_read(tmp_path: Path) -> None:
    with staying(tmp_path) as demo, chromium() as browser:
        row = a_row(demo)
        entity = urlencode({name: row[name] for name in ("app_id", "user_id")})
        pages = {
            "/": ("profiles", "All tables"),
            "/tables/profiles": ("Partitions", "profiles/3"),
            "/tables/profiles/lookup": ("Look up rows of profiles", "app_id"),
            f"/tables/profiles/lookup?{entity}": (str(row["value"]), "Came from"),
            "/tables/profiles/bad-records": ("Bad records of profiles", "In quarantine, looked at"),
        }
        shown(browser, f"{demo.url}/", "wide", "light")
        browser.find_element(By.ID, "key").send_keys(demo.key)
        browser.find_element(By.CSS_SELECTOR, "form button").click()
        wait_for(browser, "Sign out")
        for scheme in SCHEMES:
            for size in SIZES:
                for number, (path, texts) in enumerate(pages.items()):
                    shown(browser, f"{demo.url}{path}", size, scheme)
                    main = browser.find_element(By.ID, "main").get_attribute("innerText")
                    assert "Error" not in browser.title
                    assert [
                        text for text in texts if text not in main and text not in browser.page_source
                    ] == []
                    check(browser, f"demo-{number}-{size}-{scheme}")
        shown(browser, f"{demo.url}/tables/profiles/bad-records", "wide", "light")
        wait_for(browser, "key or value is not one JSON object")
