"""The calls of Trino's Thrift connector, answered from the hot tier.

A query asks for a table's columns, then, for each scan, for splits and for the rows of each split. The split
says all that its rows need: table, snapshot, token, buckets and keys; and by which process it was made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

import msgspec
import pyarrow as pa

from thermocline.bounded import Bounded
from thermocline.errors import LiveViewRefused, ThermoclineError
from thermocline.process.logs import fields
from thermocline.rules.hot_columns import (
    DELETED,
    GROUP,
    HIDDEN,
    SCHEMA,
    SERVER_TABLE,
    hot_columns,
    hot_name,
    hot_table,
    kept_columns,
    unservable,
)
from thermocline.serving.hot.compatibility import incompatibility
from thermocline.serving.trino import wire
from thermocline.serving.trino.blocks import block
from thermocline.serving.trino.scan import Part, Scan, columns_of, parts, rows_of, scan_of
from thermocline.serving.trino.wire import BOOL, I32, LIST, STOP, STRING, STRUCT, Call, field

if TYPE_CHECKING:
    from thermocline.serving.trino.peers import Peers
    from thermocline.serving.trino.pins import PinnedState, Pins
    from thermocline.serving.trino.snapshots import NamedSnapshot, NamedSnapshots

__all__ = ["Endpoint", "HotTable", "Refusal"]

ROWS_BYTES_MAX: Final = 128 << 20
"""Winners of buckets, kept for the next page and for the second scan of a query; of all tables together."""
RESPONSE_BYTES_MAX: Final = 16 << 20
"""Trino's own default, whatever it asks for."""

RESPONSE_ROWS_MAX: Final = 65_536
"""More in a page are no faster."""
ROOMS_TRIED: Final = 4
"""Rows are larger than what a query reads of them."""

log = logging.getLogger(__name__)


class Refusal(Exception):
    """Why a call can't be answered, in words for the user of Trino."""


class _OfAnother(Exception):
    """The call is of a query that belongs to another server."""

    def __init__(self, table: str, server: str) -> None:
        super().__init__(server)
        self.table, self.server = table, server


class HotTable(Protocol):
    """A table as the endpoint reads it."""

    @property
    def name(self) -> str:
        """As the configuration has it."""

    @property
    def snapshots(self) -> NamedSnapshots:
        """Those that views may name."""

    @property
    def pins(self) -> Pins:
        """The states that queries read."""


