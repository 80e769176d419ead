"""The views on a REST catalog that keeps them, of a table in an S3 store: all cases, then check and drop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.behaviour.test_every_read_path import MOMENTS, Answers, check_rows, tell
from tests.views.stacked.read_paths import LAKE, READ_PATHS, ask, publish
from thermocline.cli import entry
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.dev.stack import TABLE, Stack, StackOptions
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock

pytestmark = [pytest.mark.trino, pytest.mark.full]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("lake")
    with (
        LocalS3(folder / "s3") as store,
        LocalRestCatalog(folder / "rest", store) as catalog,
        Stack(
            folder, StackOptions(partitions=4, buckets=2, trino_gb=1, engine="local", rest=catalog)
        ) as stack,
    ):
        yield stack.start()


@pytest.fixture(scope="module")
def answers(stack: Stack) -> Answers:
    owner = Owner.open(stack.settings, TABLE, SystemClock())
    publish(stack.settings, TABLE)
    owner.on_commit = lambda: publish(stack.settings, TABLE)
    said = tell(stack, owner, READ_PATHS, lambda: None)
    owner.lease.release()
    return said


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("read_path", READ_PATHS)
def test_a_view_gives_the_rows_as_of_now(answers: Answers, read_path: str, moment: str) -> None:
    check_rows(answers, read_path, moment)


def test_views_are_checked_and_dropped_by_the_commands(answers: Answers, stack: Stack) -> None:
    def run(*arguments: str) -> int:
        return entry.run(["--config", str(stack.config_path), "views", *arguments, TABLE])

    assert run("check") == 0
    assert run("publish") == 10, "nothing changed since ingest published"
    assert {row["Table"] for row in ask(stack, f"SHOW TABLES FROM {LAKE} LIKE '{TABLE}_live%'")}
    assert run("drop") == 0
    assert ask(stack, f"SHOW TABLES FROM {LAKE} LIKE '{TABLE}_%'") == []
