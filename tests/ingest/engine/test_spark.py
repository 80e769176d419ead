"""A Spark session whose JVM has died: what is raised, and that the session can still be ended.

Doubles raise what Spark's gateway does then, which is not what the small JVM's gateway raises.
"""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.errors import EngineFailed
from thermocline.ingest.batch.read_task import KafkaRanges
from thermocline.ingest.batch.scan import Scan
from thermocline.ingest.engine.spark import SparkEngine


class DeadSession:
    """A session whose JVM was killed."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_batch_whose_jvm_dies_fails_by_name() -> None:
    engine = SparkEngine(DeadSession())  # type: ignore[arg-type]
    with pytest.raises(EngineFailed):
        engine.run(Scan(KafkaRanges([[]]), []))
    with pytest.raises(EngineFailed):
        _ = engine.tasks
    with pytest.raises(EngineFailed):
        engine.check()


def test_a_session_whose_jvm_died_can_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    SparkEngine(DeadSession()).stop()  # type: ignore[arg-type]
    assert "Spark had ended" in caplog.text
