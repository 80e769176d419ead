"""What happens just before a batch of an owner runs, or just after it has run, and before it is committed."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.errors import ThermoclineError
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.scan import Scan
from thermocline.ingest.engine.engine import Engine
from thermocline.ingest.owner.owner import Owner


def nothing() -> None:
    """As usual."""


class Around:
    """An engine whose batches are run between two other things."""

    def __init__(
        self, engine: Engine, before: Callable[[], object] = nothing, after: Callable[[], object] = nothing
    ) -> None:
        self._engine, self._before, self._after = engine, before, after
        self.jvm, self.tasks, self.stop = engine.jvm, engine.tasks, engine.stop
        self.start, self.check = engine.start, engine.check

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        self._before()
        done = self._engine.run(scan)
        self._after()
        return done


def around_batches(owner: Owner, **others: Callable[[], object]) -> None:
    """From now on, around each batch of the owner."""
    owner.engine = Around(owner.engine, **others)
