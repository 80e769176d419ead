"""One episode: a new stack, rounds of faults for some minutes, and everything compared at the end."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.lake import ProxiedLake
from tests.torture import hurried
from tests.torture.armed import INGEST, SERVING, Armed
from tests.torture.checks import check_history, check_quarantine, check_rows, table_of
from tests.torture.disks import Disk
from tests.torture.faults import Faults, Heal, Site
from tests.torture.judge import Findings, Judge
from tests.torture.ledger import Ledger
from tests.torture.plan import KINDS, Fault, Round, rounds
from tests.torture.readers import REFUSALS, EngineRefused, Readers, batch, connect, extract, live
from tests.torture.supervisor import Supervisor
from tests.torture.traffic import Traffic
from thermocline.dev.stack import TABLE, TOPIC, Stack, StackOptions
from thermocline.errors import ThermoclineError
from thermocline.iceberg.catalog import current_state
from thermocline.rules.seam import Seam

LEASE_SECONDS: Final = 2.0
USERS: Final = 120
ATTRIBUTES: Final = 6
BAD: Final = 0.005
RATES: Final = (150, 300, 500)
# A bound, not a goal: a JVM that starts on a busy machine, a lease to wait for, retries of five seconds.
SETTLE_SECONDS_MAX: Final = 240.0
POLL_SECONDS: Final = 0.2
BATCH_ENTITIES: Final = 500
VERIFY_SECONDS_MAX: Final = 300.0
AGREES, DIFFERS = 0, 1
HARSH: Final = ("disk", "failpoints")
"""What `Kind.needs` where errors come without a name of ours."""


@dataclass(slots=True)
class Tally:
    """What happened, over all episodes."""

    episodes: int = 0
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    verified: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    records: int = 0
    commits: int = 0
    rows_compared: int = 0
    takeovers: int = 0
    upkeep: Counter[str] = field(default_factory=Counter)


class NotFresh(Exception):
    """Faults are over, and still something does not go on."""


class Episode:
    """A stack and all that works on it. ``run`` plays rounds until it is told that time is up."""

    def __init__(
        self, folder: Path, seed: int, tally: Tally, findings: Findings, missing: frozenset[str]
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._tally = tally
        self._findings = findings
        self._missing = missing
        self._drawn = random.Random(seed)

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Plays rounds; ``is_over`` is asked before each, with the number of those played."""
        self._tally.episodes += 1
        found_before = len(self._findings.lines)
        with ExitStack() as undo:
            site, judge = self._open(undo)
            readers = Readers(site.stack.url, _store(site), site.traffic, judge, self._findings, self._seed)
            faults = Faults(site)
            _wait_for(lambda: len(site.traffic.acknowledged_end) == site.partitions, lambda: "no load")
            self._settle(site, judge)
            readers.start()
            try:
                for played, drawn in enumerate(rounds(self._seed, self._missing)):
                    if is_over(played) or len(self._findings.lines) > found_before:
                        break
                    self._play(drawn, site, faults, judge)
            except NotFresh as error:
                self._findings.add("does not go on", str(error))
            finally:
                readers.stop()
                self._count(faults, readers)
            self._end(site, judge)

    def _open(self, undo: ExitStack) -> tuple[Site, Judge]:
        drawn = self._drawn
        partitions, buckets = drawn.choice((2, 3, 4)), drawn.choice((2, 4))
        lake = None
        if "lake" not in self._missing:
            lake = undo.enter_context(ProxiedLake(self._folder / "lake"))
        stack = Stack(
            self._folder,
            StackOptions(
                partitions=partitions,
                buckets=buckets,
                commit_interval_seconds=drawn.choice((1.0, 2.0)),
                workers=2,
                lease_seconds=LEASE_SECONDS,
                engine="spark" if lake is None else "local",
                rest=lake,
                has_live_catalog=True,
            ),
        )
        _configure(stack, drawn)
        disks = {}
        if "disk" not in self._missing:
            found_before = self._findings.count
            for name in ("warehouse", "serving"):
                disks[name] = disk = Disk(stack.folder / "data" / name)
                undo.callback(_close, disk, self._findings, found_before)
        undo.enter_context(stack)
        stack.start()
        client_config = stack.settings.kafka.client_config()
        ledger = Ledger(client_config, TOPIC, partitions)
        traffic = Traffic(
            client_config,
            TOPIC,
            self._seed,
            partitions=partitions,
            users=USERS,
            attributes=ATTRIBUTES,
            rate=drawn.choice(RATES),
            bad=BAD,
        )
        armed: dict[str, Armed] = {}
        if "failpoints" not in self._missing:
            armed["ingest"] = Armed(stack.folder / "ingest.failpoints", INGEST)
            armed["serve"] = Armed(stack.folder / "serve.failpoints", SERVING)
        environments = {role: points.environment for role, points in armed.items()}
        environments["ingest"] = hurried.environment(armed["ingest"].path if armed else None)
        supervisor = Supervisor(stack, self._findings, environments)
        judge = Judge(ledger, self._findings)
        for part in (ledger, judge, supervisor, traffic):
            part.start()
            undo.callback(part.stop)
        site = Site(
            stack,
            supervisor,
            traffic,
            ledger,
            partitions,
            disks,
            armed.get("ingest"),
            armed.get("serve"),
            lake,
        )
        return site, judge

    def _play(self, drawn: Round, site: Site, faults: Faults, judge: Judge) -> None:
        self._tally.rounds += 1
        self._findings.is_harsh = any(KINDS[fault.kind].needs in HARSH for fault in drawn.faults)
        self._findings.context = f"episode {self._tally.episodes}, round {drawn.number}: " + "; ".join(
            " ".join(str(fault).split()) for fault in drawn.faults
        )
        print(f"round {drawn.number}, after {_clock()}", *map(str, drawn.faults), sep="\n  ", flush=True)
        began = time.monotonic()
        _play_faults(drawn.faults, faults)
        self._settle(site, judge)
        if drawn.with_extract:
            self._compare_extract(site, judge)
        if drawn.with_table:
            self._compare_table(site)
        if drawn.with_verify:
            self._verify(site)
        print(f"  fresh again and compared after {time.monotonic() - began:.1f} s", flush=True)

    def _settle(self, site: Site, judge: Judge) -> None:
        """Returns once the table holds and the server shows what is acknowledged by now, and all agrees."""
        goal = site.traffic.acknowledged_end
        if not site.ledger.wait_for(goal, SETTLE_SECONDS_MAX):
            raise NotFresh(f"the topic can't be read up to {goal}, only to {site.ledger.end}")
        _wait_for(
            lambda: _seam(site.stack).at_least(goal),
            lambda: f"the table is at {_seam(site.stack)}, not {goal}",
        )
        asked: list[str] = []
        _wait_for(
            lambda: self._compare_lookups(site, judge, goal, asked),
            lambda: f"the server does not answer for everybody at {goal}: {asked[-1:]}",
        )

    def _compare_lookups(self, site: Site, judge: Judge, goal: Seam, asked: list[str]) -> bool:
        """Asks for everybody, at least as of the goal; False where the server can't answer now."""
        entities = site.traffic.entities
        with connect(site.stack.url) as client:
            for first in range(0, len(entities), BATCH_ENTITIES):
                some = entities[first : first + BATCH_ENTITIES]
                try:
                    answers = batch(client, "settled", some, goal)
                except REFUSALS as error:
                    asked.append(error.cause)
                    return False
                except ThermoclineError as error:
                    raise NotFresh(f"a batch of lookups: {error.what} {error.cause}") from error
                for answer in answers:
                    judge.take(answer)
        return True

    def _compare_extract(self, site: Site, judge: Judge) -> None:
        asked: list[str] = []

        def is_answered() -> bool:
            try:
                with connect(site.stack.url) as client:
                    judge.take(extract(client, "settled"))
                judge.take(live(site.stack.url, _store(site), "settled"))
            except (*REFUSALS, EngineRefused) as error:
                asked.append(str(error))
                return False
            return True

        _wait_for(is_answered, lambda: f"no extract, or no live table: {asked[-1:]}")

    def _compare_table(self, site: Site) -> None:
        table = table_of(site.stack)
        rows, wrong = check_rows(table, site.ledger)
        self._tally.rows_compared += rows
        for line in wrong:
            self._findings.add("wrong rows in the table", line)
        for line in check_history(table, site.ledger)[1]:
            self._findings.add("wrong history", line)

    def _verify(self, site: Site) -> None:
        """``thermocline verify`` as a user runs it, beside the load."""
        if "verify" in self._missing:
            return
        number = self._tally.verified.total() + 1
        log_path = site.stack.folder / f"verify-{number:03d}.log"
        command = site.stack.command(log_path.stem, "verify", TABLE, "--url", site.stack.url)
        try:
            code = command.process.wait(VERIFY_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            code = command.kill()
        self._tally.verified[{AGREES: "agreed", DIFFERS: "differed"}.get(code, f"ended with {code}")] += 1
        if code != AGREES:
            self._findings.add("verify", f"ended with {code}, see {log_path}")

    def _end(self, site: Site, judge: Judge) -> None:
        """The load stops, the table takes all of it, and everything is compared once more."""
        self._findings.context = f"end of episode {self._tally.episodes}"
        try:
            site.traffic.stop()
            self._settle(site, judge)
            self._compare_extract(site, judge)
            self._verify(site)
            self._compare_table(site)
        except NotFresh as error:
            self._findings.add("does not go on", str(error))
        judge.settle()
        self._check_acknowledged(site)
        table = table_of(site.stack)
        state = current_state(table, TABLE)
        for line in check_quarantine(site.stack, state.seam, site.ledger):
            self._findings.add("wrong quarantine", line)
        site.supervisor.stop()
        self._tally.commits += check_history(table, site.ledger)[0]
        self._tally.takeovers += state.epoch
        self._tally.records += site.ledger.records
        self._tally.judged += judge.judged
        self._tally.exits += site.supervisor.exits
        self._tally.starts += site.supervisor.starts
        self._tally.upkeep += site.supervisor.upkeep

    def _check_acknowledged(self, site: Site) -> None:
        """That the ledger, which all is compared with, is what the broker said that it has."""
        for reason in site.traffic.refused:
            self._findings.add("the broker refused a record", reason)
        lost = sum(
            site.ledger.checksum_at(partition, offset) != checksum
            for partition, offset, checksum in site.traffic.acknowledged()
        )
        if lost:
            self._findings.add("the broker lost records", f"{lost} that it had acknowledged")

    def _count(self, faults: Faults, readers: Readers) -> None:
        self._tally.faults += faults.begun
        self._tally.missed += faults.missed
        self._tally.points += faults.points
        self._tally.refused += readers.refused


def _play_faults(drawn: tuple[Fault, ...], faults: Faults) -> None:
    """Begins each at its time and takes it back at its time; returns when all are over."""
    began = time.monotonic()
    order = itertools.count()
    due: list[tuple[float, int, Fault | Heal]] = [(fault.at, next(order), fault) for fault in drawn]
    heapq.heapify(due)
    try:
        while due:
            time.sleep(max(0.0, began + due[0][0] - time.monotonic()))
            _, _, step = heapq.heappop(due)
            if not isinstance(step, Fault):
                step()
            elif (heal := faults.begin(step)) is not None:
                heapq.heappush(due, (time.monotonic() - began + step.seconds, next(order), heal))
    finally:
        for _, _, step in due:
            if not isinstance(step, Fault):
                step()


def _configure(stack: Stack, drawn: random.Random) -> None:
    """No bound on bad records, a table of one kind or another, and much to maintain."""
    choices = [
        "errors_ratio_max = 1.0",
        f"format_version = {drawn.choice((2, 3, 3))}",
        f"suppress_unchanged = {drawn.choice(('true', 'false'))}",
        f"batch_records_max = {drawn.choice((3_000, 2_000_000))}",
    ]
    text = stack.config_path.read_text()
    columns = f"[tables.{TABLE}.columns]"
    text = text.replace(columns, "\n".join([*choices, "", columns]))
    text = text.replace("[serving.catalog]\n", "[serving.catalog]\nfiles_seconds = 60\n")
    stack.config_path.write_text(text + hurried.SETTINGS)
    print(json.dumps(choices), flush=True)


def _store(site: Site) -> dict[str, str]:
    """How an engine reaches the table's files."""
    properties = site.stack.settings.catalog.properties
    return {name: value for name, value in properties.items() if name.startswith("s3.")}


def _wait_for(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while not _holds(condition):
        if time.monotonic() > deadline:
            raise NotFresh(f"after {SETTLE_SECONDS_MAX:g} s, {what()}")
        time.sleep(POLL_SECONDS)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except ThermoclineError as error:
        if not error.retryable:
            raise
        return False


def _seam(stack: Stack) -> Seam:
    return current_state(table_of(stack), TABLE).seam


def _close(disk: Disk, findings: Findings, found_before: int) -> None:
    """What is on it is kept where something was found."""
    disk.close(keep=findings.count > found_before)


def _clock() -> str:
    return time.strftime("%H:%M:%S")
