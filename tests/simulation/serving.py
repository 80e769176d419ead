"""The machine that serves: a tailer's process, two workers, and what they share on its disk.

`serving_steps` makes things happen to it. After a history it must serve again, whatever happened: `settle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.disk import MemoryDisk
from tests.simulation.environments import MemoryEnvironment
from tests.simulation.faults import Crash, Fault, Violation, kind_of
from tests.simulation.machine_clock import MachineClock
from tests.simulation.records import KEYS, NAME
from tests.simulation.serving_edges import Machine, Running
from tests.simulation.tailer_process import FOLLOWER, HOT_BYTES_MAX, TAILER, TailerProcess
from tests.simulation.workers import USERS, Answers, Worker
from thermocline.errors import NotReady
from thermocline.rules.seam import Seam
from thermocline.serving.hot.generation import Meta
from thermocline.serving.hot.leases import HEARTBEAT_SECONDS
from thermocline.serving.hot.merge import covered_by

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.faults import Frame
    from tests.simulation.world import World
    from thermocline.serving.hot.tier import HotTier

WORKERS: Final = 2
FOLDER: Final = f"state/{NAME}"
FREE_BYTES: Final = 1 << 40
# While somebody waits for a seal, others run this often. A real wait looks more often, and sees no more.
ASLEEP_SECONDS: Final = 0.6
# To become ready again: the leases of the dead time out, a retry is waited for, a tier is filled and sealed.
SETTLE_ROUNDS: Final = 40
SETTLE_SECONDS: Final = 3.0
# Extracts are begun in histories; after them, this share is enough to see that they still can be.
EXTRACTS_EVERY: Final = 3


class Serving:
    """All of serving in one history."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.disk = MemoryDisk(self._edge)
        self.machine = Machine(self.disk, self._process)
        self.disk.before_listing = self.beat
        Running.machine = self.machine
        self.tailer: TailerProcess | None = None
        self.workers: list[Worker | None] = [None] * WORKERS
        self.answers = Answers(world)
        self._dead: Frame | None = None
        self._beat_at = 0.0
        self._is_beating = False
        self._covered: dict[Worker, tuple[HotTier, frozenset[tuple[str, int]]]] = {}
        self._silent: set[str] = set()
        self._looks = self._seen = 0
        self._checked: object = None
        self._start()

    def _start(self) -> None:
        """A server that has been running for a while."""
        self.follow(None)
        self.tail(2, None)
        for place in range(WORKERS):
            self.worker(place).refresh(None)

    # Processes.

    def running_tailer(self) -> TailerProcess:
        """The tailer's process; one that died is started again."""
        if self.tailer is None:
            self.tailer = TailerProcess(self.world, self.disk.path(FOLDER), self._clock(TAILER))
            self._count("tailers started")
        return self.tailer

    def worker(self, number: int) -> Worker:
        """A worker's process; one that died is started again."""
        place = number % WORKERS
        found = self.workers[place]
        if found is None:
            clock = self._clock(f"worker {place}")
            found = Worker(self.world, place, self.disk.path(FOLDER), clock, self.answers)
            self.workers[place] = found
        return found

    def is_busy(self, *names: str) -> bool:
        """Whether one of these processes is in the middle of something."""
        return any(self.world.frames.is_busy(name) for name in names)

    def follow(self, fault: Fault | None) -> None:
        """The follower's thread looks once."""
        self.beat()
        if self.running_tailer().follow(self._alone(fault, TAILER)):
            self.kill_tailer()

    def tail(self, rounds: int, fault: Fault | None) -> None:
        """Turns of the tailer's loop."""
        self.beat()
        if self.running_tailer().tail(rounds, self._alone(fault, FOLLOWER)):
            self.kill_tailer()

    def kill_tailer(self) -> None:
        """It dies where it stands: nothing is tidied up, the kernel lets its lock go."""
        if not self.is_busy(TAILER, FOLLOWER):
            self.tailer = None
            self.disk.locked.clear()
            self._count("tailers killed")

    def kill_worker(self, number: int) -> None:
        """It dies where it stands: its leases stay until they time out."""
        place = number % WORKERS
        name = f"worker {place}"
        if self.workers[place] is not None and not self.is_busy(name):
            self.workers[place] = None
            self.machine.leases = [one for one in self.machine.leases if one[0] != name]
            self._count("workers killed")

    def lose_disk(self, folders: tuple[str, ...]) -> None:
        """Folders are removed below a running server; the tailer's process does not survive that."""
        if self.is_busy(TAILER, FOLLOWER, *(f"worker {place}" for place in range(WORKERS))):
            return
        self.kill_tailer()
        for folder in folders:
            self.disk.clear(f"{FOLDER}/{folder}")
        self._count("disks lost")

    def reboot(self, damage: Random) -> None:
        """The machine starts again: of what was not synced, files hold whatever they hold."""
        if self.is_busy(TAILER, FOLLOWER, *(f"worker {place}" for place in range(WORKERS))):
            return
        self.kill_tailer()
        for place in range(WORKERS):
            self.kill_worker(place)
        for path, content in list(self.disk.files.items()):
            if isinstance(content, MemoryEnvironment) and damage.random() < 0.5:
                survivors = [key for key in content.keys if damage.random() < 0.7]
                content.commit(survivors, {key: content.values[key] for key in survivors})
            elif path.endswith(".mdb") and damage.random() < 0.2:
                del self.disk.files[path], self.disk.stamps[path]
        self.machine.leases.clear()
        self.machine.boots += 1
        self.world.advance(30)
        self.machine.booted_at = self.world.clock(TAILER).monotonic()
        self._beat_at = 0.0
        self._count("reboots")

    def beat(self) -> None:
        """The threads that keep leases alive, of processes that are not frozen or paused."""
        now = self.world.clock(TAILER).monotonic()
        if now - self._beat_at < HEARTBEAT_SECONDS:
            return
        self._beat_at = now
        machine = self.machine
        machine.leases = [one for one in machine.leases if not one[1].wait_for_release(0)]
        frozen = {worker.name for worker in self.workers if worker is not None and worker.is_frozen}
        silent = frozen | {process for process, _ in machine.leases if self.is_busy(process)}
        self._is_beating = True
        for process, lease in machine.leases:
            if process not in silent:
                lease.beat()
        self._is_beating = False
        self._silent = silent
        self._covered = {one: held for one, held in self._covered.items() if one.name not in silent}

    # What must be so.

    def check(self) -> None:
        """After each step in which something changed, one of the workers is asked for everything.

        And the tier is of one piece, and holds what those who say so still need.
        """
        if self._seen == self.disk.changes or self.world.frames.stack:
            return
        self._seen = self.disk.changes
        self._looks += 1
        worker = self.workers[self._looks % WORKERS]
        if worker is not None and not worker.is_frozen:
            worker.lookup(USERS, (), refreshes=False, fault=None)
        tier = None if self.tailer is None else self.tailer.tier
        if tier is None or tier._generations is self._checked:
            return
        self._checked = tier._generations
        self._check_contiguous(tier)
        for one in self.workers:
            if one is not None and not one.is_frozen:
                self._check_held(one, tier)

    def _check_held(self, worker: Worker, tier: HotTier) -> None:
        """What was held of what a worker leases is held as long as it says that it is alive."""
        lease, start = worker.lease, Meta(0, covered_by(tier.metas())).start
        if lease is None or worker.name in self._silent:
            return
        if not worker.has_written_lease():  # it went with its folder, and is written again at the next beat
            self._covered.pop(worker, None)
            return
        # A partition that is new may be taken up from a later snapshot's seam on.
        places = [(topic, number) for topic, number, _ in lease.items()]
        held = {place for place in places if place in start and start[place] <= lease[place]}
        before, covered = self._covered.get(worker, (None, frozenset()))
        if before is tier and not covered.intersection(places) <= held:
            raise Violation("evicted-too-early", f"{worker.name} needs {lease!r}, the tier has {start!r}")
        self._covered[worker] = tier, frozenset(held)

    def _check_contiguous(self, tier: HotTier) -> None:
        """The generations cover one range of offsets per partition."""
        ends: dict[tuple[str, int], int] = {}
        for generation in tier._generations:
            for part in generation.meta().covered:
                if ends.setdefault(part.place, part.start) != part.start:
                    kind = "seam-gap" if part.start > ends[part.place] else "seam-overlap"
                    raise Violation(kind, f"{part.place}: {ends[part.place]}, then {part.start}")
                ends[part.place] = part.end

    def settle(self) -> None:
        """Nothing is in the way any more: unless there is a reason why not, all serve all there is."""
        self.world.cluster.is_up = True
        self.disk.free_bytes = FREE_BYTES
        for worker in self.workers:
            if worker is not None:
                worker.is_frozen = False
        if not self._becomes_current():
            reason = self._reason()
            if reason is None:
                tailer = self.running_tailer()
                said = [_said(self.worker(place)) for place in range(WORKERS)]
                raise Violation("not-ready-again", f"{said} {tailer.problem} {tailer.follower.problem}")
            self._count(f"stands still at the end: {reason}")
            return
        self._count("serves at the end")
        for place in range(WORKERS):
            self.worker(place).lookup(USERS, KEYS[:2], refreshes=False, fault=None)
        if self._looks % EXTRACTS_EVERY == 0:
            self._extract()

    def _becomes_current(self) -> bool:
        for _ in range(SETTLE_ROUNDS):
            self.world.advance(SETTLE_SECONDS)
            self.running_tailer().settings.hot_bytes_max = HOT_BYTES_MAX
            self.follow(None)
            self.tail(3, None)
            for place in range(WORKERS):
                self.worker(place).refresh(None)
            if all(self._is_current(self.worker(place)) for place in range(WORKERS)):
                return True
        return False

    def _extract(self) -> None:
        """Extracts that are under way are read to their end, and another one is begun."""
        worker = self.worker(0)
        before = len(worker.extracts)
        worker.pin(None)
        if len(worker.extracts) == before:
            raise Violation("not-ready-again", f"{worker.name} gives no extract")
        for held in list(worker.extracts):
            for bucket in range(2):
                worker.read(held, bucket, scans=False)
            worker.end(held)

    def _is_current(self, worker: Worker) -> bool:
        """Whether it answers from the newest snapshot and all that the log holds."""
        try:
            look = worker.table.reader.look(())
        except NotReady:
            return False
        world = self.world
        ends = Seam(
            {log.place: log.stable_end for one in world.cluster.topics.values() for log in one.partitions}
        )
        end = look.read_point.end
        is_newest = look.read_point.snapshot_id == world.table().current_id
        return is_newest and not look.is_stale and end.at_least(ends) and ends.at_least(end)

    def _reason(self) -> str | None:
        """Why serving may stand still: what its tailer says, where that is true."""
        tailer, world = self.running_tailer(), self.world
        current = world.table().current
        state = world.oracle.states.get(current.snapshot_id)
        if tailer.follower.problem is not None:
            code = tailer.follower.problem.code
            seam = world.table().properties.get("thermocline.seam")
            is_ours = state is not None and Seam(state.seam) == Seam.from_json(seam or "{}")
            served = tailer.follower.newest
            is_older = served is not None and served.state.snapshot_id > current.snapshot_id
            return f"the table: {code}" if code == "foreign-snapshot" and (not is_ours or is_older) else None
        if tailer.problem is None and world.counts["LoseEnd"]:
            return "what was answered is lost: the log has to grow beyond it"
        if tailer.problem is None or state is None:
            return None
        ids = {topic: one.topic_id for topic, one in world.cluster.topics.items()}
        logs = {log.place: log for one in world.cluster.topics.values() for log in one.partitions}
        true = {
            "log-replaced: topics": any(ids.get(topic) != known for topic, known in state.topic_ids.items()),
            "log-replaced: cluster": True,
            "tombstones-gone": world.around.is_compacted,
            "offsets-gone": any(state.seam.get(place, 0) < log.start for place, log in logs.items()),
            "log-replaced: partitions": any(place not in logs for place in state.seam),
            "log-replaced: end": any(
                at > logs[place].stable_end for place, at in state.seam.items() if place in logs
            ),
        }
        code = kind_of(tailer.problem)
        return f"the log: {code}" if true.get(code) else None

    # Edges.

    def asleep(self, seconds: float) -> None:
        """A process sleeps; the tailer runs, if it can."""
        self.world.advance(max(seconds, ASLEEP_SECONDS))
        self.beat()
        if self.tailer is not None and not self.is_busy(TAILER):
            self.tail(2, None)

    def _clock(self, name: str) -> MachineClock:
        return MachineClock(self.world.clock(name), self.machine, self.asleep)

    def _edge(self, what: str) -> None:
        if self._is_beating:  # in a thread of its own: what it asks for is no step of the process at work
            return
        stack = self.world.frames.stack
        frame = stack[-1] if stack else None
        if frame is not None and frame is self._dead:
            raise Crash(what)  # what a dying process would tidy up, a killed one does not
        try:
            self.world.edge(f"disk {what}")
        except Crash:
            self._dead = frame
            raise

    def _process(self) -> str:
        return self.world.frames.stack[-1].process if self.world.frames.stack else ""

    def _alone(self, fault: Fault | None, other: str) -> Fault | None:
        """No crash while the process's other thread is in the middle of something."""
        return None if fault is not None and fault.kind == "crash" and self.is_busy(other) else fault

    def _count(self, what: str) -> None:
        self.world.counts[what] += 1


def _said(worker: Worker) -> str:
    try:
        look = worker.table.reader.look(())
    except NotReady as error:
        return error.what
    return f"{look.read_point!r}, stale: {look.is_stale}"
