"""What the log shows of damage, and what verify says of tables that went through all that is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer
from pyroaring import BitMap

from tests.behaviour.live import KEYED, Live
from tests.behaviour.test_quarantine import LARGE, Scores
from tests.behaviour.topic import APP, key_bytes
from tests.brokers import Brokers
from tests.maintenance.kept import HOURS
from tests.manual_clock import ManualClock
from tests.transactions import wait_for_markers
from tests.verify.damage import Damage, Json, kept_as_it_was, part
from thermocline.dev.stack import Stack, StackOptions
from thermocline.errors import ExitCode, ForeignSnapshot, LogReplaced, OffsetsGone
from thermocline.iceberg.catalog import SEAM_PROPERTY, definition_of
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.claim.ownership import own_table
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.kafka.log import read_ranges
from thermocline.maintenance.quarantine import tend_quarantine
from thermocline.process.clock import SystemClock
from thermocline.rules.keys import encode_one
from thermocline.upsert.bucket_task import BucketResult
from thermocline.verify.history import histories_of
from thermocline.verify.structure import structure_findings

pytestmark = pytest.mark.jvm
NO_KEY = 'key = []\nkey_from = "value"'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any, brokers: Brokers) -> Iterator[Stack]:
    """A broker; tables and topics are the tests' own."""
    folder = tmp_path_factory.mktemp("verify")
    with (
        brokers.lent() as kafka,
        Stack(folder, StackOptions(catalog="verify", engine="local", kafka=kafka)) as stack,
    ):
        yield stack


def found(live: Live) -> list[str]:
    """What the structure of a table shows."""
    table = live.table()
    findings = structure_findings(table, definition_of(table, live.name), lambda _what, _done, _total: None)
    return [f"{one.code}: {one.what}" for one in findings]


def verified(live: Live, capsys: pytest.CaptureFixture[str]) -> tuple[int, Json]:
    """The command, in this process: its exit code, and what it says."""
    capsys.readouterr()
    code = live.run("verify", live.name, "--json")
    return code, json.loads(capsys.readouterr().out)


def expire_all_but_the_newest(metadata: Json) -> None:
    newest = metadata["current-snapshot-id"]
    metadata["snapshots"] = [one for one in metadata["snapshots"] if one["snapshot-id"] == newest]


def damage_of(live: Live) -> Damage:
    table = live.table()
    return Damage(live.table, definition_of(table, live.name), live.stack.folder / "data" / "catalog.db")


