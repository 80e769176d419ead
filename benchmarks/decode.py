"""Records decoded in a second of one core, of one shape in each format and envelope, and by other readers.

Ours goes from the bytes to columns of checked values, as ingest and the tailer need them. Others make an
object or a dictionary of each record: fastavro, msgspec, Protobuf's own library, and Confluent's
deserializers, which look the schema up. Seconds are the process's own, so that others on the machine count
little; each figure is the best of several rounds, which take turns.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import fastavro
import msgspec

from benchmarks._report import report, say
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable
from thermocline.rules.protobuf_schema import message_at
from thermocline.schemas.protobuf_compiler import compiled

COLUMNS: Final = {
    "user_id": "string",
    "name": "string",
    "visits": "int",
    "score": "double",
    "active": "boolean",
    "seen": "timestamptz",
}
SCHEMA: Final = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "user_id", "type": "string"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "visits", "type": "int"},
        {"name": "score", "type": "double"},
        {"name": "active", "type": "boolean"},
        {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
EVENT: Final = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", SCHEMA]},
        {"name": "after", "type": ["null", "User"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "version", "type": "string"},
                    {"name": "ts_ms", "type": "long"},
                    {"name": "table", "type": "string"},
                    {"name": "lsn", "type": ["null", "long"]},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
PROTO: Final = """
syntax = "proto3";
package bench;
import "google/protobuf/timestamp.proto";
message User {
  string user_id = 1;
  optional string name = 2;
  int32 visits = 3;
  double score = 4;
  bool active = 5;
  google.protobuf.Timestamp seen = 6;
}
"""
SOURCE: Final = {"version": "3.6.3", "ts_ms": 1_700_000_000_000, "table": "users", "lsn": 24_023_128}
SCHEMA_ID: Final = 7
HEAD: Final = b"\x00" + SCHEMA_ID.to_bytes(4)
CHUNK_RECORDS: Final = 10_000  # about what one poll of the log gives

Read = Callable[[Sequence[bytes], Sequence[bytes]], None]
Told = tuple[Read, Sequence[bytes], Sequence[bytes]]


class _OneId:
    """A registry that has answered."""

    def __init__(self, schema: WriterSchema) -> None:
        self._schema = schema

    def of(self, _: SchemaId) -> WriterSchema:
        return self._schema


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="names that contain one of these, with commas between")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    rows = [_row(chance, number) for number in range(options.records)]
    wanted = options.only.split(",")
    told = {name: one for name, one in _told(rows) if any(part in name for part in wanted)}
    best = _best(told, options.rounds)
    figures = {f"{name}_records_per_second": round(rate) for name, rate in best.items()}
    report("decode", options.seed, {"records": options.records, "columns": len(COLUMNS), **figures})


def _told(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Told]]:
    json_keys = [json.dumps({"user_id": row["user_id"]}).encode() for row in rows]
    keys = [row["user_id"].encode() for row in rows]
    documents = [_document(row) for row in rows]
    events = [_json_event(document) for document in documents]
    as_json = WriterSchema(("{}",), kind="JSON")
    yield "json", (_ours("json", "json"), json_keys, documents)
    yield "string_key_json", (_ours("string", "json"), keys, documents)
    framed_documents = [HEAD + document for document in documents]
    yield "json_schema", (_ours("string", "json_schema", as_json), keys, framed_documents)
    yield "debezium_json", (_ours("json", "json", envelope="debezium"), json_keys, events)
    yield from _told_of_avro(rows, keys, json_keys)
    yield from _told_of_protobuf(rows, keys)
    yield "msgspec_json", (_each(msgspec.json.decode), keys, documents)
    yield from _confluent("json", {"type": "object", "title": "User"}, keys, framed_documents)


def _told_of_avro(
    rows: Sequence[dict[str, Any]], keys: Sequence[bytes], json_keys: Sequence[bytes]
) -> Iterator[tuple[str, Told]]:
    parsed, parsed_event = fastavro.parse_schema(SCHEMA), fastavro.parse_schema(EVENT)
    bodies = [_body(parsed, row) for row in rows]
    framed = [HEAD + body for body in bodies]
    events = [HEAD + _body(parsed_event, _event(row)) for row in rows]
    of_rows, of_events = WriterSchema((json.dumps(SCHEMA),)), WriterSchema((json.dumps(EVENT),))
    yield "string_key_avro", (_ours("string", "avro", of_rows), keys, framed)
    yield "avro_by_headers", (_ours("string", "avro", of_rows, in_header=HEAD), keys, bodies)
    yield "debezium_avro", (_ours("json", "avro", of_events, envelope="debezium"), json_keys, events)
    yield "fastavro", (_fastavro(parsed), keys, bodies)
    yield from _confluent("avro", SCHEMA, keys, framed)


def _told_of_protobuf(rows: Sequence[dict[str, Any]], keys: Sequence[bytes]) -> Iterator[tuple[str, Told]]:
    descriptors = compiled({"user.proto": PROTO}, "user.proto")
    user = message_at(descriptors, (0,))
    bodies = [_message(user, row) for row in rows]
    schema = WriterSchema(kind="PROTOBUF", descriptors=descriptors)
    framed = [HEAD + b"\x00" + body for body in bodies]
    yield "string_key_protobuf", (_ours("string", "protobuf", schema), keys, framed)
    yield "protobuf_library", (_each(user.FromString), keys, bodies)
    yield from _confluent("protobuf", user, keys, framed)


def _best(told: Mapping[str, Told], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(told, 0.0)
    for number in range(rounds):
        for name, (read, keys, values) in told.items():
            began = time.process_time()
            for first in range(0, len(keys), CHUNK_RECORDS):
                read(keys[first : first + CHUNK_RECORDS], values[first : first + CHUNK_RECORDS])
            best[name] = max(best[name], len(keys) / (time.process_time() - began))
        say(f"round {number + 1}: { ({name: round(rate) for name, rate in best.items()}) }")
    return best


def _row(chance: random.Random, number: int) -> dict[str, Any]:
    return {
        "user_id": f"user-{number:08}",
        "name": chance.choice([None, "Ann", "Grace Hopper", "Ölmütz"]),
        "visits": chance.randrange(100_000),
        "score": chance.random(),
        "active": chance.random() < 0.5,
        "seen": 1_700_000_000_000 + chance.randrange(10**10),
    }


def _document(row: Mapping[str, Any]) -> bytes:
    seconds, milliseconds = divmod(row["seen"], 1_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return json.dumps({**row, "seen": f"{text}.{milliseconds:03}Z"}).encode()


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"before": None, "after": row, "source": SOURCE, "op": "u", "ts_ms": SOURCE["ts_ms"]}


def _json_event(document: bytes) -> bytes:
    before, _, behind = json.dumps(_event({})).partition("{}")
    return before.encode() + document + behind.encode()


def _body(parsed: Any, row: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, parsed, row)
    return sink.getvalue()


def _message(user: Any, row: Mapping[str, Any]) -> bytes:
    one = user(**{name: value for name, value in row.items() if name != "seen" and value is not None})
    one.seen.FromMilliseconds(row["seen"])
    content: bytes = one.SerializeToString()
    return content


def _ours(
    key_format: str,
    format_: str,
    schema: WriterSchema | None = None,
    envelope: str = "plain",
    in_header: bytes = b"",
) -> Read:
    definition = LiveTable.build(
        name="users",
        identifier="app.users",
        topics=["users"],
        key=["user_id"],
        columns=COLUMNS,
        format=format_,
        key_format=key_format,
        envelope=envelope,
    )
    decoder = decoder_for(definition, _OneId(schema) if schema else None)
    headers = [("__value_schema_id", in_header)] if in_header else None

    def read(keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        assert not decoder.decode(keys, values, lambda _: headers).bad

    return read


def _each(decode: Callable[[bytes], object]) -> Read:
    def read(_: Sequence[bytes], values: Sequence[bytes]) -> None:
        for value in values:
            decode(value)

    return read


def _fastavro(parsed: Any) -> Read:
    return _each(lambda value: fastavro.schemaless_reader(io.BytesIO(value), parsed, None))


def _confluent(
    kind: str, schema: Any, keys: Sequence[bytes], framed: Sequence[bytes]
) -> Iterator[tuple[str, Told]]:
    """Nothing where what its extras bring is not installed."""
    try:
        read = _confluent_reader(kind, schema)
    except ImportError as error:
        say(f"confluent's is left out ({error}): pip install confluent-kafka[{kind},schemaregistry]")
        return
    yield f"confluent_{kind}_deserializer", (read, keys, framed)


def _confluent_reader(kind: str, schema: Any) -> Read:
    from confluent_kafka import schema_registry  # noqa: PLC0415
    from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415

    confluent: Any = schema_registry  # its own types are of another release
    client = confluent.SchemaRegistryClient.new_client({"url": "mock://benchmark"})
    deserializer: Any
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: PLC0415

        number = client.register_schema("users-value", confluent.Schema(json.dumps(schema), "AVRO"))
        deserializer = AvroDeserializer(client)
    elif kind == "json":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer  # noqa: PLC0415

        number = client.register_schema("users-value", confluent.Schema(json.dumps(schema), "JSON"))
        deserializer = JSONDeserializer(None, schema_registry_client=client, conf={"validate": False})
    else:
        from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer  # noqa: PLC0415

        number = SCHEMA_ID
        deserializer = ProtobufDeserializer(schema, {"use.deprecated.format": False})
    context = SerializationContext("users", MessageField.VALUE)
    head = b"\x00" + number.to_bytes(4)
    return _each(lambda value: deserializer(head + value[len(head) :], context))


if __name__ == "__main__":
    main()
