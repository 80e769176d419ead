"""What `where` and `limit` leave of an extract."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.failpoints.meanwhile import meanwhile
from tests.tier import quick_or_full
from thermocline.errors import BadParameter
from thermocline.rules.column_types import Kind
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import bucket_of
from thermocline.serving.read.encode import FORMATS, encoded
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.where.sql import DEPTH_MAX, LENGTH_MAX, parse_where

KINDS = LiveTable.build(
    name="kinds",
    identifier="app.kinds",
    topics=["profiles"],
    key=["app", "id", "tag"],
    entity=["app", "id"],
    columns={
        "app": "int",
        "id": "uuid",
        "tag": "binary",
        "a name": "string",
        "text": "string",
        "flag": "boolean",
        "day": "date",
        "clock": "time",
        "price": "decimal(10,2)",
        "ratio": "double",
        "count": "long",
        "other": "long",
        "at": {"type": "timestamptz", "epoch": "ms"},
        "local": "timestamp",
        "raw": "json",
        "inner": "struct<city: string>",
    },
    buckets=3,
    partial_updates=True,
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Of each column: natural values, few, so that conditions match some rows.
VALUES: dict[str, list[Any]] = {
    "app": [1, 2, -3],
    "id": [UUID(int=number << 64) for number in range(6)],
    "tag": [b"", b"\x00", b"\xff\x00", b"tag"],
    "a name": ["", "a", "A", "ab", "é", "a%b", "x'); DROP"],
    "text": ["a", "ab", "a_b", "\nab", "日本"],
    "flag": [True, False],
    "day": [date(1, 1, 1), date(2026, 1, 2), date(9999, 12, 31)],
    "clock": [time(), time(9, 33), time(23, 59, 59, 999_999)],
    "price": [Decimal("0.00"), Decimal("-1.50"), Decimal("12345678.90")],
    "ratio": [0.0, -0.5, 1e300, 0.1],
    "count": [0, 2**53 + 1, -(2**63), 5],
    "other": [0, 2**53 + 1, 5, 2**63 - 1],
    "at": [EPOCH, EPOCH + timedelta(milliseconds=1_700_000_000_123)],
    "local": [EPOCH.replace(tzinfo=None), datetime(2026, 1, 2, 3, 4, 5, 678, UTC).replace(tzinfo=None)],
    "raw": ['{"a":1}', "[]"],
}
PATTERNS = ["%", "", "a%", "%b", "_", "a_b", "%a%b%", "é", "__"]
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
Evaluate = Callable[[dict[str, Any]], bool | None]


def _profile(user: str, key: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def _value(text: str | None) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}


def _rows(table: ServedTable, wanted: Wanted) -> list[dict[str, Any]]:
    extract = table.extract(wanted, table.reader.end())
    try:
        return [row for batch in extract.batches() for row in batch.to_pylist()]
    finally:
        extract.close()


def test_what_matches_is_what_plain_python_finds_in_all_rows(
    served: Callable[..., tuple[Any, ServedTable]], seed: int
) -> None:
    """Goal: a condition keeps the rows for which it is true, wherever they are, and no others.

    Method: random records, whole and partial, with tombstones, some committed; then random conditions on
    all kinds of column, compared with a plain evaluation of the rows of the whole extract.
    """
    chance = random.Random(seed)
    world, table = served(KINDS)
    for step in range(3):
        for _ in range(150):
            value = None if chance.random() < 0.15 else _record(chance)
            world.produce(_shown_fields(_some(chance, KINDS.key)), value)
        world.tail()
        if step < 2:
            world.commit()
            world.publish()
            table.refresh()
    rows = _rows(table, Wanted())
    assert len(rows) > 20
    matched, conditions = 0, quick_or_full(30, 80)
    for _ in range(conditions):
        text, evaluate = _condition(chance, 3)
        expected = [row for row in rows if evaluate(row) is True]
        columns = chance.choice([None, ["text", "app"]])
        found = _rows(table, Wanted(columns, text))
        if columns:
            expected = [{name: row[name] for name in columns} for row in expected]
        assert sorted(map(str, found)) == sorted(map(str, expected)), text
        matched += bool(expected) and len(expected) < len(rows)
    assert matched > conditions * 15 // 80


def _some(chance: random.Random, names: Any) -> dict[str, Any]:
    return {name: chance.choice(VALUES[name]) for name in names}


def _record(chance: random.Random) -> dict[str, Any]:
    names = [column.name for column in KINDS.value_columns if column.name in VALUES]
    fields = _shown_fields(_some(chance, chance.sample(names, chance.randrange(len(names) + 1))))
    fields |= dict.fromkeys(chance.sample(names, 2))
    return fields | chance.choice([{}, {"inner": None}, {"inner": {"city": "x"}}])


def _shown_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Natural values as a record has them."""
    return {name: _shown(name, value) for name, value in values.items()}


