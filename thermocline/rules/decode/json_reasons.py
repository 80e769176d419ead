"""Reasons why JSON is refused, in the words of whoever writes records.

What reads records says in a word what it met where. Here, a record that was refused is looked at once more,
for what its writer most likely did.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from thermocline.rules.definition import Column

__all__ = ["TEXT_BYTES_MAX", "reason_of_column", "reason_of_document", "said_of"]

TEXT_BYTES_MAX: Final = 1 << 20
"""Larger documents aren't looked at again: that takes memory, and their first words say enough."""
_BEGINNING_CHARACTERS: Final = 20
_BYTE_ORDER_MARKS: Final = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STARTS: Final = b'{["-0123456789tfn'
_SCHEMA_ID_BYTES: Final = 5
_EXTENDED: Final = re.compile(r"\$[a-zA-Z]+")
"""Names of MongoDB's extended JSON. Source: MongoDB, "Extended JSON (v2)"."""
_TYPES: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_QUOTED: Final = re.compile("`[a-z |]+`")
_PYTHON: Final = re.compile(rf"\b(?:{'|'.join(_TYPES)})\b")


def said_of(error: BaseException) -> str:
    """What reading JSON says of an error, with JSON's names of types in place of Python's."""
    return _QUOTED.sub(lambda found: _PYTHON.sub(lambda one: _TYPES[one[0]], found[0]), str(error))


def reason_of_document(text: bytes, reason: str, setting: str, is_value: bool) -> str:
    """Why a text is no JSON object; ``reason`` where nothing better can be said.

    ``setting`` is the one that names the format of keys or values.
    """
    said = _by_bytes(text, setting, is_value)
    if said is None and len(text) <= TEXT_BYTES_MAX:
        said = _by_parsing(text, setting)
    return f"not one JSON object: {said}" if said else reason


def reason_of_column(text: bytes, column: Column, reason: str) -> str:
    """Why a document's value is none of a column's; ``reason``, with a hint where one can be given."""
    if len(text) > TEXT_BYTES_MAX:
        return reason
    try:
        value: Any = json.loads(text)
        for name in column.read_from:
            value = value[name]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return reason
    names = list(value) if isinstance(value, dict) else []
    if len(names) == 1 and _EXTENDED.fullmatch(names[0]):
        path = ".".join((*column.read_from, names[0]))
        return f'{reason}: it is MongoDB\'s extended JSON; set path = "{path}", or use a json column'
    return reason


_HALF_A_PAIR: Final = "it has half a surrogate pair, which is no character (an emoji that was cut in two?)"


def _by_bytes(text: bytes, setting: str, is_value: bool) -> str | None:
    """What the first bytes say."""
    if not text.strip():
        return "it is blank" if text else "it is empty"
    if text.strip() == b"null":
        return "it is the text null" + ("; a delete is a record without a value" if is_value else "")
    mark = next((mark for mark in _BYTE_ORDER_MARKS if text.startswith(mark)), None)
    if mark is not None:
        return f"it begins with a byte order mark ({_BYTE_ORDER_MARKS[mark]}), which JSON doesn't have"
    if text[0] == 0 and len(text) > _SCHEMA_ID_BYTES:
        number = int.from_bytes(text[1:_SCHEMA_ID_BYTES])
        return (
            f"it begins with a zero byte and the schema id {number}, as schema registries' serializers do; "
            f'set {setting} = "avro", "protobuf" or "json_schema"'
        )
    return None


def _by_parsing(text: bytes, setting: str) -> str | None:
    """What is met where it is read as Python reads JSON, which takes more than the record rule."""
    constants: list[str] = []
    try:
        value = json.loads(text, parse_constant=constants.append)
    except UnicodeDecodeError:
        return None
    except (ValueError, RecursionError) as error:
        if text.lstrip()[:1] in _STARTS or not isinstance(error, json.JSONDecodeError):
            return f"{error}; it begins {_beginning(text)}"
        return f'it begins {_beginning(text)}; for plain text set {setting} = "string"'
    if constants:
        return f"it has {constants[0]}, which is no JSON number; write null, or a string"
    if not isinstance(value, dict):
        return f'it is {_KINDS[type(value)]} by itself; for single values set {setting}, such as "string"'
    if _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        return _HALF_A_PAIR
    return None


def _beginning(text: bytes) -> str:
    """The first characters, in quotes."""
    start = text[: 4 * _BEGINNING_CHARACTERS].decode(errors="replace")
    cut = start[:_BEGINNING_CHARACTERS]
    return json.dumps(cut, ensure_ascii=False)[:-1] + ("…" if len(start) > len(cut) else "") + '"'


_KINDS: Final = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    list: "an array",
    type(None): "null",
}
