"""Sending dead letters where no broker listens: what counts as a stall, and what is left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.manual_clock import ManualClock
from thermocline.errors import CatalogUnreachable, DeadLetterRefused, KafkaUnreachable
from thermocline.kafka import dead_letters
from thermocline.kafka.dead_letters import DELIVERY_STALL_SECONDS, DeadLetter, send_dead_letters

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
LETTER = DeadLetter(b"k", b"v", (), "profiles/0@7")
STALL_SECONDS = 2 * DELIVERY_STALL_SECONDS
EVENT_SECONDS = 0.5  # by then the client says of the broker that it is unavailable


class TickingClock(ManualClock):
    """It moves on by a second whenever it is looked at."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


def send(letters: Iterator[DeadLetter], clock: ManualClock) -> int:
    return send_dead_letters(NOWHERE, "profiles", "letters", letters, clock)


def test_only_the_time_in_which_something_is_outstanding_counts_as_a_stall() -> None:
    """Goal: letters that are slow to be read, such as from a busy store, are no outage of the brokers.

    What the client says of brokers that are unavailable is nothing outstanding either.
    """
    clock = TickingClock()

    def letters() -> Iterator[DeadLetter]:
        time.sleep(EVENT_SECONDS)
        clock.advance(2 * STALL_SECONDS)
        yield LETTER
        clock.advance(STALL_SECONDS - 5)
        yield LETTER

    with pytest.raises(KafkaUnreachable, match="127") as stalled:
        send(letters(), clock)
    assert f"no dead letter was acknowledged for {STALL_SECONDS + 1:.0f} s" in stalled.value.cause


def test_a_letter_that_the_queue_never_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "QUEUE_KBYTES_MAX", 1)
    large = DeadLetter(b"k", bytes(5_000), (), "profiles/0@8")
    with pytest.raises(DeadLetterRefused, match="profiles/0@8"):
        send(iter([large]), ManualClock())


@pytest.mark.parametrize("error", [KafkaUnreachable, CatalogUnreachable])
def test_whatever_ends_the_sending_nothing_stays_queued(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """What is queued would hold back the end of the process, and be sent when the brokers are back."""
    made: list[Producer] = []

    def noted(*arguments: Any, **options: Any) -> Producer:
        made.append(Producer(*arguments, **options))
        return made[-1]

    def letters() -> Iterator[DeadLetter]:
        yield LETTER
        assert len(made[0]) > 0
        if error is CatalogUnreachable:
            raise CatalogUnreachable(uri="store", detail="away")

    monkeypatch.setattr(dead_letters, "Producer", noted)
    with pytest.raises(error):
        send(letters(), TickingClock())
    (producer,) = made
    deadline = time.monotonic() + DELIVERY_STALL_SECONDS / 2  # then the client would give it up by itself
    while producer.flush(0.1):  # its events are counted, too
        assert time.monotonic() < deadline, "the letter is queued still"