def _shown(name: str, value: Any) -> Any:
    match value:
        case datetime() if name == "at":
            return round((value - EPOCH) / timedelta(milliseconds=1))
        case _ if name == "raw":
            return {"{": {"a": 1}, "[": []}[value[0]]
    text = _spelled(name, value)
    return text[1:-1].replace("''", "'") if text.startswith("'") else value if name != "price" else text


def _spelled(name: str, value: Any) -> str:
    """A natural value as a condition has it."""
    match value:
        case bool():
            return str(value).upper()
        case int() | float() | Decimal():
            return repr(value) if isinstance(value, float) else str(value)
        case bytes():
            return f"'{base64.b64encode(value).decode()}'"
        case datetime():
            return "'" + value.isoformat().replace("+00:00", "Z") + "'"
        case date() | time():
            return f"'{value.isoformat()}'"
    return "'" + str(value).replace("'", "''") + "'"


def _condition(chance: random.Random, depth: int) -> tuple[str, Evaluate]:
    kind = chance.randrange(10) if depth else 9
    if kind < 4:
        parts = [_condition(chance, depth - 1) for _ in range(chance.randint(2, 3))]
        join = chance.choice(["AND", "OR"])
        return "(" + f" {join} ".join(text for text, _ in parts) + ")", _joined(
            join, [one for _, one in parts]
        )
    if kind < 5:
        text, inner = _condition(chance, depth - 1)
        return f"NOT ({text})", _negated(inner)
    return _simple(chance)


def _joined(join: str, parts: list[Evaluate]) -> Evaluate:
    decisive = join == "OR"

    def evaluate(row: dict[str, Any]) -> bool | None:
        found = [part(row) for part in parts]
        return decisive if decisive in found else None if None in found else not decisive

    return evaluate


def _negated(inner: Evaluate) -> Evaluate:
    def evaluate(row: dict[str, Any]) -> bool | None:
        found = inner(row)
        return None if found is None else not found

    return evaluate


def _of(name: str, test: Callable[[Any], bool]) -> Evaluate:
    return lambda row: None if row[name] is None else test(row[name])


def _simple(chance: random.Random) -> tuple[str, Evaluate]:
    name = chance.choice([*VALUES, "inner", "app", "id"])
    quoted = f'"{name}"'
    negates = chance.choice(["", "NOT "])
    turned = _negated if negates else lambda evaluate: evaluate
    kind = chance.randrange(6)
    if kind == 0 or name == "inner":
        return f"{quoted} IS {negates}NULL", turned(lambda row: row[name] is None)
    if kind == 1 and name in ("text", "a name", "raw"):
        pattern = chance.choice(PATTERNS)
        of = re.compile("".join({"%": ".*", "_": "."}.get(one, re.escape(one)) for one in pattern), re.DOTALL)
        return f"{quoted} {negates}LIKE '{pattern}'", turned(_of(name, lambda text: bool(of.fullmatch(text))))
    values = chance.choices(VALUES[name], k=chance.randint(1, 3))
    stored = [value.bytes if isinstance(value, UUID) else value for value in values]
    spelled = [_spelled(name, value) for value in values]
    if kind == 2:
        return f"{quoted} {negates}IN ({', '.join(spelled)})", turned(_of(name, lambda one: one in stored))
    if kind == 3:
        low, high = stored[0], stored[-1]
        text = f"{quoted} {negates}BETWEEN {spelled[0]} AND {spelled[-1]}"
        return text, turned(_of(name, lambda one: low <= one <= high))
    sign, compare = chance.choice([*COMPARE.items()])
    if kind == 4 and name == "count":
        return (
            f"count {sign} other",
            lambda row: None if None in (row["count"], row["other"]) else compare(row["count"], row["other"]),
        )
    if chance.random() < 0.3:
        return f"{spelled[0]} {sign} {quoted}", _of(name, lambda one: compare(stored[0], one))
    return f"{quoted} {sign} {spelled[0]}", _of(name, lambda one: compare(one, stored[0]))


