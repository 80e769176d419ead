"""Pages that workers share: made by one of them, for all, as long as they are young."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from markupsafe import Markup

from thermocline.serving.http.site import shared
from thermocline.serving.http.site.shared import PAGES_MAX, SharedPages


class Clock:
    """The same in all workers."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


class Made:
    """Makes pages, and counts them."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.number = 0
        self._seconds = seconds

    async def __call__(self) -> Markup:
        await asyncio.sleep(self._seconds)
        self.number += 1
        return Markup("<p>made {}</p>\n").format(self.number)


def test_a_page_is_made_once_for_all_workers(tmp_path: Path) -> None:
    clock, made = Clock(), Made(seconds=0.2)
    workers = [SharedPages(tmp_path / "pages", clock) for _ in range(4)]

    async def look() -> list[str]:
        return await asyncio.gather(*(one.get("all", 5.0, made) for one in workers for _ in range(3)))

    async def follow() -> list[set[str]]:
        seen = [set(await look())]
        for seconds in (4.9, 0.2):
            clock.at += seconds
            seen.append(set(await look()))
        return seen

    first, second = Markup("<p>made 1</p>\n"), Markup("<p>made 2</p>\n")
    assert asyncio.run(follow()) == [{first}, {first}, {second}]
    assert made.number == 2


def test_who_may_see_other_tables_gets_another_page(tmp_path: Path) -> None:
    pages, clock = SharedPages(tmp_path / "pages", Clock()), Clock()
    made = Made()
    first = asyncio.run(pages.get(("tables.html", ("orders", "payments")), 5.0, made))
    second = asyncio.run(SharedPages(tmp_path / "pages", clock).get(("tables.html", ("orders",)), 5.0, made))
    assert (first, second) == (Markup("<p>made 1</p>\n"), Markup("<p>made 2</p>\n"))


def test_only_the_user_of_the_server_can_read_them(tmp_path: Path) -> None:
    before = os.umask(0o077)  # as a server has it
    try:
        asyncio.run(SharedPages(tmp_path / "pages", Clock()).get("all", 5.0, Made()))
    finally:
        os.umask(before)
    (page,) = (tmp_path / "pages").glob("*.page")
    assert [one.stat().st_mode & 0o077 for one in (tmp_path / "pages", page)] == [0, 0]


@pytest.mark.parametrize("content", ["", "no time\n<p>old</p>", "9999999.0\n<p>of another boot</p>"])
def test_what_is_damaged_or_of_no_time_is_made_again(tmp_path: Path, content: str) -> None:
    asyncio.run(SharedPages(tmp_path, Clock()).get("all", 5.0, Made()))
    (page,) = tmp_path.glob("*.page")
    page.write_text(content)
    assert asyncio.run(SharedPages(tmp_path, Clock()).get("all", 5.0, Made())) == "<p>made 1</p>\n"


def test_a_folder_that_fails_costs_no_page(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (None, tmp_path / "file" / "pages", tmp_path / "nowhere" / "pages"):
        pages = SharedPages(folder, Clock())
        assert asyncio.run(pages.get("all", 5.0, Made())) == "<p>made 1</p>\n"


def test_a_worker_that_hangs_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "WAIT_SECONDS", 0.2)
    hanging, other = SharedPages(tmp_path), SharedPages(tmp_path)

    async def never() -> Markup:
        await asyncio.sleep(3_600)
        return Markup("")

    async def look() -> str:
        task = asyncio.create_task(hanging.get("all", 5.0, never))
        await asyncio.sleep(0.1)
        page = await other.get("all", 5.0, Made())
        task.cancel()
        return page

    assert asyncio.run(look()) == "<p>made 1</p>\n"


def test_what_fails_in_one_request_is_tried_in_the_next(tmp_path: Path) -> None:
    pages = SharedPages(tmp_path)

    async def failing() -> Markup:
        raise ValueError("no")

    async def look() -> str:
        with pytest.raises(ValueError, match="no"):
            await pages.get("all", 5.0, failing)
        return await pages.get("all", 5.0, Made())

    assert asyncio.run(look()) == "<p>made 1</p>\n"


def test_the_number_of_pages_is_bounded(tmp_path: Path) -> None:
    pages = SharedPages(tmp_path, Clock())

    async def look() -> None:
        for number in range(3 * PAGES_MAX):
            await pages.get(number, 5.0, Made())

    asyncio.run(look())
    assert len(list(tmp_path.glob("*.page"))) <= PAGES_MAX
    assert len(list(tmp_path.glob("*.lock"))) <= 256
