"""JSON documents: one JSON object each, read by the record rule.

The rule stands in docs/architecture/records.md, "The record rule (JSON)".

`JsonObject` reads the columns. What it lets through although the rule does not is caught here: invalid UTF-8
in fields that no column asks for, and documents nested more deeply, or with longer names, than every reader
of JSON can follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec

from thermocline.rules.decode.formats import Refusals
from thermocline.rules.decode.framing import HeadOf, no_heads
from thermocline.rules.decode.json_object import REFUSALS, JsonObject
from thermocline.rules.definition import Column

__all__ = ["NESTING_MAX", "JsonDocuments", "refused_as_a_whole"]

NESTING_MAX: Final = 500
"""Levels of arrays and objects. Parsers that recurse give up near 1,000, sooner when called from deep below;
a record must be good or bad regardless of who reads it."""
NAME_LENGTH_MAX: Final = 50_000
"""Of a field's name, in UTF-16 code units. Jackson, by which Trino reads, takes no longer ones."""

# One that never ends lasts to the end of the text: else each of its quotes would be tried as a beginning.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_STRING_AND_COLON: Final = re.compile(b"(" + _STRING.pattern + rb")(\s*:)?", re.DOTALL)
_STEPS: Final = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]


class JsonDocuments:
    """Reads JSON objects into columns; see `Documents`."""

    def __init__(self, columns: Sequence[Column], required: Sequence[str]) -> None:
        """Prepares for documents with these columns, of which some must not be null."""
        self._object = JsonObject(columns, required)

    def read(
        self,
        texts: Sequence[bytes | None],
        refused: Refusals,
        head_of: HeadOf = no_heads,  # noqa: ARG002  (no schema is named)
    ) -> dict[str, list[Any]]:
        """See `Documents`."""
        documents = [b"{}" if text is None else text for text in texts]
        as_a_whole = {index: (None, why) for index, why in refused_as_a_whole(documents)}
        columns = self._object.read(documents, refused)
        refused.update(as_a_whole)
        return columns


def refused_as_a_whole(texts: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """The documents that no reader is given, whatever they hold, and why."""
    # An ASCII byte in between neither ends nor begins a character: all together are UTF-8 where each is.
    if not _is_utf8(b"\n".join(texts)):
        for index, text in enumerate(texts):
            if not _is_utf8(text):
                yield index, "not UTF-8"
    # Each level takes two bytes, so that a short document can't be deep.
    if max(map(len, texts), default=0) <= min(2 * NESTING_MAX, NAME_LENGTH_MAX):
        return
    for index, text in enumerate(texts):
        if len(text) > 2 * NESTING_MAX and _nesting(text) > NESTING_MAX:
            yield index, f"nested more than {NESTING_MAX} levels deep"
        elif len(text) > NAME_LENGTH_MAX and _name_length(text) > NAME_LENGTH_MAX:
            yield index, f"a field's name is longer than {NAME_LENGTH_MAX:,} UTF-16 code units"


def _is_utf8(text: bytes) -> bool:
    if text.isascii():  # faster than to decode it
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _nesting(text: bytes) -> int:
    if text.count(b"[") + text.count(b"{") <= NESTING_MAX:
        return 0
    return max(accumulate(map(_STEPS.__getitem__, _STRING.sub(b"", text))), default=0)


def _name_length(text: bytes) -> int:
    """Of the longest name; 0 where all are short, or one is none of JSON."""
    found = _STRING_AND_COLON.finditer(text)
    long = [string[1] for string in found if string[2] and string.end(1) - string.start(1) > NAME_LENGTH_MAX]
    try:
        names = [msgspec.json.decode(string, type=str) for string in long]
    except REFUSALS:
        return 0
    return max((len(name.encode("utf-16-le")) // 2 for name in names), default=0)
