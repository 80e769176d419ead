"""What is asked of an object store, and reads while it fails: by a proxy before a real one."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle, zip_longest
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
import pytest
from pyarrow.fs import AwsStandardS3RetryStrategy
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.http_proxy import OF_A_STORE, Fault, HttpProxy, RandomFaults
from tests.serving.conftest import PROFILES, rows_of
from tests.tier import quick_or_full
from thermocline.dev.s3 import LocalS3
from thermocline.errors import StorageFailed
from thermocline.iceberg.catalog_properties import pyiceberg_properties
from thermocline.iceberg.files import open_input, read_file
from thermocline.iceberg.shared_io import SharedFileIO
from thermocline.iceberg.store_retries import READS_MAX, read_whole
from thermocline.rules.decode import json_row
from thermocline.serving.cold import folder
from thermocline.serving.cold.folder import latest
from thermocline.serving.cold.reader import ColdReader, Entity
from thermocline.serving.cold.row_store import RowStore
from thermocline.serving.read import lookup
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.read.wanted import Wanted
from thermocline.settings import CatalogSettings, PassThrough

pytestmark = pytest.mark.jvm
USERS = 20
MANY = 12
"""Enough rounds for each fault."""
ROUNDS = quick_or_full(2, MANY)
KEYS = 30
"""Of an entity: with row groups of eight rows, it reaches over several."""


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    with LocalS3(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def proxy(s3: LocalS3) -> Iterator[HttpProxy]:
    with HttpProxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def world(new_world: Callable[..., Any], s3: LocalS3, proxy: HttpProxy) -> Any:
    """One bucket with a file in the store: two users of many keys, and many of one key."""
    world = new_world(replace(PROFILES, buckets=1), io=io_of(s3, proxy), data=s3.location(uuid4().hex))
    write(world, "a", range(KEYS))
    write(world, "b", range(KEYS))
    for number in range(KEYS):
        write(world, f"c{number:02}", [0])
    world.commit()
    return world


def io_of(s3: LocalS3, proxy: HttpProxy, **more: str) -> PyArrowFileIO:
    """As the product makes it."""
    settings = CatalogSettings(type="rest", uri="http://none", properties=PassThrough(s3.properties | more))
    return SharedFileIO({**pyiceberg_properties(settings), "s3.endpoint": proxy.url})


def write(world: Any, user: str, keys: Any) -> None:
    for key in keys:
        value = {"value": f"{user}-{key}", "updated_at": "2026-01-02T03:04:05Z"}
        world.produce({"app_id": 7, "user_id": user, "key": f"k{key:02}"}, value)


def asked(proxy: HttpProxy) -> list[tuple[str, str]]:
    """Methods and ranges of the requests since this was called last."""
    seen = [(one.request.method, one.request.range) for one in proxy.exchanges]
    proxy.exchanges.clear()
    return seen


def is_ranged_get(request: tuple[str, str]) -> bool:
    return request[0] == "GET" and request[1].startswith("bytes=")


def test_a_young_file_is_indexed_by_its_size_and_one_read_however_many_row_groups_it_has(
    world: Any, proxy: HttpProxy
) -> None:
    asked(proxy)
    assert world.publish()
    assert [method for method, _ in asked(proxy)] == ["HEAD", "GET"]

    world.produce({"app_id": 7, "user_id": "new", "key": "k"}, {"value": "x"})
    world.commit()
    asked(proxy)
    assert world.publish()
    assert [method for method, _ in asked(proxy)] == ["HEAD", "GET"], "of the new file alone"


def test_a_file_too_large_to_be_fetched_is_indexed_by_reads_of_its_footer_and_its_entities(
    world: Any, proxy: HttpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "FETCHED_BYTES_MAX", 1_000)
    asked(proxy)
    assert world.publish()
    head, *reads = asked(proxy)
    assert head[0] == "HEAD"
    assert len(reads) > 1
    assert all(map(is_ranged_get, reads))


def test_a_cold_lookup_is_one_ranged_read_for_each_row_group_and_none_once_its_rows_are_kept(
    world: Any, proxy: HttpProxy, tmp_path: Path
) -> None:
    """Method: the workers' memory of decoded row groups is that of another reader each time."""
    world.publish()
    index = latest(world.cold_folder, "profiles")
    assert index is not None
    (file,) = index.files
    store = RowStore(tmp_path / "rows", "profiles", 1 << 24)

    def new_reader() -> ColdReader:
        reader = ColdReader(world.io, store)
        reader.warm([file])
        return reader

    for user, key in (("a", None), ("c07", None), ("c15", "k00"), ("b", "k13")):
        entity = Entity.of(world.definition, (7, user, *([key] if key else [])))
        groups = file.sparse.candidates(entity.prefix, entity.prefix + b"\xff")
        reader = new_reader()
        asked(proxy)
        rows = rows_of(reader, index, entity)
        requests = asked(proxy)
        assert len(rows) == (KEYS if (user, key) == ("a", None) else 1)
        assert len(requests) == len(groups)
        assert all(map(is_ranged_get, requests))

        store.flush()
        again = new_reader()
        asked(proxy)
        assert rows_of(again, index, entity) == rows
        assert asked(proxy) == []
    store.close()


