"""An operator's row filter stands around every view, whatever it reads."""

from __future__ import annotations

import pytest

from tests.thermocline.poison import POISONED
from tests.views.test_render import END, EVENTS, SEAM, plan, window
from thermocline.rules.definition import LiveTable
from thermocline.views.render import Mode, query
from thermocline.views.render_window import LogWindow

FILTER = "app_id = 7"


@pytest.mark.parametrize(
    ("mode", "of", "definition"),
    [
        (Mode.LIVE, window(margin_ms=2000), POISONED),
        (Mode.LIVE, window(end=END), POISONED),
        (Mode.LIVE, window(end=SEAM), POISONED),
        (Mode.LIVE, window(topics=("events",)), EVENTS),
        (Mode.LIVE_BY_KEY, window(), POISONED),
        (Mode.PINNED, window(end=END), POISONED),
        (Mode.COLD, window(), POISONED),
    ],
)
def test_it_is_the_last_thing_that_a_view_does(mode: Mode, of: LogWindow, definition: LiveTable) -> None:
    text = query(plan(mode, of, definition, row_filter=FILTER))
    _, found, outermost = text.rpartition("-- Only the rows that the operator's filter lets this user see.\n")
    assert found
    lines = [line for line in outermost.splitlines() if not line.startswith(" ")]
    assert lines[0].startswith("SELECT ")
    assert lines[1:] == ["FROM (", ")", f"WHERE ({FILTER}", ")"]
