from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.errors import LogReplaced, OffsetsGone
from thermocline.rules.seam import Seam, check_against_log

PLACES = st.tuples(st.sampled_from(["orders", "profiles", "a.b-c_d"]), st.integers(0, 100))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 2**63 - 1))


@dataclass(frozen=True, slots=True)
class Range:
    """A range of offsets as ingest reads it."""

    topic: str
    partition: int
    first: int
    end: int


def seam_of(*offsets: int) -> Seam:
    return Seam.of({"t": dict(enumerate(offsets))})


def test_a_seam_is_shown_by_its_places() -> None:
    assert str(Seam.of({"orders": {1: 7, 0: 5}, "clicks": {0: 3}})) == "clicks/0@3, orders/0@5, orders/1@7"
    assert str(Seam()) == "no partition"


@given(OFFSETS)
def test_a_seam_holds_what_a_dict_holds(offsets: dict[tuple[str, int], int]) -> None:
    seam = Seam(offsets)
    assert list(seam.items()) == sorted((topic, p, offset) for (topic, p), offset in offsets.items())
    assert all(seam[place] == offset for place, offset in offsets.items())
    assert seam.topics == tuple(sorted({topic for topic, _ in offsets}))
    assert len(seam) == len(offsets)
    assert seam == Seam(dict(reversed(offsets.items())))
    assert hash(seam) == hash(Seam(dict(reversed(offsets.items()))))


@given(OFFSETS)
def test_a_seam_reads_back_from_each_form(offsets: dict[tuple[str, int], int]) -> None:
    seam = Seam(offsets)
    assert Seam.from_json(seam.to_json()) == seam
    assert Seam.from_dict(seam.to_dict()) == seam
    assert pickle.loads(pickle.dumps(seam)) == seam == copy.deepcopy(seam)


def test_a_seam_is_plain_json_up_to_64_partitions_and_compact_above() -> None:
    plain, packed = seam_of(*range(10**9, 10**9 + 64)), seam_of(*range(10**9, 10**9 + 65))
    assert plain.to_json().startswith('{"t":{"0":1000000000,"1":1000000001,')
    assert packed.to_json()[0] != "{"
    assert len(packed.to_json()) < len(plain.to_json()) / 2
    assert Seam.from_json(packed.to_json()) == packed


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"t":1}', '{"t":{"x":1}}', '{"t":{"-1":1}}', '{"t":{"0":-1}}', '{"t":{"0":"1"}}'),
        *('{"t":{"0":1.0}}', '{"t":{"0":true}}', '{"t":{"0":null}}', "bm9uZQ==", "no base64", "ä"),
    ],
)
def test_what_is_no_seam_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Seam.from_json(text)


@given(OFFSETS, PLACES, st.integers(0, 2**63 - 1))
def test_a_seam_covers_the_records_before_it(
    offsets: dict[tuple[str, int], int], place: tuple[str, int], offset: int
) -> None:
    assert Seam(offsets).covers(*place, offset) == (offset < offsets.get(place, 0))


@given(OFFSETS, OFFSETS)
def test_the_farther_of_two_is_at_least_both(
    ours: dict[tuple[str, int], int], theirs: dict[tuple[str, int], int]
) -> None:
    merged = Seam(ours).merged_max(Seam(theirs))
    assert merged == Seam({p: max(ours.get(p, 0), theirs.get(p, 0)) for p in {*ours, *theirs}})
    assert merged.at_least(Seam(ours))
    assert merged.at_least(Seam(theirs))
    assert Seam(ours).at_least(Seam(theirs)) == all(ours.get(p, 0) >= offset for p, offset in theirs.items())


@given(OFFSETS, OFFSETS)
def test_advancing_moves_each_partition_on_and_never_back(
    ours: dict[tuple[str, int], int], to: dict[tuple[str, int], int]
) -> None:
    if all(offset >= ours.get(place, 0) for place, offset in to.items()):
        assert Seam(ours).advanced(to) == Seam({**ours, **to})
    else:
        with pytest.raises(ValueError, match="can't go back"):
            Seam(ours).advanced(to)