def test_a_file_is_warmed_by_its_size_and_one_read_of_its_deletes(world: Any, proxy: HttpProxy) -> None:
    world.produce({"app_id": 7, "user_id": "a", "key": "k01"}, None)
    world.commit()
    world.publish()
    index = latest(world.cold_folder, "profiles")
    assert index is not None
    reader = ColdReader(world.io)
    asked(proxy)
    reader.warm(list(index.files))
    methods = [method for method, _ in asked(proxy)]
    assert methods == ["HEAD", "HEAD", "GET"], "of the file; of the deletes, and what they say"
    assert len(rows_of(reader, index, Entity.of(world.definition, (7, "a")))) == KEYS - 1


def test_a_process_repeats_failed_requests_however_many_failed_before(s3: LocalS3, proxy: HttpProxy) -> None:
    """Method: each other request fails. Arrow's standard strategy repeats a hundred of them, then none."""
    location = f"{s3.location(uuid4().hex)}/file"
    io = io_of(s3, proxy)
    with io.new_output(location).create() as file:
        file.write(b"some bytes")
    faults = cycle((Fault.ERROR, None))
    proxy.decide = lambda request: next(faults)
    for _ in range(120):
        assert len(io.new_input(location)) == len(b"some bytes")
    assert proxy.spoilt[Fault.ERROR] >= 120


def _first_bytes(io: PyArrowFileIO, location: str) -> bytes:
    first: bytes = read_whole(lambda: open_input(io, location).read(7))
    return first


@pytest.mark.parametrize("read", [_first_bytes, read_file])
def test_a_small_read_is_repeated_while_the_store_is_busy(
    s3: LocalS3, proxy: HttpProxy, read: Callable[[PyArrowFileIO, str], bytes]
) -> None:
    """Method: the text of the error is longer than what is read; Arrow's client does not repeat that."""
    location = f"{s3.location(uuid4().hex)}/file"
    io = io_of(s3, proxy)
    with io.new_output(location).create() as file:
        file.write(b"deletes")
    gets = iter([Fault.BUSY] * (READS_MAX + 1))
    proxy.decide = lambda request: next(gets, None) if request.method == "GET" else None
    assert read(io, location) == b"deletes"
    assert next(gets, None) is None


@pytest.mark.full
def test_reads_from_a_store_that_fails_now_and_then_give_the_rows_of_a_replay(
    served: Callable[..., Any], s3: LocalS3, proxy: HttpProxy, seed: int
) -> None:
    """Goal: errors, throttling, lost and cut answers are asked for again; no row is wrong or missing.

    Method: each fifth request is spoilt, of indexing and warming, of lookups and of extracts.
    """
    chance = random.Random(seed)
    world, table = served(replace(PROFILES, buckets=4), io=io_of(s3, proxy), data=s3.location(uuid4().hex))
    faults = RandomFaults(seed, 0.2, OF_A_STORE)
    for step in range(ROUNDS):
        write_random(world, chance, step)
        proxy.decide = lambda request: None
        world.commit()
        proxy.decide = faults
        assert world.publish()
        table.refresh()
        check_reads(world, table)
    print(proxy.spoilt)
    assert set(proxy.spoilt) == set(OF_A_STORE) or ROUNDS < MANY


def test_extracts_at_the_same_time_give_the_rows_of_their_own_snapshots(
    served: Callable[..., Any], s3: LocalS3, proxy: HttpProxy, seed: int
) -> None:
    """Method: extracts of three snapshots, each begun before the next one; then a batch of each by turns."""
    chance = random.Random(seed)
    world, table = served(replace(PROFILES, buckets=4), io=io_of(s3, proxy), data=s3.location(uuid4().hex))
    extracts: list[Extract] = []
    reading: list[Iterator[pa.RecordBatch]] = []
    found: list[list[pa.RecordBatch]] = []
    expected = []
    for step in range(3):
        write_random(world, chance, step)
        world.commit()
        world.publish()
        table.refresh()
        extracts.append(table.extract(Wanted(None, None), table.reader.end()))
        reading.append(extracts[-1].batches())
        found.append([next(reading[-1])])
        expected.append(world.rows())
    for some in zip_longest(*reading):
        for batches, batch in zip(found, some, strict=True):
            batches.extend([] if batch is None else [batch])
    for extract in extracts:
        extract.close()
    assert [rows_in(batches) for batches in found] == expected
    assert not [*world.folder.glob("spill/*")]


