"""The values that options of a definition can have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from thermocline.rules.column_types import TYPES, Kind, closest
from thermocline.rules.columns import parse_path, spelled

SCHEMA_FORMATS: Final = ("avro", "json_schema", "protobuf")
"""What is read by the schemas of writers."""
FORMATS: Final = ("json", "string", "int", "long", "uuid", "bytes", *SCHEMA_FORMATS)
JSON_FORMATS: Final = ("json", "json_schema")
"""In which a key or a value is a JSON object."""
FILE_FORMATS: Final = ("avro", "protobuf")
"""Of which a file may have the one schema of all records."""
PARTIAL_FORMATS: Final = ("json", "json_schema", "avro", "protobuf")
"""In which a record can leave a column out."""
EMPTY_FORMATS: Final = ("protobuf",)
"""In which no bytes at all are a value: one whose fields have their defaults."""
# What a record's key or value is as a whole, and which column it can be then.
ONE_COLUMN: Final[dict[str, tuple[Kind, ...]]] = {
    format_: tuple(kind for kind, entry in TYPES.items() if format_ in entry.plain)
    for format_ in ("string", "int", "long", "uuid", "bytes")
}
ENVELOPES: Final = ("plain", "debezium", "maxwell")
ENVELOPED_FORMATS: Final = {"debezium": ("json", "json_schema", "avro", "protobuf"), "maxwell": ("json",)}
KEY_SOURCES: Final = ("key", "value")
SEQUENCE_KINDS: Final = tuple(kind for kind, entry in TYPES.items() if entry.orders)
"""What records can be ordered by: types whose values have one order, the same in every program."""
TOMBSTONE_RETENTION_HOURS: Final = 168
"""A week, as Kafka keeps records by default: what comes later than that is rarely waited for."""
TOMBSTONE_RETENTION_HOURS_MAX: Final = 87_600  # ten years
BINARY_ENCODINGS: Final = ("base64", "base64-url-safe", "hex")
"""In which JSON has bytes; as Debezium's ``binary.handling.mode`` calls them."""
UNAVAILABLE: Final = "__debezium_unavailable_value"
"""By default, what Debezium writes in place of a value that a change left alone, and that was not logged."""
RECORD_BYTES_MAX: Final = 33_554_432
"""32 times what a batch of Kafka's has by default; decoded, a record takes several times as much memory."""
FORMAT_VERSIONS: Final = (2, 3)
BUCKETS_MAX: Final = 4096  # beyond it, a commit of every bucket writes more files than a manifest should list
_HEX: Final = "hex:"

OnErrorMode = Literal["fail", "quarantine", "skip"]
ON_ERROR_MODES: Final[dict[str, OnErrorMode]] = {"fail": "fail", "quarantine": "quarantine", "skip": "skip"}
OnErrorText = str | Mapping[str, str]
DeleteText = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class OnError:
    """What becomes of bad records, by the stage at which they fail."""

    key: OnErrorMode = "quarantine"
    decode: OnErrorMode = "quarantine"
    contract: OnErrorMode = "quarantine"

    @classmethod
    def parse(cls, text: OnErrorText) -> OnError:
        """Reads one word for all stages, or ``{"key": "fail", "contract": "skip"}``; the rest: quarantine.

        Raises:
            ValueError: with one plain sentence, when a stage or a word is none of ours.
        """
        modes = dict.fromkeys(ON_ERROR_STAGES, text) if isinstance(text, str) else text
        for stage, mode in modes.items():
            if stage not in ON_ERROR_STAGES:
                raise ValueError(f'on_error: "{stage}" is not a stage{closest(stage, ON_ERROR_STAGES)}')
            if mode not in ON_ERROR_MODES:
                place = "on_error" if isinstance(text, str) else f"on_error.{stage}"
                raise ValueError(f'{place} is "{mode}", not {" or ".join(ON_ERROR_MODES)}')
        return cls(**{stage: ON_ERROR_MODES[mode] for stage, mode in modes.items()})

    @property
    def declared(self) -> str | dict[str, str]:
        """What ``parse`` reads back to an equal value: one word where all stages have it."""
        modes = {stage: str(self.of(stage)) for stage in ON_ERROR_STAGES}
        return self.key if len(set(modes.values())) == 1 else modes

    def of(self, stage: str) -> OnErrorMode:
        """What becomes of records that are bad at that stage, one of ``decode.Stage``."""
        mode: OnErrorMode = getattr(self, stage)
        return mode

    def __str__(self) -> str:
        declared = self.declared
        if isinstance(declared, str):
            return declared
        return ", ".join(f"{mode} for {stage}" for stage, mode in declared.items())


ON_ERROR_STAGES: Final = tuple(OnError.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """Which records delete a row, beside those without a value: by a field of the value, or a header."""

    values: tuple[str, ...]
    path: tuple[str, ...] = ()
    header: str = ""

    @classmethod
    def parse(cls, text: DeleteText) -> DeleteRule:
        """Reads ``{ path = "op", values = ["D"] }`` or ``{ header = "op", values = ["D"] }``.

        Raises:
            ValueError: with one plain sentence.
        """
        given, header = text.get("values", ()), text.get("header", "")
        values = (given,) if isinstance(given, str) else tuple(given)
        path = parse_path(text["path"]) if "path" in text else ()
        if text.keys() - {"values", "path", "header"} or not values or bool(path) == bool(header):
            spelled = json.dumps(dict(text), ensure_ascii=False)
            raise ValueError(
                f'{spelled} is not of the form {{ path = "op", values = ["D"] }}, or with a header'
            )
        return cls(values, path, str(header))

    @property
    def declared(self) -> dict[str, str | list[str]]:
        """What ``parse`` reads back to an equal rule."""
        origin: dict[str, str | list[str]] = (
            {"path": list(self.path)} if self.path else {"header": self.header}
        )
        return origin | {"values": list(self.values)}

    def __str__(self) -> str:
        return spelled(self.declared)


def placeholder_bytes(setting: str) -> bytes:
    """The bytes of Debezium's ``unavailable.value.placeholder``: those of a text, or spelled ``hex:...``.

    Raises `ValueError` where these are none.
    """
    return bytes.fromhex(setting.removeprefix(_HEX)) if setting.startswith(_HEX) else setting.encode()
