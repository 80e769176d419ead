"""The audit log: a line of JSON for each request that reads or changes data, without a value of any row.

A request hands over an `Access`, which says what was asked for and how it ended, and goes on at once. An
`AuditRecord` is made of it, in which a keyed hash stands for the entity: right away for one entity, in 5 µs,
and by a thread for a batch. The thread writes the lines to a sink. While the sink takes nothing, what waits
is bounded: beyond that, records are lost and counted. Where the log is required, the server stops answering
long before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from thermocline.errors import AuditUnavailable, ThermoclineError, first_line
from thermocline.process.clock import SystemClock, iso_time
from thermocline.process.logs import fields
from thermocline.serving.access.audit_file import FileSink
from thermocline.serving.access.audit_kafka import KafkaSink
from thermocline.serving.access.audit_sink import Line, Sink
from thermocline.serving.access.audit_stdout import StdoutSink
from thermocline.serving.access.entity_hash import EntityHash, hash_key
from thermocline.serving.store import measures
from thermocline.serving.store.layout import AUDIT_LOCK

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.cold.reader import Entity
    from thermocline.settings import Settings

__all__ = ["Access", "AuditLog", "AuditRecord", "open_audit_log", "rows_in"]

WAITING_MAX: Final = 65_536
"""Records, and entities of batches, that wait in a worker: about a kilobyte each."""
REQUIRED_WAITING_MAX: Final = WAITING_MAX // 2
"""From so many on, a log that is required refuses; the rest is for the requests that are in progress."""
FLUSH_SECONDS: Final = 0.2
"""A record is written this long after the answer at most, while the sink is quick."""
RETRY_SECONDS: Final = 1.0  # a disk or a cluster takes longer to be repaired
STALLED_SECONDS: Final = 10.0
"""A sink that has been at the same records for longer takes none."""
CLOSE_SECONDS_MAX: Final = 5.0
"""For what waits when the server stops: half of what its processes have for that."""
BATCH_RECORDS_MAX: Final = 1_024
BATCH_BYTES_MAX: Final = 1 << 20
ENTITIES_MAX: Final = 1_000
"""Hashes in a line: as many as a batch may ask for."""
PARTS_KEPT_MAX: Final = 1_024
"""Of lines: who asked from where for which table, and how that ended."""
TEXT_MAX: Final = 256
"""Characters of what others choose, such as the subject of a token."""
# Of hashes and lines that are made without a pause, 100 µs: so long a request may wait for the interpreter.
_AT_ONCE_MAX: Final = 16
_PAUSE_SECONDS: Final = 0.0005

log = logging.getLogger(__name__)


class Access(msgspec.Struct, gc=False):
    """A request as its worker saw it; cheap to make, and nothing of it is written as it is.

    ``table`` is None where it is none of the server's: what somebody asked for may be anything. ``entities``
    are those that were asked for, of ``definition``. ``read_point`` is JSON, on one line, as answers have it.
    ``outcome`` is "ok", the code of an error, or "broken-off". ``time_ms`` is set when it is written.
    """

    verb: str
    request_id: str
    status: int
    seconds: float
    outcome: str = "ok"
    client: str | None = None
    key: str | None = None
    address: str | None = None
    table: str | None = None
    definition: LiveTable | None = None
    entities: Sequence[Entity] = ()
    read_point: bytes | None = None
    rows: int | None = None
    size_bytes: int | None = None
    time_ms: int = 0


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the log, as it is read. What makes it, `_Lines`, joins parts of which most are known.

    ``entity`` is the hash of the entity, or, for a batch, a list of them, of which ``entities`` is the count.
    ``time`` is when the answer was complete.
    """

    time: str
    verb: str
    outcome: str
    status: int
    duration_ms: float
    request_id: str
    client: str | None = None
    key: str | None = None
    address: str | None = None
    table: str | None = None
    entity: str | tuple[str, ...] | None = None
    entities: int | None = None
    read_point: msgspec.Raw | None = None
    rows: int | None = None
    size_bytes: int | None = msgspec.field(name="bytes", default=None)