class _Split(msgspec.Struct, frozen=True, array_like=True):
    process: str
    table: str
    scan: Scan
    part: Part


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where in a split the next page begins: at a row of a bucket."""

    bucket: int = 0
    row: int = 0


class Endpoint:
    """Answers calls. For any threads."""

    def __init__(self, tables: Iterable[HotTable], peers: Peers) -> None:
        self._peers = peers
        self._is_reached = not peers.has_others
        self._tables = {table.name: table for table in tables}
        self._by_hot_name = {hot_name(name): table for name, table in self._tables.items()}
        self._process = uuid4().hex
        self._rows: Bounded[tuple[int, int, int], pa.Table] = Bounded(ROWS_BYTES_MAX)
        self._methods: Mapping[str, Callable[[dict[int, Any]], tuple[int, bytes]]] = {
            "trinoListSchemaNames": self._schemas,
            "trinoListTables": self._names,
            "trinoGetTableMetadata": self._table_metadata,
            "trinoGetSplits": self._splits,
            "trinoGetRows": self._page,
            wire.PROCESS: lambda _: (STRING, wire.text(self._process)),
        }

    def reply(self, message: bytes) -> bytes:
        """The reply to a call, both without the frame's length. Never raises."""
        try:
            call = wire.read_call(message)
            inner = call.arguments.get(1)
            if call.method == wire.PASSED_ON and isinstance(inner, bytes):
                return self._reply(wire.read_call(inner), None)
        except wire.Malformed as error:
            return wire.raised(None, str(error))
        return self._reply(call, message)

    def _reply(self, call: Call, message: bytes | None) -> bytes:
        """``message`` is the call as it may be passed on; None where another server did."""
        method = self._methods.get(call.method)
        if method is None:
            return wire.raised(call, f"there is no method {call.method}")
        try:
            kind, result = method(call.arguments)
        except _OfAnother as other:
            return self._passed_on(call, message, other)
        except ThermoclineError as error:
            return _refused(call, error)
        except Refusal as error:
            return wire.failed(call, str(error), is_retryable=False)
        except Exception:
            log.exception("call of Trino failed", extra=fields(method=call.method))
            return wire.failed(call, "the server failed; its log says why", is_retryable=False)
        return wire.replied(call, kind, result)

    def _passed_on(self, call: Call, message: bytes | None, to: _OfAnother) -> bytes:
        if message is None:  # safety: trino-passed-on-once
            detail = f"two servers disagree on which of them is {to.server}: see serving.trino.address"
            return _refused(call, LiveViewRefused(table=to.table, detail=detail))
        try:
            return self._peers.ask(to.server, wire.passed_on(message))
        except OSError as error:
            detail = f"{to.server}, the server that the query belongs to, does not answer ({error})"
            return _refused(call, LiveViewRefused(table=to.table, detail=detail))

    def _check_own(self, table: str, scan: Scan) -> None:
        """Raises where a query belongs to another server, or none of those that the view names."""
        if scan.servers != self._peers.group:  # safety: trino-servers-agree
            detail = (
                "the view was published for another server, or for others than serving.trino.servers names "
                f"here: run thermocline views publish {table}"
            )
            raise LiveViewRefused(table=table, detail=detail)
        owner = self._peers.owner_of(scan.token)
        if owner is not None:  # safety: trino-one-server-a-query
            raise _OfAnother(table, owner)
        if not self._is_reached:  # safety: trino-own-address
            self._check_address(table)

    def _check_address(self, table: str) -> None:
        """Raises where another server has this one's address, or nobody: it may have its queries, too."""
        own, call = self._peers.own, wire.process_call()
        try:
            reply = self._peers.ask(own, call)
        except OSError as error:
            detail = f"this server does not reach itself at serving.trino.address, {own} ({error})"
            raise LiveViewRefused(table=table, detail=detail) from error
        if reply != self.reply(call):
            detail = f"another server answers at {own}, which serving.trino.address says is this one"
            raise LiveViewRefused(table=table, detail=detail)
        self._is_reached = True

    def _schemas(self, _: dict[int, Any]) -> tuple[int, bytes]:
        return LIST, wire.listed(STRING, [wire.text(SCHEMA)])

    def _names(self, _: dict[int, Any]) -> tuple[int, bytes]:
        found = (table.snapshots.newest() for table in self._tables.values())
        served = [one.definition for one in found if one and unservable(one.definition) is None]
        return LIST, wire.listed(STRUCT, [_table_name(hot_table(definition)) for definition in served])

    def _table_metadata(self, arguments: dict[int, Any]) -> tuple[int, bytes]:
        name = arguments[1][2].decode()
        if name == SERVER_TABLE:
            return STRUCT, field(STRUCT, 1, _metadata(name, [_column(GROUP, "bigint")])) + STOP
        of, _, version = name.rpartition("_d")
        table = self._by_hot_name.get(of)
        if table is None or not version.isdecimal():
            return STRUCT, STOP
        # Refused where it is not known yet: Trino remembers for minutes that a table is not there.
        definition = table.snapshots.definition(int(version))
        if unservable(definition) is not None:
            return STRUCT, STOP
        columns = [
            *(_column(one.name, one.type) for one in hot_columns(definition)),
            *(_column(one, "boolean") for one in kept_columns(definition).values()),
            _column(DELETED, "boolean"),
            *(_column(one, "bigint", is_hidden=True) for one in HIDDEN),
        ]
        return STRUCT, field(STRUCT, 1, _metadata(name, columns)) + STOP

    def _splits(self, arguments: dict[int, Any]) -> tuple[int, bytes]:
        if arguments[1][2].decode() == SERVER_TABLE:
            return STRUCT, field(LIST, 1, wire.listed(STRUCT, [_split(SERVER_TABLE)])) + STOP
        domains = arguments.get(3, {}).get(1, {})
        scan = scan_of(domains)
        if scan is None:  # safety: trino-scan-fixed
            raise Refusal(
                f"hot rows are read through the live views only: {', '.join(HIDDEN)} must each be one value"
            )
        name = arguments[1][2].decode()
        of = name.rpartition("_d")[0]
        self._check_own(self._by_hot_name[of].name if of in self._by_hot_name else of, scan)
        table, snapshot = self._named(name, scan.snapshot_id)
        wanted = parts(snapshot.definition, domains, arguments.get(4, 1))
        state = table.pins.begin(scan.token, scan.scans, len(wanted))
        problem = incompatibility(snapshot, state.view)
        if problem is not None:  # safety: trino-hot-fits
            raise LiveViewRefused(table=table.name, detail=problem)
        splits = [_Split(self._process, table.name, scan, part) for part in wanted]
        return STRUCT, field(LIST, 1, wire.listed(STRUCT, [_split(one) for one in splits])) + STOP

    def _page(self, arguments: dict[int, Any]) -> tuple[int, bytes]:
        if arguments[1][1] == _encode(SERVER_TABLE):
            group = block(pa.array([self._peers.group], pa.int64()), "bigint")
            blocks = [group for _ in arguments[2]]
            return STRUCT, field(LIST, 1, wire.listed(STRUCT, blocks)) + field(I32, 2, wire.i32(1)) + STOP
        split = _decode_split(arguments[1][1])
        self._check_own(split.table, split.scan)
        if split.process != self._process:  # safety: trino-split-of-this-process
            detail = "the server was started again while it read"
            raise LiveViewRefused(table=split.table, detail=detail)
        table = self._tables[split.table]
        snapshot = table.snapshots.named(split.scan.snapshot_id)
        state = table.pins.use(split.scan.token)
        token = arguments.get(4, {}).get(1)
        place = _decode_place(token[1]) if token else _Place()
        columns = [name.decode() for name in arguments[2]]
        bytes_max = min(arguments[3], RESPONSE_BYTES_MAX) - 1024  # of what stands around the blocks
        page, following = self._read(snapshot, state, split, place, columns, bytes_max)
        if following is None:
            table.pins.split_read(split.scan.token, split.scan.scans)
            return STRUCT, page + STOP
        return STRUCT, page + field(STRUCT, 3, _id(_encode(following))) + STOP

    def _read(
        self,
        snapshot: NamedSnapshot,
        state: PinnedState,
        split: _Split,
        place: _Place,
        columns: list[str],
        bytes_max: int,
    ) -> tuple[bytes, _Place | None]:
        """A page's blocks and number of rows, and where the next page begins."""
        part = split.part
        rows = self._rows_of(snapshot, state, part, part.buckets[place.bucket])
        while place.row >= len(rows) and place.bucket + 1 < len(part.buckets):
            place = _Place(place.bucket + 1)
            rows = self._rows_of(snapshot, state, part, part.buckets[place.bucket])
        count = min(RESPONSE_ROWS_MAX, len(rows) - place.row)
        if count:  # of large rows not many times as many as there is room for
            count = min(count, max(1, ROOMS_TRIED * bytes_max * len(rows) // max(rows.nbytes, 1)))
        blocks = _blocks(snapshot, rows.slice(place.row, count), columns, split.scan)
        while sum(map(len, blocks)) > bytes_max:  # safety: trino-response-bytes
            if count <= 1:
                raise Refusal(f"a row of {split.table} is larger than trino-thrift.max-response-size")
            count //= 2
            blocks = _blocks(snapshot, rows.slice(place.row, count), columns, split.scan)
        page = field(LIST, 1, wire.listed(STRUCT, blocks)) + field(I32, 2, wire.i32(count))
        if place.row + count < len(rows):
            return page, _Place(place.bucket, place.row + count)
        return page, _Place(place.bucket + 1) if place.bucket + 1 < len(part.buckets) else None

    def _rows_of(self, snapshot: NamedSnapshot, state: PinnedState, part: Part, bucket: int) -> pa.Table:
        if part.prefixes is not None:
            with state.lock:
                return rows_of(snapshot.definition, state.view, bucket, part, snapshot.seam)
        key = (state.number, snapshot.snapshot_id, bucket)
        rows = self._rows.get(key)
        if rows is None:
            with state.lock:
                rows = self._rows.get(key) or rows_of(
                    snapshot.definition, state.view, bucket, part, snapshot.seam
                )
            self._rows.put(key, rows, rows.nbytes)
        return rows

    def _named(self, name: str, snapshot_id: int) -> tuple[HotTable, NamedSnapshot]:
        table = self._by_hot_name.get(name.rpartition("_d")[0])
        if table is not None:
            snapshot = table.snapshots.named(snapshot_id)
            if hot_table(snapshot.definition) == name:
                return table, snapshot
        raise Refusal(f"{name} is not the table of snapshot {snapshot_id}: thermocline views check says why")


def _refused(call: Call, error: ThermoclineError) -> bytes:
    # Not retried by Trino: what passes in a moment is waited for here.
    return wire.failed(call, f"[{error.code}] {error.what} next: {error.next}", is_retryable=False)


def _blocks(snapshot: NamedSnapshot, rows: pa.Table, columns: list[str], scan: Scan) -> list[bytes]:
    return [block(*column) for column in columns_of(snapshot.definition, rows, columns, scan)]


def _metadata(name: str, columns: list[bytes]) -> bytes:
    return field(STRUCT, 1, _table_name(name)) + field(LIST, 2, wire.listed(STRUCT, columns)) + STOP


def _table_name(name: str) -> bytes:
    return field(STRING, 1, wire.text(SCHEMA)) + field(STRING, 2, wire.text(name)) + STOP


def _column(name: str, type_name: str, is_hidden: bool = False) -> bytes:
    return (
        field(STRING, 1, wire.text(name))
        + field(STRING, 2, wire.text(type_name))
        + field(BOOL, 4, bytes([is_hidden]))
        + STOP
    )


def _split(one: _Split | str) -> bytes:
    return field(STRUCT, 1, _id(_encode(one))) + field(LIST, 2, wire.listed(STRUCT, [])) + STOP


def _id(value: bytes) -> bytes:
    return field(STRING, 1, wire.binary(value)) + STOP


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_split: Final = msgspec.msgpack.Decoder(_Split).decode
_decode_place: Final = msgspec.msgpack.Decoder(_Place).decode
