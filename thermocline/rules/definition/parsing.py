"""Options as a person writes them, made into those that definitions have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from thermocline.rules.avro_schema import SchemaInvalid, schema_text
from thermocline.rules.contract.modes import Contract
from thermocline.rules.definition.options import DeleteRule, OnError
from thermocline.rules.routing import Condition, Source

__all__ = ["parsed_options", "spelled_schema"]


def parsed_options(options: Mapping[str, Any], key: tuple[str, ...], problems: list[str]) -> dict[str, Any]:
    """The options as a definition has them; adds what is wrong to the problems."""
    parsed = dict(options)
    format_, key_format = options.get("format", "json"), options.get("key_format")
    if key_format is None or options.get("key_from", "key") != "key":
        parsed["key_format"] = format_
    for part, of in (("key", key_format or format_), ("value", format_)):
        text, message = options.get(f"{part}_schema"), options.get(f"{part}_message")
        parsed[f"{part}_schema"] = _parsed_schema(part, of, text, message, problems)
        parsed[f"{part}_message"] = message or None
    parsed["topic_patterns"] = tuple(options.get("topic_patterns", ()))
    parsed["entity"] = tuple(options.get("entity", ())) or key
    parsed["sequence_by"] = tuple(options.get("sequence_by", ()))
    try:
        parsed["on_error"] = OnError.parse(options.get("on_error", "quarantine"))
    except ValueError as error:
        problems.append(str(error))
        del parsed["on_error"]
    try:
        parsed["contract"] = Contract.parse(options.get("contract", str(Contract())))
    except ValueError as error:
        problems.append(str(error))
        del parsed["contract"]
    try:
        rule = options.get("delete_when")
        parsed["delete_when"] = None if rule is None else DeleteRule.parse(rule)
    except ValueError as error:
        problems.append(f"delete_when: {error}")
        del parsed["delete_when"]
    parsed["where"] = _conditions(options.get("where", ()), problems)
    others = {_conditions(some, problems) for some in options.get("unless", ())}
    parsed["unless"] = tuple(sorted(others, key=lambda some: [one.sorts_as for one in some]))
    values_at = options.get("values_at")
    parsed["values_at"] = None if values_at is None else Source.parse(values_at)
    return parsed


def _conditions(given: Mapping[str, Any] | Sequence[Any], problems: list[str]) -> tuple[Condition, ...]:
    """The conditions of a list, or one that stands for itself; adds what is wrong to the problems."""
    found: list[Condition] = []
    for text in [given] if isinstance(given, Mapping) else given:
        try:
            found.append(Condition.parse(text))
        except ValueError as error:
            problems.append(f"where: {error}")
    return tuple(sorted(set(found), key=attrgetter("sorts_as")))


def _parsed_schema(
    part: str, format_: str, text: str | None, message: str | None, problems: list[str]
) -> str | None:
    """A schema as definitions have it; adds what is wrong with it to the problems."""
    if text is None:
        return None
    try:
        return _parsed_protobuf(text, message or "") if format_ == "protobuf" else schema_text(text)
    except SchemaInvalid as error:
        of = "Protobuf" if format_ == "protobuf" else "Avro"
        problems.append(f"the {part} schema is not a valid {of} schema: {error}")
        return text


def _parsed_protobuf(text: str, message: str) -> str:
    from thermocline.rules import protobuf_schema  # noqa: PLC0415  (few tables need it; it takes long to load)

    descriptors = protobuf_schema.unpacked_schema(text)
    protobuf_schema.message_called(descriptors, message)
    return protobuf_schema.packed_schema(descriptors)


def spelled_schema(text: str) -> str:
    """A schema's text, or as much of it as a sentence can hold."""
    return text if len(text) <= 60 else f"{text[:59]}…"
