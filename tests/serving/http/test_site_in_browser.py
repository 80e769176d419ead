"""The pages in a real browser: every view, dark and light, wide and narrow, and what axe says of each.

Runs where Chromium and its driver are. `browser` says how pictures of them are left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.http.site_server import BROKEN, HOSTILE, OWNER, STANDBY, Site, keep_fresh, listening
from thermocline.errors import Unauthenticated
from thermocline.serving.http.guard import Guard
from thermocline.serving.read.caller import EVERYONE, Caller, Credentials

pytest.importorskip("selenium")

import msgspec
from selenium.webdriver.common.by import By

from tests.serving.http.browser import IS_HERE, SCHEMES, SIZES, check, chromium, shown, wait_for

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not IS_HERE, reason="there is no Chromium with its driver"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@pytest.fixture
def site(served: Callable[..., Any], tmp_path: Path) -> Iterator[tuple[str, Site]]:
    """Twelve tables: empty, stopped for a hostile reason, without a broker, and such that are well."""
    site = Site(served, tmp_path / "state")
    stopped = msgspec.structs.replace(
        OWNER,
        ended="2026-01-01T00:00:00+00:00",
        stopped_by="offsets-gone",
        stopped_because="the log begins at offset 120, and the table is at 110",
    )
    site.add("orders", rows=60, worn=3, standby=STANDBY)
    site.add("payments", owner=stopped, unread_fields=(HOSTILE,))
    site.add(
        "empty",
        rows=0,
        bars=(),
        recent=(),
        last_commit_ms=None,
        last_commit_seconds=None,
        leases=(),
        views=(),
        rewrites=(),
    )
    site.add("shipments", tailer=BROKEN)
    for number in range(1, 9):
        site.add(f"shop_{number}_customers", rows=12)
    stop = threading.Event()
    thread = keep_fresh([world for name, world in site.worlds.items() if name != "shipments"], stop)
    while not site.tables[3].status()["stale"]:
        time.sleep(0.1)
    with listening(site.app()) as url:
        yield url, site
    stop.set()
    thread.join()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_page_can_be_read(browser: Any, site: tuple[str, Site], size: str, scheme: str) -> None:
    url, _ = site
    pages = {"tables": "/", "orders": "/tables/orders", "stopped": "/tables/payments"}
    pages |= {"empty": "/tables/empty", "broken": "/tables/shipments"}
    pages |= {"bad-records": "/tables/orders/bad-records", "none-bad": "/tables/empty/bad-records"}
    pages |= {"unknown": "/tables/none", "sign-in": "/sign-in"}
    for name, path in pages.items():
        shown(browser, url + path, size, scheme)
        check(browser, f"{name}-{size}-{scheme}")
    shown(browser, f"{url}/", size, scheme)
    verdict = browser.find_element(By.CSS_SELECTOR, ".verdict").text
    assert verdict.startswith("Trouble ")
    told = browser.find_element(By.ID, "main").text
    assert "payments is not ingested: it stopped with [offsets-gone]" in told
    assert "Next: thermocline explain offsets-gone" in told
    assert "shipments is stale: answers are" in told
    assert "[kafka-unreachable] Kafka does not answer" in told
    assert "standby ingest-2, process 815" in told
    assert len(browser.find_elements(By.CSS_SELECTOR, ".tables tbody th")) == 12
    shown(browser, f"{url}/tables/payments", size, scheme)
    assert HOSTILE in browser.find_element(By.ID, "main").text, "as text"


def test_a_hundred_tables_can_be_read(browser: Any, served: Callable[..., Any], tmp_path: Path) -> None:
    site = Site(served, tmp_path / "state")
    for number in range(100):
        site.add(f"shop_{number:02}_orders", rows=3)
    stop = threading.Event()
    thread = keep_fresh(list(site.worlds.values()), stop)
    try:
        with listening(site.app()) as url:
            for size, scheme in (
                ("wide", "light"),
                ("wide", "dark"),
                ("narrow", "light"),
                ("narrow", "dark"),
            ):
                shown(browser, f"{url}/", size, scheme)
                check(browser, f"hundred-{size}-{scheme}")
            assert len(browser.find_elements(By.CSS_SELECTOR, ".tables tbody th")) == 100
            browser.find_element(By.CSS_SELECTOR, ".menu summary").click()
            assert len(browser.find_elements(By.CSS_SELECTOR, ".menu a")) == 100
            check(browser, "hundred-menu")
    finally:
        stop.set()
        thread.join()


def test_an_open_page_follows_what_happens(browser: Any, site: tuple[str, Site]) -> None:
    url, served = site
    shown(browser, f"{url}/tables/orders", "wide", "light")
    browser.find_element(By.CSS_SELECTOR, "#all-buckets summary").click()
    assert "takes in nothing more" not in browser.find_element(By.ID, "main").text
    path = served.worlds["orders"].folder / "tailer.json"
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "paused": True}))
    from selenium.webdriver.support.ui import WebDriverWait  # noqa: PLC0415

    WebDriverWait(browser, 60).until(
        lambda _: "takes in nothing more" in browser.find_element(By.ID, "main").text
    )
    opened = browser.find_element(By.ID, "all-buckets")
    assert opened.get_attribute("open") is not None, "what somebody opened stays open"


def test_a_link_from_elsewhere_leads_to_the_page_for_who_is_signed_in(
    browser: Any, served: Callable[..., Any], tmp_path: Path
) -> None:
    """No cookie comes with the link, so the page asks once more; then each page is asked for once again."""
    site = Site(served, tmp_path / "state")
    site.add("orders")
    asked: list[str] = []

    def admit(credentials: Credentials) -> Caller:
        if credentials.authorization != "Bearer of-ops":
            raise Unauthenticated(detail="it is no key of this server")
        return EVERYONE

    app = site.app(Guard(admit))

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            asked.append(scope["path"])
        await app(scope, receive, send)

    with listening(noting) as url:
        shown(browser, f"{url}/", "wide", "light")
        browser.find_element(By.ID, "key").send_keys("of-ops")
        browser.find_element(By.CSS_SELECTOR, "form button").click()
        wait_for(browser, "Sign out")
        for _ in range(2):
            asked.clear()
            browser.get(f'data:text/html,<a href="{url}/tables/orders?x=1%23">there</a>')
            browser.find_element(By.TAG_NAME, "a").click()
            wait_for(browser, "Sign out")
            assert asked.count("/tables/orders") == 2
        browser.find_element(By.CSS_SELECTOR, "header form button").click()
        wait_for(browser, "API key or token")
        asked.clear()
        browser.get(f"{url}/tables/orders")
        wait_for(browser, "API key or token")
        assert asked.count("/tables/orders") <= 2


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_are_looked_up_by_the_form(browser: Any, site: tuple[str, Site], size: str, scheme: str) -> None:
    url, served = site
    world = served.worlds["orders"]
    key = {"app_id": 7, "user_id": "it's &", "key": "plan"}
    world.produce(key, {"value": "pro", "updated_at": "2026-01-02T03:04:05Z"})
    world.produce({**key, "key": "note"}, {"value": HOSTILE, "updated_at": None})
    world.produce({"app_id": 7, "user_id": "worn", "key": "0"}, {"value": "blue"})
    world.produce({"app_id": 7, "user_id": "worn", "key": "10"}, None)
    world.tail()
    shown(browser, f"{url}/tables/orders", size, scheme)
    browser.find_element(By.LINK_TEXT, "Look up rows").click()
    check(browser, f"look-up-{size}-{scheme}")
    for label, text in (("app_id", "7"), ("user_id", "it's &")):
        browser.find_element(By.CSS_SELECTOR, f"input[name={label}]").send_keys(text)
    browser.find_element(By.CSS_SELECTOR, ".ask button").click()
    check(browser, f"looked-up-{size}-{scheme}")
    told = browser.find_element(By.ID, "main").text
    assert 'app_id=7, user_id="it\'s &"' in told
    assert HOSTILE in told, "as text"
    assert "Not committed yet: record profiles/0@" in told
    assert "client.lookup('orders', app_id=7, user_id=\"it's &\")" in told
    shown(browser, f"{url}/tables/orders/lookup?app_id=7&user_id=worn", size, scheme)
    check(browser, f"looked-up-committed-{size}-{scheme}")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".rows tbody tr")) == 30
    shown(browser, f"{url}/tables/orders/lookup?app_id=seven&user_id=u1", size, scheme)
    check(browser, f"look-up-wrong-{size}-{scheme}")
    assert browser.find_element(By.CSS_SELECTOR, "[aria-invalid]").get_attribute("name") == "app_id"
    assert "seven" in browser.find_element(By.CSS_SELECTOR, "[role=alert]").text
