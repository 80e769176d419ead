"""What `try` says of the row that a record replaces, for people."""

from __future__ import annotations

import pytest

from thermocline.cli.try_replaced import words_of


@pytest.mark.parametrize(
    ("is_committed", "is_bad", "said"),
    [
        (True, False, "the record is committed"),
        (True, True, "ingest has read the record, and made no row of it"),
        (False, False, "the record is not committed yet"),
        (False, True, "the record is not committed yet"),
    ],
)
def test_a_bad_record_is_never_said_to_be_committed(is_committed: bool, is_bad: bool, said: str) -> None:
    document = {
        "snapshot_id": "1",
        "committed": is_committed,
        "row": None,
        "not_committed": 0,
        "others": [],
        "others_count": 0,
    }
    assert list(words_of(document, "orders/0@1", is_bad)) == ["snapshot 1 has no row of this key", said]