def test_a_seam_advances_over_the_ranges_that_were_read() -> None:
    seam = seam_of(10, 20)
    ranges = [Range("t", 0, 10, 15), Range("t", 0, 15, 18), Range("t", 2, 5, 6)]
    assert seam.advanced(ranges) == seam_of(18, 20, 6)
    assert seam == seam_of(10, 20)


@pytest.mark.parametrize("ranges", [[Range("t", 0, 11, 15)], [Range("t", 0, 9, 15)], [Range("t", 0, 10, 9)]])
def test_a_range_that_leaves_a_hole_or_overlaps_is_refused(ranges: list[Range]) -> None:
    with pytest.raises(ValueError, match="t/0"):
        seam_of(10).advanced(ranges)


def test_a_seam_within_the_log_passes() -> None:
    check_against_log("profiles", seam_of(10, 0, 30), starts=seam_of(10, 0, 0), ends=seam_of(10, 0, 99))


def test_offsets_that_are_gone_stop_with_all_lost_ranges() -> None:
    with pytest.raises(OffsetsGone) as raised:
        check_against_log("profiles", seam_of(10, 5, 7), starts=seam_of(12, 6, 7), ends=seam_of(99, 99, 99))
    error = raised.value
    assert (error.table, error.gaps) == ("profiles", ("t/0@10-12", "t/1@5-6"))
    assert error.ends() == {("t", 0): 12, ("t", 1): 6}
    assert error.resume == "thermocline ingest accept-gap profiles --fact t/0@10-12 --fact t/1@5-6"


def test_a_new_partition_whose_beginning_is_gone_stops_too() -> None:
    with pytest.raises(OffsetsGone) as raised:
        check_against_log("profiles", seam_of(10), starts=seam_of(0, 1), ends=seam_of(99, 99))
    assert raised.value.gaps == ("t/1@0-1",)


def test_a_seam_beyond_the_log_stops_with_all_ends() -> None:
    with pytest.raises(LogReplaced) as raised:
        check_against_log("profiles", seam_of(10, 5, 9), starts=seam_of(0, 0, 0), ends=seam_of(10, 4, 0))
    error = raised.value
    assert (error.kind, error.topics) == ("end", ("t",))
    assert "t/1 ends at 4 and was read up to 5, t/2 ends at 0 and was read up to 9" in error.what
    assert error.resume == "thermocline ingest rebase profiles --fact t/1@5 --fact t/2@9 --to earliest"


def test_the_facts_of_a_cut_log_stay_while_producers_write_to_it() -> None:
    tokens = set()
    for log_end in (4, 8):
        with pytest.raises(LogReplaced) as raised:
            check_against_log("profiles", seam_of(9), starts=seam_of(0), ends=seam_of(log_end))
        tokens.add(raised.value.tokens)
    assert tokens == {("t/0@9",)}


def test_partitions_that_a_topic_has_no_more_stop_with_all_of_them() -> None:
    with pytest.raises(LogReplaced) as raised:
        check_against_log("profiles", seam_of(10, 5, 9), starts=seam_of(10), ends=seam_of(10))
    error = raised.value
    assert (error.kind, error.tokens) == ("partitions", ("t/1@none", "t/2@none"))
    assert "t/1 (read up to 5), t/2 (read up to 9)" in error.what
    assert error.resume == "thermocline ingest rebase profiles --fact t/1@none --fact t/2@none --to earliest"


def test_a_partition_that_one_of_two_brokers_knows_already_is_there() -> None:
    check_against_log("profiles", seam_of(10, 0), starts=seam_of(10), ends=seam_of(10, 0))


def test_a_seam_without_topics_keeps_all_partitions_of_the_others() -> None:
    seam = Seam.of({"a": {0: 1, 1: 2}, "b": {0: 3}, "ab": {0: 4}})
    assert seam.without(["a"]) == Seam.of({"b": {0: 3}, "ab": {0: 4}})
    assert seam.without([]) == seam
    assert len(seam.without(seam.topics)) == 0
