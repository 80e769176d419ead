"""`apply` creates the table that was shown, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ingest.small_ingest import NAME, settings_of
from thermocline.errors import NotConfirmed
from thermocline.ingest.table import create
from thermocline.ingest.table.apply import Step, do_step
from thermocline.process.clock import SystemClock


def test_no_table_is_created_that_would_read_topics_that_were_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that a pattern finds was made between the plan and the deed."""
    settings = settings_of(tmp_path, "sqlite:///catalog.db")
    shown = settings.table(NAME).definition(NAME)
    found = replace(shown, topics=(*shown.topics, "found.later"))
    planned_now: Any = SimpleNamespace(definition=found)
    monkeypatch.setattr(create, "planned_creation", lambda *_: planned_now)
    monkeypatch.setattr(create, "open_catalog", lambda *_, **__: pytest.fail("the catalog is asked"))
    step = Step(NAME, shown.identifier, "create", created=shown)
    with pytest.raises(NotConfirmed, match="created otherwise now than was shown") as refused:
        do_step(settings, step, SystemClock(), lambda _: None)
    assert refused.value.detail == f"now: reads {', '.join(found.topics)}"
