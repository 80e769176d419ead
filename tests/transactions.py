"""What a test has to wait for when its producer ends a transaction."""

from __future__ import annotations

import time
from collections.abc import Collection

from thermocline.kafka.log import Log

ANSWER_SECONDS = 60.0


def wait_for_markers(log: Log, topics: Collection[str], partition: int | None = None) -> None:
    """Wait until no transaction is open in the topics, or in this partition of them.

    A producer hears that its transaction has ended before each partition has the marker that says so, and no
    committed reader gets past what is undecided.
    """
    deadline = time.monotonic() + ANSWER_SECONDS
    while any(partition in (None, one.partition) for one in log.open_transactions(sorted(topics))):
        assert time.monotonic() < deadline, f"a transaction is still open in {sorted(topics)}"
        time.sleep(0.02)
