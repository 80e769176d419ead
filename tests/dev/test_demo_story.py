from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.manual_clock import ManualClock
from tests.thermocline.profiles import PROFILES
from thermocline.dev.demo.lookups import Entity, LookupAnswer, LookupConnection
from thermocline.dev.demo.reporter import FROM_ICEBERG, FROM_KAFKA
from thermocline.dev.demo.story import SEEN_SECONDS_MAX, Witness, origin
from thermocline.dev.demo.writer import Writer, Written, garbage_about
from thermocline.dev.oracle import RowKey
from thermocline.errors import NotReady, ReadAfterTimeout, VerdictBad
from thermocline.rules.decode import decoder_for
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam

ROW: RowKey = (7, "ada", "plan")
PLACE = ("profiles", 0)


def answer(value: str | None, end: int, seam: int = 0) -> LookupAnswer:
    rows = [] if value is None else [{"key": "plan", "value": value}]
    return LookupAnswer([{"key": "city", "value": "London"}, *rows], point(seam, end))


def point(seam: int, end: int) -> ReadPoint:
    return ReadPoint(1, Seam({PLACE: seam}), Seam({PLACE: end}))


class Log:
    """Stands for the writer: each record gets the next offset."""

    def __init__(self, clock: ManualClock) -> None:
        self.end = 0
        self._clock = clock

    def write(self, row: RowKey, value: str | None) -> Written:
        self.end += 1
        return Written(PLACE, self.end - 1, self._clock.monotonic())

    def write_raw(self, key: bytes | None, value: bytes | None) -> Written:
        return self.write(ROW, None)


class Answers:
    """Stands for the server: gives what the test says, the last of it again and again; 10 ms each."""

    def __init__(self, clock: ManualClock) -> None:
        self.given: list[LookupAnswer | Exception] = []
        self._clock = clock

    def entity(self, entity: Entity) -> LookupAnswer:
        self._clock.advance(0.01)
        given = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        if isinstance(given, Exception):
            raise given
        return given


Prepared = Callable[..., Witness]


@pytest.fixture
def witness_of() -> Prepared:
    def prepare(*given: LookupAnswer | Exception) -> Witness:
        clock = ManualClock()
        answers = Answers(clock)
        answers.given = list(given)
        return Witness(cast("Writer", Log(clock)), cast("LookupConnection", answers), clock)

    return prepare


def test_a_change_is_seen_in_the_first_answer_that_includes_it(witness_of: Prepared) -> None:
    unready = NotReady(table="profiles", detail="")
    witness = witness_of(answer(None, 0), unready, answer(None, 0), answer("free", 1))
    sight = witness.write(ROW, "free")
    assert sight.answer.read_point == point(0, 1)
    assert sight.seconds == pytest.approx(0.05)  # four answers and one pause
    assert (witness.answers_checked, witness.answers_refused) == (3, 1)


def test_an_answer_that_contradicts_its_read_point_is_a_bad_verdict(witness_of: Prepared) -> None:
    with pytest.raises(VerdictBad, match='"free"'):
        witness_of(answer("free", 0)).write(ROW, "free")  # before its read point includes it
    with pytest.raises(VerdictBad, match="null"):
        witness_of(answer(None, 1)).write(ROW, "free")  # lost, though it is included


def test_a_row_that_changes_back_is_a_bad_verdict(witness_of: Prepared) -> None:
    witness = witness_of(answer("free", 1), answer("pro", 2), answer("pro", 2), answer("free", 2))
    witness.write(ROW, "free")
    witness.write(ROW, "pro")
    assert witness.look(ROW) is not None
    with pytest.raises(VerdictBad):
        witness.look(ROW)


def test_garbage_with_a_rows_key_must_not_change_it(witness_of: Prepared) -> None:
    witness = witness_of(answer("free", 1), answer("free", 2), answer(None, 3))
    witness.write(ROW, "free")
    witness.write_garbage(ROW, b"", b"")
    with pytest.raises(VerdictBad):
        witness.write_garbage(ROW, b"", b"")


def test_a_deleted_row_is_not_found(witness_of: Prepared) -> None:
    witness = witness_of(answer("free", 1), answer("free", 1), answer(None, 2))
    witness.write(ROW, "free")
    assert witness.write(ROW, None).answer.read_point == point(0, 2)


def test_what_is_never_seen_ends_in_a_named_error(witness_of: Prepared) -> None:
    with pytest.raises(ReadAfterTimeout) as caught:
        witness_of(answer(None, 0)).write(ROW, "free")
    assert caught.value.waited_seconds == SEEN_SECONDS_MAX


def test_the_seam_tells_where_a_record_came_from() -> None:
    written = Written(PLACE, 41, 0.0)
    assert origin(written, answer("free", 50, seam=41)) == f"offset 41 ≥ seam 41: {FROM_KAFKA}"
    assert origin(written, answer("free", 50, seam=42)) == f"offset 41 < seam 42: {FROM_ICEBERG}"


def test_all_garbage_is_bad_and_most_of_it_names_the_row() -> None:
    garbage = garbage_about(ROW)
    decoder = decoder_for(PROFILES)
    decoded = decoder.decode([key for key, _ in garbage], [value for _, value in garbage])
    assert decoded.good == []
    assert len(decoded.bad) == len(garbage)
    assert sum(b'"ada"' in (key or b"") for key, _ in garbage) > len(garbage) / 2
