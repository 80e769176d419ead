"""Checks of the newest records' keys: one in several partitions, and one that is spelled in two ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from thermocline.doctor.finding import Finding, Outcome, not_looked_at, of_error, well
from thermocline.doctor.fixes import console
from thermocline.doctor.partitioners import partitioner_of
from thermocline.doctor.sample import Sample, sample_of
from thermocline.errors import ThermoclineError
from thermocline.rules.keys import named_columns
from thermocline.text.shown import json_text

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.doctor.sample import Place
    from thermocline.settings import KafkaSettings

__all__ = ["bad_in", "records", "scattered", "scattered_in", "spelled_twice", "spelled_twice_in"]

_KEY_CHARACTERS_MAX: Final = 200

Spelled = Mapping[tuple[bytes | None, str, int], "Place"]


def records(examination: Examination) -> Sequence[Finding]:
    """Whether the newest records are such as the table takes."""
    return _of_each(examination, bad_in)


def scattered(examination: Examination) -> Sequence[Finding]:
    """Whether a key, spelled alike, is in several partitions."""
    kafka, log = examination.settings.kafka, examination.log
    assert log is not None

    def look(name: str, sample: Sample) -> Finding:
        facts = log.describe(examination.topics_of(name))
        return scattered_in(kafka, name, sample, {topic: fact.partitions for topic, fact in facts.items()})

    return _of_each(examination, look)


def spelled_twice(examination: Examination) -> Sequence[Finding]:
    """Whether a key is spelled in several ways."""
    kafka = examination.settings.kafka
    return _of_each(examination, lambda name, sample: spelled_twice_in(kafka, name, sample))


def spelled_twice_in(kafka: KafkaSettings, name: str, sample: Sample) -> Finding:
    """The keys that different bytes stand for."""
    found = [key for key, spelled in sample.keys.items() if len({raw for raw, *_ in spelled}) > 1]
    if not found:
        return well(f"{len(sample.keys):,} keys of the {sample.records:,} newest records", name)
    spread = [key for key in found if _partitions_of(sample.keys[key]) > 1]
    key = (spread or found)[0]
    first, second = _two_spellings(sample.keys[key])
    raws = [_raw(raw) for raw, *_ in (first, second)]
    means = (
        "Kafka chooses the partition by a key's bytes, so this key is in several: between them its order is "
        "that of times only"
        if spread
        else "they are in one partition so far; with other partitions, this key would be in several"
    )
    places = [sample.keys[key][one] for one in (first, second)]
    return Finding(
        Outcome.PROBLEM if spread else Outcome.WARNING,
        f"{len(found):,} of {len(sample.keys):,} keys are spelled in several ways: {_named(sample, key)} is "
        f"{raws[0]} at {places[0]} and {raws[1]} at {places[1]}",
        means,
        "# have all producers write keys by one serializer: one order of fields, no spaces, numbers as "
        "numbers;\n# these show the two records, with their headers\n"
        + "\n".join(console(kafka, one.topic, one.partition, one.offset) for one in places),
        name,
    )


def scattered_in(kafka: KafkaSettings, name: str, sample: Sample, partitions: Mapping[str, int]) -> Finding:
    """The keys whose very bytes are in several partitions."""
    found = {}
    for key, spelled in sample.keys.items():
        by_raw: dict[bytes | None, list[Place]] = {}
        for (raw, _, _), place in spelled.items():
            by_raw.setdefault(raw, []).append(place)
        raw, places = max(by_raw.items(), key=lambda item: len(item[1]))
        if len(places) > 1:
            found[key] = (raw, sorted(places))
    if not found:
        return well(f"{len(sample.keys):,} keys of the {sample.records:,} newest records", name)
    key, (raw, places) = next(iter(found.items()))
    chosen = [
        f"{place} ({who})" if (who := partitioner_of(raw, place, partitions)) else str(place)
        for place in places
    ]
    return Finding(
        Outcome.WARNING,
        f"{len(found):,} of {len(sample.keys):,} keys are in several partitions: {_named(sample, key)} at "
        f"{', '.join(chosen)}",
        "producers choose partitions in different ways, or partitions were added; between partitions, a "
        "key's order is that of times only",
        "# give all producers one partitioner (Java's is murmur2; with librdkafka: "
        "partitioner=murmur2_random);\n# these show the records, with their headers\n"
        + "\n".join(console(kafka, one.topic, one.partition, one.offset) for one in places[:2]),
        name,
    )


def bad_in(name: str, sample: Sample) -> Finding:
    """The records of which no row can be made."""
    if not sample.bad_records:
        return well(f"none of the {sample.records:,} newest records is bad", name)
    reason, place = next(iter(sample.bad.items()))
    is_all = sample.bad_records == sample.records
    return Finding(
        Outcome.PROBLEM if is_all else Outcome.WARNING,
        f"{sample.bad_records:,} of the {sample.records:,} newest records are bad; {place}: {reason}",
        "they don't match the definition: no row is made of them"
        + ("; as all are, the definition is likely to be wrong" if is_all else ""),
        f"# correct the producer, or the table's section; this shows what is kept of them\n"
        f"thermocline quarantine list {name}",
        name,
    )


def _of_each(examination: Examination, look: Callable[[str, Sample], Finding]) -> Sequence[Finding]:
    found: list[Finding] = []
    for name in examination.tables:
        try:
            sample = sample_of(examination, name)
            nothing = not_looked_at("its topics hold no records that can be read", name)
            found.append(look(name, sample) if sample.records else nothing)
        except ThermoclineError as error:
            found.append(of_error(error, name))
    return found


def _partitions_of(spelled: Spelled) -> int:
    return len({(topic, partition) for _, topic, partition in spelled})


def _two_spellings(spelled: Spelled) -> tuple[tuple[bytes | None, str, int], tuple[bytes | None, str, int]]:
    """Two with different bytes, in different partitions if there are such."""
    every = list(spelled)
    first = every[0]
    others = [one for one in every if one[0] != first[0]]
    return first, next((one for one in others if one[1:] != first[1:]), others[0])


def _named(sample: Sample, key: bytes) -> str:
    return str(named_columns(sample.definition, key))[:_KEY_CHARACTERS_MAX]


def _raw(raw: bytes | None) -> str:
    """A key's bytes: as text, or in base64 where they are none."""
    if raw is None:
        return "no key"
    try:
        shown = raw.decode()
    except UnicodeDecodeError:
        shown = json_text(raw)
    return shown if len(shown) <= _KEY_CHARACTERS_MAX else f"{shown[:_KEY_CHARACTERS_MAX]}…"
