"""Bad records end to end: kept before the commit, stopped on, sent on, and replayed without going back."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JJavaError

from tests.behaviour.live import APPEND_TIME, KEYED, Live, wait_for
from tests.behaviour.test_owner import LostAnswer
from tests.behaviour.topic import APP, Topic, key_bytes
from tests.ingest.small_ingest import java_store
from thermocline.dev.stack import Stack
from thermocline.errors import (
    DeadLetterRefused,
    ThermoclineError,
    TooManyBadRecords,
    TopicMissing,
)
from thermocline.iceberg.catalog import open_catalog
from thermocline.ingest.claim.ownership import own_table
from thermocline.ingest.commit.commit import Committer

LARGE = 2**40  # no int, but a long
Show = Callable[..., dict[str, Any]]
E = TypeVar("E", bound=ThermoclineError)

_SECTION = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{name}"]
buckets = 2
{choices}

[tables.{name}.columns]
app_id = "int"
user_id = "string"
key = "string"
score = "int"
"""


class Scores(Live):
    """A table with a column that can be widened, so that a record's badness can pass."""

    def __init__(  # as a table of `Live`, with other columns
        self,
        stack: Stack,
        name: str,
        partitions: int = 2,
        config: Mapping[str, str] | None = None,
        more: str = "",
        key: str = KEYED,
    ) -> None:
        self.stack, self.name = stack, name
        stack.kafka.create_topic(name, partitions, {**APPEND_TIME, **(config or {})})
        self.topic = Topic(stack.settings.kafka, name)
        self.config_path = stack.folder / f"{name}.toml"
        base = stack.config_path.read_text().partition("[tables.")[0]
        self.config_path.write_text(base + _SECTION.format(name=name, choices=f"{key}\n{more}"))
        self.create()

    def put(self, user: str, score: int | str | None, partition: int = 0) -> None:
        """A record with an append time of its own; None is a tombstone."""
        time.sleep(0.002)
        value = None if score is None else json.dumps({"score": score}).encode()
        self.topic.send_raw(key_bytes((APP, user, "plan")), value, partition)
        self.topic.flush()

    def set(self, old: str, new: str) -> None:
        """Change the configuration."""
        text = self.config_path.read_text()
        assert old in text
        self.config_path.write_text(text.replace(old, new))

    def widen(self) -> None:
        """From here on, a large score is good."""
        self.set('score = "int"', 'score = "long"')
        assert self.run("table", "alter", self.name, "--yes") == 0

    def held_back(self, by: type[E]) -> E:
        """What stops ingest in the middle of a batch, of which nothing is committed."""
        before = (self.state().seam, self.scores())
        with pytest.raises(by) as stop:
            self.ingest()
        assert (self.state().seam, self.scores()) == before
        return stop.value

    def scores(self) -> dict[str, int]:
        found = self.table().scan().to_arrow().to_pylist()
        by_user = {row["user_id"]: row["score"] for row in found}
        assert len(by_user) == len(found), "a key is live twice"
        return by_user

    def kept(self) -> Counter[str]:
        """The rows of the companion table as they are, repeats too."""
        table = open_catalog(self.settings.catalog).load_table(f"app.{self.name}_quarantine")
        rows = table.scan().to_arrow().to_pylist()
        return Counter(f"{row['partition']}@{row['offset']}" for row in rows)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    """One broker and one catalog for all tables of this module."""
    return new_stack("quarantine", partitions=1, buckets=2)


