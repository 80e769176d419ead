"""Settings of one live table: its definition, which follows from `LiveTable`, and how it is ingested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, get_type_hints

from pydantic import BeforeValidator, Field, create_model, model_validator

from thermocline.errors import ConfigInvalid
from thermocline.rules.avro_schema import SchemaInvalid
from thermocline.rules.columns import Column
from thermocline.rules.contract.modes import Contract
from thermocline.rules.definition import DeleteRule, LiveTable, OnError
from thermocline.rules.definition.option import default_of, option_of, settings_of
from thermocline.rules.routing import Condition
from thermocline.rules.topic_patterns import problems_of_entries, split_entries
from thermocline.schemas.protobuf_compiler import CompilerFailed, compiled_file
from thermocline.settings.section import Section
from thermocline.settings.values import (
    Bytes,
    ColumnText,
    ContractText,
    DeleteText,
    Names,
    OnErrorText,
    Seconds,
    Start,
    UnlessText,
    WhereText,
    names_of,
)

__all__ = ["TableSettings"]

# What is written otherwise in the file than it is in a definition.
_WRITTEN: Final[dict[Any, Any]] = {
    tuple[str, ...]: Names,
    tuple[Column, ...]: dict[str, ColumnText],
    DeleteRule | None: DeleteText | None,
    OnError: OnErrorText,
    Contract: ContractText,
    tuple[Condition, ...]: WhereText,
    tuple[tuple[Condition, ...], ...]: UnlessText,
}


def _options() -> Iterator[tuple[str, tuple[Any, Any]]]:
    """The settings that are options of a definition: their names, types and defaults."""
    hints = get_type_hints(LiveTable)
    for setting, field in settings_of(LiveTable):
        option, default = option_of(field), default_of(field)
        written = _WRITTEN.get(hints[field.name], hints[field.name])
        if option.setting:
            written = Path | None
        elif option.is_size:
            written = Bytes
        elif default is None:
            written = written | None
        yield setting, (written, default.declared if isinstance(default, OnError | Contract) else default)


_OPTIONS: Final[dict[str, Any]] = dict(_options())
_TableOptions: Any = create_model("_TableOptions", __base__=Section, **_OPTIONS)


class TableSettings(_TableOptions):  # type: ignore[misc]  # the options are those of `LiveTable`
    """One live table: where it is, its definition as the file has it, how to ingest it, and its views.

    What stands here is not part of the definition, and may differ from one run to the next.
    """

    if TYPE_CHECKING:  # of the options, those that are read here and elsewhere
        identifier: str
        topics: tuple[str, ...]
        key: tuple[str, ...]
        columns: dict[str, ColumnText]

    start: Start = "earliest"
    commit_interval_seconds: Seconds = 60.0
    batch_records_max: Annotated[int, Field(gt=0)] = 2_000_000
    batch_bytes_max: Bytes = 512_000_000
    errors_ratio_max: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.5
    errors_count_max: Annotated[int, Field(ge=0)] | None = None
    dead_letter_topic: str | None = None
    deleted_topic_seconds: Seconds = 3600.0
    views: Annotated[tuple[Literal["live", "live_by_key", "cold"], ...], BeforeValidator(names_of)] = (
        "live",
        "live_by_key",
        "cold",
    )
    views_bounded: bool = False
    view_filter: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_dead_letter_topic(self) -> Self:
        if self.dead_letter_topic in self.topics:  # safety: dead-letters-elsewhere
            raise ValueError(f'dead_letter_topic is "{self.dead_letter_topic}", which feeds the table itself')
        return self

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics that the file names."""
        return split_entries(self.topics)[0]

    @property
    def topic_patterns(self) -> tuple[str, ...]:
        """The patterns by which the others are found."""
        return split_entries(self.topics)[1]

    def definition(self, name: str, there: LiveTable | None = None) -> LiveTable:
        """The definition that the file asks for, of a table as it is ``there``, if it is.

        A format version can't be taken back, so that a file which doesn't say one asks for none.
        Raises `ConfigInvalid` with all its problems.
        """
        return self._built(name, **self._kept(there))

    def _kept(self, there: LiveTable | None) -> dict[str, Any]:
        """What stays as it is in a table, since the file doesn't say it."""
        if there is None or "format_version" in self.model_fields_set:  # safety: format-version-unasked
            return {}
        return {"format_version": there.format_version}

    def _built(self, name: str, **more: Any) -> LiveTable:
        """The definition, with ``more`` options than the file has. Raises `ConfigInvalid`."""
        given = {field.name: getattr(self, setting) for setting, field in settings_of(LiveTable)}
        for part, format_ in (("key", given["key_format"] or given["format"]), ("value", given["format"])):
            given[f"{part}_schema"] = _schema_of(
                name, format_, f"{part}_schema_file", given[f"{part}_schema"]
            )
        if problems := tuple(problems_of_entries(self.topics)):
            raise ConfigInvalid(of=f"of table {name}", problems=problems)
        names_and_patterns = {"topics": self.topic_names, "topic_patterns": self.topic_patterns}
        return LiveTable.build(name=name, **given | names_and_patterns | more)


def _schema_of(table: str, format_: str, setting: str, path: Path | None) -> str | None:
    """The schema in a file that a setting names, as definitions have it. Raises `ConfigInvalid`."""
    if path is None:
        return None
    try:
        if format_ == "protobuf":
            from thermocline.rules.protobuf_schema import packed_schema  # noqa: PLC0415  (takes long to load)

            return packed_schema(compiled_file(path))
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        problem = "is not UTF-8 text"
    except (SchemaInvalid, CompilerFailed) as error:
        problem = f"can't be compiled: {error}"
    except OSError as error:
        problem = f"can't be read: {error.strerror or type(error).__name__}"
    raise ConfigInvalid(of=f"of table {table}", problems=(f"{setting}: {path} {problem}",))
