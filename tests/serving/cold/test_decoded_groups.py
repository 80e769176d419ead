from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pytest

from thermocline.serving.cold.decoded import DecodedGroups

BATCH = pa.RecordBatch.from_pydict({"n": list(range(100))})
ASKING = 8
WAIT_SECONDS_MAX = 5.0


def test_a_row_group_is_decoded_once_however_many_ask_and_when() -> None:
    """Goal: no second decoding, neither beside the first nor after it.

    Method: the first one goes on only when all have asked, or when one more began, which must not be.
    """
    groups, decodings = DecodedGroups(), []
    asked, second = threading.Semaphore(0), threading.Event()

    def decode() -> pa.RecordBatch:
        decodings.append(threading.get_ident())
        if len(decodings) > 1:
            second.set()
        for _ in range(ASKING):
            asked.acquire(timeout=WAIT_SECONDS_MAX)
        second.wait(0.2)  # they are about to wait, or to decode
        return BATCH

    def ask() -> pa.RecordBatch:
        asked.release()
        return groups.get(("file", 0, "n"), decode)

    with ThreadPoolExecutor(ASKING) as threads:
        found = [future.result() for future in [threads.submit(ask) for _ in range(ASKING)]]
    assert all(one is BATCH for one in found)
    assert groups.get(("file", 0, "n"), decode) is BATCH
    assert len(decodings) == 1


def test_other_columns_and_other_row_groups_are_others() -> None:
    groups = DecodedGroups()
    places = [("file", 0, "n"), ("file", 0, "m"), ("file", 1, "n")]
    for place in places * 2:
        batch = pa.RecordBatch.from_pydict({"place": [str(place)]})
        assert groups.get(place, partial(pa.RecordBatch.from_pydict, {"place": [str(place)]})) == batch


def test_a_failure_is_told_to_who_asked_and_tried_again_for_the_next() -> None:
    groups = DecodedGroups()

    def fail() -> pa.RecordBatch:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        groups.get(("file", 0, "n"), fail)
    assert groups.get(("file", 0, "n"), lambda: BATCH) is BATCH


def test_no_more_bytes_are_kept_than_allowed() -> None:
    groups, decodings = DecodedGroups(3 * BATCH.nbytes), []

    def decode() -> pa.RecordBatch:
        decodings.append(1)
        return BATCH

    for _ in range(2):
        for group in range(4):
            groups.get(("file", group, "n"), decode)
    assert len(decodings) == 8, "the one asked for next is always the one that went"
