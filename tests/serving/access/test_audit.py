"""The audit log of a worker: what a line says and never says, and what waits while nothing takes it."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import string
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.manual_clock import ManualClock
from tests.serving.access.audit_parts import AWAY, MemorySink, access, entity, lines_of, wait_for
from tests.thermocline.profiles import PROFILES
from thermocline.errors import AuditUnavailable, ConfigInvalid
from thermocline.serving.access import audit, audit_kafka
from thermocline.serving.access.audit import Access, AuditLog, AuditRecord, open_audit_log, rows_in
from thermocline.serving.access.audit_file import FileSink
from thermocline.serving.access.entity_hash import EntityHash
from thermocline.serving.store import measures
from thermocline.settings import (
    AuditSettings,
    CatalogSettings,
    KafkaSettings,
    PassThrough,
    ServingSettings,
    Settings,
)

KEY = bytes(range(32))
HASHES = EntityHash(KEY)
POINT = b'{"snapshot_id":"9","seam":{"profiles":{"0":5}},"end":{"profiles":{"0":8}}}'


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(audit, "RETRY_SECONDS", 0.01)


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def log(sink: MemorySink) -> Iterator[AuditLog]:
    log = AuditLog(sink, HASHES, ManualClock(), is_required=True)
    yield log
    sink.failure = None
    sink.may_go.set()
    log.close()


def hash_of(user: str) -> str:
    message = b"profiles\x00" + b"\x80\x00\x00\x07" + user.encode() + b"\x00\x01"
    return hmac.new(KEY, message, hashlib.sha256).hexdigest()[:32]


def counted() -> tuple[float, float]:
    """Records written, and lost."""
    found = [metric.collect() for metric in (measures.AUDIT_RECORDS, measures.AUDIT_LOST)]
    written, lost = (
        [one.value for one in family.samples if one.name.endswith("_total")] for (family,) in found
    )
    return written[0], lost[0]


VERBS = (
    *("lookup", "batch", "extract", "changes", "job-start", "job-read", "job-cancel", "refused"),
    *("describe", "catalog-load", "status"),
)
REQUESTS = 1_500

# Lines


def line_of(sink: MemorySink, log: AuditLog, request: Access) -> bytes:
    log.write(request)
    wait_for(lambda: bool(sink.lines))
    return sink.lines.pop()


def test_a_lookup_is_one_line_that_names_its_entity_by_the_hash(sink: MemorySink, log: AuditLog) -> None:
    request = Access(
        "lookup",
        "0f3a",
        200,
        0.00021,
        client="billing",
        key="k7",
        address="10.1.2.3",
        table="profiles",
        definition=PROFILES,
        entities=(entity("ada"),),
        read_point=POINT,
        rows=10,
        size_bytes=1_234,
    )
    assert line_of(sink, log, request) == (
        b'{"time":"2023-11-14T22:13:20.000Z","verb":"lookup","outcome":"ok","status":200,"duration_ms":0.21,'
        b'"request_id":"0f3a","client":"billing","key":"k7","address":"10.1.2.3","table":"profiles",'
        b'"entity":"' + hash_of("ada").encode() + b'",'
        b'"read_point":{"snapshot_id":"9","seam":{"profiles":{"0":5}},"end":{"profiles":{"0":8}}},'
        b'"rows":10,"bytes":1234}\n'
    )


ODD = ("billing", 'a"b\\c', "\n\x00\x7f", "é\u2028😀", "", "x" * 300, None)


def test_a_line_is_its_record_in_one_form_whatever_callers_choose(sink: MemorySink, log: AuditLog) -> None:
    chosen = random.Random(7)
    for number in range(200):
        client, key, address, table = (chosen.choice(ODD) for _ in range(4))
        request = Access(
            chosen.choice(VERBS),
            chosen.choice(ODD) or f"r{number}",
            chosen.choice((200, 404)),
            chosen.choice((0.0, 0.0000004, 0.1234567, 1.0, 9_000.5)),
            outcome=chosen.choice(("ok", "broken-off")),
            client=client,
            key=key,
            address=address,
            table=table,
            rows=chosen.choice((None, 0, 7)),
            size_bytes=chosen.choice((None, 0, 1 << 40)),
        )
        if chosen.random() < 0.7:
            request.definition = PROFILES
            request.entities = tuple(entity(f"u{one}") for one in range(chosen.randint(1, 3)))
        if chosen.random() < 0.7:
            request.read_point = POINT
        line = line_of(sink, log, request)
        said = json.loads(line)
        if "read_point" in said:
            said["read_point"] = msgspec.Raw(POINT)
        record = AuditRecord(size_bytes=said.pop("bytes", None), **said)
        assert msgspec.json.encode(record) + b"\n" == line
        assert (record.verb, record.status, record.rows) == (request.verb, request.status, request.rows)
        named = (record.client, record.key, record.address)
        assert named == tuple(None if one is None else one[:256] for one in (client, key, address))


def test_what_is_not_known_is_left_out(sink: MemorySink, log: AuditLog) -> None:
    request = Access("status", "0f3a", 200, 0.5)
    assert line_of(sink, log, request) == (
        b'{"time":"2023-11-14T22:13:20.000Z","verb":"status","outcome":"ok","status":200,"duration_ms":500.0,'
        b'"request_id":"0f3a"}\n'
    )


def test_a_batch_lists_the_hash_of_each_entity_in_order(sink: MemorySink, log: AuditLog) -> None:
    users = ("bob", "ada", "bob")
    request = Access(
        "batch", "1", 200, 0.1, definition=PROFILES, entities=tuple(map(entity, users)), table="profiles"
    )
    line = json.loads(line_of(sink, log, request))
    assert line["entity"] == [hash_of(user) for user in users]
    assert line["entities"] == 3


def test_a_line_has_so_many_hashes_and_the_count_of_all(
    sink: MemorySink, log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "ENTITIES_MAX", 2)
    entities = tuple(map(entity, ("ada", "bob", "eve")))
    line = json.loads(
        line_of(sink, log, Access("batch", "1", 200, 0.1, definition=PROFILES, entities=entities))
    )
    assert (line["entity"], line["entities"]) == ([hash_of("ada"), hash_of("bob")], 3)


def test_a_request_that_failed_has_the_code_and_one_that_broke_off_says_so(
    sink: MemorySink, log: AuditLog
) -> None:
    refused = Access("lookup", "1", 403, 0.1, outcome="not-permitted", client="ada", table="profiles")
    line = json.loads(line_of(sink, log, refused))
    assert (line["outcome"], line["status"], line["client"]) == ("not-permitted", 403, "ada")
    broken = Access("extract", "2", 200, 0.1, outcome="broken-off", table="profiles", rows=3, size_bytes=99)
    line = json.loads(line_of(sink, log, broken))
    assert (line["outcome"], line["rows"], line["bytes"]) == ("broken-off", 3, 99)


def test_what_others_choose_stays_one_bounded_line(sink: MemorySink, log: AuditLog) -> None:
    evil = 'x"},\n{"time":"forged\r\u2028\x00\ud800' + "y" * 1_000
    line = line_of(sink, log, Access("lookup", "1", 401, 0.1, client=evil, key=evil, address=evil))
    assert line.count(b"\n") == 1
    assert len(line) < 4_000
    said = json.loads(line)
    assert said["client"] == said["key"] == said["address"]
    assert said["client"].startswith('x"},\n{"time":"forged\r\u2028\x00?yyy')
    assert len(said["client"]) == audit.TEXT_MAX


@pytest.mark.parametrize("count", [0, 1, 10])
def test_rows_of_an_answer_are_counted(count: int) -> None:
    rows = [{"key": "],[", "nested": [[1], {"a": ["}"]}]} for _ in range(count)]
    assert rows_in(msgspec.json.encode(rows)) == count


def test_no_value_of_a_key_or_a_row_is_in_any_line_whatever_is_asked(tmp_path: Path) -> None:
    """Method: random texts and numbers as keys, in all kinds of requests with all outcomes, through files."""
    source = random.Random(7)

    def text() -> str:
        return "".join(source.choices(string.ascii_letters + string.digits + '"\\\n{}é\x00', k=12))

    log = AuditLog(FileSink(tmp_path, 1_000_000, 100), HASHES, ManualClock())
    texts, numbers = [], []
    for number in range(REQUESTS):
        users = [text() for _ in range(source.choice((1, 1, 1, 5)))]
        key, app_id = text(), source.randrange(1_000_000_000, 2_000_000_000)
        texts += [*users, key]
        numbers.append(app_id)
        entities = tuple(entity(user, source.choice((key, None)), app_id) for user in users)
        outcome, status = source.choice((("ok", 200), ("row-not-found", 404), ("broken-off", 200)))
        request = Access(VERBS[number % len(VERBS)], f"r{number}", status, 0.1, outcome, "billing", "k7")
        request.table, request.definition, request.entities = "profiles", PROFILES, entities
        request.read_point, request.rows, request.size_bytes = POINT, len(users), 77
        log.write(request)
    log.close()
    lines = lines_of(tmp_path)
    said = [json.loads(line) for line in lines]
    assert [line["request_id"] for line in said] == [f"r{number}" for number in range(REQUESTS)]
    assert {line["verb"] for line in said} == set(VERBS)
    everything = b"".join(lines)
    forms = {form for one in texts for form in (one.encode(), msgspec.json.encode(one)[1:-1])}
    assert [form for form in forms if form in everything] == []
    assert [one for one in numbers if b"%d" % one in everything] == []


def test_a_record_that_cannot_be_made_is_lost_alone(
    sink: MemorySink, log: AuditLog, caplog: pytest.LogCaptureFixture
) -> None:
    written, lost = counted()
    wrong = Access("lookup", "1", 200, 0.1, definition=PROFILES, entities=(entity("ada"),))
    wrong.entities = ("secret of ada",)  # type: ignore[assignment]  # a mistake of ours
    log.write(wrong)
    log.write(access(2))
    wait_for(lambda: bool(sink.lines))
    assert [json.loads(line)["request_id"] for line in sink.lines] == ["r2"]
    wait_for(lambda: counted() == (written + 1, lost + 1))
    assert log.problem() is None
    assert "secret of ada" not in "".join(f"{record.__dict__}" for record in caplog.records)


# While nothing takes the lines


def ids(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["request_id"] for line in lines]


def test_what_came_meanwhile_is_written_in_order_when_the_sink_is_back(
    sink: MemorySink, log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "BATCH_RECORDS_MAX", 7)
    sink.failure = AWAY
    for number in range(100):
        log.write(access(number))
    wait_for(lambda: sink.attempts > 3)
    assert log.problem() == "the audit log can't be written: the disk was taken out"
    sink.failure = None
    wait_for(lambda: len(sink.lines) == 100)
    assert ids(sink.lines) == [f"r{number}" for number in range(100)]
    wait_for(lambda: log.problem() is None)
    assert sink.batches >= 100 / 7


def test_a_log_that_is_required_refuses_until_the_sink_is_back(sink: MemorySink, log: AuditLog) -> None:
    log.check()
    sink.failure = OSError(28, "No space left on device", "/secret/place/audit.jsonl")
    log.write(access())
    wait_for(lambda: log.problem() is not None)
    with pytest.raises(AuditUnavailable) as refused:
        log.check()
    assert (refused.value.status, refused.value.retryable) == (503, True)
    assert log.problem() == "the audit log can't be written: No space left on device"
    sink.failure = None
    wait_for(lambda: log.problem() is None)
    log.check()
    assert ids(sink.lines) == ["r0"]


def test_a_log_that_is_not_required_refuses_nobody(sink: MemorySink) -> None:
    log = AuditLog(sink, HASHES, ManualClock())
    sink.failure = AWAY
    log.write(access())
    wait_for(lambda: log.problem() is not None)
    log.check()
    sink.failure = None
    log.close()


def test_a_sink_that_hangs_is_a_problem_after_a_while(sink: MemorySink) -> None:
    clock = ManualClock()
    log = AuditLog(sink, HASHES, clock, is_required=True)
    sink.may_go.clear()
    log.write(access())
    wait_for(lambda: sink.attempts == 1)
    clock.advance(audit.STALLED_SECONDS)
    assert log.problem() is None
    clock.advance(1)
    assert log.problem() == "the audit log has not taken a record for 10 s"
    with pytest.raises(AuditUnavailable):
        log.check()
    sink.may_go.set()
    wait_for(lambda: log.problem() is None)
    log.close()


def test_what_waits_is_bounded_and_what_is_beyond_is_lost_and_counted(
    sink: MemorySink, log: AuditLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The entities of a batch count, too; a required log refuses when half of the room is left."""
    monkeypatch.setattr(audit, "WAITING_MAX", 20)
    monkeypatch.setattr(audit, "REQUIRED_WAITING_MAX", 10)
    written, lost = counted()
    sink.may_go.clear()
    log.write(access(0))
    wait_for(lambda: sink.attempts == 1)  # what is being written still counts
    for number in range(1, 10):
        log.write(access(number))
    log.check()
    log.write(access(10))
    assert log.problem() == "11 records wait for the audit log, which does not keep up"
    with pytest.raises(AuditUnavailable):
        log.check()
    batch = Access("batch", "batch", 200, 0.1, definition=PROFILES, entities=tuple(map(entity, "abcdefghi")))
    log.write(batch)  # 11 + 10 are more than 20
    for number in range(11, 25):
        log.write(access(number))
    assert counted() == (written, lost + 6)
    assert [record.message for record in caplog.records] == ["audit records are lost"]
    sink.may_go.set()
    wait_for(lambda: len(sink.lines) == 20)
    assert ids(sink.lines) == [f"r{number}" for number in range(20)]
    wait_for(lambda: counted() == (written + 20, lost + 6))
    assert log.problem() is None


