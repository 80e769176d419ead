"""Tables that share topics: the texts that routes look at, and a decoder of those records that are a table's.

The texts are read by the table's own envelope and formats, so that a record's schema, framing or envelope is
none of a route's concern. What can't be read is not another table's for that: it is bad, as it always was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import attrgetter
from typing import Any, Final, Protocol

import numpy as np

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.envelopes import Envelope, Parts
from thermocline.rules.decode.formats import UNSET, Documents, Format, Refusals
from thermocline.rules.decode.framing import KEY_HEADER, VALUE_HEADER, heads_in
from thermocline.rules.decode.record import Bad, Decoded, Decoder, Stage, given_topic, left_out, too_large
from thermocline.rules.decode.record_names import RecordNames
from thermocline.rules.definition import ONE_COLUMN, Column, LiveTable
from thermocline.rules.headers import HeadersOf, HeadersUnreadable, last_header, no_headers
from thermocline.rules.routing import NO, UNTOLD, Source, Texts, text_of_json
from thermocline.rules.topic_parts import topic_part

__all__ = ["ReadsTexts", "RouteTexts", "RoutedDecoder", "TextReader"]

_TEXT: Final = "_text"  # no column has such a name
_TEXT_IS: Final = f"{_TEXT} (json): "


@dataclass(frozen=True, slots=True)
class RouteTexts:
    """The texts of a chunk's records, by their source; ``bad`` are the records of which some can't be read.

    Those are untold in the texts of that source.
    """

    of: Mapping[Source, Texts]
    bad: Mapping[int, Bad] = field(default_factory=dict)


class ReadsTexts(Protocol):
    """Reads the texts of some sources out of records, as `TextReader` does."""

    def read(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> RouteTexts:
        """The texts of aligned records of one topic. Never raises for what they hold."""
        ...


class TextReader:
    """Reads the texts of some sources out of records, by the formats of a table.

    A field is read from the value; or from the key, if a key column is read from it there. Of a tombstone
    a field is read from its key, if that has it; else it is untold.
    """

    def __init__(
        self,
        definition: LiveTable,
        sources: Sequence[Source],
        envelope: Envelope,
        key_format: Format,
        value_format: Format,
        names: RecordNames | None = None,
    ) -> None:
        """Prepares for records of that table, which may be one that stands for several.

        ``names`` are needed where a source is the name of a type.
        """
        self._definition = definition
        self._names = names
        self._envelope = envelope
        self._sources = tuple(sources)
        has_fields = definition.key_from == "key" and definition.key_format not in ONE_COLUMN
        self._of_keys: dict[Source, Documents] = {}
        self._of_values: dict[Source, Documents] = {}
        for source in sources:
            column = Column(_TEXT, ColumnType(Kind.JSON), 0, source.field, event=source.event)
            if source.field and has_fields:
                self._of_keys[source] = key_format([column], ())
            if source.path and source.field not in definition.fields_in_key:
                self._of_values[source] = value_format([column], ())

    def read(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> RouteTexts:
        """The texts of aligned records of one topic. Never raises for what they hold."""
        bad = too_large(self._definition, keys, values)
        large = frozenset(bad)
        if large:
            keys, values = left_out(keys, large), left_out(values, large)
        told: dict[Source, Texts] = {}
        opened = None
        for source in self._sources:
            if source.topic:
                told[source] = Texts([topic_part(source.topic, given_topic(topic))] * len(values))
            elif source.header:
                told[source] = _headers(source, len(values), headers_of, bad)
            elif source.schema:
                told[source] = self._named(source, values, headers_of, bad)
            else:
                opened = opened or self._envelope.open(keys, values, _none_for_unreadable(headers_of))
                told[source] = self._fields(source, opened, headers_of, bad, large)
        return RouteTexts(told, bad)

    def _named(
        self,
        source: Source,
        values: Sequence[bytes | None],
        headers_of: HeadersOf,
        bad: dict[int, Bad],
    ) -> Texts:
        """The names of the types of values. A tombstone has none, nor has an empty value without a header."""
        assert self._names is not None, "a source is the name of a type"
        quiet, refused = _none_for_unreadable(headers_of), dict[int, str]()
        head_of = heads_in(quiet, VALUE_HEADER)
        there = [
            value if value or (value is not None and head_of(index) is not None) else None
            for index, value in enumerate(values)
        ]
        names = self._names.read(there, quiet, refused)
        for index, why in refused.items():
            bad.setdefault(index, _refused(source, index, Stage.DECODE, why))
        untold = {index for index, value in enumerate(there) if value is None}
        return Texts(names, untold | refused.keys())

    def _fields(
        self,
        source: Source,
        opened: Parts,
        headers_of: HeadersOf,
        bad: dict[int, Bad],
        large: Collection[int],
    ) -> Texts:
        """The texts at a path, of values, and of keys where it is read from these."""
        quiet = _none_for_unreadable(headers_of)
        if source not in self._of_values:
            return self._in_keys(source, opened.keys, opened, quiet)
        documents = _documents(opened)
        untold = set(compress(range(len(documents)), (text is None for text in documents)))
        refused: Refusals = {}
        head_of = opened.value_head_of or heads_in(quiet, VALUE_HEADER)
        texts = _texts(self._of_values[source].read(documents, refused, head_of)[_TEXT], refused)
        for index, why in opened.unreadable.items():
            refused[index] = (None, why)
        for index, (column, why) in refused.items():
            bad.setdefault(
                index, _refused(source, index, Stage.DECODE if column is None else Stage.CONTRACT, why)
            )
        tombstones = untold.difference(refused, large)
        if tombstones and source in self._of_keys:
            keys = [key if index in tombstones else None for index, key in enumerate(opened.keys)]
            in_keys = self._in_keys(source, keys, opened, quiet)
            for index in tombstones - set(in_keys.untold):
                texts[index] = in_keys.values[index]
                untold.discard(index)
        return Texts(texts, untold | refused.keys())

    def _in_keys(
        self, source: Source, keys: Sequence[bytes | None], opened: Parts, headers_of: HeadersOf
    ) -> Texts:
        """The texts in keys; untold where there is none, since it need not be bad for that."""
        refused: Refusals = {}
        head_of = opened.key_head_of or heads_in(headers_of, KEY_HEADER)
        texts = _texts(self._of_keys[source].read(keys, refused, head_of)[_TEXT], refused)
        untold = {index for index, text in enumerate(texts) if text is None or index in refused}
        return Texts(texts, untold)


class RoutedDecoder:
    """Decodes the records that are a table's, and filters the others; see `Decoder`."""

    def __init__(self, definition: LiveTable, reader: ReadsTexts, inner: Decoder) -> None:
        """For a table with conditions; ``inner`` decodes all that it is given."""
        self._nothing: Decoded | None = None
        self._route = definition.route
        self._deletes = definition.delete_unmatched
        self._key = definition.key
        self._reader = reader
        self._inner = inner

    def decode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> Decoded:
        """Decodes records given as aligned raw keys and values; see `Decoder`."""
        texts = self._reader.read(keys, values, headers_of, topic)
        verdicts = self._route.verdicts(texts.of, len(values))
        # safety: unreadable-routes-are-bad
        unread = {index: one for index, one in texts.bad.items() if verdicts[index] == UNTOLD}
        others = np.flatnonzero(verdicts == NO).tolist()
        if not others:
            return _with_unread(self._inner.decode(keys, values, headers_of, topic), unread, self._key)
        if self._deletes:
            return self._with_deletes(keys, values, headers_of, topic, others, unread)
        if len(others) == len(values):
            self._nothing = self._nothing or self._inner.decode([], [], headers_of, topic)
            return replace(self._nothing, filtered=others)
        ours = np.flatnonzero(verdicts != NO).tolist()
        decoded = self._inner.decode(
            [keys[index] for index in ours],
            [values[index] for index in ours],
            lambda place: headers_of(ours[place]),
            topic,
        )
        placed = replace(
            decoded,
            good=[ours[place] for place in decoded.good],  # safety: places-of-ours
            bad=[replace(one, index=ours[one.index], key=one.key) for one in decoded.bad],
        )
        return replace(_with_unread(placed, unread, self._key), filtered=others)

    def _with_deletes(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf,
        topic: str | None,
        others: list[int],
        unread: Mapping[int, Bad],
    ) -> Decoded:
        """Records that are not the table's as deletes of their keys, where they have such a key."""
        are_others = set(others)
        decoded = self._inner.decode(keys, left_out(values, are_others), headers_of, topic)
        filtered = [one.index for one in decoded.bad if one.index in are_others]
        ours = [one for one in decoded.bad if one.index not in are_others]
        unmatched = sorted(are_others.difference(filtered))
        read = _with_unread(replace(decoded, bad=ours), unread, self._key)
        return replace(read, filtered=filtered, unmatched=unmatched)


