"""Random callers and requests against a plain evaluation of their grants: nothing foreign, whatever is asked.

The oracle is a list of rows and a few lines of Python; the caches are warm from callers who see everything.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from tests.serving.wire import value_of
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Credentials, Grant, Part
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

APPS, USERS, KEYS = (7, 8), ("u1", "u2", "u3"), ("a", "b")
VALUES = ("red", "blue", "käse")
COLUMNS = ("app_id", "user_id", "key", "value", "updated_at")
ROWS = "/v1/tables/profiles/rows"
ARROW = "application/vnd.apache.arrow.stream"
PAIRS = 800
FULL_PAIRS = 100_000


class Oracle:
    """All rows, and what a caller sees of them."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, str, str], dict[str, Any]] = {}

    def seen(self, caller: Caller) -> list[dict[str, Any]]:
        part = caller.grant("profiles").part
        names = COLUMNS if part.columns is None else (*COLUMNS[:3], *part.columns)
        return [
            {name: row[name] for name in COLUMNS if name in names}
            for row in self.rows.values()
            if all(str(row[column]) == text for column, text in part.scope)
        ]


@pytest.fixture
def served(
    new_world: Callable[..., Any], client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    """A server of rows that are cold, hot, or hot over cold."""
    world, oracle, chosen = new_world(), Oracle(), random.Random(1)
    for is_hot in (False, True):
        for app_id in APPS:
            for user in USERS:
                for key in KEYS:
                    if chosen.random() < 0.7:
                        row = {"app_id": app_id, "user_id": user, "key": key}
                        value = value_of(chosen.choice(VALUES))
                        world.produce(row, value)
                        oracle.rows[app_id, user, key] = {**row, **value}
        if not is_hot:
            world.commit()
            world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')

    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    callers: list[Caller] = [EVERYONE]
    app = create_app(
        Tables([table]),
        ServingSettings(state_dir=world.folder, extract_jobs_dir=world.folder / "jobs"),
        guard=Guard(lambda _: callers[0]),
    )
    table.refresh()
    with client_of(app) as client:

        def ask(caller: Caller, method: str, path: str, **body: Any) -> Any:
            callers[0] = caller
            return client.request(method, path, **body)

        def known(caller: Caller, query: str) -> bytes | None:
            """The same lookup by the short way."""
            callers[0] = caller
            found = client.portal.call(app.known, "profiles", query.encode(), None, Credentials())
            return None if found is None else found[1]

        yield SimpleNamespace(ask=ask, known=known, oracle=oracle)


def a_caller(chosen: random.Random) -> Caller:
    scope: dict[str, str] = {}
    if chosen.random() < 0.6:
        scope["app_id"] = str(chosen.choice((*APPS, 9)))
    if chosen.random() < 0.4:
        scope["user_id"] = chosen.choice((*USERS, "u9"))
    if chosen.random() < 0.2:
        scope["key"] = chosen.choice(KEYS)
    if chosen.random() < 0.3:
        scope["value"] = chosen.choice(VALUES)
    columns = None if chosen.random() < 0.5 else tuple(chosen.sample(COLUMNS[3:], chosen.randrange(3)))
    verbs = {action for action in Action if action is not Action.CATALOG and chosen.random() < 0.8}
    table = chosen.choice(("profiles", "profiles", "profiles", "*", "others"))
    return Caller("random", {table: Grant(frozenset(verbs), Part(columns, tuple(scope.items())))})


def check_lookup(served: SimpleNamespace, caller: Caller, chosen: random.Random) -> None:
    key: dict[str, Any] = {"app_id": chosen.choice(APPS), "user_id": chosen.choice((*USERS, "u9"))}
    if chosen.random() < 0.4:
        key["key"] = chosen.choice((*KEYS, "z"))
    query = urlencode(key)
    wanted = [row for row in served.oracle.seen(caller) if key.items() <= row.items()]
    answer = served.ask(caller, "GET", f"{ROWS}?{query}")
    if not caller.may(Action.LOOKUP, "profiles"):
        assert answer.json()["code"] in ("not-permitted", "unknown-table")
        assert served.known(caller, query) is None
        return
    if len(key) == 3 and not wanted:
        assert answer.json()["code"] == "row-not-found"
        assert "value" not in answer.json()["facts"]
    else:
        assert answer.json()["rows"] == sorted(wanted, key=lambda row: row["key"])
    short = served.known(caller, query)
    assert short is None or json.loads(short)["rows"] == answer.json()["rows"]


def check_batch(served: SimpleNamespace, caller: Caller, chosen: random.Random) -> None:
    entities = [{"app_id": chosen.choice(APPS), "user_id": chosen.choice((*USERS, "u9"))} for _ in range(4)]
    answer = served.ask(caller, "POST", f"{ROWS}:batch", json={"entities": entities})
    if not caller.may(Action.LOOKUP, "profiles"):
        assert answer.json()["code"] in ("not-permitted", "unknown-table")
        return
    for entity, found in zip(entities, answer.json()["results"], strict=True):
        wanted = [row for row in served.oracle.seen(caller) if entity.items() <= row.items()]
        assert found["rows"] == sorted(wanted, key=lambda row: row["key"])


def check_extract(served: SimpleNamespace, caller: Caller, chosen: random.Random) -> None:
    body: dict[str, Any] = {}
    if chosen.random() < 0.5:
        body["columns"] = chosen.sample(COLUMNS, chosen.randrange(1, 5))
    column = chosen.choice((None, "app_id", "value"))
    value = chosen.choice(APPS if column == "app_id" else VALUES)
    if column:
        body["where"] = f"{column} = {value!r} OR user_id = 'u2' OR NOT (key = 'a')"
    answer = served.ask(caller, "POST", "/v1/tables/profiles/extract", json=body, headers={"Accept": ARROW})
    if not caller.may(Action.EXTRACT, "profiles"):
        assert answer.json()["code"] in ("not-permitted", "unknown-table")
        return
    part = caller.grant("profiles").part
    names = COLUMNS if part.columns is None else (*COLUMNS[:3], *part.columns)
    asked = [*body.get("columns", ()), *((column,) if column else ())]
    if not set(asked) <= set(names):
        assert answer.json()["code"] == "bad-parameter"
        return
    rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()

    def matches(row: Mapping[str, Any]) -> bool:
        return not column or row[column] == value or row["user_id"] == "u2" or row["key"] != "a"

    wanted = [row for row in served.oracle.seen(caller) if matches(row)]
    shown = body.get("columns") or [name for name in COLUMNS if name in names]
    assert sorted(map(str, ([row[n] for n in shown if n != "updated_at"] for row in rows))) == sorted(
        map(str, ([row[n] for n in shown if n != "updated_at"] for row in wanted))
    )
    assert all(list(row) == list(shown) for row in rows)


def check_others(served: SimpleNamespace, caller: Caller, chosen: random.Random) -> None:
    """What tells of a table: nothing of what they have no part in."""
    path = chosen.choice(("/v1/tables", "/v1/tables/profiles", "/openapi.json", "/status", "/readyz"))
    answer = served.ask(caller, "GET", path)
    part, text = caller.grant("profiles").part, answer.text
    if not caller.knows("profiles"):
        assert answer.status_code == 404 if path.endswith("profiles") else "profiles" not in text
    elif part.columns is not None and path in ("/v1/tables/profiles", "/openapi.json"):
        for hidden in set(COLUMNS[3:]) - set(part.columns):
            assert f'"{hidden}"' not in text
    if path == "/status":
        assert bool(answer.json()["tables"]) == caller.may(Action.ADMIN, "profiles")


def play(served: SimpleNamespace, pairs: int, seed: int) -> None:
    chosen = random.Random(seed)
    checks = (check_lookup, check_lookup, check_batch, check_others, check_extract)
    for _ in range(pairs):
        if chosen.random() < 0.1:  # warms the caches with what others must not see
            check_lookup(served, EVERYONE, chosen)
        check = chosen.choice(checks if chosen.random() < 0.1 else checks[:3])
        check(served, a_caller(chosen), chosen)


def test_callers_get_their_part_and_nothing_else(served: SimpleNamespace) -> None:
    play(served, PAIRS, seed=1)


@pytest.mark.timeout(3_600)  # a hundred thousand pairs, also beside other tests
@pytest.mark.full
def test_many_callers_get_their_part_and_nothing_else(served: SimpleNamespace) -> None:
    play(served, FULL_PAIRS, seed=2)
