"""Keys of a sample: in several partitions, spelled in two ways, and who put them where they are."""

from __future__ import annotations

import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from thermocline.doctor import sample as sample_module
from thermocline.doctor.check import Examination
from thermocline.doctor.finding import Outcome
from thermocline.doctor.keys import bad_in, scattered_in, spelled_twice_in
from thermocline.doctor.partitioners import murmur2, partitioner_of
from thermocline.doctor.sample import Place, Sample, sample_of
from thermocline.kafka.facts import RecordChunk
from thermocline.process.clock import SystemClock
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.unread import UnreadFields
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.settings import CatalogSettings, KafkaSettings, Settings, TableSettings

if TYPE_CHECKING:
    from thermocline.kafka.log import Log

KAFKA = KafkaSettings(bootstrap_servers="b:1")
TABLE = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=["profiles"],
    key=["app_id", "user_id"],
    columns={"app_id": "int", "user_id": "string", "value": "string"},
)


def sample(*partitions: list[bytes]) -> Sample:
    """Of a topic with a partition for each list of keys."""
    found, decoder = Sample(TABLE), decoder_for(TABLE)
    for number, keys in enumerate(partitions):
        count = len(keys)
        values: list[bytes | None] = [b'{"value":"x"}'] * count
        found.take(
            RecordChunk("profiles", number, list(keys), values, list(range(count)), [0] * count),
            decoder,
            UnreadFields(TABLE),
        )
    return found


ONE = b'{"app_id":1,"user_id":"ada"}'
SPACED = b'{"app_id": 1, "user_id": "ada"}'
TURNED = b'{"user_id":"ada","app_id":1}'
OTHER = b'{"app_id":2,"user_id":"ada"}'


def test_keys_that_are_alike_are_well() -> None:
    found = sample([ONE, ONE], [OTHER])
    assert spelled_twice_in(KAFKA, "profiles", found).looked_at == "2 keys of the 3 newest records"
    assert scattered_in(KAFKA, "profiles", found, {"profiles": 2}).outcome is Outcome.WELL
    assert bad_in("profiles", found).outcome is Outcome.WELL


@pytest.mark.parametrize("other", [SPACED, TURNED])
def test_two_spellings_in_two_partitions_are_a_problem_with_both_records(other: bytes) -> None:
    found = spelled_twice_in(KAFKA, "profiles", sample([OTHER, ONE], [other]))
    assert found.outcome is Outcome.PROBLEM
    assert found.looked_at == (
        f'1 of 2 keys are spelled in several ways: app_id=1, user_id="ada" is {ONE.decode()} at '
        f"profiles/0@1 and {other.decode()} at profiles/1@0"
    )
    shown = found.fix.splitlines()[-2:]
    assert [" --partition 0 --offset 1 " in shown[0], " --partition 1 --offset 0 " in shown[1]] == [
        True,
        True,
    ]
    assert scattered_in(KAFKA, "profiles", sample([ONE], [other]), {}).outcome is Outcome.WELL, "that is why"


def test_two_spellings_in_one_partition_are_a_warning() -> None:
    assert spelled_twice_in(KAFKA, "profiles", sample([ONE, SPACED])).outcome is Outcome.WARNING


def test_a_key_in_several_partitions_is_named_with_them() -> None:
    found = scattered_in(KAFKA, "profiles", sample([ONE], [OTHER], [ONE]), {})
    assert found.outcome is Outcome.WARNING
    assert found.looked_at == (
        '1 of 2 keys are in several partitions: app_id=1, user_id="ada" at profiles/0@0, profiles/2@0'
    )


def test_a_sample_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: a log that goes on after what was asked for, by chunks of ten records."""
    chunk = RecordChunk("profiles", 0, [ONE] * 10, [b'{"value":"x"}'] * 10, list(range(10)), [0] * 10)
    monkeypatch.setattr(sample_module, "read_ranges", lambda *_: (chunk for _ in range(5)))
    monkeypatch.setattr(sample_module, "RECORDS_MAX", 25)
    bounds = Seam({("profiles", 0): 0}), Seam({("profiles", 0): 50})
    tables = {
        "profiles": TableSettings(
            identifier="app.profiles",
            topics=("profiles",),
            key=("app_id", "user_id"),
            columns={"app_id": "int", "user_id": "string", "value": "string"},
        )
    }
    examination = Examination(None, SystemClock(), ("profiles",), topics=("profiles",))
    examination.read_settings = Settings(
        kafka=KAFKA, catalog=CatalogSettings(uri="sqlite:///c.db", warehouse="w"), tables=tables
    )
    examination.log = cast("Log", SimpleNamespace(bounds=lambda _: bounds))
    assert sample_of(examination, "profiles").records == 30


def test_records_that_are_all_bad_are_a_problem() -> None:
    assert bad_in("profiles", sample([b"ada", b"bob"])).outcome is Outcome.PROBLEM
    some = bad_in("profiles", sample([b"ada", ONE]))
    assert some.outcome is Outcome.WARNING
    assert some.looked_at.startswith("1 of the 2 newest records are bad; profiles/0@0: not one JSON object")


# Of Kafka's own UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed % (1 << 32)


def test_the_client_that_chose_a_partition_is_named() -> None:
    count, raw = 6, b"abc"
    java, librdkafka = (479470107 & 0x7FFFFFFF) % count, zlib.crc32(raw) % count
    assert java != librdkafka
    partitions = {"profiles": count}
    assert partitioner_of(raw, Place("profiles", java, 0), partitions) == "as Java's clients choose"
    chosen = partitioner_of(raw, Place("profiles", librdkafka, 0), partitions)
    assert chosen == "as librdkafka chooses by default"
    assert partitioner_of(None, Place("profiles", java, 0), partitions) == ""
