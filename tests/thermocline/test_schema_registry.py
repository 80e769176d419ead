"""The registry's client against a server that speaks its protocol, and goes away and comes back."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.manual_clock import ManualClock
from tests.thermocline.avro_poison import number, string
from tests.thermocline.registry_server import RegistryServer
from thermocline.errors import RegistryUnreachable
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import message_at
from thermocline.schemas import protobuf_compiler
from thermocline.schemas import registry as schema_registry
from thermocline.schemas.protobuf_compiler import compiled
from thermocline.schemas.registry import UNKNOWN_SECONDS, SchemaRegistry

GUID = UUID("89791762-2336-186f-9674-299b90a8e2e7")
ROW = {"type": "record", "name": "Row", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    server = RegistryServer()
    server.add(7, ROW)
    server.add(GUID, ROW)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url, timeout_seconds=5)


def test_an_id_is_asked_for_once_and_is_known_for_ever(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    first = registry.of(7), registry.of(GUID)
    assert not any(schema.problem for schema in first)
    server.stop()
    again = pickle.loads(pickle.dumps(registry))  # as a worker gets it
    assert (again.of(7), again.of(GUID)) == first
    assert server.asked == ["/schemas/ids/7", f"/schemas/guids/{GUID}"]


def test_an_id_that_the_registry_does_not_know_is_a_problem_of_its_records_for_a_while(
    server: RegistryServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(schema_registry, "SystemClock", lambda: clock)
    for _ in range(3):
        assert registry.of(8) == WriterSchema(problem="the schema registry knows no schema 8")
    assert server.asked == ["/schemas/ids/8"]
    server.add(8, ROW)
    clock.advance(UNKNOWN_SECONDS)
    assert not registry.of(8).problem


@pytest.mark.parametrize("status", [301, 400, 401, 403, 429, 500, 502, 503])
def test_an_answer_that_says_nothing_of_a_schema_holds_its_records_back(
    server: RegistryServer, registry: SchemaRegistry, status: int
) -> None:
    server.status = status
    with pytest.raises(RegistryUnreachable) as held:
        registry.of(7)
    assert held.value.retryable
    assert str(status) in held.value.cause
    server.status = 0
    assert not registry.of(7).problem


def test_a_registry_that_goes_away_holds_back_and_goes_on_when_it_is_back(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    server.stop()
    with pytest.raises(RegistryUnreachable):
        registry.of(7)
    server.start()
    assert not registry.of(7).problem


def test_a_404_of_something_that_is_no_registry_holds_back(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    """A wrong address would make every record bad otherwise."""
    server.unknown, server.is_registry = {"message": "nothing here"}, False
    with pytest.raises(RegistryUnreachable):
        registry.of(8)


def test_a_404_of_a_registry_that_has_no_guids_is_about_the_record(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    server.unknown = {"error_code": 404, "message": "HTTP 404 Not Found"}
    assert registry.of(UUID(int=1)).problem


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b'{"schema": 1}', b"\xff", b"{" * 10_000,
        b'{"schema": "{}", "references": ["a"]}',
        b'{"schema": "{}", "references": 5}',
        b'{"schema": "{}", "references": [{"name": "a"}]}',
    ],
)  # fmt: skip
def test_an_answer_that_is_none_holds_back(
    server: RegistryServer, registry: SchemaRegistry, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "answer", lambda *_: (200, body))
    with pytest.raises(RegistryUnreachable):
        registry.of(7)


def test_an_endless_answer_holds_back(
    server: RegistryServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "ANSWER_BYTES_MAX", 10_000)
    server.add(7, "x" * 20_000)
    with pytest.raises(RegistryUnreachable) as held:
        registry.of(7)
    assert "answers more than" in held.value.cause


def test_schemas_that_a_schema_refers_to_come_before_it(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    def reference(subject: str) -> dict[str, Any]:
        return {"name": subject, "subject": subject, "version": 1}

    city = {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]}
    home = {"type": "record", "name": "Home", "fields": [{"name": "city", "type": "City"}]}
    user = {
        "type": "record",
        "name": "User",
        "fields": [{"name": "home", "type": "Home"}, {"name": "born", "type": "City"}],
    }
    at = "/subjects/{}/versions/1?deleted=true".format
    server.add(9, user, references=[reference("Home"), reference("a/City")])
    server.schemas[at("Home")] = {"schema": _text(home), "references": [reference("a/City")]}
    server.schemas[at("a%2FCity")] = {"schema": _text(city)}
    assert registry.of(9).texts == (_text(city), _text(home), _text(user))
    server.add(10, user, references=[reference("gone")])
    assert registry.of(10).problem.startswith("schema 10 refers to version 1 of gone")


def _text(schema: Any) -> str:
    return json.dumps(schema)


def test_a_schema_of_another_kind_is_a_problem_of_its_records(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    """Of one that can't be read at all, too."""
    server.add(11, {}, schemaType="JSON")
    server.add(12, "thrift", schemaType="THRIFT")
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=[], key_from="value", format="avro",
        columns={"a": "int"},
    )  # fmt: skip
    decoded = decoder_for(table, registry).decode([None] * 2, [b"\0\0\0\0\x0b{}", b"\0\0\0\0\x0c"])
    assert [bad.reason for bad in decoded.bad] == [
        "schema 11 is one of JSON Schema, not of Avro",
        "schema 12 is one of THRIFT, not of Avro",
    ]