@pytest.mark.full
@pytest.mark.parametrize("version", [3, 2], ids=["v3", "v2"])
def test_a_table_that_went_through_all_that_is_allowed_is_whole(
    stack: Stack, jvm: Any, version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Method: after each of the things that move seam, files and accounting in a way of their own."""
    live = Scores(stack, f"allowed{version}", more=f"format_version = {version}")
    for batch in range(3):
        for user in range(6):
            live.put(f"u{user}", None if user == batch else batch, user % 2)
        live.topic.send_raw(b"{", b"bad")
        live.put("large", LARGE + batch)
        live.ingest()
    assert found(live) == []

    transactions(live)
    live.add_partitions(3)
    live.put("new", 1, 2)
    live.ingest()
    assert found(live) == [], "after transactions, in a partition that was added"

    live.widen()
    assert found(live) == [], "after an alteration"
    assert live.run("quarantine", "replay", live.name, "--all") in (ExitCode.DONE, ExitCode.PARTLY_DONE)
    assert live.scores()["large"] == LARGE + 2
    assert live.run("quarantine", "purge", live.name, "--all", "--yes") == 0
    assert sum(live.kept().values()) == 0
    assert found(live) == [], "after a replay and a purge"

    live.put("u4", 50)
    live.put("u5", 50, 1)
    live.cut({0: live.log.ends([live.name])[live.name, 0]})
    assert live.run_next(live.stopped(OffsetsGone)) == 0
    assert found(live) == [], "after a gap that was accepted"
    live.put("u1", 60)
    live.ingest()
    assert found(live) == []

    JavaCatalog(jvm, live.settings.catalog).load(f"app.{live.name}").newAppend().commit()
    assert found(live)
    assert live.run_next(live.stopped(ForeignSnapshot)) == 0
    assert found(live) == [], "after the table went back over another writer's snapshot"

    live.recreate(2)
    for user in range(6):
        live.put(f"u{user}", 70)
    live.topic.send_raw(b"{", b"bad")
    live.topic.flush()
    assert live.run_next(live.stopped(LogReplaced)) == 0
    live.ingest()
    live.put("u1", None)
    live.ingest()
    assert found(live) == [], "after a topic that was recreated"
    code, report = verified(live, capsys)
    assert (report["differences"], code) == ({}, ExitCode.DONE)
    damage_of(live).edit_metadata(expire_all_but_the_newest)
    assert found(live) == [], "with rows of a log that nothing but what was accepted tells of"


@pytest.mark.full
@pytest.mark.parametrize("choices", [NO_KEY, f"{KEYED}\nsuppress_unchanged = true"])
def test_tables_of_other_kinds_are_whole(
    stack: Stack, jvm: Any, choices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    live = Live(stack, f"kind{len(choices)}", choices=choices)
    for value in ("one", "two", "two"):
        live.write(range(8), value)
        if "suppress" in choices:
            live.write(range(2), None)
        live.ingest()
    assert found(live) == []
    code, report = verified(live, capsys)
    assert (report["differences"], code) == ({}, ExitCode.DONE)


def test_records_that_are_lost_from_the_quarantine_are_found(stack: Stack, jvm: Any) -> None:
    live = Live(stack, "bad")
    live.write(range(4), "good")
    for _ in range(3):
        live.topic.send_raw(b"{", b"bad")
    live.topic.flush()
    live.ingest()
    assert found(live) == []
    catalog = live.table().catalog
    quarantine = catalog.load_table("app.bad_quarantine")
    catalog.drop_table("app.bad_quarantine")
    (lost,) = found(live)
    assert lost.startswith("quarantine-incomplete")
    catalog.create_table("app.bad_quarantine", quarantine.schema())
    (lost,) = found(live)
    assert "counts 3 records as quarantined" in lost


def test_a_quarantine_whose_old_snapshots_expired_is_checked_from_there_on(stack: Stack, jvm: Any) -> None:
    live = Live(stack, "tended")

    def bad_batch() -> None:
        live.topic.send_raw(b"{", b"bad")
        live.topic.flush()
        live.ingest()

    bad_batch()
    bad_batch()
    assert live.run("quarantine", "purge", live.name, "--all", "--yes") == 0
    bad_batch()
    catalog = live.table().catalog
    load = partial(catalog.load_table, "app.tended_quarantine")
    tend_quarantine(load, HOURS, HOURS, ManualClock(int(1000 * (time.time() + 2 * HOURS))))
    (oldest,) = load().snapshots()
    bad_batch()
    assert len(load().snapshots()) == 2
    assert found(live) == []
    load().manage_snapshots().set_current_snapshot(oldest.snapshot_id).commit()
    (lost,) = found(live)
    assert "counts 1 records as quarantined" in lost


@pytest.fixture(scope="module")
def live(stack: Stack, jvm: Any) -> Live:
    """A table of some batches, and four records that it has not read yet."""
    live = Live(stack, "damaged")
    live.write(range(12), "first")
    live.ingest()
    live.write(range(6), "second")
    live.write(range(4, 8), None)
    live.ingest()
    live.write(range(8, 10), "third")
    live.ingest()
    live.write(range(4), "not read yet")
    return live


@pytest.fixture
def damage(live: Live) -> Iterator[Damage]:
    damage = damage_of(live)
    with damage.undone():
        yield damage


def key_of(damage: Damage, user: int) -> bytes:
    return encode_one(damage.definition, [APP, f"u{user}", "plan"])


def dead(damage: Damage, user: int) -> tuple[Any, int]:
    """A deleted row of a user."""
    for file in damage.files():
        for position in damage.deleted(file):
            if damage.keys(file)[position] == key_of(damage, user):
                return file, position
    raise AssertionError("no deleted row")


def commit(live: Live, damage: Damage, *parts: BucketResult, **changes: Any) -> None:
    with own_table(live.settings, live.name, SystemClock()) as owned:
        damage.commit(owned.committer, damage.change(*parts, **changes))


def delete(damage: Damage, file: Any, positions: BitMap, added: Any = None) -> BucketResult:
    before = {file.path: file.deletes} if file.deletes else {}
    return part(file.bucket, added, damage.deletes({file.path: positions}), before)


@pytest.mark.full
def test_the_undamaged_table_agrees_and_its_history_is_told(
    live: Live, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = verified(live, capsys)
    assert (report["differences"], code) == ({}, ExitCode.DONE)
    keys = [key_of(damage, user) for user in (0, 4, 99)]
    told = histories_of(
        live.table(),
        live.log,
        lambda ranges: read_ranges(live.settings.kafka.client_config(), ranges),
        damage.definition,
        keys,
    )
    upserts, rows = told[keys[0]][:3], told[keys[0]][3:]
    assert [": upsert {" in line for line in upserts] == [True] * 3
    assert [line.endswith("(not in the snapshot)") for line in upserts] == [False, False, True]
    happened = ["is deleted by" if " is deleted by " in line else line.rpartition(", ")[2] for line in rows]
    assert happened == ["and is live", "is deleted by", "and is live"]
    assert told[keys[1]][2].endswith(": tombstone")
    assert told[keys[2]] == ()


@pytest.mark.full
def test_an_old_value_that_was_put_back_is_named_with_its_history(
    live: Live, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: also as a process, for people: exit code 1, the key and what happened to it."""
    old_file, old_position = dead(damage, 0)
    new_file, new_position = damage.live_keys()[key_of(damage, 0)]
    added = damage.written(old_file.bucket, damage.rows(old_file, [old_position]))
    gone = damage.deleted(new_file) | BitMap([new_position])
    commit(live, damage, delete(damage, new_file, gone, added), accounting=Accounting(read=1, applied=1))
    code, report = verified(live, capsys)
    assert code == ExitCode.BAD_ANSWER
    assert {"row-stale", "row-behind-seam"} <= report["differences"].keys()
    (stale,) = (one for one in report["findings"] if one["code"] == "row-stale")
    assert stale["key"] == {"app_id": APP, "user_id": "u0", "key": "plan"}

    ran = subprocess.run(
        [sys.executable, "-m", "thermocline", "--config", str(live.config_path), "verify", live.name],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "400"},
    )
    assert ran.returncode == ExitCode.BAD_ANSWER, ran.stderr
    assert "row-stale" in ran.stdout
    assert 'user_id="u0"' in ran.stdout
    assert "log damaged/0@0" in ran.stdout