@pytest.fixture
def new_scores(stack: Stack, request: pytest.FixtureRequest) -> Callable[..., Scores]:
    name = re.sub(r"\W", "_", request.node.name.removeprefix("test_")).strip("_")[-60:]
    return lambda **options: Scores(stack, name, **options)


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Runs a command with --json: its document, and its exit code where the document does not say it."""

    def run(live: Scores, *words: str) -> dict[str, Any]:
        capsys.readouterr()
        code = live.run("quarantine", words[0], live.name, *words[1:], "--json")
        out, err = capsys.readouterr()
        document: dict[str, Any] = json.loads(out or err.splitlines()[-1])
        return {"exit_code": code, **document}

    return run


def outcomes(replayed: Mapping[str, Any]) -> dict[str, str]:
    """By PARTITION@OFFSET."""
    return {one["record"].rpartition("/")[2]: one["outcome"] for one in replayed["records"]}


def why(replayed: Mapping[str, Any], record: str) -> str:
    (reason,) = [one["why"] for one in replayed["records"] if one["record"].endswith(f"/{record}")]
    return str(reason)


def summary_counts(live: Live) -> dict[str, int]:
    counts = {name: count for name, count in live.state().counts.items() if count}
    assert 2 * counts["read"] == sum(counts.values())
    return counts


# What a stage's word does


def test_each_stage_has_its_own_word(new_scores: Callable[..., Scores], show: Show) -> None:
    """Goal: one batch with a bad record of every stage counts each as its stage says, and stops on none.

    Then the stage that is skipped is made to stop, and stops on its own record alone.
    """
    live = new_scores(more='on_error = { key = "quarantine", decode = "skip", contract = "quarantine" }')
    live.topic.send_raw(b"no key", b"{}", 0)
    live.topic.send_raw(key_bytes((APP, "u1", "plan")), b"{", 0)
    live.put("u1", LARGE)
    live.put("u1", 5)

    live.ingest()

    assert live.kept() == {"0@0": 1, "0@2": 1}
    assert summary_counts(live) == {"read": 4, "applied": 1, "quarantined": 2, "skipped": 1}
    listed = show(live, "list")
    assert (listed["records"], listed["by_stage"]) == (2, {"contract": 1, "key": 1})
    assert [one["offset"] for one in show(live, "list", "--stage", "key")["newest"]] == [0]
    assert [one["offset"] for one in show(live, "list", "--reason", "SCORE")["newest"]] == [2]
    assert show(live, "list", "--since", "2999-01-01T00:00:00Z")["records"] == 0
    assert show(live, "list", "--topic", "another")["records"] == 0
    (record,) = show(live, "show", f"{live.name}/0@2")["records"]
    assert (record["stage"], json.loads(record["value"]["text"])) == ("contract", {"score": LARGE})
    assert show(live, "show", f"{live.name}/0@3")["code"] == "not-found"

    live.set('decode = "skip"', 'decode = "fail"')
    assert live.run("table", "alter", live.name, "--yes") == 0
    live.put("u2", LARGE)
    live.put("u2", 7)
    live.topic.send_raw(key_bytes((APP, "u3", "plan")), b"{", 0)
    live.topic.flush()
    stop = live.held_back(TooManyBadRecords)
    assert stop.limits == ('on_error = "fail" for decode',)
    assert stop.examples[0].startswith(f"{live.name}/0@6 (decode): ")
    assert live.kept() == {"0@0": 1, "0@2": 1}, "what its batch had for the quarantine is not there either"
    assert live.scores() == {"u1": 5}


@pytest.mark.local_files
def test_too_many_bad_records_stop_ingest_until_the_limit_is_raised(
    new_scores: Callable[..., Scores],
) -> None:
    """Goal: the breakers stop before anything is kept or committed, and the same batch goes through after."""
    live = new_scores(more="errors_count_max = 3")
    live.put("good", 1)
    for number in range(4):
        live.put(f"bad{number}", LARGE)
    quarantine = live.stack.folder / "data" / "warehouse" / "app" / f"{live.name}_quarantine" / "data"

    stop = live.held_back(TooManyBadRecords)

    assert (stop.bad, stop.read, stop.exit_code) == (4, 5, 40)
    assert stop.limits == ("errors_count_max = 3",)
    assert live.kept() == {}
    assert list(quarantine.glob("*.parquet")) == [], "files that no table knows are cleaned up"

    live.set("errors_count_max = 3", "errors_count_max = 1000\nerrors_ratio_max = 0.9")
    live.ingest()
    assert live.scores() == {"good": 1}
    assert sum(live.kept().values()) == 4

    for number in range(200):
        live.topic.send_raw(b"no key", None if number < 190 else b"%d" % number, 0)
    live.topic.flush()
    stop = live.held_back(TooManyBadRecords)
    assert (stop.bad, stop.limits) == (200, ("errors_ratio_max = 0.9",))
    assert sum(live.kept().values()) == 4
    live.set("errors_ratio_max = 0.9", "errors_ratio_max = 1.0")
    live.ingest()
    assert sum(live.kept().values()) == 204


# Before the commit


def crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_bad_records_are_in_quarantine_and_in_the_dead_letter_topic_before_the_batch_commits(
    new_scores: Callable[..., Scores], stack: Stack, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a crash before the commit leaves repeats of the same coordinates, never a record that is nowhere.

    Method: the first batch ends right before its commit; then another runs whole.
    """
    stack.kafka.create_topic("letters", 2)
    live = new_scores(more='dead_letter_topic = "letters"')
    key, value = key_bytes((APP, "u1", "plan")), b"\x00garbage"
    live.topic.send_raw(key, value, partition=1, headers=[("trace", b"\x01"), ("no", None)])
    live.put("u1", 1, partition=1)
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", crash)
        with pytest.raises(KeyboardInterrupt):
            live.ingest()
    assert live.kept() == {"1@0": 1}
    assert len(letters(stack, 1)) == 1
    assert live.scores() == {}

    replayed = show(live, "replay", "--all")
    assert outcomes(replayed) == {"1@0": "refused"}, "ingest will meet it again"
    assert "not passed it" in why(replayed, "1@0")

    live.ingest()

    assert live.scores() == {"u1": 1}
    assert live.kept() == {"1@0": 2}
    assert show(live, "list")["records"] == 1, "repeats are one record"
    first, again = letters(stack, 2)
    assert first == again
    assert (first[0], first[1]) == (key, value)
    headers = dict(first[2])
    assert first[2][:2] == [("trace", b"\x01"), ("no", None)]
    assert headers.pop("thermocline.timestamp").startswith(b"20")
    assert b"UTF-8" in headers["thermocline.reason"] or headers["thermocline.reason"]
    assert {name: value for name, value in headers.items() if name.startswith("thermocline.")} == {
        "thermocline.table": live.name.encode(),
        "thermocline.topic": live.name.encode(),
        "thermocline.topic-id": live.state().topic_ids[live.name].encode(),
        "thermocline.partition": b"1",
        "thermocline.offset": b"0",
        "thermocline.stage": b"decode",
        "thermocline.reason": headers["thermocline.reason"],
    }


