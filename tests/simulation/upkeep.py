"""The maintenance of an owner: the product's, whose threads and rewrites run when a step says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Self, cast

from tests.simulation.faults import Violation
from thermocline.errors import CatalogUnreachable, CommitRejected, EngineFailed, ForeignSnapshot
from thermocline.maintenance.journal import Done, Journal
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.settings import MaintenanceSettings

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.owners import Process
    from tests.simulation.world import SimClock, World
    from thermocline.maintenance.journal import Step
    from thermocline.maintenance.owning import Owning

SETTINGS: Final = MaintenanceSettings(
    lookups_per_second=10**9, target_file_bytes=1 << 20, snapshots_seconds=1_800, files_seconds=1_200
)
"""Everything is worth a rewrite, and the rest is as short as a history."""
SNAPSHOTS_MS: Final = int(1000 * SETTINGS.snapshots_seconds)
FILES_MS: Final = int(1000 * SETTINGS.files_seconds)
# What a step of maintenance may fail with, which is tried again; all else would be a bug.
_EXPECTED: Final = (OSError, CommitRejected, EngineFailed, CatalogUnreachable, ForeignSnapshot)
_INPUT_GONE: Final = "a file that was rewritten is not part of the table any more"

Job = tuple[Future[Any], Callable[[], Any]]


class Beside:
    """What one life of a process does beside its batches: jobs of its thread, and tasks of its engine."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._jobs: deque[Job] = deque()
        self._tasks: deque[Job] = deque()

    def submit(self, job: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """For the thread, as of an executor."""
        future: Future[Any] = Future()
        self._jobs.append((future, lambda: job(*arguments)))
        return future

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        """What has not begun never does."""
        self._jobs.clear()

    def start(self, task: Callable[[], Any]) -> Future[Any]:
        """For the engine."""
        future: Future[Any] = Future()
        self._tasks.append((future, task))
        return future

    def work(self, is_task: bool, fault: Fault | None) -> bool:
        """The next job, to its end; whether there was one. A task dies alone, the thread with its process."""
        waiting, process = self._tasks if is_task else self._jobs, self._process
        name = f"{process.name}'s {'task' if is_task else 'thread'}"
        if not waiting or process.world.frames.is_busy(name):
            return False
        future, job = waiting.popleft()
        process.world.counts["task" if is_task else "job"] += 1
        if process.world.process(name, fault, lambda: _run(future, job)):
            if is_task:
                future.set_exception(EngineFailed(engine="Spark", detail="a worker died"))
            else:
                process.die(self)
        return True


class WatchedUpkeep(TableUpkeep):
    """One that fails as it may, or the history is over."""

    journal: WatchedJournal

    @classmethod
    def of(cls, world: World, clock: SimClock, beside: Beside) -> Self:
        """For a new owner. One old snapshot is enough for it to expire."""
        journal = WatchedJournal(world, clock)
        return cls(SETTINGS, clock, expired_min=1, thread=cast(Any, beside), journal=journal)

    @property
    def beside(self) -> Beside:
        """What runs its threads and tasks."""
        return cast(Beside, self._thread)

    def turn(self, owner: Owning) -> None:
        """Counts what comes of it."""
        before, world = self.done, self.journal.world
        self.journal.epoch = cast(Any, owner).committer.epoch
        self.journal.rewritten = None if self.now_at is None else self.now_at.paths
        try:
            super().turn(owner)
        finally:
            for name in Done.__dataclass_fields__:
                world.counts[f"upkeep {name}"] += getattr(self.done, name) - getattr(before, name)


class WatchedJournal(Journal):
    """Raises what is no failure to try again after. ``rewritten`` are the files of the rewrite that runs."""

    def __init__(self, world: World, clock: SimClock) -> None:
        super().__init__(clock)
        self.world = world
        self.epoch = 0
        self.rewritten: frozenset[str] | None = None

    def failed(self, step: Step, error: Exception, seconds_max: float | None = None) -> float:
        """As it may."""
        self.world.counts[f"{step} failed: {type(error).__name__}"] += 1
        if isinstance(error, Violation):
            raise error
        if step == "rewrite" and isinstance(error, FileNotFoundError):
            self._check_gone(error)
        if not isinstance(error, _EXPECTED) and str(error) != _INPUT_GONE:
            raise self.world.broken("upkeep-failed", f"{step}: {type(error).__name__}: {error}") from error
        return super().failed(step, error, seconds_max)

    def _check_gone(self, error: FileNotFoundError) -> None:
        # An owner that was replaced days ago may lose its files: its rewrite can't land any more.
        is_owner = self.epoch == self.world.oracle.epoch
        if is_owner and self.rewritten is not None and self.rewritten <= self.world.table().paths():
            raise self.world.broken("rewrite-input-gone", str(error)) from error


def _run(future: Future[Any], job: Callable[[], Any]) -> None:
    try:
        result = job()
    except Exception as error:  # noqa: BLE001  as executors and engines do
        future.set_exception(error)
    else:
        future.set_result(result)
