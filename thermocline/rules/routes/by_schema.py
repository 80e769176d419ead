"""The key and the columns of a routed table, by the schemas that the first record of its value names.

They are what `thermocline.rules.recognise` proposes for a topic that has these schemas alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from thermocline.rules.contract.modes import Contract, Kind, Mode
from thermocline.rules.decode.framing import message_indexes, schema_id
from thermocline.rules.decode.schema_documents import WriterSchema, WriterSchemas, own_schema
from thermocline.rules.recognise import (
    DeclaredSchema,
    Proposal,
    ProposedColumn,
    Topic,
    Unrecognised,
    proposed_by_declared,
)
from thermocline.rules.routes.own_columns import BY_SCHEMA, PLAIN_KEYS, FirstSchema, OwnColumns

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["ByFirst", "by_first"]

_IN_ROUTE: Final = "set it in the route's section, and drop and create its directory"


@dataclass(frozen=True, slots=True)
class ByFirst:
    """What a record's schemas say; fields that are ``left_out``, with the reason."""

    own: OwnColumns
    left_out: Sequence[str]


def by_first(
    directory: LiveTable,
    key: Sequence[str] | None,
    contract: Contract,
    first: FirstSchema,
    schemas: WriterSchemas,
) -> ByFirst:
    """The columns of the table of a value whose first record is ``first``.

    ``directory`` says how records are read, ``key`` what the route names as the key, if anything, and
    ``contract`` which columns a table never gains.

    Raises:
        Unrecognised: the schemas can't be those of a table, with the reason.
        RegistryUnreachable: they can't be asked for now.
    """
    value = _declared(first.value_head, schemas)
    of_key = _declared_key(directory, first, schemas)
    found = proposed_by_declared(Topic(first.topic), of_key, value, key or () if of_key is None else ())
    _check_read_alike(directory, found)
    columns = _columns(found, key if of_key is not None else None, isinstance(of_key, str))
    names = found.key if of_key is None or key is None else key
    kept, left_out = _by_contract(columns, names, contract)
    left_out += [f"{one.name}: {one.why}" for one in found.left_out]
    return ByFirst(OwnColumns(tuple(names), {one.name: one.declared for one in kept}), left_out)


def _declared(head: bytes, schemas: WriterSchemas) -> DeclaredSchema:
    """The schema that a record names; of Protobuf, with the message that the record is."""
    id_ = schema_id(head)
    schema = schemas.of(id_)
    if schema.kind == "PROTOBUF" and not schema.problem:
        schema = replace(schema, message=_message_name(schema, head))
    return DeclaredSchema(f"schema {id_}", schema)


def _message_name(schema: WriterSchema, head: bytes) -> str:
    from thermocline.rules.protobuf_schema import message_at  # noqa: PLC0415  (few need it; takes long to load)

    try:
        return str(message_at(schema.descriptors, message_indexes(head)).DESCRIPTOR.full_name)
    except ValueError as error:
        raise Unrecognised(
            f"schema {schema_id(head)} can't be used: {error}", "correct the schema"
        ) from error


def _declared_key(
    directory: LiveTable, first: FirstSchema, schemas: WriterSchemas
) -> DeclaredSchema | str | None:
    """The keys' schema, or their plain format; None where fields of the value are the key."""
    if directory.key_from != "key":
        return None
    if directory.key_format in PLAIN_KEYS:
        return directory.key_format
    own = own_schema(directory.key_format, directory.key_schema, directory.key_message)
    return _declared(first.key_head, schemas) if own is None else DeclaredSchema("the keys' schema", own)


def _check_read_alike(directory: LiveTable, found: Proposal) -> None:
    """Raises `Unrecognised` where records of the schemas are to be read otherwise than the route says."""
    options = found.options
    format_ = options.get("format", "json")
    wanted = [
        ("format", format_, directory.format),
        ("envelope", options.get("envelope", "plain"), directory.envelope),
    ]
    if directory.key_from == "key":
        wanted.append(("key_format", options.get("key_format", format_), directory.key_format))
    for setting, says, ours in wanted:
        if says != ours:  # safety: schema-read-alike
            why = f'its schema asks for {setting} = "{says}", and the route has "{ours}"'
            raise Unrecognised(why, _IN_ROUTE)
    if "delete_when" in options and directory.delete_when is None:
        why = 'its schema has "__deleted", which says that a row is gone, and the route has no delete_when'
        raise Unrecognised(why, _IN_ROUTE)


def _columns(found: Proposal, key: Sequence[str] | None, is_plain: bool) -> list[ProposedColumn]:
    """The columns, the key's first, in the order and under the names that the route has for them."""
    if key is None:
        return list(found.columns)
    of_key = found.columns[: len(found.key)]
    others = found.columns[len(found.key) :]
    if is_plain:
        (name,) = key  # by the directory's definition
        folded = name.casefold()
        others = tuple(one for one in others if one.name.casefold() != folded)
        return [replace(of_key[0], name=name), *others]
    by_name = {one.name: one for one in of_key}
    if set(by_name) != set(key):  # safety: schema-whole-key
        why = f"the key in its schema is {', '.join(by_name)}, and the route's is {', '.join(key)}"
        raise Unrecognised(why, f'leave key out, with columns = "{BY_SCHEMA}"')
    return [*(by_name[name] for name in key), *others]


def _by_contract(
    columns: Sequence[ProposedColumn], key: Sequence[str], contract: Contract
) -> tuple[list[ProposedColumn], list[str]]:
    """The columns without those of which the contract says by name that a table never gains them."""
    kept, left_out = [], []
    for one in columns:
        modes = dict(dict(contract.columns).get(one.name, ()))
        mode = modes.get(Kind.NEW_COLUMNS, modes.get("", Mode.EVOLVE))
        if mode is Mode.EVOLVE or one.name in key:  # safety: schema-by-contract
            kept.append(one)
        else:
            left_out.append(f"{one.name}: the contract says {mode}")
    return kept, left_out