@pytest.mark.full
@pytest.mark.parametrize("is_there", [False, True], ids=["missing", "damaged"])
def test_a_file_that_cannot_be_read_leaves_the_other_buckets_to_be_compared(
    live: Live, damage: Damage, is_there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: another row that is lost, in the other bucket, is still named; a sample goes on, too."""
    file, position = damage.live_keys()[key_of(damage, 11)]
    lost = damage.deleted(file) | BitMap([position])
    commit(live, damage, delete(damage, file, lost), accounting=Accounting(read=1, applied=1))
    other = next(one for one in damage.files() if one.bucket != file.bucket)
    whole = len(damage.live_keys())
    with kept_as_it_was(other.path) as local:
        local.unlink()
        if is_there:
            local.write_bytes(bytes(other.bytes))
        code, report = verified(live, capsys)
        assert code == ExitCode.BAD_ANSWER
        assert "row-missing" in report["differences"]
        assert 0 < report["rows"]["agreed"] < whole
        read_paths, rows = report["unchecked"]
        assert read_paths.startswith("extract, hot tier and lookups: ")
        assert rows.startswith(f"rows of the buckets {other.bucket}: ")
        live.run("verify", live.name, "--sample", "100", "--json")
        sampled = json.loads(capsys.readouterr().out)
        assert (sampled["differences"], len(sampled["unchecked"])) == ({"row-missing": 1}, 2)


@pytest.mark.full
def test_a_log_that_holds_nothing_any_more_is_no_proof(
    stack: Stack, jvm: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: the read paths agree with the table, and nobody can say whether the table is right."""
    live = Live(stack, "trimmed", partitions=1)
    live.write(range(4), "one")
    live.ingest()
    live.cut({0: live.log.ends([live.name])[live.name, 0]})
    code, report = verified(live, capsys)
    assert code == ExitCode.UNAVAILABLE
    assert (report["agrees"], report["complete"], report["read_paths"]["extract_rows"]) == (True, False, 4)
    assert report["rows"]["not_judged"] == {"older than what the log still holds": 4}
    live.write([1], "two")
    live.ingest()
    code, report = verified(live, capsys)
    assert (code, report["rows"]["agreed"]) == (ExitCode.DONE, 1)


@pytest.mark.full
def test_a_row_whose_tombstone_was_undone_is_named(
    live: Live, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    file, position = dead(damage, 6)
    commit(live, damage, delete(damage, file, damage.deleted(file) - BitMap([position])))
    code, report = verified(live, capsys)
    assert code == ExitCode.BAD_ANSWER
    assert {"row-extra", "deletes-lost"} <= report["differences"].keys()
    assert {"app_id": APP, "user_id": "u6", "key": "plan"} in [one["key"] for one in report["findings"]]


@pytest.mark.full
def test_a_row_that_was_removed_under_a_right_accounting_is_named(
    live: Live, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Method: a batch of one tombstone that the log does not have, said to be a replay."""
    file, position = damage.live_keys()[key_of(damage, 11)]
    commit(
        live,
        damage,
        delete(damage, file, damage.deleted(file) | BitMap([position])),
        accounting=Accounting(read=1, applied=1),
        summary={"thermocline.replayed": "{}"},
    )
    assert found(live) == []
    code, report = verified(live, capsys)
    assert (code, report["differences"]) == (ExitCode.BAD_ANSWER, {"row-missing": 1})


@pytest.mark.full
def test_a_seam_that_was_moved_over_records_is_named(
    live: Live, damage: Damage, capsys: pytest.CaptureFixture[str]
) -> None:
    """Method: moved on in summary and property, where the structure alone can't see it."""

    def move(metadata: Json) -> None:
        current = metadata["current-snapshot-id"]
        summary = next(one for one in metadata["snapshots"] if one["snapshot-id"] == current)["summary"]
        ends = live.log.ends([live.name])
        summary["thermocline.seam"] = metadata["properties"][SEAM_PROPERTY] = ends.to_json()

    damage.edit_metadata(move)
    assert found(live) == []
    code, report = verified(live, capsys)
    assert code == ExitCode.BAD_ANSWER
    assert set(report["differences"]) & {"row-missing", "row-stale"}


def transactions(live: Live) -> None:
    """One that is committed, and one that is aborted: their markers take offsets, as do aborted records."""
    producer = Producer(
        {**live.settings.kafka.client_config(), "transactional.id": live.name, "log_level": 0}
    )
    producer.init_transactions(30)
    for value, finish in ((5, producer.commit_transaction), (6, producer.abort_transaction)):
        producer.begin_transaction()
        content = json.dumps({"score": value}).encode()
        producer.produce(live.name, content, key_bytes((APP, "transactional", "plan")), partition=0)
        producer.flush(30)
        finish(30)
    wait_for_markers(live.log, [live.name])