class AuditLog:
    """Takes what requests hand over, on the event loop, and writes it in a thread of its own, in order.

    Lives as long as its worker. ``is_required``: ``check`` refuses while the sink takes nothing.
    """

    def __init__(
        self, sink: Sink, hashes: EntityHash, clock: Clock | None = None, is_required: bool = False
    ) -> None:
        self._sink = sink
        self._lines, self._lines_of_batches = _Lines(hashes), _Lines(hashes)  # one for each thread
        self._clock = clock or SystemClock()
        self._is_required = is_required
        self._queue: deque[Line | Access] = deque()  # an access of which the thread is to make a line
        # Each has one thread that adds to it; the difference waits, or is being written.
        self._put = 0
        self._taken = 0
        self._in_hand = 0
        self._lost = 0  # since the sink last took records
        self._failure: str | None = None
        self._writing_since: float | None = None
        self._is_closing = threading.Event()
        self._close_at = 0.0
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, access: Access) -> None:
        """Takes a request that is over; returns at once. To be called by one thread only."""
        is_batch = len(access.entities) > 1
        weight = 1 + len(access.entities) if is_batch else 1
        if self._put - self._taken + weight > WAITING_MAX:  # safety: audit-waiting-bounded
            self._lose(1)
            return
        access.time_ms = self._clock.now_ms()
        # Two threads that both make lines would take the interpreter from each other, at twice the cost.
        waiting = access if is_batch else self._line_of(self._lines, access, may_pause=False)
        if waiting is not None:
            self._put += weight
            self._queue.append(waiting)

    def check(self) -> None:
        """Raises `AuditUnavailable` where the log is required and takes no records now."""
        if self._is_required and self.problem() is not None:  # safety: audit-required
            raise AuditUnavailable

    def problem(self) -> str | None:
        """A sentence on what is wrong, for operators; None where all that was handed over is written soon."""
        failure, since, waiting = self._failure, self._writing_since, self._put - self._taken
        if failure is not None:
            return f"the audit log can't be written: {failure}"
        if since is not None and self._clock.monotonic() - since > STALLED_SECONDS:
            return f"the audit log has not taken a record for {STALLED_SECONDS:g} s"
        if waiting > REQUIRED_WAITING_MAX:
            return f"{waiting:,} records wait for the audit log, which does not keep up"
        return None

    def close(self) -> None:
        """Writes what waits, for a limited time; what is left then is lost. Ends the thread."""
        self._close_at = self._clock.monotonic() + CLOSE_SECONDS_MAX
        self._is_closing.set()
        self._thread.join(CLOSE_SECONDS_MAX + 1.0)
        left = len(self._queue) + self._in_hand
        self._queue.clear()
        if left:
            self._lose(left)

    def _run(self) -> None:
        is_closing = False
        while not is_closing:
            is_closing = self._is_closing.wait(FLUSH_SECONDS)
            due = self._put  # what comes while it is written is written with what comes after it
            while self._queue and (is_closing or self._taken < due) and self._write_batch():
                pass
        self._sink.close()

    def _write_batch(self) -> bool:
        """Writes some of what waits, however long it takes; False where the log is closed first."""
        self._writing_since = self._clock.monotonic()
        lines: list[Line] = []
        weight, size_bytes = 0, 0
        while self._queue and len(lines) < BATCH_RECORDS_MAX and size_bytes < BATCH_BYTES_MAX:
            waiting = self._queue.popleft()
            line: Line | None
            if isinstance(waiting, Line):
                line = waiting
                weight += 1
            else:
                may_pause = not self._is_closing.is_set()
                line = self._line_of(self._lines_of_batches, waiting, may_pause)
                weight += 1 + len(waiting.entities)
            if line is not None:
                size_bytes += len(line.text)
                lines.append(line)
                self._in_hand = len(lines)
        is_written = not lines or self._is_written(lines)
        self._in_hand = 0
        self._taken += weight
        self._writing_since = None
        if is_written:
            measures.AUDIT_RECORDS.inc(len(lines))
        else:
            self._lose(len(lines))
        return is_written

    def _line_of(self, lines: _Lines, access: Access, may_pause: bool) -> Line | None:
        """None, and one record lost, where it can't be made: the others are not lost for it."""
        try:
            return lines.of(access, may_pause)
        except Exception as error:  # noqa: BLE001  # its words may quote what was asked for
            extra = fields(verb=access.verb, detail=type(error).__name__)
            log.error("audit record can't be made", extra=extra)  # noqa: TRY400
            measures.AUDIT_LOST.inc()
            return None

    def _is_written(self, lines: Sequence[Line]) -> bool:
        while True:
            try:
                self._sink.write(lines)
            except Exception as error:  # noqa: BLE001  # whatever it is, these lines are not lost for it
                self._note_failure(error)
            else:
                self._note_success()
                return True
            if self._is_closing.wait(RETRY_SECONDS):
                if self._clock.monotonic() > self._close_at:
                    return False
                time.sleep(FLUSH_SECONDS)

    def _note_failure(self, error: Exception) -> None:
        if self._failure is None:
            extra = fields(detail=_words(error), code=getattr(error, "code", None))
            log.error("audit log can't be written; it is tried again", extra=extra)
        self._failure = _words(error)

    def _note_success(self) -> None:
        if self._failure is not None or self._lost:
            log.info("audit log is written again", extra=fields(waiting=len(self._queue), lost=self._lost))
            self._failure, self._lost = None, 0

    def _lose(self, count: int) -> None:
        if not self._lost:
            log.error("audit records are lost", extra=fields(waiting=self._put - self._taken))
        self._lost += count
        measures.AUDIT_LOST.inc(count)


