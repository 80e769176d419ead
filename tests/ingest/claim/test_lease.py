"""The lease on real files: who must wait, who need not, and what an owner does that was overtaken."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import pytest
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.manual_clock import ManualClock
from thermocline.errors import OwnerLost, StorageFailed, TableHeld
from thermocline.iceberg.holder import Holder
from thermocline.ingest.claim.lease import OwnerLease, StoppedWaiting

LEASE_SECONDS = 60.0
ELSEWHERE = replace(
    Holder.this_process(lease_seconds=30.0),
    epoch=7,
    host="elsewhere",
    boot_id="another",
    pid=4711,
    since="2026-03-01T12:00:00+00:00",
    renewed="2026-03-01T12:00:10+00:00",
)


class HookedClock(ManualClock):
    """What happens while somebody sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.hook: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.hook()


@pytest.fixture
def clock() -> HookedClock:
    return HookedClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "thermocline" / "owner.json"


@pytest.fixture
def new_lease(tmp_path: Path, clock: HookedClock) -> Callable[..., OwnerLease]:
    def make(lease_seconds: float = LEASE_SECONDS) -> OwnerLease:
        return OwnerLease(
            PyArrowFileIO(), tmp_path.as_uri(), "profiles", lease_seconds, clock, lambda _: None
        )

    return make


def write(path: Path, holder: Holder) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(asdict(holder)))


def waited(clock: HookedClock, lease: OwnerLease) -> float:
    before = clock.monotonic()
    lease.wait_until_free()
    return clock.monotonic() - before


def test_a_table_that_nobody_has_held_is_free(
    new_lease: Callable[..., OwnerLease], clock: HookedClock
) -> None:
    lease = new_lease()
    assert waited(clock, lease) == 0
    assert lease.epoch_floor == 0