def _documents(opened: Parts) -> list[bytes | None]:
    """What each record has beside its key: its value, or the change event around its row."""
    if not opened.events:
        return list(opened.values)
    return [
        value if event is None else event for event, value in zip(opened.events, opened.values, strict=True)
    ]


def _texts(tokens: Sequence[Any], refused: Refusals) -> list[str | None]:
    """The texts of JSON values; notes those that are none."""
    told: dict[Any, str | None] = {}
    wrong: dict[Any, str] = {}
    for token in set(tokens):  # most are the same few
        told[token] = None
        try:
            told[token] = None if token is UNSET else text_of_json(token)
        except ValueError as error:
            wrong[token] = str(error)
    if wrong:
        refused.update((index, (None, wrong[one])) for index, one in enumerate(tokens) if one in wrong)
    return [told[token] for token in tokens]


def _headers(source: Source, count: int, headers_of: HeadersOf, bad: dict[int, Bad]) -> Texts:
    texts: list[str | None] = []
    untold: list[int] = []
    for index in range(count):
        text = None
        try:
            content = last_header(headers_of(index), source.header)
            text = None if content is None else content.decode()
        except HeadersUnreadable as error:
            bad.setdefault(index, Bad(index, Stage.DECODE, str(error)))
            untold.append(index)
        except UnicodeDecodeError:
            bad.setdefault(index, _refused(source, index, Stage.CONTRACT, "not UTF-8"))
            untold.append(index)
        texts.append(text)
    return Texts(texts, untold)


