"""What a broker says of a topic. What only a real broker can answer is in tests/behaviour/test_log.py."""

from __future__ import annotations

from thermocline.log import UNKNOWN_CONFIG, TopicConfig, config_of


def test_what_a_broker_leaves_out_is_taken_for_the_most_careful_reading() -> None:
    assert config_of({}) == config_of({"cleanup.policy": None}) == UNKNOWN_CONFIG
    assert config_of({"cleanup.policy": "delete", "delete.retention.ms": "5"}) == TopicConfig(
        is_compacted=False, delete_retention_ms=5, is_log_append_time=False
    )
