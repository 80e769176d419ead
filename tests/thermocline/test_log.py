"""What a broker says of a topic. What only a real broker can answer is in tests/behaviour/test_log.py."""

from __future__ import annotations

from tests.manual_clock import ManualClock
from thermocline.kafka.log import TopicConfig, config_of
from thermocline.kafka.tail import SILENCE_SECONDS_MAX, Tail
from thermocline.rules.seam import Seam


def test_what_a_broker_leaves_out_is_taken_for_the_most_careful_reading() -> None:
    careful = TopicConfig(is_compacted=True, delete_retention_ms=86_400_000, is_log_append_time=False)
    assert config_of({}) == config_of({"cleanup.policy": None}) == careful
    assert config_of({"cleanup.policy": "delete", "delete.retention.ms": "5"}) == TopicConfig(
        is_compacted=False, delete_retention_ms=5, is_log_append_time=False
    )


def test_a_tail_of_brokers_that_never_answer_is_silent() -> None:
    clock = ManualClock()
    tail = Tail({"bootstrap.servers": "127.0.0.1:9"}, Seam({("t", 0): 0}), clock=clock)
    assert tail.poll(0) == []
    assert tail.silence() is None
    clock.advance(3600)
    assert tail.poll(0) == []
    assert tail.silence() is None, "nobody listened"
    for _ in range(round(SILENCE_SECONDS_MAX)):
        assert tail.silence() is None
        clock.advance(1)
        assert tail.poll(0) == []
    clock.advance(3600)
    assert tail.poll(0) == []
    silence = tail.silence()
    assert silence is not None, "that nobody listened ends no silence"
    assert "127.0.0.1:9" in silence.what
    tail.close()
