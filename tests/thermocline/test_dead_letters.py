"""Sending dead letters where no broker listens: what counts as a stall, and what is left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.manual_clock import ManualClock
from thermocline.errors import CatalogUnreachable, DeadLetterRefused, KafkaUnreachable
from thermocline.kafka import dead_letters
from thermocline.kafka.dead_letters import DELIVERY_STALL_SECONDS, DeadLetter, _Sending, send_dead_letters

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
LETTER = DeadLetter(b"k", b"v", (), "profiles/0@7")
STALL_SECONDS = 2 * DELIVERY_STALL_SECONDS


def test_only_the_time_in_which_something_is_outstanding_counts_as_a_stall() -> None:
    """Goal: letters that are slow to be read, such as from a busy store, are no outage of the brokers."""
    clock = ManualClock()
    sending = _Sending(NOWHERE, "profiles", "letters", clock)
    while not len(
        sending._producer
    ):  # what the client says of brokers that are unavailable is nothing outstanding
        time.sleep(0.01)
    clock.advance(STALL_SECONDS + 1)
    sending.send(LETTER)
    clock.advance(STALL_SECONDS - 1)
    sending.send(LETTER)
    sending._wait()
    clock.advance(2)
    with pytest.raises(KafkaUnreachable, match="127"):
        sending._wait()
    sending.abandon()
    assert sending.unacknowledged == 0


def test_a_letter_that_the_queue_never_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dead_letters._PRODUCER_CONFIG, "queue.buffering.max.kbytes", 1)
    sending = _Sending(NOWHERE, "profiles", "letters", ManualClock())
    with pytest.raises(DeadLetterRefused, match="profiles/0@8"):
        sending.send(DeadLetter(b"k", bytes(5_000), (), "profiles/0@8"))


@pytest.mark.parametrize("error", [KafkaUnreachable, CatalogUnreachable])
def test_whatever_ends_the_sending_nothing_stays_queued(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """What is queued would hold back the end of the process, and be sent when the brokers are back."""
    clock = ManualClock()
    made: list[_Sending] = []

    class Watched(_Sending):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

        def _wait(self) -> None:
            clock.advance(STALL_SECONDS / 2)
            super()._wait()

    def letters() -> Iterator[DeadLetter]:
        yield LETTER
        if error is CatalogUnreachable:
            raise CatalogUnreachable(uri="store", detail="away")

    monkeypatch.setattr(dead_letters, "_Sending", Watched)
    with pytest.raises(error):
        send_dead_letters(NOWHERE, "profiles", "letters", letters(), clock)
    (sending,) = made
    assert (sending.sent, sending.unacknowledged) == (1, 0)
