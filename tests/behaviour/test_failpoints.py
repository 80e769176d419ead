"""Every error-like failpoint of ingest, one after another: nothing is lost, repeated, or deleted too early.

Goal: wherever ingest fails, the table is the replay of the log again once it goes on, or once another owner
has taken over; and each point of the registry is met, so that a new one is tested too, or fails here.
Method: one table, one broker, the local engine. A small batch waits, one point is armed through the
file, and ingest runs as under a supervisor until it has caught up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.behaviour.armed import FAILS_BEFORE, armed_owners, error_like, has_fired
from tests.behaviour.live import KEYED, MANY, Live
from tests.behaviour.test_quarantine import LARGE, Scores
from tests.failpoints.arming import arm, disarm
from tests.failpoints.point import Action, Process
from thermocline.dev.stack import Stack
from thermocline.errors import (
    CommitUnknown,
    ExitCode,
    InternalError,
    NotFound,
    OffsetsGone,
    ThermoclineError,
)
from thermocline.iceberg.catalog import open_catalog, state_of
from thermocline.iceberg.files import local_path, plan_files
from thermocline.ingest.owner import turns
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.quarantine import open_quarantine, read_rows
from thermocline.kafka.log import Log

pytestmark = pytest.mark.full

NAME, DEAD_LETTERS = "failing", "failing-dead-letters"
CASES = error_like(Process.INGEST, Process.TASK)
# An owner, the one after it, and one more where both meet what is armed.
LIVES_MAX = 4


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "RETRY_SECONDS", 0.05)


class UntilCaughtUp(threading.Event):
    """What tells an owner to stop: that it has nothing to do. It waits only to try again."""

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or timeout > turns.RETRY_SECONDS:
            self.set()
        return super().wait(timeout)


class Ingest:
    """A table with a batch to commit, and whoever owns it."""

    def __init__(self, live: Live, file: Path) -> None:
        self.live = live
        self.file = file
        self.owner: Owner | None = None
        self.batches = 0
        self.bad = 0

    def write(self) -> None:
        """A batch of inserts, updates, deletes and a bad record in each partition."""
        self.batches += 1
        self.live.write([*range(6), MANY[self.batches]], f"of batch {self.batches}")
        self.live.write([self.batches % 6, 10 + self.batches % 4], None if self.batches % 2 else "again")
        for partition in range(self.live.partitions()):
            self.live.topic.send_raw(b"bad", b"%d" % self.batches, partition)
            self.bad += 1
        self.live.topic.flush()

    def live_once(self) -> Exception | None:
        """Ingest goes on, by a new owner where the one before has ended; what ends it before it caught up."""
        try:
            turns.follow(self.owner or self.take(), UntilCaughtUp())
        except Exception as error:  # noqa: BLE001  what it is, is the point's
            self.let_go()
            return error
        return None

    def take(self) -> Owner:
        """A new owner."""
        self.owner = self.live.open()
        return self.owner

    def let_go(self) -> None:
        if self.owner is not None:
            self.owner.lease.release()
        self.owner = None

    def written_files(self) -> set[Path]:
        return {path for path in self._folder().rglob("*") if path.suffix in (".parquet", ".puffin")}

    def _folder(self) -> Path:
        return Path(local_path(self.live.table().location()) or "") / "data"


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("failpoints", partitions=1, buckets=1)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with armed_owners(tmp_path_factory.mktemp("failpoints") / "armed") as path:
        yield path


@pytest.fixture(scope="module")
def ingest(stack: Stack, file: Path) -> Iterator[Ingest]:
    stack.kafka.create_topic(DEAD_LETTERS, 1)
    live = Live(stack, NAME, choices=f'{KEYED}\ndead_letter_topic = "{DEAD_LETTERS}"')
    ingest = Ingest(live, file)
    live.write_many()
    ingest.take().catch_up(threading.Event())
    yield ingest
    ingest.let_go()


@pytest.fixture(scope="module")
def scores(stack: Stack, file: Path) -> Scores:
    """A table with three records that were bad and can be read by now, each the newest of its key."""
    live = Scores(stack, "scores", partitions=1)
    for user in ("a", "b", "c"):
        live.put(user, LARGE)
    live.ingest()
    live.widen()
    return live


def check(ingest: Ingest) -> None:
    """The table is the replay of the log, each record is accounted for once, and the bad ones are kept."""
    live = ingest.live
    assert live.rows() == {key: row["value"] for key, row in live.topic.oracle.rows().items()}
    state = live.state()
    totals = state.totals
    parts = ("applied", "superseded", "unchanged", "quarantined", "skipped")
    assert totals["read"] == sum(totals[part] for part in parts)
    assert totals["read"] == sum(offset for _, _, offset in state.seam.items()), "each offset counts once"
    assert totals["quarantined"] == ingest.bad
    quarantine = open_quarantine(open_catalog(live.settings.catalog), NAME, f"app.{NAME}")
    assert len(list(read_rows(quarantine, ["value"]))) == ingest.bad
    assert Log(live.settings.kafka).ends([DEAD_LETTERS])[DEAD_LETTERS, 0] >= ingest.bad


def command_fails_and_is_repeated(file: Path, entry: str, live: Live, *arguments: str) -> None:
    """A command meets the point; what it did or did not do by then, its repetition ends well."""
    arm(file, entry)
    assert live.run(*arguments) not in (ExitCode.DONE, ExitCode.NOTHING_TO_DO, InternalError.exit_code)
    assert has_fired(file, entry)
    # Of what was done already, nothing is left to do, or to be found.
    assert live.run(*arguments) in (ExitCode.DONE, ExitCode.NOTHING_TO_DO, NotFound.exit_code)


def alter(file: Path, entry: str, scores: Scores, stack: Stack) -> None:
    scores.set(KEYED, f"{KEYED}\nsuppress_unchanged = true")
    before = scores.state().definition_version
    command_fails_and_is_repeated(file, entry, scores, "table", "alter", "scores", "--yes")
    assert scores.state().definition_version == before + 1


def replay(file: Path, entry: str, scores: Scores, stack: Stack) -> None:
    (place, *_) = sorted(scores.kept())
    before = scores.state().totals["applied"]
    partition, _, offset = place.partition("@")
    user = "abc"[int(offset)]
    record = f"scores/{partition}@{offset}"
    command_fails_and_is_repeated(file, entry, scores, "quarantine", "replay", "scores", record)
    assert scores.state().totals["applied"] == before + 1, "applied once"
    assert scores.scores()[user] == LARGE
    assert place not in scores.kept()


def resume(file: Path, entry: str, scores: Scores, stack: Stack) -> None:
    live = Live(stack, "gapped", partitions=1)
    live.write([0, 1, 2], "x")
    live.cut({0: 2})
    stop = live.stopped(by=OffsetsGone)
    facts = [word for token in stop.tokens for word in ("--fact", token)]
    command_fails_and_is_repeated(file, entry, live, "ingest", "accept-gap", "gapped", *facts)
    live.ingest()
    assert sorted(user for _, user, _ in live.rows()) == ["u2"]


# What only a command meets.
COMMANDS: dict[str, Callable[[Path, str, Scores, Stack], None]] = {
    "alter.commit": alter,
    "resume.commit": resume,
    "replay.commit": replay,
    "replay.remove": replay,
}


@pytest.mark.parametrize(("name", "action"), [case for case in CASES if case[0] not in COMMANDS])
def test_whatever_fails_the_table_is_the_replay_of_the_log_again(
    ingest: Ingest, file: Path, name: str, action: Action
) -> None:
    entry = f"{name}={action}@1"
    ingest.write()
    files_before = ingest.written_files()
    arm(file, ";".join(filter(None, (FAILS_BEFORE.get(name), entry))))

    errors = []
    for _ in range(LIVES_MAX):
        error = ingest.live_once()
        errors.append(error)
        if isinstance(error, CommitUnknown):
            assert ingest.written_files() > files_before, "the files of an unknown commit are kept"
        if error is None and has_fired(file, entry):
            break
        if error is None:
            ingest.let_go()  # it is met by the next owner, on taking the table

    assert has_fired(file, entry), f"never met: {errors}"
    assert errors[-1] is None, errors
    assert all(isinstance(error, ThermoclineError | None) for error in errors), errors
    disarm(file)
    check(ingest)


@pytest.mark.parametrize(("name", "action"), [case for case in CASES if case[0] in COMMANDS])
def test_whatever_fails_in_a_command_its_repetition_ends_well(
    scores: Scores, stack: Stack, file: Path, name: str, action: Action
) -> None:
    COMMANDS[name](file, f"{name}={action}@1", scores, stack)
    disarm(file)


@pytest.mark.parametrize("skew_ms", [-7_200_000, 7_200_000])
def test_an_owner_whose_clock_is_hours_wrong_commits_what_the_log_holds(
    ingest: Ingest, file: Path, skew_ms: int
) -> None:
    """Method: the owner before had the right time, the next one goes on with a wrong one."""
    ingest.let_go()
    ingest.write()
    arm(file, f"clock=skew:{skew_ms}")
    assert ingest.live_once() is None
    disarm(file)
    check(ingest)


def test_nothing_of_a_landed_commit_was_ever_deleted_and_the_totals_close(ingest: Ingest) -> None:
    """Goal: time travel reads every snapshot, and its totals are those before it and its own counts."""
    ingest.write()
    assert ingest.live_once() is None
    check(ingest)
    table = ingest.live.table()
    read = 0
    for snapshot in sorted(table.snapshots(), key=lambda one: one.sequence_number or 0):
        state = state_of(snapshot, NAME)
        read += state.counts["read"]
        assert state.totals["read"] == read
        for planned in plan_files(table, snapshot.snapshot_id):
            paths = [planned.path, *([planned.deletes.path] if planned.deletes else [])]
            assert all(Path(local_path(path) or "").exists() for path in paths)
