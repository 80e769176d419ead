"""What docs/formats shows: tables, and records with what becomes of them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.schemas.protobuf_compiler import compiled
from thermocline.settings import TableSettings

PAGES: Final = sorted((Path(__file__).parents[2] / "docs" / "formats").glob("*.md"))
_EXAMPLE: Final = re.compile(
    r"```toml\n(?P<toml>(?:(?!```).)*)```\n+"
    r"(?:```json\n(?P<schemas>(?:(?!```).)*)```\n+)?"
    r"(?:```protobuf\n// schema (?P<id>\d+)\n(?P<protobuf>(?:(?!```).)*)```\n+)?"
    r"\| key \| value \| (?:headers \| )?becomes \|\n\| --- .*?\n(?P<rows>(?:\|[^\n]*\n)+)",
    re.DOTALL,
)
_ROW: Final = re.compile(
    r"\| (?:`(.*?)`|) \| (?:`(.*?)`|) \| (?:(?:`([\w= -]*?)`|) \| )?"
    r"(?:`(\{.*?)`|(deleted|filtered|late|bad: \w+)) \|"
)


@dataclass(frozen=True)
class Record:
    """``becomes`` is a row as JSON says it, or a word: for bad records ``bad: `` and the stage."""

    key: bytes | None
    value: bytes | None
    becomes: object
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Example:
    name: str
    toml: str
    settings: TableSettings
    records: tuple[Record, ...]
    registered: Mapping[int, tuple[str, str]]
    """What the registry has, by ids: the kind of each schema, and its text."""

    @property
    def schemas(self) -> dict[SchemaId, WriterSchema]:
        return {id_: _schema(kind, text) for id_, (kind, text) in self.registered.items()}


def _examples() -> Iterator[Example]:
    for match in _EXAMPLE.finditer("\n".join(page.read_text() for page in PAGES)):
        ((name, section),) = tomllib.loads(match["toml"])["tables"].items()
        records = tuple(_records(match["rows"]))
        yield Example(name, match["toml"], TableSettings(**section), records, _registered(match, section))


def _registered(match: re.Match[str], section: Mapping[str, object]) -> dict[int, tuple[str, str]]:
    kind = "JSON" if section.get("format") == "json_schema" else "AVRO"
    found = {int(id_): (kind, json.dumps(one)) for id_, one in json.loads(match["schemas"] or "{}").items()}
    if match["protobuf"]:
        found[int(match["id"])] = ("PROTOBUF", match["protobuf"])
    return found


def _schema(kind: str, text: str) -> WriterSchema:
    if kind == "PROTOBUF":
        return WriterSchema(kind=kind, descriptors=compiled({"shown.proto": text}, "shown.proto"))
    return WriterSchema((text,), kind=kind)


def _records(rows: str) -> Iterator[Record]:
    for line in rows.splitlines():
        row = _ROW.fullmatch(line)
        assert row is not None, line
        key, value, headers, becomes, word = row.groups()
        pairs = (header.split("=") for header in (headers or "").split())
        yield Record(
            _bytes(key),
            _bytes(value),
            word or json.loads(becomes),
            tuple((name, _bytes(text) or b"") for name, text in pairs),
        )


def _bytes(cell: str | None) -> bytes | None:
    if cell is None:
        return None
    return bytes.fromhex(cell[2:]) if cell.startswith("0x") else cell.encode()


EXAMPLES: Final = tuple(_examples())
