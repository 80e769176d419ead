"""A publisher that dies or fails wherever it can: views are right, only older, until the next one.

Goal: between a commit and the last of its views, each view that stands answers right, whichever snapshot it
is of, and that snapshot is held for it; once ingest goes on, all views are of the newest snapshot. An error
comes at each point of the registry that a publisher comes by, so that a new one is tested too, or fails here.
Method: real processes on one table, with the file of failpoints in their environment, one kill after the
other: what a publication has repaired is asked after the next one. As the whole of ingest dies with its
publisher, most are of a publisher of its own. By default it is killed before the first view, and then with
one and with two of the three replaced; at all seven places up to its last view with

    VIEWS_TEST_KILLS=all .venv/bin/python -m pytest tests/views/stacked/test_publisher_killed.py
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviour.armed import armed_owners, error_like, has_fired
from tests.failpoints.arming import arm, disarm
from tests.failpoints.point import Action, Process
from tests.views.stacked.viewed import Viewed
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode
from thermocline.iceberg.files import local_path
from thermocline.process.clock import SystemClock
from thermocline.views.leases import path_of
from thermocline.views.publication import Publication
from thermocline.views.watch import PublishWatch

pytestmark = [pytest.mark.trino, pytest.mark.full]

INGEST, PUBLISH = ("ingest", "run", "--once"), ("views", "publish")
USERS = 6
KILLS = [
    (PUBLISH, "views.lease=kill@1"),
    (PUBLISH, "views.replace=kill@2"),
    (PUBLISH, "views.lease=kill@3"),
    # Ingest publishes when it starts, too: nobody knows how often it comes by a point of its publisher.
    (INGEST, "owner.landed=kill@1"),
]
if os.environ.get("VIEWS_TEST_KILLS") == "all":
    more = ("views.look=kill@1", "views.replace=kill@1", "views.lease=kill@2", "views.replace=kill@3")
    KILLS += [(PUBLISH, entry) for entry in more]
REPLACED = {"views.replace=kill@1": 0, "views.lease=kill@2": 1, "views.replace=kill@2": 1}
REPLACED |= {"views.lease=kill@3": 2, "views.replace=kill@3": 2}
"""How many of the three views are of the newest snapshot by then; of the others none."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with armed_owners(tmp_path_factory.mktemp("failpoints") / "armed") as path:
        yield path


@pytest.fixture(scope="module")
def live(stack: Stack, file: Path) -> Viewed:
    live = Viewed(stack, "killed")
    write(live, 0)
    live.ingest()
    live.publish()
    return live


def write(live: Viewed, number: int) -> None:
    """Updates, a delete, and what was deleted by the batch before."""
    live.write(range(USERS), f"of batch {number}")
    live.write([number % USERS], None)


def check(live: Viewed) -> list[int]:
    """The views are right, and each snapshot is held; those snapshots."""
    return held(live, live.check())


def held(live: Viewed, shown: dict[str, int]) -> list[int]:
    """Whoever expires snapshots finds that those of the views are held; those snapshots."""
    for mode, snapshot_id in shown.items():
        path = local_path(path_of(live.table(), f"app.{live.name}_{mode}"))
        assert path is not None
        leases = json.loads(Path(path).read_text())["snapshots"]
        assert leases[str(snapshot_id)] > SystemClock().now_ms()
    return list(shown.values())


@pytest.mark.parametrize("nth", range(len(KILLS)))
def test_a_publisher_killed_after_a_commit_leaves_right_views_and_the_next_brings_the_newest(
    live: Viewed, file: Path, nth: int
) -> None:
    (room, command, *options), entry = KILLS[nth]
    older = live.state().seam
    write(live, nth + 1)
    if room == "views":
        live.ingest()
    arm(file, entry)
    killed = live.start(room, command, live.name, *options)
    killed.process.wait()
    code = killed.stop()
    assert has_fired(file, entry)
    assert code == -signal.SIGKILL
    disarm(file)

    newest, shown = live.newest_id(), check(live)
    assert live.seam_of(newest) != older, "it was killed after the commit"
    # An owner that takes the table makes a snapshot of the same seam, which may have been published.
    assert {live.seam_of(one) for one in shown if one != newest} <= {older}
    assert shown.count(newest) == REPLACED.get(entry, 0)

    assert live.run(*INGEST[:2], live.name, *INGEST[2:]) == ExitCode.NOTHING_TO_DO, "but to publish"
    assert set(held(live, live.shown())) == {live.newest_id()}


@pytest.mark.parametrize(("name", "action"), error_like(Process.PUBLISHER))
def test_whatever_fails_in_a_publication_the_next_one_ends_well(
    live: Viewed, file: Path, name: str, action: Action
) -> None:
    """Method: a new publisher each time, as it is in ingest: a failure is no end of it."""
    write(live, hash(name) % 100)
    live.ingest()
    publication = Publication(live.settings, live.name, SystemClock())
    watch = PublishWatch(live.name, publication, 60.0, SystemClock())
    entry = f"{name}={action}@1"
    arm(file, entry)
    assert not watch.once()
    assert has_fired(file, entry), "never met"
    disarm(file)
    check(live)

    assert watch.once()
    assert set(held(live, live.shown())) == {live.newest_id()}
