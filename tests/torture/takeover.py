"""Owners that freeze in the middle of a batch, and others that take over, round after round.

``python -m tests.torture.takeover --rounds 50 --seed 1``: real processes, one table, a topic with traffic.
In each round the owner's process group is stopped at a random moment, for longer than its lease; a new one
takes over, and the old one wakes up at a random moment. It must not commit, and must exit with 30. While an
owner lives, another one is refused. History and rows are compared with the log at the end.

With ``--standby`` two processes stand by for each other: the one that was frozen waits for its turn again.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.torture.checks import check_history, check_rows, table_of
from tests.torture.ledger import Ledger
from tests.torture.traffic import Traffic
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack, StackOptions
from thermocline.errors import OwnerLost
from thermocline.iceberg.catalog import SnapshotState, current_state
from thermocline.iceberg.holder import holder_of

LEASE_SECONDS: Final = 2.0
PARTITIONS: Final = 2
USERS: Final = 40
# A batch of these takes about half a second, so an owner is nearly always in the middle of one.
RECORDS_PER_SECOND: Final = 100
# A frozen process may hold SQLite's lock: it is thawed then, and the round does not count.
TAKEOVER_SECONDS_MAX: Final = 45.0
# So many rounds may not count in a row before something else must be wrong.
UNDECIDED_MAX: Final = 3
END_SECONDS_MAX: Final = 60.0
LOST: Final = "lost to another owner; standing by"


class Rounds:
    """One table and its owners; ``run`` gives how the rounds ended."""

    def __init__(self, stack: Stack, seed: int, is_standby: bool) -> None:
        self._stack = stack
        self._is_standby = is_standby
        self._random = random.Random(seed)
        self._count = 0
        self._owner = self._start()
        self._wait_for_epoch(1)
        self._standby = self._start() if is_standby else None

    def run(self, rounds: int) -> Counter[str]:
        ended: Counter[str] = Counter()
        while ended["fenced"] < rounds:
            started_at = time.monotonic()
            outcome = self._round()
            ended[outcome] += 1
            print(f"{ended.total()}: {outcome}, {time.monotonic() - started_at:.1f} s", flush=True)
            assert ended["undecided"] <= UNDECIDED_MAX + rounds // 10
        return ended

    def stop(self) -> None:
        if self._standby is not None:
            assert self._standby.stop() == 0, self._standby.log_path.read_text()[-2000:]
        assert self._owner.stop() == 0, self._owner.log_path.read_text()[-2000:]

    def check_a_second_one_is_refused(self) -> None:
        second = self._start(is_standby=False)
        assert second.process.wait(END_SECONDS_MAX) == OwnerLost.exit_code, second.log_path.read_text()[
            -2000:
        ]
        said = second.log_path.read_text()
        assert "table-held" in said, said
        assert f"process {self._owner.process.pid} " in said, said
        assert " since 20" in said, said

    def _round(self) -> str:
        """One owner frozen, another takes over, the first wakes up."""
        frozen, before = self._owner, self._state()
        if self._random.random() < 0.5:  # else most likely in its first batch, which takes longest
            self._stack.wait_for(lambda: self._state().seam != before.seam, "a batch is committed", frozen)
        time.sleep(self._random.random() * 2)
        os.killpg(frozen.process.pid, signal.SIGSTOP)
        try:
            taker = self._standby or self._start()
            is_taken = self._wait_for_epoch(before.epoch + 1, taker)
            if is_taken:
                time.sleep(self._random.random() * 2)
        finally:
            os.killpg(frozen.process.pid, signal.SIGCONT)
        if self._standby is not None:
            return self._swapped(frozen, taker)
        if not is_taken:
            assert taker.process.wait(END_SECONDS_MAX) == OwnerLost.exit_code, taker.log_path.read_text()[
                -2000:
            ]
            return "undecided"
        code = frozen.process.wait(END_SECONDS_MAX)
        said = frozen.log_path.read_text()
        assert code == OwnerLost.exit_code, f"the frozen owner ended with {code}\n{said[-2000:]}"
        assert "owner-lost" in said, said
        self._owner = taker
        return "fenced"

    def _swapped(self, frozen: Command, taker: Command) -> str:
        """The frozen one stands by again, if it lost the table: where it held SQLite's lock, it did not."""
        time.sleep(3 * LEASE_SECONDS)
        table = table_of(self._stack)
        holder = holder_of(table.io, table.location())
        assert holder is not None
        for command in (frozen, taker):
            command.check()
        if holder.pid == frozen.process.pid:
            return "undecided"
        assert holder.pid == taker.process.pid
        assert LOST in frozen.log_path.read_text()
        self._owner, self._standby = taker, frozen
        return "fenced"

    def _wait_for_epoch(self, epoch: int, taker: Command | None = None) -> bool:
        deadline = time.monotonic() + TAKEOVER_SECONDS_MAX
        while self._state().epoch < epoch:
            if time.monotonic() > deadline or (taker is not None and taker.process.poll() is not None):
                return False
            time.sleep(0.1)
        return True

    def _start(self, is_standby: bool | None = None) -> Command:
        self._count += 1
        waits = self._is_standby if is_standby is None else is_standby
        options = ["--standby"] if waits else []
        return self._stack.command(f"ingest-{self._count}", "ingest", "run", TABLE, *options)

    def _state(self) -> SnapshotState:
        return current_state(table_of(self._stack), TABLE)


def run(folder: Path, rounds: int, seed: int, engine: str = "spark", is_standby: bool = False) -> None:
    """All of it, in a folder of its own. Raises AssertionError with the round that went wrong."""
    with Stack(
        folder,
        StackOptions(
            partitions=PARTITIONS,
            buckets=2,
            commit_interval_seconds=0.2,
            engine=engine,
            lease_seconds=LEASE_SECONDS,
        ),
    ) as stack:
        stack.start()
        client_config = stack.settings.kafka.client_config()
        ledger = Ledger(client_config, TOPIC, PARTITIONS)
        traffic = Traffic(
            client_config, TOPIC, seed, partitions=PARTITIONS, users=USERS, rate=RECORDS_PER_SECOND
        )
        ledger.start()
        traffic.start()
        owners = Rounds(stack, seed, is_standby)
        owners.check_a_second_one_is_refused()
        ended = owners.run(rounds)
        owners.check_a_second_one_is_refused()
        traffic.stop()
        goal = traffic.acknowledged_end
        assert not traffic.refused
        assert ledger.wait_for(goal, END_SECONDS_MAX)
        stack.wait_for(
            lambda: current_state(table_of(stack), TABLE).seam.at_least(goal), "all records are committed"
        )
        owners.stop()
        ledger.stop()
        commits, wrong = check_history(table_of(stack), ledger)
        rows, differences = check_rows(table_of(stack), ledger)
        assert not [*wrong, *differences]
        print(f"{dict(ended)}; {commits} commits and {rows} rows as the log says", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--standby", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="thermocline-takeover-") as folder:
        run(Path(folder), options.rounds, options.seed, is_standby=options.standby)


if __name__ == "__main__":
    main()