def test_a_failure_is_logged_once_and_so_is_its_end(
    sink: MemorySink, log: AuditLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    sink.failure = AWAY
    log.write(access())
    wait_for(lambda: sink.attempts > 5)
    sink.failure = None
    wait_for(lambda: log.problem() is None)
    said = [record.message for record in caplog.records if record.name.endswith("audit")]
    assert said == ["audit log can't be written; it is tried again", "audit log is written again"]


# The end


def test_closing_writes_what_waits(sink: MemorySink) -> None:
    log = AuditLog(sink, HASHES)
    for number in range(3_000):
        log.write(access(number))
    log.close()
    assert ids(sink.lines) == [f"r{number}" for number in range(3_000)]
    assert sink.is_closed


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
def test_closing_ends_though_the_sink_takes_nothing_and_counts_what_is_lost(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.setattr(audit, "CLOSE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(audit, "BATCH_RECORDS_MAX", 7)
    written, lost = counted()
    log = AuditLog(sink, HASHES)
    if hangs:
        sink.may_go.clear()
    else:
        sink.failure = AWAY
    for number in range(20):
        log.write(access(number))
    log.close()
    assert counted() == (written, lost + 20)
    sink.failure = AWAY
    sink.may_go.set()


# Settings


def settings_of(tmp_path: Path, **choices: object) -> Settings:
    return Settings(
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        catalog=CatalogSettings(type="glue"),
        serving=ServingSettings(state_dir=tmp_path / "serving"),
        audit=AuditSettings.model_validate(
            {"path": tmp_path / "audit", "hash_key_file": tmp_path / "audit.key", **choices}
        ),
    )


def test_without_a_sink_there_is_no_log_and_no_key(tmp_path: Path) -> None:
    assert open_audit_log(settings_of(tmp_path)) is None
    assert not list(tmp_path.iterdir())


def test_files_are_written_as_the_settings_say(tmp_path: Path) -> None:
    log = open_audit_log(settings_of(tmp_path, sink="file"), ManualClock())
    assert log is not None
    log.write(Access("lookup", "1", 200, 0.1, definition=PROFILES, entities=(entity("ada"),)))
    log.close()
    (line,) = lines_of(tmp_path / "audit")
    message = b"profiles\x00\x80\x00\x00\x07ada\x00\x01"
    key = (tmp_path / "audit.key").read_bytes()
    assert json.loads(line)["entity"] == hmac.new(key, message, hashlib.sha256).hexdigest()[:32]


def test_a_cluster_that_is_down_is_a_problem_of_the_log_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_kafka, "ACKNOWLEDGED_SECONDS_MAX", 0.05)
    monkeypatch.setattr(audit, "CLOSE_SECONDS_MAX", 0.05)
    log = open_audit_log(settings_of(tmp_path, sink="kafka", topic="audit", required=True))
    assert log is not None
    log.write(access())
    wait_for(lambda: log.problem() is not None)
    assert log.problem() == "the audit log can't be written: no Kafka broker answered at 127.0.0.1:1."
    with pytest.raises(AuditUnavailable):
        log.check()
    log.close()


def test_a_client_that_cannot_be_made_is_named_at_once(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, sink="kafka", topic="audit")
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1", client=PassThrough({"no.such": "1"}))
    with pytest.raises(ConfigInvalid, match=r"no\.such"):
        open_audit_log(settings.model_copy(update={"kafka": kafka}))