def _refused(source: Source, index: int, stage: Stage, why: str) -> Bad:
    return Bad(index, stage, f"where ({source}): {why.removeprefix(_TEXT_IS)}")


def _none_for_unreadable(headers_of: HeadersOf) -> HeadersOf:
    """The same headers, but none where they can't be read, which decoding says."""

    def quiet(index: int) -> Sequence[tuple[str, bytes | None]] | None:
        try:
            return headers_of(index)
        except HeadersUnreadable:
            return None

    return quiet


def _with_unread(decoded: Decoded, unread: Mapping[int, Bad], key: Sequence[str]) -> Decoded:
    """The same, where records whose route can't be read are bad, if they were not already."""
    kept = [index not in unread for index in decoded.good]
    if all(kept):
        return decoded
    bad = list(decoded.bad)
    for place, index in enumerate(decoded.good):
        if index in unread:
            values = tuple(decoded.columns[name][place] for name in key)
            bad.append(replace(unread[index], key=values or None))
    return replace(
        decoded,
        good=list(compress(decoded.good, kept)),
        columns={name: list(compress(values, kept)) for name, values in decoded.columns.items()},
        tombstones=list(compress(decoded.tombstones, kept)),
        bad=sorted(bad, key=attrgetter("index")),
        absent=None if decoded.absent is None else list(compress(decoded.absent, kept)),
    )