def test_an_owner_of_this_machine_that_has_ended_is_not_waited_for(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    process = subprocess.Popen(["sleep", "60"])
    holder = replace(ELSEWHERE, boot_id=Holder.this_process(1).boot_id, pid=process.pid)
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    holder = replace(holder, process_started=stat[19])  # the 22nd field, by proc(5)
    assert not holder.has_ended()
    process.kill()
    deadline = time.monotonic() + 10
    while not holder.has_ended() and time.monotonic() < deadline:  # also before it is waited for, as a zombie
        time.sleep(0.01)
    write(path, holder)
    lease = new_lease()
    assert waited(clock, lease) == 0
    assert lease.epoch_floor == 7
    process.wait()
    assert holder.has_ended()


def test_an_owner_that_neither_ends_nor_renews_is_gone() -> None:
    renewed_ms = int(datetime.fromisoformat(ELSEWHERE.renewed).timestamp() * 1000)
    for seconds, is_gone in ((0, False), (59, False), (61, True)):
        assert ELSEWHERE.is_gone(renewed_ms + 1000 * seconds) == is_gone
        assert not replace(ELSEWHERE, ended=ELSEWHERE.renewed).is_gone(renewed_ms + 1000 * seconds)
    here = replace(Holder.this_process(30.0), renewed=ELSEWHERE.renewed)
    assert replace(here, process_started="1").is_gone(renewed_ms), "it is seen at once on its own machine"
    assert not here.is_gone(renewed_ms + 3_600_000), "and lives, though its store does not answer"


def test_another_process_with_the_id_of_the_owner_is_not_taken_for_it() -> None:
    ours = Holder.this_process(1)
    assert not ours.has_ended()
    assert replace(ours, process_started="1").has_ended()


def test_a_process_that_the_machine_hides_is_alive_as_long_as_it_can_be_signalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Method: as with hidepid, nothing of other processes can be read; they are known by signals alone."""
    ours = replace(Holder.this_process(1), process_started="1")

    def hide(path: Path) -> str:
        if path.name == "stat":
            raise FileNotFoundError(2, "hidden", str(path))
        return Path.read_bytes(path).decode()

    def refuse(*_: int) -> None:
        raise PermissionError(1, "another user's")

    monkeypatch.setattr(Path, "read_text", hide)
    assert not ours.has_ended()
    monkeypatch.setattr(os, "kill", refuse)
    assert not ours.has_ended()
    monkeypatch.undo()
    process = subprocess.Popen(["true"])
    process.wait()
    assert replace(ours, pid=process.pid).has_ended()


@pytest.mark.parametrize("there", [{"boot_id": "another"}, {"pid_namespace": "pid:[1]"}, {"boot_id": ""}])
def test_an_owner_elsewhere_that_is_silent_is_waited_for_as_long_as_it_promises(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path, there: dict[str, str]
) -> None:
    gone = replace(ELSEWHERE, boot_id=Holder.this_process(1).boot_id, process_started="1")
    write(path, replace(gone, **there))  # type: ignore[arg-type]
    lease = new_lease(lease_seconds=5)
    assert waited(clock, lease) >= ELSEWHERE.lease_seconds
    assert lease.epoch_floor == 7


def test_an_owner_that_renews_is_named(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    write(path, ELSEWHERE)
    clock.hook = lambda: write(path, replace(ELSEWHERE, renewals=1))
    with pytest.raises(TableHeld) as held:
        new_lease().wait_until_free()
    assert held.value.facts() == {
        "table": "profiles",
        "host": "elsewhere",
        "pid": 4711,
        "since": ELSEWHERE.since,
        "renewed": ELSEWHERE.renewed,
        "epoch": 7,
    }
    assert held.value.exit_code == 30


def test_a_clean_end_while_it_is_watched_frees_the_table_at_once(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    write(path, ELSEWHERE)
    clock.hook = lambda: write(path, replace(ELSEWHERE, ended=ELSEWHERE.renewed))
    lease = new_lease()
    assert waited(clock, lease) < 1
    lease.check_still_free()
    assert lease.epoch_floor == 7
    clock.hook = lambda: path.unlink(missing_ok=True)
    write(path, ELSEWHERE)
    assert waited(clock, new_lease()) < 1


def test_a_table_whose_owner_has_ended_is_free_and_its_epoch_is_known(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    before = new_lease()
    before.hold(epoch=5)
    before.release()
    lease = new_lease()
    assert waited(clock, lease) == 0
    assert lease.epoch_floor == 5
    before.renew()
    lease.check_still_free()


def test_waiting_ends_when_told_to(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    write(path, ELSEWHERE)
    stop = threading.Event()
    clock.hook = stop.set
    with pytest.raises(StoppedWaiting):
        new_lease().wait_until_free(stop)


def test_an_owner_of_a_later_version_is_understood(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    later = {**asdict(ELSEWHERE), "of_a_later_version": 1}
    write(path, ELSEWHERE)
    clock.hook = lambda: path.write_text(json.dumps(later))
    with pytest.raises(TableHeld):
        new_lease().wait_until_free()


def test_what_is_only_half_written_is_read_again(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    write(path, ELSEWHERE)
    texts = iter(["", '{"owner": "x', json.dumps(asdict(replace(ELSEWHERE, renewals=2)))])
    clock.hook = lambda: path.write_text(next(texts))
    with pytest.raises(TableHeld) as held:
        new_lease().wait_until_free()
    assert held.value.pid == ELSEWHERE.pid


def test_an_object_that_says_nothing_is_waited_for_and_then_ignored(
    new_lease: Callable[..., OwnerLease], clock: HookedClock, path: Path
) -> None:
    path.parent.mkdir()
    path.write_text("{}")
    lease = new_lease()
    assert waited(clock, lease) >= LEASE_SECONDS
    assert lease.epoch_floor == 0


def test_a_sign_of_life_after_the_wait_is_respected(new_lease: Callable[..., OwnerLease], path: Path) -> None:
    write(path, ELSEWHERE)
    lease = new_lease()
    lease.wait_until_free()
    lease.check_still_free()
    write(path, replace(ELSEWHERE, renewals=1))
    with pytest.raises(TableHeld):
        lease.check_still_free()


def test_an_owner_that_meets_a_higher_epoch_on_renewing_has_lost_the_table(
    new_lease: Callable[..., OwnerLease], path: Path
) -> None:
    lease = new_lease()
    lease.hold(epoch=3)
    lease.check()
    newer = replace(ELSEWHERE, epoch=4)
    write(path, newer)
    lease.renew()
    with pytest.raises(OwnerLost) as lost:
        lease.check()
    assert (lost.value.epoch_ours, lost.value.epoch_found) == (3, 4)
    lease.release()
    assert Holder.from_json(path.read_bytes()) == newer, "what the new owner wrote is left alone"


def test_an_owner_that_meets_its_epoch_in_anothers_hands_has_lost_the_table(
    new_lease: Callable[..., OwnerLease], path: Path
) -> None:
    lease = new_lease()
    lease.hold(epoch=7)
    lease.renew()
    lease.check()
    write(path, ELSEWHERE)
    lease.renew()
    with pytest.raises(OwnerLost):
        lease.check()
    lease.release()


def test_an_owner_renews_what_an_earlier_one_wrote_over(
    new_lease: Callable[..., OwnerLease], path: Path
) -> None:
    lease = new_lease()
    lease.hold(epoch=8)
    write(path, ELSEWHERE)
    lease.renew()
    lease.check()
    held = Holder.from_json(path.read_bytes())
    assert held is not None
    assert (held.epoch, held.pid, held.ended) == (8, os.getpid(), "")
    lease.release()
    ended = Holder.from_json(path.read_bytes())
    assert ended == replace(held, ended=ended.ended if ended else "")
    assert ended.has_ended()


def test_an_owner_renews_by_itself_until_it_releases(
    new_lease: Callable[..., OwnerLease], path: Path
) -> None:
    lease = new_lease(lease_seconds=0.05)
    lease.hold(epoch=1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        held = Holder.from_json(path.read_bytes())
        if held is not None and held.renewals >= 3:
            break
        time.sleep(0.01)
    else:
        pytest.fail("it was not renewed")
    lease.release()
    held = Holder.from_json(path.read_bytes())
    assert held is not None
    assert held.has_ended()


class BrokenIO(PyArrowFileIO):
    """A store that is unavailable. Not every client says so with an OSError."""

    error: Exception = OSError("the store is unavailable")

    def new_input(self, location: str) -> InputFile:  # type: ignore[override]
        raise self.error


BROKEN = pytest.mark.parametrize(
    "error", [OSError("the store is unavailable"), RuntimeError("503 slow down")]
)


@BROKEN
def test_renewals_and_a_release_that_fail_only_warn(
    tmp_path: Path,
    clock: HookedClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    monkeypatch.setattr(BrokenIO, "error", error)
    lease = OwnerLease(BrokenIO(), tmp_path.as_uri(), "profiles", LEASE_SECONDS, clock, lambda _: None)
    lease.hold(epoch=1)
    lease.check()
    assert lease.has_failed
    lease.release()
    assert "lease not renewed" in caplog.text
    assert "lease not released" in caplog.text


def test_an_owner_renews_again_once_the_store_is_back(
    new_lease: Callable[..., OwnerLease], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whatever a renewal meets, the thread that renews goes on."""
    lease = new_lease(lease_seconds=0.05)
    lease.hold(epoch=1)
    refused = threading.Event()

    def refuse(*_: object) -> None:
        refused.set()
        raise RuntimeError("503 slow down")

    with monkeypatch.context() as away:
        away.setattr(PyArrowFileIO, "new_output", refuse)
        assert refused.wait(30)
    before = path.read_bytes()
    deadline = time.monotonic() + 30
    while path.read_bytes() in (before, b"") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert path.read_bytes() != before
    lease.release()


@BROKEN
def test_a_store_that_is_away_is_named_before_a_table_is_taken(
    tmp_path: Path, clock: HookedClock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(BrokenIO, "error", error)
    lease = OwnerLease(BrokenIO(), tmp_path.as_uri(), "profiles", LEASE_SECONDS, clock, lambda _: None)
    for ask in (lease.wait_until_free, lease.check_still_free):
        with pytest.raises(StorageFailed, match=r"owner\.json") as away:
            ask()
        assert away.value.retryable
