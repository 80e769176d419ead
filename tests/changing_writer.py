"""A producer whose schema changes at random, in Avro, Protobuf or JSON Schema, and what its records mean."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import fastavro

from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.protobuf_schema import canonical, message_at
from thermocline.schemas.protobuf_compiler import compiled

FORMATS = ("avro", "protobuf", "json_schema")
Fields = dict[str, Any]
"""By name, a type as definitions spell it; of a struct its own fields."""
_KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}
_PROTOBUF = {"int": "int32", "long": "int64", "string": "string", "double": "double"}
_JSON = {
    "int": {"type": "integer", "connect.type": "int32"},
    "long": {"type": "integer", "connect.type": "int64"},
    "string": {"type": "string"},
    "double": {"type": "number"},
}


@dataclass
class ChangingWriter:
    """Its schema, which ``change`` changes; ``ever`` has the widest type that each field ever had."""

    format: str
    random: random.Random
    fields: Fields = field(default_factory=lambda: {"count": "int", "name": "string"})
    ever: Fields = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    nests: bool = False

    def __post_init__(self) -> None:
        self.ever = json.loads(json.dumps(self.fields))

    def change(self) -> str:
        """Adds, widens or removes a field, or brings one back; what it did."""
        gone = [name for name in self.ever if name not in self.fields]
        narrow = [name for name, type_ in self.fields.items() if type_ == "int"]
        structs = [name for name, type_ in self.fields.items() if isinstance(type_, dict)]
        what = self.random.choice(["add", "add", "widen", "remove", "return"])
        if what == "widen" and narrow:
            name = self.random.choice(narrow)
            self.fields[name] = self.ever[name] = "long"
        elif what == "remove" and len(self.fields) > 1:
            name = self.random.choice(sorted(self.fields))
            del self.fields[name]
        elif what == "return" and gone:
            name = self.random.choice(gone)
            self.fields[name] = self.ever[name]
        elif self.nests and structs and self.random.random() < 0.5:
            of = self.random.choice(structs)
            what, name = "nest", f"{of}.f{len(self.ever[of])}"
            type_ = self._scalar()
            self.ever[of][name.partition(".")[2]] = type_
            self.fields[of] = dict(self.ever[of])
        else:
            what, name = "add", f"f{len(self.ever)}"
            is_struct = self.random.random() < 0.3
            self.ever[name] = {"f0": self._scalar()} if is_struct else self._scalar()
            self.fields[name] = dict(self.ever[name]) if is_struct else self.ever[name]
        return f"{what} {name}"

    def _scalar(self) -> str:
        return self.random.choice(sorted(_PROTOBUF))

    def registered(self) -> tuple[str, str]:
        """The schema as a registry has it: its kind, and its text."""
        if self.format == "avro":
            text = json.dumps(_avro("Value", self.fields))
        elif self.format == "json_schema":
            text = json.dumps(_json_schema(self.fields))
        else:
            text = 'syntax = "proto3";\n' + self._message("Value", self.fields, "")
        return _KINDS[self.format], text

    def schema(self) -> WriterSchema:
        """The schema as decoders get it."""
        kind, text = self.registered()
        if kind != "PROTOBUF":
            return WriterSchema((text,), kind=kind)
        return WriterSchema(kind=kind, descriptors=_compiled(text))

    def _message(self, name: str, fields: Fields, at: str) -> str:
        lines = []
        for one, type_ in fields.items():
            number = self.numbers.setdefault(f"{at}{one}", len(self.numbers) + 1)
            if isinstance(type_, dict):
                lines.append(self._message(f"Of_{one}", type_, f"{at}{one}."))
            spelled = f"Of_{one}" if isinstance(type_, dict) else _PROTOBUF[type_]
            lines.append(f"optional {spelled} {one} = {number};")
        return f"message {name} {{ {' '.join(lines)} }}"

    def value(self) -> dict[str, Any]:
        """A random value: of each field one of its type, or null."""
        found = {
            name: self._value(type_) for name, type_ in self.fields.items() if self.random.random() < 0.8
        }
        return found or {next(iter(self.fields)): self._value(next(iter(self.fields.values())))}

    def _value(self, type_: Any) -> Any:
        if isinstance(type_, dict):
            return {name: self._value(one) for name, one in type_.items()}
        match type_:
            case "int":
                return self.random.randrange(-(2**31), 2**31)
            case "long":
                return self.random.randrange(-(2**62), 2**62)
            case "double":
                return self.random.randrange(1_000) / 4
        return f"t{self.random.randrange(1_000)}"

    def encoded(self, id_: int, value: dict[str, Any]) -> bytes:
        """A value as its serializer writes it, with the id of its schema before it."""
        head = b"\x00" + id_.to_bytes(4)
        if self.format == "json_schema":
            return head + json.dumps(value).encode()
        if self.format == "protobuf":
            message = message_at(self.schema().descriptors, (0,))()
            _set(message, value)
            return head + b"\x00" + bytes(message.SerializeToString())
        sink = io.BytesIO()
        whole = {name: value.get(name) for name in self.fields}
        fastavro.schemaless_writer(sink, fastavro.parse_schema(_avro("Value", self.fields)), whole)
        return head + sink.getvalue()


@cache
def _compiled(text: str) -> bytes:
    return canonical(compiled({"value.proto": text}, "value.proto"))


def meant(value: dict[str, Any] | None, columns: Fields) -> dict[str, Any] | None:
    """The row that a value means in a table that has columns for all fields that ever were; by hand."""
    if value is None:
        return None
    return {
        name: meant(value.get(name), type_) if isinstance(type_, dict) else value.get(name)
        for name, type_ in columns.items()
    }


def _set(message: Any, value: dict[str, Any]) -> None:
    for name, one in value.items():
        if isinstance(one, dict):
            getattr(message, name).SetInParent()
            _set(getattr(message, name), one)
        else:
            setattr(message, name, one)


def _avro(name: str, fields: Fields) -> dict[str, Any]:
    declared = [
        {
            "name": one,
            "type": ["null", _avro(f"{name}_{one}", type_) if isinstance(type_, dict) else type_],
            "default": None,
        }
        for one, type_ in fields.items()
    ]
    return {"type": "record", "name": name, "fields": declared}


def _json_schema(fields: Fields) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            name: _json_schema(type_) if isinstance(type_, dict) else _JSON[type_]
            for name, type_ in fields.items()
        },
    }