def test_what_an_extract_fetched_whose_process_died_is_removed_by_the_next_one(
    served: Callable[..., Any], s3: LocalS3, proxy: HttpProxy
) -> None:
    world, table = served(replace(PROFILES, buckets=1), io=io_of(s3, proxy), data=s3.location(uuid4().hex))
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, others = (world.folder / "spill" / f"extract-{pid}-x" for pid in (ended.pid, os.getpid()))
    left.mkdir(parents=True)
    others.mkdir()
    extracted(table)
    assert [*world.folder.glob("spill/*")] == [others]


def test_access_to_the_store_is_asked_for_again_once_it_has_expired(
    served: Callable[..., Any],
    s3: LocalS3,
    proxy: HttpProxy,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: where a catalog vends credentials, a server goes on when these end: at a read, and a commit."""
    monkeypatch.setattr(lookup, "RENEW_SECONDS", 0.0)
    chance = random.Random(seed)
    world, table = served(replace(PROFILES, buckets=2), io=io_of(s3, proxy), data=s3.location(uuid4().hex))
    for step, meets_end in enumerate((extracted, ServedTable.refresh)):
        write_random(world, chance, step)
        world.commit()
        world.publish()
        if step == 0:
            table.refresh()
        table.reader.cold.reader.io = Expired()
        with pytest.raises((StorageFailed, PermissionError)):
            meets_end(table)
        table.refresh()
        check_reads(world, table)
        assert not table.reader.is_behind()


class Expired(PyArrowFileIO):
    """What a catalog granted for a while only."""

    def new_input(self, location: str) -> Any:
        raise PermissionError(f"{location}: the token has expired")


@pytest.mark.full
def test_a_store_that_is_away_is_named_and_its_rows_are_back_with_it(
    served: Callable[..., Any], s3: LocalS3, proxy: HttpProxy, seed: int
) -> None:
    io = io_of(s3, proxy, **{"s3.retry-strategy-impl": f"{TwoAttempts.__module__}.{TwoAttempts.__name__}"})
    world, table = served(replace(PROFILES, buckets=2), io=io, data=s3.location(uuid4().hex))
    write_random(world, random.Random(seed), 0)
    world.commit()
    world.publish()
    table.refresh()
    for fault in (Fault.ERROR, Fault.BUSY, Fault.LOST, Fault.CUT):
        proxy.decide = lambda request, fault=fault: fault  # type: ignore[misc]
        with pytest.raises(StorageFailed):
            extracted(table)
        with pytest.raises(StorageFailed):
            looked_up(world, table)
    proxy.decide = lambda request: None
    check_reads(world, table)


class TwoAttempts(AwsStandardS3RetryStrategy):  # type: ignore[misc]  # it publishes no types
    def __init__(self) -> None:
        super().__init__(max_attempts=2)


def write_random(world: Any, chance: random.Random, step: int) -> None:
    for _ in range(200):
        number = chance.randrange(USERS)
        key = {"app_id": 7, "user_id": f"u{number}", "key": f"k{chance.randrange(15)}"}
        value = {"value": f"{step} {chance.random()}", "updated_at": "2026-01-02T03:04:05Z"}
        world.produce(key, None if chance.random() < 0.25 else value, partition=number % 3)
    world.tail()


def check_reads(world: Any, table: ServedTable) -> None:
    assert extracted(table) == looked_up(world, table) == world.rows()


def extracted(table: ServedTable) -> dict[tuple[Any, ...], Any]:
    extract = table.extract(Wanted(None, None), table.reader.end())
    try:
        return rows_in(extract.batches())
    finally:
        extract.close()


def rows_in(batches: Iterable[pa.RecordBatch]) -> dict[tuple[Any, ...], Any]:
    return by_key([msgspec.json.decode(json_row(row)) for batch in batches for row in batch.to_pylist()])


def looked_up(world: Any, table: ServedTable) -> dict[tuple[Any, ...], Any]:
    entities = [entity_of(world.definition, {"app_id": "7", "user_id": f"u{n}"}) for n in range(USERS)]
    _, results = table.reader.lookup(entities)
    return by_key([row for rows in results for row in msgspec.json.decode(rows)])


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], Any]:
    found = {tuple(row[name] for name in PROFILES.key): row for row in rows}
    assert len(found) == len(rows), "a row came twice"
    return found