def test_a_hot_row_hides_the_cold_one_whether_it_matches_or_not(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    """Goal: the overlay comes first, and then the condition.

    Method: rows that matched as committed and no longer do, or are deleted; and the other way round.
    """
    world, table = served()
    for key in ("changed", "deleted", "same"):
        world.produce(_profile("u1", key), _value("cold"))
    world.commit()
    world.publish()
    table.refresh()
    world.produce(_profile("u1", "changed"), _value("hot"))
    world.produce(_profile("u1", "deleted"), None)
    world.tail()
    for where, keys in (("value = 'cold'", ["same"]), ("value = 'hot'", ["changed"])):
        assert [row["key"] for row in _rows(table, Wanted(["key"], where))] == keys


def test_a_text_is_not_null_where_all_others_of_its_row_group_are(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    """Goal: the files' statistics mislead nobody: the least and the greatest value are the same there.

    Method: a column of many values, which is therefore stored without a dictionary, until its last rows.
    """
    world, table = served()
    for number in range(24):  # three row groups
        world.produce(_profile("u1", f"k{number:02}"), _value(f"v{number}" if number < 17 else None))
    world.commit()
    world.publish()
    table.refresh()
    for where, numbers in (("value IS NULL", range(17, 24)), ("value IS NOT NULL", range(17))):
        found = _rows(table, Wanted(["key"], where))
        assert sorted(row["key"] for row in found) == [f"k{number:02}" for number in numbers]


def test_a_condition_on_the_key_leaves_few_buckets_and_files() -> None:
    user, others = UUID(int=1), UUID(int=2)
    keys = Selection.of(KINDS, Wanted(where=f"app = 1 AND id = '{user}' AND count > 5")).keys
    assert keys.buckets == frozenset([bucket_of(KINDS, user)])
    assert keys.prefixes is not None
    assert len(keys.prefixes) == 1
    several = Selection.of(KINDS, Wanted(where=f"id IN ('{user}', '{others}') AND app IN (1, 2)")).keys
    assert several.buckets == frozenset(bucket_of(KINDS, one) for one in (user, others))
    assert len(several.prefixes or ()) == 4
    either = f"app = 1 AND id = '{user}' AND count > 5 OR id = '{others}' AND app = 2"
    assert Selection.of(KINDS, Wanted(where=either)).keys == several
    for where in (f"id = '{user}' OR app = 1", f"NOT id = '{user}'", "app > 1", "count = 1"):
        keys = Selection.of(KINDS, Wanted(where=where)).keys
        assert (keys.buckets, keys.prefixes) == (None, None), where


def test_a_limit_gives_so_many_rows_and_reads_no_further(
    served: Callable[..., tuple[Any, ServedTable]], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, table = served()
    for number in range(200):
        world.produce(_profile(f"u{number}", "k"), _value(str(number % 2)))
    world.commit()
    world.publish()
    table.refresh()
    every = {row["user_id"] for row in _rows(table, Wanted())}
    buckets: list[int] = []
    for limit, expected, buckets_read in ((0, 0, 0), (7, 7, 1), (200, 200, 4), (1000, 200, 4)):
        buckets.clear()
        with meanwhile("extract.bucket", lambda: buckets.append(1)):
            found = {row["user_id"] for row in _rows(table, Wanted(limit=limit))}
        assert (len(found), len(buckets)) == (expected, buckets_read)
        assert found <= every
    some = _rows(table, Wanted(["value"], "value = '1'", 5))
    assert [row["value"] for row in some] == ["1"] * 5


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "can't be read as SQL"),
        ("count >", "can't be read as SQL"),
        ("count = 1; DROP TABLE x", "can't be read as SQL"),
        ("nope = 1", "no such column"),
        ("_KAFKA_OFFSET = 1", 'no such column; did you mean "_kafka_offset"?'),
        ("COUNT(*) = 1", "nothing else"),
        ("count = abs(1)", "no value"),
        ("count + 1 = 2", "no column"),
        ("1 = 1", "no column"),
        ("count IN (SELECT 1)", "nothing else"),
        ("count IN ()", "at least one value"),
        ("count BETWEEN SYMMETRIC 5 AND 1", "nothing else"),
        ("text LIKE 'a' ESCAPE 'x'", "nothing else"),
        ("text ILIKE 'a'", "nothing else"),
        ("kinds.count = 1", "nothing else"),
        ("inner.city = 'x'", "nothing else"),
        ('"inner" = 1', "only IS [NOT] NULL"),
        ("flag IS TRUE", "nothing else"),
        ("count IS DISTINCT FROM 1", "nothing else"),
        ("count = NULL", "use IS NULL"),
        ("count IN (1, NULL)", "use IS NULL"),
        ("count", "count alone is no condition: it is a long"),
        ("count = '1'", "count is a long, so '1' is no value of it: it is written as a number"),
        ("count = 1.5", "count is a long, so 1.5 is no value of it: not an integer"),
        ("app = 2147483648", "app is an int, so 2147483648 is no value of it: an integer out of range"),
        ("text = 1", "text is a string, so 1 is no value of it: it is written in single quotes"),
        ("price = 0.001", r"price is a decimal(10,2), so 0.001 is no value of it: does not fit"),
        ("ratio = 1e999", "ratio is a double, so 1e999 is no value of it: a number out of range"),
        (
            "day = '2026-02-30'",
            "day is a date, so '2026-02-30' is no value of it: not a date of the calendar",
        ),
        ("clock = '9:00'", "clock is a time, so '9:00' is no value of it"),
        ("at > '2026-01-01'", "is no value of it: not an RFC 3339 time with its zone"),
        ("id = 'x'", "id is a uuid, so 'x' is no value of it: not a UUID"),
        ("tag = 'x'", "tag is a binary, so 'x' is no value of it: not padded base64"),
        ("flag = 1", "flag is a boolean, so 1 is no value of it: it is written TRUE or FALSE"),
        ("count LIKE '1%'", "LIKE is for text, and count is a long"),
        ("count = text", "can't be compared"),
        ("(" * 200 + "flag" + ")" * 200, "levels deep"),
        ("NOT " * 1_000 + "flag", "levels deep"),
        ("count = " + "- " * 1_000 + "1", "levels deep"),
        ("count" + "::int" * 3_000, "levels deep"),
        ("count = 1" + " % 2" * 4_000, "levels deep"),
        ("varchar(" * 30 + "count" + ")" * 30 + " = 1", "calls within calls"),
        ("count = " + "array[" * 30 + "1" + "]" * 30, "calls within calls"),
        ("text = '\udcff'", "not valid UTF-8"),
        ("flag OR " * 5_000 + "flag", f"at most {LENGTH_MAX:,}"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(where: str, why: str) -> None:
    with pytest.raises(BadParameter, match=re.escape(why)):
        parse_where(KINDS, where)


def test_a_condition_as_long_as_may_be_is_evaluated(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    """A chain of ORs is a thousand levels deep in a parser's tree, and in DuckDB's expressions."""
    world, table = served()
    world.produce(_profile("u1", "k"), _value("x"))
    world.tail()
    term = "key='no' OR "
    where = term * ((LENGTH_MAX - 10) // len(term)) + "key='k'"
    assert len(_rows(table, Wanted(where=where))) == 1


def test_every_kind_of_column_has_a_spelling() -> None:
    """A kind that is added later must be thought of."""
    nested = {Kind.STRUCT, Kind.LIST, Kind.MAP}
    assert {column.type.kind for column in KINDS.columns} | nested == set(Kind)


PAGE = Path(__file__).parents[3] / "docs" / "extracts.md"


def test_the_page_on_extracts_says_what_conditions_leave(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    page = PAGE.read_text()
    world, table = served()
    for place, line in enumerate(_block(page, "jsonl").splitlines()):
        record = json.loads(line)
        key = {name: record.pop(name) for name in world.definition.key}
        world.produce(key, record)
        if place == 2:
            world.commit()
            world.publish()
            table.refresh()
    world.tail()
    conditions = re.findall(r"^\| `(.+)` \| (.*)\|$", page.partition("| condition")[2], re.MULTILINE)[:7]
    assert len(conditions) == 7
    for where, expected in conditions:
        found = {
            f"{row['app_id']} {row['user_id']} {row['key']}" for row in _rows(table, Wanted(where=where))
        }
        assert found == set(filter(None, expected.strip().split(", "))), where
    extract = table.extract(Wanted(), table.reader.end())
    content = b"".join(encoded(extract, "csv")).decode()
    extract.close()
    assert sorted(content.splitlines()) == sorted(_block(page, "csv").splitlines())
    assert f"At most {LENGTH_MAX:,} characters, nested {DEPTH_MAX} levels deep" in page
    assert all(one.media_type in page for one in FORMATS.values())


def _block(page: str, language: str) -> str:
    return page.partition(f"```{language}\n")[2].partition("```")[0]
