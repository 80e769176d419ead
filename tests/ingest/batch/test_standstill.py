from __future__ import annotations

from thermocline.ingest.batch.open_transactions import PATIENCE_SECONDS, Standstill
from thermocline.kafka.facts import OpenTransaction
from thermocline.rules.seam import Seam

SEAM = Seam.of({"t": {0: 10, 1: 5}})


def test_a_transaction_that_stays_open_is_told_once_and_another_one_again() -> None:
    standstill = Standstill()
    first, grown, next_one = (OpenTransaction("t", 0, 10, held) for held in (3, 9, 9))
    assert standstill.long_open([first], SEAM, now=0) == ()
    assert standstill.long_open([grown], SEAM, now=PATIENCE_SECONDS - 1) == ()
    assert standstill.long_open([grown], SEAM, now=PATIENCE_SECONDS) == (grown,)
    assert standstill.long_open([grown], SEAM, now=PATIENCE_SECONDS + 1) == ()
    assert standstill.long_open([], SEAM, now=PATIENCE_SECONDS + 2) == ()
    assert standstill.long_open([next_one], SEAM, now=PATIENCE_SECONDS + 3) == ()
    assert standstill.long_open([next_one], SEAM, now=2 * PATIENCE_SECONDS + 3) == (next_one,)


def test_transactions_that_pass_are_not_told_however_many_they_are() -> None:
    standstill = Standstill()
    for second in range(1000):
        seam = Seam.of({"t": {0: second}})
        assert standstill.long_open([OpenTransaction("t", 0, second, 1)], seam, float(second)) == ()


def test_one_that_ingest_has_not_come_to_does_not_hold_it() -> None:
    standstill = Standstill()
    for now in (0.0, PATIENCE_SECONDS):
        assert standstill.long_open([OpenTransaction("t", 1, 6, 4)], SEAM, now) == ()
