"""Whom an answer tells of refused records, and of which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from thermocline.serving.hot import refused
from thermocline.serving.http.app import create_app
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings


@pytest.fixture
def served(
    new_world: Callable[..., Any], client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    """A server without processes. Pins get their seal at once."""
    world = new_world()

    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    settings = ServingSettings(state_dir=world.folder, read_after_seconds_max=0.2)
    table.refresh()
    with client_of(create_app(Tables([table]), settings)) as client:
        yield SimpleNamespace(world=world, client=client)


def _key(user: str, key: str = "k") -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def _bad(served: SimpleNamespace, user: str, times: int = 1, partition: int = 0) -> None:
    for _ in range(times):
        served.world.produce(_key(user), {"value": 5}, partition=partition)
    served.world.tail()


def _asked(served: SimpleNamespace, token: str = "", **key: str) -> Any:
    headers = {"Thermocline-Read-After": token} if token else {}
    return served.client.get("/v1/tables/profiles/rows", params={"app_id": 7, **key}, headers=headers).json()


def _places(answer: Any) -> list[tuple[int, int]]:
    return [(one["partition"], one["offset"]) for one in answer.get("refused", [])]


def test_only_refused_records_that_may_be_of_the_key_explain_a_missing_row(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: one bad record of each user, one whose key can't be read, and one with a very long key."""
    monkeypatch.setattr(refused, "KEY_BYTES_MAX", 40)
    _bad(served, "ada")  # 0
    _bad(served, "bob")  # 1
    _bad(served, "x" * 100)  # 2
    served.world.produce({"app_id": "no number"}, {"value": "v"}, partition=0)  # 3
    served.world.tail()
    ada = _asked(served, user_id="ada", key="k")
    assert (ada["code"], _places(ada)) == ("row-not-found", [(0, 3), (0, 0)])
    assert _places(_asked(served, user_id="bob")) == [(0, 3), (0, 1)]
    assert _places(_asked(served, user_id="ada", key="other")) == [(0, 3)]
    assert _places(_asked(served, user_id="x" * 100)) == [(0, 3), (0, 2)]
    assert _places(_asked(served, user_id="x" * 20)) == [(0, 3)]
    assert _places(_asked(served, "profiles/0@1", user_id="ada")) == [(0, 1), (0, 0)], "its own write"
    entities = [{"app_id": 7, "user_id": name} for name in ("ada", "bob")]
    batch = served.client.post("/v1/tables/profiles/rows:batch", json={"entities": entities}).json()
    assert _places(batch) == [(0, 3), (0, 1), (0, 0)]
    listed = served.client.get("/v1/tables/profiles/refused").json()
    assert [one["key"] for one in listed["refused"]] == [None, None, _key("bob"), _key("ada")]


def test_whoever_reads_a_refused_write_beyond_those_that_are_kept_is_told(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: three are kept of five bad records, and then two in another partition are not kept, either."""
    monkeypatch.setattr(refused, "KEPT_MAX", 3)
    _bad(served, "ada", 5)
    _bad(served, "ada", 2, partition=1)
    in_0 = {"topic": "profiles", "partition": 0, "offset_first": 3, "offset_last": 4}
    in_1 = {"topic": "profiles", "partition": 1, "offset_first": 0, "offset_last": 1}
    listed = served.client.get("/v1/tables/profiles/refused", params={"limit": 1000}).json()
    assert (_places(listed), listed["more"]) == ([(0, 2), (0, 1), (0, 0)], True)
    assert listed["refused_unlisted"] == [in_0, in_1]
    token = {"Thermocline-Read-After": "profiles/1@1"}
    assert _asked(served, "profiles/1@1", user_id="ada")["refused_unlisted"] == [in_1]
    assert _asked(served, "profiles/0@3", user_id="bob")["refused_unlisted"] == [in_0 | {"offset_last": 3}]
    missing = _asked(served, user_id="ada", key="k")
    assert missing["refused_unlisted"] == [in_0, in_1]
    assert "refused_unlisted" not in _asked(served, "profiles/0@2", user_id="ada")
    extract = served.client.post("/v1/tables/profiles/extract", headers=token)
    assert extract.headers["Thermocline-Refused-Unlisted"] == "profiles/1@0-1"


def test_a_partition_that_is_full_of_refused_records_hides_no_other(served: SimpleNamespace) -> None:
    _bad(served, "ada", 5)
    _bad(served, "bob", 2, partition=1)
    listed = served.client.get("/v1/tables/profiles/refused", params={"limit": 4}).json()
    assert (_places(listed), listed["more"]) == ([(0, 4), (0, 3), (1, 1), (1, 0)], True)
    listed = served.client.get("/v1/tables/profiles/refused", params={"limit": 6}).json()
    assert (_places(listed), listed["more"]) == ([(0, 4), (0, 3), (0, 2), (0, 1), (1, 1), (1, 0)], True)


def test_refused_records_that_are_not_looked_through_are_said_to_be_unlisted(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused, "SCANNED_MAX", 3)
    _bad(served, "ada")  # 0
    _bad(served, "bob", 4)  # 1 to 4
    answer = _asked(served, user_id="ada")
    assert _places(answer) == []
    assert answer["refused_unlisted"] == [
        {"topic": "profiles", "partition": 0, "offset_first": 0, "offset_last": 1}
    ]
