from __future__ import annotations

from thermocline.rules.bad_digest import digest_of, merged


def test_a_digest_says_which_records_were_bad_in_whatever_order_they_were_met() -> None:
    first, second = digest_of("t", 0, [7]), digest_of("t", 1, [7])
    assert digest_of("t", 0, []) == 0
    assert len({first, second, digest_of("t", 0, [8]), digest_of("u", 0, [7])}) == 4
    assert merged(second, first) == merged(first, second)
    assert merged(first, second, without=first) == second
    assert digest_of("t", 0, [7, 8]) == merged(digest_of("t", 0, [8]), first)


def test_digests_of_records_stay_what_they_are_as_snapshots_carry_them() -> None:
    assert digest_of("profiles", 3, [12_560]) == 11_006_376_973_185_773_097
    assert merged(2**64 - 1, 3) == 2
