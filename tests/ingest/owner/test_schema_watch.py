"""What an owner makes of the schemas that a batch met: each judged once, by the table's contract.

Method: a registry that answers over HTTP, and reports as read tasks give them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.thermocline.registry_server import RegistryServer
from thermocline.errors import SchemaStopped
from thermocline.iceberg.alterations import NotedCause, alterations_of
from thermocline.iceberg.catalog import CONTRACT_SAMPLE_PROPERTY, SUMMARY_SCHEMA_CAUSE
from thermocline.iceberg.earlier_columns import with_earlier_columns
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.met_schemas import Met, MetSchema, SchemaMeter
from thermocline.ingest.batch.plan import Batch
from thermocline.ingest.batch.read_task import ReadReport, ReadTask, count_bad
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.owner.observers import Observers
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.owner.schema_watch import SchemaWatch
from thermocline.ingest.owner.table_batch import Read, read_for
from thermocline.ingest.owner.unread import UnreadNames
from thermocline.ingest.owner.upkeep import NoUpkeep
from thermocline.kafka.facts import RecordChunk
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.contract.sampled import FieldSample
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.decode.unread import UnreadFields
from thermocline.rules.definition import LiveTable
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam
from thermocline.schemas.registry import SchemaRegistry

OLD, NEW = (b"\x00" + number.to_bytes(4) for number in (1, 2))


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    registry = RegistryServer()
    for number, names in ((1, ["n"]), (2, ["n", "plan"])):
        fields = [{"name": name, "type": "int"} for name in names]
        registry.add(number, {"type": "record", "name": "R", "fields": fields})
    registry.schemas["/schemas/ids/2/versions"] = [{"subject": "orders-value", "version": 7}]  # type: ignore[assignment]
    registry.start()
    yield registry
    registry.stop()


def table(
    contract: Any, format_: str = "avro", version: int = 1, columns: Mapping[str, str] | None = None
) -> LiveTable:
    return LiveTable.build(
        name="orders",
        identifier="app.orders",
        topics=["orders"],
        key=["id"],
        key_format="string",
        format=format_,
        columns={"id": "string", "n": "int", **(columns or {})},
        contract=contract,
        version=version,
    )


def owner(
    definition: LiveTable, registry: RegistryServer | None = None, properties: Mapping[str, str] | None = None
) -> Owner:
    """As much of one as judging needs."""
    known = None if registry is None else SchemaRegistry(registry.url)
    found = SimpleNamespace(metadata=SimpleNamespace(last_column_id=6), properties=properties or {})
    return cast(
        Owner, SimpleNamespace(definition=definition, table=found, task=SimpleNamespace(registry=known))
    )


def report(*heads: tuple[int, bytes]) -> ReadReport:
    schemas = {head.hex(): MetSchema("orders", 0, offset, "value", head) for offset, head in heads}
    return ReadReport([], met=Met(schemas))


class Plain:
    """A message without headers."""

    def headers(self) -> None:
        return None


class Unreadable:
    """One whose headers the client refuses to give."""

    def headers(self) -> None:
        raise SystemError

    def set_headers(self, headers: Any) -> None: ...


def chunk(values: list[bytes | None], message: type[Any] = Plain) -> RecordChunk:
    count = len(values)
    keys: list[bytes | None] = [b"k"] * count
    return RecordChunk("orders", 0, keys, values, list(range(count)), [0] * count, [message()] * count)


def test_a_table_takes_up_what_a_batch_met_first_and_says_which_record_it_was(
    registry: RegistryServer,
) -> None:
    found, causes = SchemaWatch().planned(
        owner(table("evolve"), registry), [report((9, NEW), (1, OLD)), report((4, NEW))]
    )
    assert found.alteration is not None
    assert [str(one.type) for one in found.alteration.definition.columns] == ["string", "int", "int"]
    assert [str(one.noted()) for one in causes] == [
        "cause for plan: schema 2 (version 7 of orders-value), first met at orders/0@4"
    ]


def test_a_schema_is_judged_once_under_each_version_of_the_definition(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, asked = SchemaWatch(), list[SchemaId]()
    of = SchemaRegistry.of

    def noted(self: SchemaRegistry, id_: SchemaId) -> WriterSchema:
        asked.append(id_)
        return of(self, id_)

    monkeypatch.setattr(SchemaRegistry, "of", noted)
    for version in (1, 1, 2, 2):
        assert watch.planned(owner(table("ignore", version=version), registry), [report((0, NEW))])[1] == ()
    assert asked == [2, 2]


def test_a_schema_whose_changes_were_not_committed_is_judged_again(registry: RegistryServer) -> None:
    watch = SchemaWatch()
    for _ in range(2):
        found, _ = watch.planned(owner(table("evolve"), registry), [report((0, NEW))])
        assert found.alteration is not None


def test_a_schema_that_stops_the_table_is_named_with_its_record_each_time(registry: RegistryServer) -> None:
    watch, said = SchemaWatch(), list[SchemaStopped]()
    for _ in range(2):
        with pytest.raises(SchemaStopped) as caught:
            watch.planned(owner(table({"new_columns": "stop"}), registry), [report((3, OLD), (5, NEW))])
        said.append(caught.value)
    facts = said[1]
    assert (facts.record, facts.part, facts.schema) == (
        "orders/0@5",
        "value",
        "2 (version 7 of orders-value)",
    )
    assert facts.changes == ('field "plan" (int) has no column',)
    assert "thermocline table alter orders" in facts.next


def test_a_column_that_is_never_to_be_added_is_left_out(registry: RegistryServer) -> None:
    contract = {"mode": "evolve", "columns": {"plan": "ignore"}}
    found, causes = SchemaWatch().planned(owner(table(contract), registry), [report((0, NEW))])
    assert (found.alteration, causes) == (None, ())


def test_a_column_that_was_dropped_is_not_taken_up_again_while_producers_still_send_it(
    registry: RegistryServer,
) -> None:
    met, before = [report((0, NEW))], table("evolve", columns={"plan": "int"})
    planned = plan_alteration(before, table("evolve"), drop=["plan"])
    noted = with_earlier_columns({}, before)
    found, causes = SchemaWatch().planned(owner(planned.definition, registry, noted), met)
    assert (found.alteration, causes) == (None, ())
    by_sample = SchemaWatch()
    sampled = table({"new_columns": "evolve", "evolve_after": 1}, "json", planned.definition.version)
    found, _ = by_sample.planned(owner(sampled, None, noted), [json_report(9, "integer")])
    assert found.alteration is None
    by_hand = plan_alteration(planned.definition, before).definition
    found, _ = SchemaWatch().planned(owner(by_hand, registry, noted), met)
    assert found.alteration is None, "the table has it"


def test_read_tasks_say_where_each_known_schema_was_met_first(registry: RegistryServer) -> None:
    meter, met = SchemaMeter(table("evolve"), SchemaRegistry(registry.url)), Met()
    garbage = b"\x00\x00\x00\x00\x09\x00"
    meter.take(chunk([None, garbage, NEW + b"\x02\x02", OLD + b"\x02", NEW + b"\x02\x02"]), range(5), met)
    assert [(str(one), one.head) for one in met.first_schemas([])] == [
        ("orders/0@2", NEW),
        ("orders/0@3", OLD),
    ]


def test_records_whose_headers_cannot_be_read_fail_no_batch(registry: RegistryServer) -> None:
    definition, known, met = table("quarantine"), SchemaRegistry(registry.url), Met()
    unreadable = chunk([NEW + b"\x02\x02"], Unreadable)
    SchemaMeter(table("evolve"), known).take(unreadable, range(1), met)
    assert met == Met()
    decoded = decoder_for(definition, known).decode(unreadable.keys, unreadable.values, unreadable.headers_of)
    assert [one.stage for one in decoded.bad] == ["decode"]
    sampled = UnreadFields(definition, known).of(unreadable.values, headers_of=unreadable.headers_of)
    assert sampled.values == 0


def test_read_tasks_count_the_records_that_the_contract_refuses(registry: RegistryServer) -> None:
    definition, known, found = table("quarantine"), SchemaRegistry(registry.url), ReadReport([])
    some = chunk([NEW + b"\x02\x02", b"garbage", OLD + b"\x02", NEW + b"\x04\x02"])
    decoded = decoder_for(definition, known).decode(some.keys, some.values, some.headers_of)
    count_bad(found, some, decoded.bad)
    assert (found.bad, found.refused) == ({"contract": 2, "decode": 1}, 2)


def test_a_table_without_a_contract_notes_nothing(registry: RegistryServer) -> None:
    meter, met = SchemaMeter(table("ignore"), SchemaRegistry(registry.url)), Met()
    meter.take(chunk([NEW + b"\x02\x02"]), range(1), met)
    assert met == Met()


def json_report(values: int, *kinds: str) -> ReadReport:
    return ReadReport([], met=Met(fields={"plan": FieldSample(values, list(kinds))}))


def test_json_gains_a_column_only_once_its_field_was_seen_often_enough_over_batches_and_owners() -> None:
    definition = table({"new_columns": "evolve", "evolve_after": 1_000}, "json")
    watch = SchemaWatch()
    found, _ = watch.planned(owner(definition), [json_report(600, "integer")])
    assert found.alteration is None
    kept = watch.to_commit(owner(definition))
    assert json.loads(kept[CONTRACT_SAMPLE_PROPERTY])["fields"] == {"plan": [600, ["integer"]]}
    next_owner = owner(definition, None, kept)
    found, causes = SchemaWatch().planned(next_owner, [json_report(399, "integer")])
    assert found.alteration is None
    found, causes = SchemaWatch().planned(next_owner, [json_report(400, "number")])
    assert found.alteration is not None
    assert str(found.alteration.definition.columns[-1].type) == "double"
    assert [str(one.noted()) for one in causes] == ["cause for plan: what values of a sample had"]


def test_what_a_batch_that_did_not_land_had_does_not_count() -> None:
    definition = table("evolve", "json")
    watch = SchemaWatch()
    for _ in range(3):
        found, _ = watch.planned(owner(definition), [json_report(900, "text")])
        assert found.alteration is None
    watch.landed()
    assert watch.planned(owner(definition), [json_report(900, "text")])[0].alteration is not None


@dataclass
class Kept:
    """What an owner that can commit did with a batch's files, and what it committed."""

    gone: list[Any] = field(default_factory=list)
    discarded: list[Any] = field(default_factory=list)
    changes: list[TableChange] = field(default_factory=list)

    def commit(self, _: int, seam: Seam, change: TableChange) -> Landed:
        self.changes.append(change)
        return Landed(2, seam)


