from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.thermocline.profiles import PROFILES
from thermocline.dev.oracle import Acknowledged, Oracle
from thermocline.dev.workload import Event, Workload, produce
from thermocline.errors import KafkaUnreachable
from thermocline.rules.decode import decoder_for
from thermocline.rules.seam import Seam


def mock_broker(**config: Any) -> dict[str, Any]:
    """A client's settings with which librdkafka starts its own small broker inside the process."""
    return {"bootstrap.servers": "inside", "test.mock.num.brokers": 1, "log_level": 3, **config}


def events_of(seed: int, count: int = 20_000, **sizes: int) -> list[Event]:
    return list(islice(Workload(seed, **sizes), count))


def acknowledged(events: list[Event], partition_of: dict[bytes, int] | None = None) -> Oracle:
    oracle = Oracle()
    offsets: Counter[int] = Counter()
    for event in events:
        partition = (partition_of or {}).get(event.key, 0)
        record = Acknowledged("profiles", partition, offsets[partition], 0, event.key, event.value)
        oracle.acknowledge(record)
        offsets[partition] += 1
    return oracle


def test_a_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert events_of(7) == events_of(7)
    assert events_of(7) != events_of(8)
    assert list(Workload(7, users=5).load()) == list(Workload(7, users=5).load())


def test_loading_sets_each_row_once() -> None:
    events = list(Workload(1, users=50, keys_per_user=25).load())
    assert len(events) == len({event.row for event in events}) == len({event.key for event in events}) == 1250
    assert all(event.value for event in events)


def test_one_row_has_one_key_whatever_happens_to_it() -> None:
    keys: dict[Any, set[bytes]] = {}
    for event in events_of(1, users=100):
        keys.setdefault(event.row, set()).add(event.key)
    assert all(len(spellings) == 1 for spellings in keys.values())


def test_every_record_is_a_good_one_of_its_row() -> None:
    events = events_of(3, keys_per_user=25)
    decoded = decoder_for(PROFILES).decode([e.key for e in events], [e.value for e in events])
    assert decoded.bad == []
    rows = zip(*(decoded.columns[name] for name in PROFILES.key), strict=True)
    assert list(rows) == [event.row for event in events]


def test_rows_are_inserted_updated_repeated_deleted_twice_and_inserted_again() -> None:
    """Each step is told by the row's value before and after; all of them must occur often."""
    held: dict[Any, bytes | None] = {}
    steps: Counter[str] = Counter()
    for event in events_of(5, users=1000):
        known, before = event.row in held, held.get(event.row)
        if event.value is None:
            steps["delete" if before else "delete an absent row"] += 1
        elif before is None:
            steps["insert again" if known else "insert"] += 1
        else:
            steps["repeat" if event.value == before else "update"] += 1
        held[event.row] = event.value
    assert min(steps.values()) > 50
    assert len(steps) == 6
    assert steps["update"] > sum(steps.values()) / 2


def test_few_users_write_much_and_most_write_something() -> None:
    writes = Counter(event.row[1] for event in events_of(5, 50_000, users=1000))
    busiest = sum(count for _, count in writes.most_common(20))
    assert 0.3 < busiest / 50_000 < 0.5
    assert len(writes) > 900


def test_the_oracle_replays_each_partition_in_offset_order() -> None:
    oracle = Oracle()
    key, value = (
        b'{"app_id":1,"user_id":"u1","key":"plan"}',
        b'{"value":"%s","updated_at":"2026-01-01T00:00:00Z"}',
    )
    for offset, text in ((1, b"late"), (0, b"early")):
        oracle.acknowledge(Acknowledged("profiles", 3, offset, 0, key, value % text))
    row = {"app_id": 1, "user_id": "u1", "key": "plan", "value": "late"}
    time = {"updated_at": datetime(2026, 1, 1, tzinfo=UTC)}
    assert oracle.rows() == {(1, "u1", "plan"): row | time}
    assert oracle.rows({("profiles", 3): 1})[1, "u1", "plan"]["value"] == "early"
    assert oracle.rows({}) == {}
    assert oracle.end == Seam.of({"profiles": {3: 2}})


def test_the_oracle_forgets_a_row_at_its_tombstone_and_has_it_back_when_it_is_inserted_again() -> None:
    events = events_of(9, 5_000, users=20)
    oracle = acknowledged(events)
    expected: dict[Any, bytes] = {}
    for event in events:
        expected.pop(event.row, None)
        if event.value is not None:
            expected[event.row] = event.value
    assert oracle.rows().keys() == expected.keys()
    half = oracle.rows(Seam.of({"profiles": {0: 2_500}}))
    assert half == acknowledged(events[:2_500]).rows()


def test_produced_events_are_what_the_oracle_replays() -> None:
    events = events_of(11, 5_000, users=200)
    oracle = Oracle()
    assert produce(mock_broker(), "profiles", events, oracle) == len(oracle) == 5_000
    assert oracle.rows() == acknowledged(events).rows()
    assert len(oracle.end) > 1  # a row's records are in one partition, and the rows are in several
    assert oracle.newest is not None


class TickingClock(ManualClock):
    """Each look at it takes 10 ms."""

    def monotonic(self) -> float:
        self.sleep(0.01)
        return super().monotonic()


def test_a_steady_rate_sends_no_event_before_it_is_due() -> None:
    """The stream is asked for the next event only once the one before was due and sent."""
    clock, rate, asked = TickingClock(), 25, []

    def events() -> Iterator[Event]:
        for event in events_of(1, 6):
            asked.append(clock.monotonic())
            yield event

    assert produce(mock_broker(), "profiles", events(), Oracle(), rate=rate, clock=clock) == 6
    due = [number / rate for number in range(5)]
    assert all(time >= earliest for time, earliest in zip(asked[1:], due, strict=True))


def test_producing_ends_when_told_to_with_all_that_was_sent_acknowledged() -> None:
    stop, oracle = threading.Event(), Oracle()

    def events() -> Iterator[Event]:
        for number, event in enumerate(Workload(1)):
            if number == 100:
                stop.set()
            yield event

    assert produce(mock_broker(), "profiles", events(), oracle, stop=stop) == len(oracle) == 100


def test_records_that_no_broker_took_are_an_error_and_not_in_the_oracle() -> None:
    oracle = Oracle()
    away = {"bootstrap.servers": "localhost:1", "message.timeout.ms": 200, "log_level": 0}
    with pytest.raises(KafkaUnreachable) as raised:
        produce(away, "profiles", events_of(1, 10), oracle)
    assert raised.value.bootstrap_servers == "localhost:1"
    assert len(oracle) == 0