class _Lines:
    """Makes the lines, with pauses in which requests are answered: what is made holds up the event loop."""

    def __init__(self, hashes: EntityHash) -> None:
        self._hashes = hashes
        self._encoder = msgspec.json.Encoder()
        self._made = 0
        self._may_pause = True
        self._second, self._up_to_second = -1, b""

    def of(self, access: Access, may_pause: bool) -> Line:
        """The line of a request."""
        self._may_pause = may_pause
        self._pause_after(1)
        client = _bounded(access.client)
        encode = self._encoder.encode
        parts = [
            b'{"time":"',
            self._time(access.time_ms),
            _outcome_json(access.verb, access.outcome, access.status),
            repr(round(1_000 * access.seconds, 3)).encode(),
            b',"request_id":',
            encode(_bounded(access.request_id) or ""),
            _caller_json(client, _bounded(access.key), _bounded(access.address), access.table),
        ]
        if access.definition is not None and access.entities:
            parts += self._entities(access.definition, access.entities)
        if access.read_point is not None:
            parts += (b',"read_point":', access.read_point)
        if access.rows is not None:
            parts.append(b',"rows":%d' % access.rows)
        if access.size_bytes is not None:
            parts.append(b',"bytes":%d' % access.size_bytes)
        parts.append(b"}\n")
        return Line(client, b"".join(parts))

    def _time(self, time_ms: int) -> bytes:
        """As `iso_time`, of which all but the milliseconds is the same for a second."""
        second, milliseconds = divmod(time_ms, 1_000)
        if second != self._second:
            self._second, self._up_to_second = second, iso_time(1_000 * second).removesuffix("000Z").encode()
        return b"%b%03dZ" % (self._up_to_second, milliseconds)

    def _entities(self, definition: LiveTable, entities: Sequence[Entity]) -> tuple[bytes, ...]:
        if len(entities) == 1:
            return b',"entity":"', self._hashes.of(definition, entities[0]).encode(), b'"'
        hashes = []
        for entity in entities[:ENTITIES_MAX]:
            self._pause_after(1)
            hashes.append(self._hashes.of(definition, entity))
        return b',"entity":', self._encoder.encode(hashes), b',"entities":%d' % len(entities)

    def _pause_after(self, made: int) -> None:
        self._made += made
        if self._made >= _AT_ONCE_MAX:
            self._made = 0
            if self._may_pause:
                time.sleep(_PAUSE_SECONDS)


class _Caller(msgspec.Struct, frozen=True, omit_defaults=True):
    client: str | None = None
    key: str | None = None
    address: str | None = None
    table: str | None = None


@lru_cache(PARTS_KEPT_MAX)
def _caller_json(client: str | None, key: str | None, address: str | None, table: str | None) -> bytes:
    members = msgspec.json.encode(_Caller(client, key, address, table))[1:-1]
    return b"," + members if members else b""


@lru_cache(PARTS_KEPT_MAX)
def _outcome_json(verb: str, outcome: str, status: int) -> bytes:
    said = (msgspec.json.encode(verb), msgspec.json.encode(outcome), status)
    return b'","verb":%b,"outcome":%b,"status":%d,"duration_ms":' % said


_ROWS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def rows_in(json_rows: bytes) -> int:
    """How many rows a JSON array of rows has, as answers have it; 1.5 µs for ten rows."""
    return len(_ROWS.decode(json_rows))


def open_audit_log(settings: Settings, clock: Clock | None = None) -> AuditLog | None:
    """The log that the settings ask for, for one process; None where they ask for none.

    A file or a topic that can't be written is no error here, but a problem of the log. Raises `ConfigInvalid`
    for a hash key that can't be used, or settings of which no Kafka client can be made.
    """
    audit, clock = settings.audit, clock or SystemClock()
    if audit.sink == "off":
        return None
    hashes = EntityHash(hash_key(audit.hash_key_file))
    sink: Sink
    match audit.sink:
        case "file":
            sink = FileSink(audit.path, audit.rotate_bytes, audit.keep_files)
        case "stdout":
            sink = StdoutSink(settings.serving.state_dir / AUDIT_LOCK)
        case "kafka":
            sink = KafkaSink(settings.kafka, audit.topic, clock)
    return AuditLog(sink, hashes, clock, audit.required)


def _bounded(text: str | None) -> str | None:
    """A text that others chose, as one that can be written."""
    if text is None or (len(text) <= TEXT_MAX and text.isascii()):
        return text
    return text[:TEXT_MAX].encode(errors="replace").decode()


def _words(error: Exception) -> str:
    """An error, without a path."""
    if isinstance(error, ThermoclineError):
        return error.what
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return first_line(error)
