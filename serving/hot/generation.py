"""A generation: the records of one contiguous range of offsets per partition, in one LMDB file.

It holds the *last* record per (row, partition), so it answers exactly for its own end and no earlier one.
That is still exact for every seam: if the last record lies before the seam, so do all it replaced, and
none of them counts; if it doesn't, it is the winner of its partition whatever came before. For the same
reason the newest generation that has a record of a (row, partition) decides, and older ones need not be
asked about it.

Records, positions and the times at which the log's end was reached are written in one transaction:
whoever reads the positions in a transaction sees exactly the records before them.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from thermocline.failpoints import failpoint
from thermocline.rules.partition_time import NO_TIME
from thermocline.rules.seam import Seam
from thermocline.serving.hot import disk
from thermocline.serving.hot.arrived import add_note, notes_in
from thermocline.serving.hot.environment import open_environment
from thermocline.serving.hot.record import META_KEY
from thermocline.serving.hot.refused import REFUSED

LOCK_SUFFIX: Final = "-lock"  # LMDB's own name for the file of locks beside the data
# Each record may fall into another page, which is copied, split, and named in a page above; a large value has
# pages of its own, of which the last is hardly filled.
PAGES_PER_RECORD: Final = 4
SEAL_BYTES: Final = 1 << 20  # a few pages; a transaction without records takes no more


class Covered(msgspec.Struct, frozen=True, array_like=True):
    """The records of one partition that are held: [start, end).

    ``reached_end_at`` (monotonic seconds) is when it was last known to be read up to the log's end, if
    ever. ``partition_time_ms`` is the partition time at ``end``.
    """

    topic: str
    partition: int
    start: int
    end: int
    reached_end_at: float | None = None
    partition_time_ms: int = NO_TIME

    @property
    def place(self) -> tuple[str, int]:
        """The partition with its topic."""
        return (self.topic, self.partition)


class Meta(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """What a generation says of itself.

    ``manifest`` is the version of the manifest that a reader must know by now: one who knows only an
    older one has to read it again (a newer generation may be there, or older ones gone).
    """

    manifest: int
    covered: tuple[Covered, ...]

    @cached_property
    def start(self) -> Seam:
        """The first offset, by partition."""
        return Seam({part.place: part.start for part in self.covered})

    @cached_property
    def end(self) -> Seam:
        """The next offset, by partition."""
        return Seam({part.place: part.end for part in self.covered})


class Generation:
    """One LMDB file. Reading is for any thread and process, writing for one."""

    def __init__(self, path: Path, map_bytes: int, is_writer: bool) -> None:
        """Opens the file, or, for a writer, creates it.

        Raises:
            lmdb.Error: when it can't be opened.
            OSError: when the disk has no room to write.
        """
        self.path = path
        self.map_bytes = map_bytes
        if is_writer:
            self._check_disk()
        self._environment = open_environment(path, map_bytes, is_writer)
        self._page_bytes = self._environment.stat()["psize"]

    @property
    def name(self) -> str:
        """What the manifest and leases call it."""
        return self.path.name

    @property
    def used_bytes(self) -> int:
        """What it takes of disk and page cache; freed pages included, as they are used again first."""
        return (self._environment.info()["last_pgno"] + 1) * self._page_bytes

    @property
    def free_bytes(self) -> int:
        """What certainly still fits into the map, after what a seal needs."""
        return self.map_bytes - self.used_bytes - SEAL_BYTES  # safety: hot-room-seal

    def bytes_needed(self, records: Mapping[bytes, bytes]) -> int:
        """The most that adding the records can take, even if no page that was freed can be used again."""
        # A note of the keys may come with them.
        content = sum(map(len, records)) + sum(map(len, records.values()))
        # safety: hot-room-records, hot-room-values
        return (len(records) + 1) * PAGES_PER_RECORD * self._page_bytes + 2 * content

    @property
    def records(self) -> int:
        """The (row, partition) pairs and the refused records that it holds."""
        with self.read() as transaction:
            return max(0, transaction.stat()["entries"] - 1 - notes_in(transaction))

    def read(self) -> lmdb.Transaction[bytes]:
        """A transaction that sees one state; to be ended soon, since it keeps pages from being used again."""
        return self._environment.begin()

    def meta(self) -> Meta:
        """What it says of itself now. Raises `lmdb.Error` when it is no whole generation."""
        with self.read() as transaction:
            raw = transaction.get(META_KEY)
        if raw is None:  # a generation is listed once its meta is written
            raise lmdb.Error(f"{self.path} holds nothing")
        return decode_meta(raw)

    def write(self, records: Mapping[bytes, bytes], meta: Meta, start: Seam | None = None) -> None:
        """Adds records, each replacing the one with its stored key, and the new meta, in one transaction.

        With ``start``, the positions before them, it is noted that they came (``arrived``). There must be
        room for them: ``bytes_needed`` must not exceed ``free_bytes``. Raises `lmdb.Error` and OSError when
        the disk fails or is full; nothing is written then.
        """
        self._check_disk(*records, *records.values())  # safety: room-to-write
        with self._environment.begin(write=True) as transaction:
            if records:
                ascending = sorted(records.items())  # neighbours share pages
                if start is not None:
                    add_note(transaction, [key for key, _ in ascending if key < REFUSED], start)
                transaction.cursor().putmulti(ascending)
                failpoint("hot.append")
            transaction.put(META_KEY, _encode(meta))

    def fill(self, records: Sequence[tuple[bytes, bytes]], ascending: bool) -> None:
        """Adds a merge's records; ``ascending`` ones lie above all it holds, and fill its pages whole.

        Raises as ``write``.
        """
        self._check_disk(*(value for _, value in records))
        with self._environment.begin(write=True) as transaction:
            consumed, added = transaction.cursor().putmulti(records, append=ascending)
            assert added == consumed or not ascending, "records to append must ascend"

    def all_records(self, transaction: lmdb.Transaction[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Every stored key and value, ascending by key."""
        cursor = transaction.cursor()
        cursor.first()
        for item in cursor:
            if item[0] == META_KEY:
                return
            yield item

    def free_dead_readers(self) -> None:
        """Frees the slots of processes that died while reading, and the pages that they kept."""
        self._environment.reader_check()

    def _check_disk(self, *values: bytes) -> None:
        """Raises OSError without room: the file is sparse, and a page that finds none kills the process."""
        if disk.free_bytes(self.path.parent) < SEAL_BYTES + 2 * sum(map(len, values)):
            raise OSError(errno.ENOSPC, "too little room to write to the hot tier", str(self.path))

    def delete(self) -> None:
        """Removes the file. Who has it open goes on reading it."""
        delete_files(self.path)


def age_seconds(covered: tuple[Covered, ...], now: float) -> float:
    """Seconds since each partition was last known to be read up to its end, the worst one."""
    return max(0.0, now - reached_end_at(covered))


def reached_end_at(covered: tuple[Covered, ...]) -> float:
    """When each partition was last known to be read up to its end, the worst; -inf where one never was."""
    reached = [part.reached_end_at for part in covered]
    known = [at for at in reached if at is not None]
    return min(known) if known and len(known) == len(reached) else -math.inf


def decode_meta(raw: bytes) -> Meta:
    """A generation's meta from its stored form."""
    return _meta_decoder.decode(raw)


def delete_files(path: Path) -> None:
    """Removes a generation's file and then its locks, so that nobody can open one without the other."""
    path.unlink(missing_ok=True)
    path.with_name(path.name + LOCK_SUFFIX).unlink(missing_ok=True)


_encode = msgspec.msgpack.Encoder().encode
_meta_decoder = msgspec.msgpack.Decoder(Meta)
