"""Records decoded in a second of one core, of one shape in several formats, and by other readers of Avro.

Ours goes from the bytes to columns of checked values, as ingest and the tailer need them. fastavro makes a
dictionary of each record and converts times; confluent's ``AvroDeserializer`` does so by fastavro, and looks
the schema up. Seconds are the process's own, so that others on the machine count little; each figure is the
best of several rounds, which take turns.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import fastavro

from benchmarks._report import report, say
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import LiveTable

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
SCHEMA_ID: Final = 7
CHUNK_RECORDS: Final = 10_000  # about what one poll of the log gives

Read = Callable[[Sequence[bytes], Sequence[bytes]], None]


class _OneId:
    """A registry that has answered."""

    def of(self, _: SchemaId) -> WriterSchema:
        return WriterSchema((json.dumps(SCHEMA),))


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    rows = [_row(chance, number) for number in range(options.records)]
    parsed = fastavro.parse_schema(SCHEMA)
    json_keys = [json.dumps({"user_id": row["user_id"]}).encode() for row in rows]
    plain_keys = [row["user_id"].encode() for row in rows]
    documents = [_document(row) for row in rows]
    bodies = [_body(parsed, row) for row in rows]
    framed = [b"\x00" + SCHEMA_ID.to_bytes(4) + body for body in bodies]
    told: dict[str, tuple[Read, Sequence[bytes], Sequence[bytes]]] = {
        "json": (_ours("json", "json"), json_keys, documents),
        "string_key_json": (_ours("string", "json"), plain_keys, documents),
        "string_key_avro": (_ours("string", "avro"), plain_keys, framed),
        "fastavro": (_fastavro(parsed), plain_keys, bodies),
    }
    confluent = _confluent()
    if confluent is not None:
        told["confluent_avro_deserializer"] = (confluent, plain_keys, framed)
    best = _best(told, options.rounds)
    figures = {f"{name}_records_per_second": round(rate) for name, rate in best.items()}
    report("decode", options.seed, {"records": options.records, "columns": len(COLUMNS), **figures})


def _best(told: Mapping[str, tuple[Read, Sequence[bytes], Sequence[bytes]]], rounds: int) -> dict[str, float]:
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


def _body(parsed: Any, row: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, parsed, row)
    return sink.getvalue()


def _ours(key_format: str, format_: str) -> Read:
    definition = LiveTable.build(
        name="users",
        identifier="app.users",
        topics=["users"],
        key=["user_id"],
        columns=COLUMNS,
        format=format_,
        key_format=key_format,
    )
    decoder = decoder_for(definition, _OneId())

    def read(keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        assert not decoder.decode(keys, values).bad

    return read


def _fastavro(parsed: Any) -> Read:
    def read(_: Sequence[bytes], values: Sequence[bytes]) -> None:
        for value in values:
            fastavro.schemaless_reader(io.BytesIO(value), parsed, None)

    return read


def _confluent() -> Read | None:
    """None where what its extras ``avro`` and ``schemaregistry`` bring is not installed."""
    try:
        from confluent_kafka import schema_registry  # noqa: PLC0415
        from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: PLC0415
        from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: PLC0415
    except ImportError:
        say("confluent's AvroDeserializer is left out: pip install confluent-kafka[avro,schemaregistry]")
        return None
    confluent: Any = schema_registry  # its own types are of another release
    client = confluent.SchemaRegistryClient.new_client({"url": "mock://benchmark"})
    number = client.register_schema("users-value", confluent.Schema(json.dumps(SCHEMA), "AVRO"))
    deserializer: Any = AvroDeserializer(client)
    context = SerializationContext("users", MessageField.VALUE)
    head = b"\x00" + number.to_bytes(4)

    def read(_: Sequence[bytes], values: Sequence[bytes]) -> None:
        for value in values:
            deserializer(head + value[len(head) :], context)

    return read


if __name__ == "__main__":
    main()