def test_rules_that_change_what_is_read_make_records_bad_and_others_do_not(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    """Encrypted fields would be kept as they are, and nobody would know."""
    encrypt = {"name": "pii", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT"}
    check = {"name": "even", "kind": "CONDITION", "mode": "WRITEREAD", "type": "CEL"}
    server.add(20, ROW, ruleSet={"domainRules": [check], "migrationRules": None})
    server.add(21, ROW, ruleSet={"domainRules": [check, encrypt]})
    server.add(22, ROW, ruleSet={"domainRules": [{**encrypt, "disabled": True}]})
    assert [bool(registry.of(id_).problem) for id_ in (20, 21, 22)] == [False, True, False]


def test_a_user_and_a_password_are_sent_and_never_shown(server: RegistryServer) -> None:
    server.authorization = "Basic " + base64.b64encode(b"u:hunter2").decode()
    registry = SchemaRegistry(server.url, "u", "hunter2")
    assert not registry.of(7).problem
    assert "hunter2" not in repr(registry)
    with pytest.raises(RegistryUnreachable) as refused:
        SchemaRegistry(server.url, "u", "hunter3").of(7)
    assert "hunter" not in str(refused.value) + repr(refused.value)


def test_a_decoder_says_nothing_of_records_while_it_can_not_ask(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    table = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=[], key_from="value", format="avro",
        columns={"a": "int"},
    )  # fmt: skip
    decoder = decoder_for(table, registry)
    values = [b"\x00\x00\x00\x00\x07" + number(1), b"\x00\x00\x00\x00\x08" + string("x")]
    server.stop()
    with pytest.raises(RegistryUnreachable):
        decoder.decode([None] * 2, values)
    server.start()
    decoded = decoder.decode([None] * 2, values)
    assert (decoded.columns, len(decoded.bad)) == ({"a": [1]}, 1)
    server.stop()
    assert decoder.decode([None], values[:1]).columns == {"a": [1]}


MONEY = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
BILL = 'syntax = "proto3"; package shop; import "m/money.proto"; message Bill { Money sum = 1; }'
OF_MONEY = "/subjects/money/versions/2?deleted=true"


def add_bill(server: RegistryServer, id_: int, money: str, bill: str, form: str = "") -> None:
    reference = {"name": "m/money.proto", "subject": "money", "version": 2}
    server.add(id_, bill, form and f"?{form}", schemaType="PROTOBUF", references=[reference])
    server.schemas[f"{OF_MONEY}{form and '&'}{form}"] = {"schema": money, "schemaType": "PROTOBUF"}


def cents(schema: WriterSchema) -> int:
    assert not schema.problem
    found: int = message_at(schema.descriptors, (0,)).FromString(b"\x0a\x02\x08\x05").sum.cents
    return found


def test_a_schema_of_protobuf_is_compiled_of_its_text_and_of_those_that_it_refers_to(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    add_bill(server, 31, MONEY, BILL)
    assert cents(registry.of(31)) == 5
    add_bill(server, 32, MONEY, "message {")
    assert registry.of(32).problem.startswith("schema 32 can't be compiled: schema-32.proto")


def test_descriptors_are_asked_for_first_and_need_no_compiler(
    server: RegistryServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"m/money.proto": MONEY, "bill.proto": BILL}
    compiled_files = FileDescriptorSet.FromString(compiled(files, "bill.proto")).file
    money, bill = (base64.b64encode(file.SerializeToString()).decode() for file in compiled_files)
    monkeypatch.setattr(schema_registry, "compiled", None)
    add_bill(server, 33, "none", BILL)
    add_bill(server, 33, money, bill, "format=serialized")
    assert cents(registry.of(33)) == 5


def test_descriptors_that_are_not_all_there_are_none(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    files = {"m/money.proto": MONEY, "bill.proto": BILL}
    bill = FileDescriptorSet.FromString(compiled(files, "bill.proto")).file[-1].SerializeToString()
    add_bill(server, 34, MONEY, BILL)
    add_bill(server, 34, MONEY, base64.b64encode(bill).decode(), "format=serialized")
    add_bill(server, 37, MONEY, BILL)
    add_bill(server, 37, "bm9uZQ==", base64.b64encode(bill).decode(), "format=serialized")
    assert [cents(registry.of(34)), cents(registry.of(37))] == [5, 5]
    server.add(38, MONEY, schemaType="PROTOBUF")
    server.add(38, bill.decode(errors="replace"), "?format=serialized")  # as Apicurio has it
    assert not registry.of(38).problem


@pytest.mark.parametrize("status", [404, 422, 500])
def test_a_registry_that_has_no_descriptors_gives_the_text(
    server: RegistryServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Apicurio answers 500 where it can't serialize a schema, and always will."""
    server.add(35, MONEY, schemaType="PROTOBUF")
    answer = server.answer

    def without_forms(path: str, authorization: str) -> tuple[int, Any]:
        return (status, {}) if "format=" in path else answer(path, authorization)

    monkeypatch.setattr(server, "answer", without_forms)
    assert not registry.of(35).problem


def test_a_compiler_that_says_nothing_holds_back(
    server: RegistryServer, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.add(36, MONEY, schemaType="PROTOBUF")
    monkeypatch.setattr(protobuf_compiler, "TIMEOUT_SECONDS", 1e-6)
    with pytest.raises(RegistryUnreachable) as held:
        registry.of(36)
    assert "protoc did not come to an end" in held.value.cause
    monkeypatch.undo()
    assert not registry.of(36).problem


def test_the_newest_schema_of_a_subject_is_known_by_its_id(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    server.schemas["/subjects/a%2Fb-value/versions/latest"] = {"id": 7, "schema": "{}"}
    assert (registry.latest("a/b-value"), registry.latest("other-value")) == (7, None)
    server.schemas["/subjects/odd/versions/latest"] = {"schema": "{}"}
    with pytest.raises(RegistryUnreachable):
        registry.latest("odd")