def committing_owner(
    definition: LiveTable, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> tuple[Owner, Kept]:
    kept = Kept()
    monkeypatch.setattr("thermocline.ingest.owner.owner.delete_files", lambda *given: kept.gone.append(given))
    position = SimpleNamespace(
        seam=Seam(),
        cluster_id="c",
        topic_ids={},
        watermark_ms=0,
        drained_ms=0,
        snapshot_id=1,
        files={},
        partition_times=PartitionTimes(),
    )
    position.after = lambda *_: position
    of = owner(definition, registry)
    known = SchemaRegistry(registry.url)
    of.task = ReadTask(definition, {}, cast(Any, None), cast(Any, None), "", {}, known)
    for name, one in {
        "position": position,
        "at": position,
        "is_contested": False,
        "upkeep": NoUpkeep(),
        "routing": None,
        "bad_records": SimpleNamespace(discard=kept.discarded.append),
        "schemas": SchemaWatch(),
        "engine": SimpleNamespace(jvm=None),
        "clock": SimpleNamespace(now_ms=lambda: 5),
        "lease": SimpleNamespace(check=lambda: None),
        "committer": SimpleNamespace(commit=kept.commit),
        "unread": UnreadNames(definition, {}),
        "on_commit": lambda: None,
        "observers": Observers(),
        **{name: partial(getattr(Owner, name), of) for name in ("land", "leave", "leaving")},
    }.items():
        setattr(of, name, one)
    of.table = cast(Any, SimpleNamespace(**vars(of.table), io="io", location=lambda: "file:///t"))
    return of, kept


def test_a_batch_is_read_again_by_the_definition_that_it_asked_for_and_its_first_files_go(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, kept = committing_owner(table("evolve"), registry, monkeypatch)
    met = BatchResult((report((4, NEW)),), ())
    reading = read_for(of, Batch((), Seam(), Seam()))
    first = next(reading)
    again = reading.send(Read(met, 0.0, 1))
    with pytest.raises(StopIteration) as done:
        reading.send(Read(met, 0.0, 1))
    assert done.value.value.result is met
    named = [[one.name for one in wanted.share.task.definition.columns] for wanted in (first, again)]
    assert named == [["id", "n"], ["id", "n", "plan"]]
    assert (kept.gone, kept.discarded) == ([("io", [])], [met.reports])
    (change,) = kept.changes
    assert change.definition is of.definition
    assert json.loads(change.summary[SUMMARY_SCHEMA_CAUSE]) == [
        {
            "changes": ['field "plan" (int) has no column'],
            "topic": "orders",
            "partition": 0,
            "offset": 4,
            "part": "value",
            "schema": "2",
            "named": "version 7 of orders-value",
        }
    ]
    (note,) = alterations_of(change.properties)
    assert note.sentences == (
        "column plan is added as int; rows that are there have null",
        "cause for plan: schema 2 (version 7 of orders-value), first met at orders/0@4",
    )
    assert note.causes == (NotedCause(("plan",), "orders/0@4", "value", "2", "version 7 of orders-value"),)


def test_a_batch_that_stops_when_it_is_read_again_leaves_no_file_either(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: once a table has gained a column, schemas that lack it may be what the contract stops at."""
    contract = {"mode": "evolve", "removed_fields": "stop"}
    of, kept = committing_owner(table(contract), registry, monkeypatch)
    first, again = (BatchResult((report((3, OLD), (4, NEW)),), ()) for _ in range(2))
    reading = read_for(of, Batch((), Seam(), Seam()))
    next(reading)
    reading.send(Read(first, 0.0, 1))
    with pytest.raises(SchemaStopped) as stopped:
        reading.send(Read(again, 0.0, 1))
    assert stopped.value.record == "orders/0@3"
    assert kept.discarded == [first.reports, again.reports]
    assert len(kept.gone) == 2