def test_a_dead_letter_that_cannot_be_written_holds_its_batch_back(
    new_scores: Callable[..., Scores], stack: Stack
) -> None:
    live = new_scores(more='dead_letter_topic = "small_letters"')
    live.topic.send_raw(b"no key", b"x" * 3_000, 0)
    live.put("u1", 1)
    with pytest.raises(TopicMissing):
        live.ingest()
    stack.kafka.create_topic("small_letters", 1, {"max.message.bytes": "2000"})

    stop = live.held_back(DeadLetterRefused)
    assert stop.record == f"{live.name}/0@0"
    assert live.kept() == {}, "each attempt would add it again"

    live.set('dead_letter_topic = "small_letters"', "")
    live.ingest()
    assert live.scores() == {"u1": 1}


def letters(stack: Stack, count: int) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]:
    """All dead letters, of which there are so many."""
    config = {**stack.settings.kafka.client_config(), "group.id": "letters", "auto.offset.reset": "earliest"}
    consumer = Consumer({**config, "enable.partition.eof": False})
    consumer.assign([TopicPartition("letters", partition, 0) for partition in range(2)])
    found: list[Any] = []

    def has_all() -> bool:
        found.extend(message for message in consumer.consume(10, 0.2) if message.error() is None)
        return len(found) >= count

    try:
        wait_for(has_all)
        found.extend(consumer.consume(10, 0.5))
    finally:
        consumer.close()
    return [(message.key(), message.value(), message.headers()) for message in found]


