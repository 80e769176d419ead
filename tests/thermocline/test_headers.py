"""Headers that confluent-kafka can't read: the name of one is not UTF-8."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.ingest.quarantine import bad_records, headers_of
from thermocline.kafka.facts import RecordChunk
from thermocline.rules.decode import Stage, decoder_for
from thermocline.rules.definition import LiveTable
from thermocline.rules.headers import HeadersUnreadable


class _Message:
    """As one of confluent-kafka, which ends the process where such headers are asked for twice."""

    def __init__(self, headers: list[tuple[str, bytes]] | None) -> None:
        self._headers = headers
        self._asked = 0

    def headers(self) -> list[tuple[str, bytes]] | None:
        if self._headers is None:
            self._asked += 1
            assert self._asked == 1, "the process would have ended"
            raise SystemError("returned a result with an exception set")
        return self._headers

    def set_headers(self, headers: list[tuple[str, bytes]]) -> None:
        self._headers = headers


def chunk_of(*messages: Any) -> RecordChunk:
    keys: list[bytes | None] = [b"k"] * len(messages)
    values: list[bytes | None] = [b'{"v": "x"}'] * len(messages)
    return RecordChunk("t", 0, keys, values, list(range(len(messages))), [0] * len(messages), messages)


def definition_of(**columns: str | dict[str, str]) -> LiveTable:
    return LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["k"], key_format="string", columns=columns
    )


def test_headers_that_can_not_be_read_are_asked_for_once() -> None:
    message = _Message(None)
    for chunk in (chunk_of(message), chunk_of(message)):
        for _ in range(2):
            with pytest.raises(HeadersUnreadable):
                chunk.headers_of(0)
    assert chunk_of(_Message([])).headers_of(0) == []


def test_a_record_is_bad_for_its_headers_only_where_they_count() -> None:
    chunk = chunk_of(_Message([("h", b"1")]), _Message(None), _Message([("h", b"2")]))
    without = decoder_for(definition_of(k="string", v="string"))
    assert without.decode(chunk.keys, chunk.values, chunk.headers_of).good == [0, 1, 2]
    counting = decoder_for(definition_of(k="string", v="string", h={"type": "string", "header": "h"}))
    decoded = counting.decode(chunk.keys, chunk.values, chunk.headers_of)
    assert (decoded.good, decoded.columns["h"]) == ([0, 2], ["1", "2"])
    (bad,) = decoded.bad
    assert (bad.index, bad.stage, bad.reason) == (1, Stage.DECODE, "the name of a header is not UTF-8")
    assert headers_of({"headers": []}) == []
    assert headers_of({"headers": [{"name": "h", "value": b"1"}]}) == [("h", b"1")]
    (kept,) = bad_records(chunk, {"t": "id"}, decoded.bad).to_pylist()
    assert (kept["value"], kept["headers"]) == (b'{"v": "x"}', None)
    again = counting.decode([kept["key"]], [kept["value"]], lambda _: headers_of(kept))
    assert [bad.reason for bad in again.bad] == [bad.reason], "a replay does not take it for one without any"