# Replay


@pytest.mark.full
def test_replay_applies_what_is_the_newest_of_its_key_and_nothing_else(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    """Goal: records that can be read by now are applied as if they had been good, in one commit.

    Method: large scores are bad until the column is widened. Before and after each one stands what decides:
    an older row, a newer one, a deletion, a newer record in another partition, another bad one.
    """
    live = new_scores()
    live.put("updated", 1)  # 0@0
    live.put("updated", LARGE)  # 0@1
    live.put("inserted", LARGE)  # 0@2
    live.put("newer row", LARGE)  # 0@3
    live.put("newer row", 2)
    live.put("deleted", 3)
    live.put("deleted", LARGE)  # 0@6
    live.put("deleted", None)
    live.put("moved", LARGE)  # 0@8
    live.put("moved", 4, partition=1)
    live.put("moved and deleted", LARGE)  # 0@9
    live.put("moved and deleted", 5, partition=1)
    live.put("moved and deleted", None, partition=1)
    live.put("twice", LARGE)  # 0@10
    live.put("twice", LARGE + 1)  # 0@11
    live.put("deleted, then bad", None)
    live.put("deleted, then bad", LARGE)  # 0@13
    live.put("hopeless", "none")  # 0@14
    live.ingest()
    before = live.scores()
    assert before == {"updated": 1, "newer row": 2, "moved": 4}
    assert show(live, "replay", "--all")["counts"] == {"still bad": 10}
    live.put("newer row", 6)
    live.put("much later", LARGE)  # 0@16
    live.put("much later", None)
    live.ingest()
    live.widen()
    totals = live.state().totals
    expected = {
        "0@1": "applied",
        "0@2": "applied",
        "0@3": "superseded",
        "0@6": "superseded",
        "0@8": "superseded",
        "0@9": "superseded",
        "0@10": "superseded",
        "0@11": "applied",
        "0@13": "applied",
        "0@14": "still bad",
        "0@16": "superseded",
    }

    newest, held = live.newest_id(), live.kept()
    dry = show(live, "replay", "--all", "--dry-run")
    assert (outcomes(dry), dry["exit_code"], dry["snapshot_ids"]) == (expected, 20, [])
    assert (live.newest_id(), live.kept()) == (newest, held)
    seam = live.state().seam

    done = show(live, "replay", "--all")

    assert (outcomes(done), done["exit_code"]) == (expected, 20)
    rows = {
        "updated": LARGE,
        "inserted": LARGE,
        "newer row": 6,
        "moved": 4,
        "twice": LARGE + 1,
        "deleted, then bad": LARGE,
    }
    assert live.scores() == rows
    assert done["snapshot_ids"] == [str(live.newest_id())]
    assert live.state().seam == seam
    assert summary_counts(live) == {"read": 10, "applied": 4, "superseded": 6}
    assert live.state().totals["read"] == totals["read"] + 10
    assert json.loads(live.summary()["thermocline.replayed"])["applied"] == 4
    assert live.kept() == {"0@14": 1}
    assert show(live, "replay", "--all")["exit_code"] == 10

    live.put("updated", 7)
    live.ingest()
    assert live.scores() == {**rows, "updated": 7}, "ingest goes on over it"


def test_only_a_record_that_the_table_took_in_supersedes_an_older_one(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    """Goal: a later record that was bad itself when it was read, and stays out of the table, decides nothing.

    Method: after each record of the quarantine comes a bad one that could be read by now: one in quarantine
    too, and one that was skipped. The first ones are replayed alone, then the rest.
    """
    live = new_scores(partitions=1)
    live.put("both in quarantine", LARGE)  # 0@0
    live.put("both in quarantine", LARGE + 1)  # 0@1
    live.put("then skipped", LARGE)  # 0@2
    live.ingest()
    live.set("buckets = 2\n", 'buckets = 2\non_error = "skip"\n')
    assert live.run("table", "alter", live.name, "--yes") == 0
    live.put("then skipped", LARGE + 1)  # 0@3
    live.ingest()
    live.widen()

    first = show(live, "replay", f"{live.name}/0@0", f"{live.name}/0@2")

    assert outcomes(first) == {"0@0": "applied", "0@2": "applied"}
    assert live.scores() == {"both in quarantine": LARGE, "then skipped": LARGE}
    assert live.kept() == {"0@1": 1}
    assert outcomes(show(live, "replay", "--all")) == {"0@1": "applied"}
    assert live.scores() == {"both in quarantine": LARGE + 1, "then skipped": LARGE}


def test_a_record_that_was_good_when_read_supersedes_though_bad_now(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    """Goal: an alteration makes no record undone that the table took in.

    Method: the newest record says what the row says already, so the row keeps its older place, and its
    field ``plan`` is no string, as the column that is added later wants it.
    """
    live = new_scores(partitions=1, more="suppress_unchanged = true")
    live.put("u1", 1)  # 0@0
    live.ingest()
    live.put("u1", LARGE)  # 0@1
    live.topic.send_raw(key_bytes((APP, "u1", "plan")), b'{"score": 1, "plan": 5}', 0)
    live.topic.flush()
    live.ingest()
    live.set('score = "int"', 'score = "long"\nplan = "string"')
    assert live.run("table", "alter", live.name, "--yes") == 0

    replayed = show(live, "replay", "--all")

    assert outcomes(replayed) == {"0@1": "superseded"}
    assert live.scores() == {"u1": 1}


@pytest.mark.full
def test_replayed_one_by_one_records_end_as_replayed_together(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    """Goal: what was replayed counts from then on, also where the row said the same already.

    Method: three records of a key, the first and the last with the same score; by producers' times the row
    alone decides nothing.
    """
    times = {"message.timestamp.type": "CreateTime"}
    live = new_scores(partitions=1, config=times, more="suppress_unchanged = true")
    orders = {"012": (0, 1, 2), "021": (0, 2, 1), "102": (1, 0, 2), "210": (2, 1, 0)}
    offset, offsets = 0, {}
    for user in (*orders, "together"):
        offsets[user] = offset
        for score in (LARGE, LARGE + 1, LARGE):
            live.put(user, score)
            offset += 1
    live.ingest()
    live.widen()
    for user, order in orders.items():
        for number in order:
            record = f"0@{offsets[user] + number}"
            replayed = outcomes(show(live, "replay", f"{live.name}/{record}"))
            newer = order[: order.index(number)]
            assert replayed == {record: "superseded" if any(n > number for n in newer) else "applied"}
    together = outcomes(show(live, "replay", "--all"))
    assert [together[f"0@{place}"] for place in (12, 13, 14)] == ["superseded", "superseded", "applied"]
    assert live.scores() == dict.fromkeys((*orders, "together"), LARGE)
    assert live.kept() == {}


def test_a_crash_after_the_commit_of_a_replay_repeats_nothing(
    new_scores: Callable[..., Scores], show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what was applied is found applied, also after the row was written again by a newer record."""
    live = new_scores()
    for user in ("u1", "u2"):
        live.put(user, LARGE)
    live.ingest()
    live.widen()
    with monkeypatch.context() as patch:
        patch.setattr("thermocline.ingest.replay.replay.remove", crash)
        assert live.run("quarantine", "replay", live.name, "--all") == 130
    assert live.scores() == {"u1": LARGE, "u2": LARGE}
    assert live.kept() == {"0@0": 1, "0@1": 1}
    live.put("u2", 1)
    live.ingest()
    newest = live.newest_id()

    replayed = show(live, "replay", "--all", "--dry-run")
    assert outcomes(replayed) == {"0@0": "already applied", "0@1": "superseded"}
    replayed = show(live, "replay", f"{live.name}/0@0", f"{live.name}/0@1")
    assert (outcomes(replayed), replayed["exit_code"]) == (
        {"0@0": "already applied", "0@1": "superseded"},
        0,
    )
    assert live.kept() == {}
    assert live.scores() == {"u1": LARGE, "u2": 1}
    assert str(newest) not in replayed["snapshot_ids"] == []
    assert show(live, "replay", f"{live.name}/0@0")["code"] == "not-found"


class Away(LostAnswer):
    """A table whose catalog loses an answer, and then cannot be asked what became of it."""

    def refresh(self) -> None:
        if self._is_lost:
            raise Py4JJavaError("no answer", self._jvm.java.lang.RuntimeException("connection refused"))
        self._table.refresh()


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "not made"])
def test_a_replay_whose_commit_is_unknown_keeps_the_quarantine(
    new_scores: Callable[..., Scores], show: Show, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """Goal: made or not, nothing leaves the quarantine until the next replay knows."""
    live = new_scores()
    live.put("u1", LARGE)
    live.ingest()
    live.widen()

    @contextmanager
    def own_and_lose(*arguments: Any, **options: Any) -> Iterator[Any]:
        with own_table(*arguments, **options) as owned:
            store = java_store(owned.committer)
            store.table = Away(owned.jvm, store.table, is_made)
            yield owned

    with monkeypatch.context() as patch:
        patch.setattr("thermocline.ingest.replay.replay.own_table", own_and_lose)
        failed = show(live, "replay", "--all")
    assert (failed["code"], failed["exit_code"]) == ("commit-unknown", 4)
    assert live.kept() == {"0@0": 1}

    replayed = show(live, "replay", "--all")

    assert outcomes(replayed) == {"0@0": "already applied" if is_made else "applied"}
    assert live.scores() == {"u1": LARGE}
    assert live.kept() == {}


def test_a_replay_is_refused_where_the_log_is_cut_past_the_record_or_past_its_batch_elsewhere(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    """Goal: a deletion that retention took away must not be undone.

    Method: four keys are bad in partition 0, the last one in a second batch; one of them is deleted there,
    one in partition 1. Then both partitions are cut.
    """
    live = new_scores()
    live.put("before", 0, partition=1)  # 1@0
    live.put("a", LARGE)  # 0@0
    live.put("a", None)
    live.put("b", LARGE)  # 0@2
    live.put("b", None, partition=1)  # 1@1
    live.put("c", LARGE)  # 0@3
    live.put("after", 0, partition=1)  # 1@2
    live.ingest()
    live.put("d", LARGE)  # 0@4
    live.ingest()
    live.widen()
    live.cut({0: 2, 1: 2})

    refused = show(live, "replay", "--all", "--dry-run")
    assert outcomes(refused) == {"0@0": "refused", "0@2": "refused", "0@3": "refused", "0@4": "applied"}
    assert "it begins at 2" in why(refused, "0@0")
    for record in ("0@2", "0@3"):
        assert f"{live.name}/1 is cut: it begins at 2" in why(refused, record)
    done = show(live, "replay", "--all")
    assert outcomes(done) == outcomes(refused)
    assert done["exit_code"] == 20
    assert live.scores() == {"before": 0, "after": 0, "d": LARGE}
    assert live.kept() == {"0@0": 1, "0@2": 1, "0@3": 1}


def test_what_another_partition_lost_before_the_record_was_read_does_not_matter(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    """Goal: with producers' times too, a partition whose lost part was committed before is no hindrance."""
    live = new_scores(config={"message.timestamp.type": "CreateTime"})
    live.put("before", 0, partition=1)
    live.ingest()
    live.put("a", LARGE)
    live.put("after", 0, partition=1)
    live.ingest()
    live.widen()
    live.cut({1: 1})
    assert outcomes(show(live, "replay", "--all", "--dry-run")) == {"0@0": "applied"}
    live.cut({1: 2})
    assert outcomes(show(live, "replay", "--all", "--dry-run")) == {"0@0": "refused"}


def test_a_replay_from_a_compacted_topic_is_refused_once_a_tombstone_may_be_gone(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    """Goal: a deletion that compaction may have taken away is not undone, whatever made it do so.

    Method: two keys, one of them with a row. First a newer record of the one waits in the log; then
    tombstones are kept for a moment only instead of a day.
    """
    live = new_scores(partitions=1, config={"cleanup.policy": "compact"})
    live.put("row", 1)
    live.put("row", LARGE)  # 0@1
    live.put("no row", LARGE)  # 0@2
    live.put("other", 2)
    live.ingest()
    live.widen()
    young = {"0@1": "applied", "0@2": "applied"}
    assert outcomes(show(live, "replay", "--all", "--dry-run")) == young
    live.put("row", LARGE)  # 0@4
    waiting = show(live, "replay", "--all", "--dry-run")
    assert outcomes(waiting) == {**young, "0@1": "refused"}
    assert f"before the record {live.name}/0@4" in why(waiting, "0@1")
    live.set_config(delete_retention_ms="1")

    refused = show(live, "replay", "--all")

    assert outcomes(refused) == {"0@1": "refused", "0@2": "refused"}
    assert "a tombstone of its key may be gone" in why(refused, "0@2")
    assert live.scores() == {"row": 1, "other": 2}


@pytest.mark.full
def test_a_replay_after_a_topic_was_made_again_is_refused(
    new_scores: Callable[..., Scores], show: Show
) -> None:
    live = new_scores(partitions=1)
    live.put("u1", LARGE)
    live.ingest()
    live.widen()
    live.recreate(1)
    assert show(live, "replay", "--all")["code"] == "log-replaced"
    topic_id = live.log.describe([live.name])[live.name].topic_id
    rebase = ("ingest", "rebase", live.name, "--fact", f"topic:{live.name}={topic_id}", "--to", "earliest")
    assert live.run(*rebase) == 0
    live.put("u1", None)
    live.ingest()

    refused = show(live, "replay", "--all")

    assert outcomes(refused) == {"0@0": "refused"}
    assert "was replaced" in why(refused, "0@0")
    assert live.scores() == {}


def test_a_table_without_a_key_takes_each_record_once(
    new_scores: Callable[..., Scores], show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: where the log stands in for the key, a replay adds what is not there, cut log or not."""
    live = new_scores(key='key = []\nkey_from = "value"')
    for score in (1, LARGE, LARGE, 2):
        live.put("u", score)
    live.ingest()
    live.widen()
    live.cut({0: 4})
    with monkeypatch.context() as patch:
        patch.setattr("thermocline.ingest.replay.replay.remove", crash)
        assert live.run("quarantine", "replay", live.name, f"{live.name}/0@1") == 130

    replayed = show(live, "replay", "--all")

    assert outcomes(replayed) == {"0@1": "already applied", "0@2": "applied"}
    rows = live.table().scan().to_arrow().to_pylist()
    assert sorted((row["_kafka_offset"], row["score"]) for row in rows) == [
        (0, 1),
        (1, LARGE),
        (2, LARGE),
        (3, 2),
    ]
    assert live.kept() == {}


def test_purge_takes_what_was_named_and_asks_first(new_scores: Callable[..., Scores], show: Show) -> None:
    live = new_scores(partitions=1)
    for number in range(4):
        live.put(f"u{number}", LARGE)
    live.ingest()
    assert show(live, "purge", "--all")["code"] == "not-confirmed"
    assert show(live, "purge", "--yes")["code"] == "bad-parameter"
    assert show(live, "purge", f"{live.name}/0@9", "--yes")["code"] == "not-found"
    assert live.kept() == {f"0@{offset}": 1 for offset in range(4)}

    assert show(live, "purge", f"{live.name}/0@1", f"{live.name}/0@2", "--yes")["purged"] == 2
    assert live.kept() == {"0@0": 1, "0@3": 1}
    assert show(live, "purge", "--before", "2020-01-01T00:00:00Z", "--yes")["exit_code"] == 10
    assert show(live, "purge", "--before", "2999-01-01T00:00:00Z", "--yes")["purged"] == 2
    assert live.kept() == {}
