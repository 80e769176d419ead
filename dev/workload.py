"""A seeded stream of user attributes, believable and awkward, and its way into a topic.

One record says that an app's user now has a value for an attribute, or, as a tombstone, no longer has it. A
few users change all the time and most seldom; rows are inserted, updated, set to what they were, deleted,
deleted again and inserted again. One seed gives one stream of bytes, times included.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from threading import Event as Stop
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import Producer

from thermocline.dev.oracle import Oracle
from thermocline.errors import KafkaUnreachable
from thermocline.process.clock import Clock, SystemClock

__all__ = ["Event", "Workload", "produce"]

BLOCK: Final = 8192  # events drawn at once: numpy's cost per call vanishes, memory stays small
SKEW: Final = 0.9  # Zipf's exponent: of 1,000 users the busiest 20 write two fifths
DELETED: Final = 0.05
REPEATED: Final = 0.05
FIRST_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS_PER_SECOND: Final = 1000  # of the times in the records, not of the clock
MIX: Final = 0x9E3779B97F4A7C15  # spreads successive numbers evenly (Knuth's multiplicative hash)
APPS: Final = {1: 0.55, 2: 0.25, 3: 0.15, 7: 0.05}

TICK_SECONDS: Final = 0.01  # a steady rate is kept in steps that no person notices
POLL_EVERY: Final = 1000  # events: rarely enough to be cheap, often enough to hear of deliveries at once
FLUSH_SECONDS_MAX: Final = 60.0
PRODUCER_CONFIG: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # where Java producers would put the same keys
    "linger.ms": 5,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 200_000,
    "message.timeout.ms": 60_000,  # a broker that is unavailable this long ends the run with its reason
}


class Event(NamedTuple):
    """One record to produce, and the row that it is about: (app_id, user_id, key)."""

    key: bytes
    value: bytes | None
    row: tuple[int, str, str]


class Workload:
    """An endless stream of changes to the attributes of some users; ``load`` first gives each row once."""

    def __init__(self, seed: int, users: int = 10_000, keys_per_user: int = 10) -> None:
        """Prepares the draws; two workloads with equal arguments give equal streams."""
        self._random = np.random.default_rng(seed)
        self._seed = seed
        self._users = users
        names = [*_ATTRIBUTES, *(f"custom_{number:02d}" for number in range(len(_ATTRIBUTES), keys_per_user))]
        self._names = names[:keys_per_user]
        self._values = [_tokens(name) for name in self._names]
        weights = 1 / np.arange(1, users + 1) ** SKEW
        self._busier_than = np.cumsum(weights / weights.sum())
        self._user_of_rank = self._random.permutation(users)
        self._app_of_user = self._random.choice(list(APPS), users, p=list(APPS.values())).tolist()
        # The number of the event that last set each row, 0 while it has none: enough to say it again.
        self._set_by = array("q", bytes(8 * users * keys_per_user))
        self._events = 0

    def load(self) -> Iterator[Event]:
        """Sets every row once, user by user."""
        for user in range(self._users):
            for attribute in range(len(self._names)):
                yield self._set(user, attribute)

    def __iter__(self) -> Iterator[Event]:
        """Changes without end."""
        while True:
            ranks = np.searchsorted(self._busier_than, self._random.random(BLOCK)).clip(max=self._users - 1)
            attributes = self._random.integers(0, len(self._names), BLOCK)
            actions = self._random.random(BLOCK)
            draws = (self._user_of_rank[ranks].tolist(), attributes.tolist(), actions.tolist())
            for user, attribute, action in zip(*draws, strict=True):
                yield self._change(user, attribute, action)

    def _change(self, user: int, attribute: int, action: float) -> Event:
        if action < DELETED:
            return self._delete(user, attribute)
        if action < DELETED + REPEATED:
            return self._repeat(user, attribute)
        return self._set(user, attribute)

    def _set(self, user: int, attribute: int) -> Event:
        self._events += 1
        self._set_by[user * len(self._names) + attribute] = self._events
        return self._event(user, attribute, self._value(attribute, self._events))

    def _repeat(self, user: int, attribute: int) -> Event:
        number = self._set_by[user * len(self._names) + attribute]
        return self._event(user, attribute, self._value(attribute, number) if number else None)

    def _delete(self, user: int, attribute: int) -> Event:
        self._set_by[user * len(self._names) + attribute] = 0
        return self._event(user, attribute, None)

    def _event(self, user: int, attribute: int, value: bytes | None) -> Event:
        row = (self._app_of_user[user], f"u{user:05d}", self._names[attribute])
        return Event(
            b'{"app_id":%d,"user_id":"u%05d","key":"%s"}' % (row[0], user, row[2].encode()), value, row
        )

    def _value(self, attribute: int, number: int) -> bytes:
        tokens = self._values[attribute]
        token = tokens[((number + self._seed) * MIX >> 20) % len(tokens)]
        second, rest = divmod(number, EVENTS_PER_SECOND)
        return b'{"value":%s,"updated_at":"%s.%03dZ"}' % (token, _time(second), rest)


def produce(
    client_config: Mapping[str, Any],
    topic: str,
    events: Iterable[Event],
    oracle: Oracle,
    *,
    rate: float | None = None,
    stop: Stop | None = None,
    clock: Clock | None = None,
) -> int:
    """Writes the events to the topic, at ``rate`` events a second or as fast as it can, until told to stop.

    Returns how many, after the broker has acknowledged each of them to the oracle.

    Raises:
        KafkaUnreachable: when the broker did not acknowledge some; then the oracle is no longer exact.
    """
    stop, clock = stop or Stop(), clock or SystemClock()
    producer = Producer({**PRODUCER_CONFIG, **client_config, "on_delivery": oracle.on_delivery})
    sent = 0
    for sent, event in enumerate(_paced(events, rate, stop, clock, producer), start=1):
        _send(producer, topic, event)
        if oracle.refused:
            break
        if sent % POLL_EVERY == 0:
            producer.poll(0)
    missing = producer.flush(FLUSH_SECONDS_MAX)
    if missing or oracle.refused:
        detail = oracle.refused or f"{missing} records not acknowledged within {FLUSH_SECONDS_MAX:.0f} s"
        raise KafkaUnreachable(bootstrap_servers=str(client_config["bootstrap.servers"]), detail=detail)
    return sent


def _paced(
    events: Iterable[Event], rate: float | None, stop: Stop, clock: Clock, producer: Producer
) -> Iterator[Event]:
    """The events, none before it is due, until there are no more or it is told to stop."""
    began = clock.monotonic()
    due: float = 0 if rate else float("inf")
    for number, event in enumerate(events):
        while rate and number >= due and not stop.is_set():
            producer.poll(TICK_SECONDS)
            due = (clock.monotonic() - began) * rate
        if stop.is_set():
            return
        yield event


def _send(producer: Producer, topic: str, event: Event) -> None:
    while True:
        try:
            producer.produce(topic, event.value, event.key)
        except BufferError:
            # The queue is full. Deliveries make room, or, after message.timeout.ms, refusals.
            producer.poll(TICK_SECONDS)
        else:
            return


@lru_cache
def _time(second: int) -> bytes:
    return (FIRST_TIME + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S").encode()


def _tokens(name: str) -> list[bytes]:
    """The values that an attribute may have, as JSON strings."""
    values = _ATTRIBUTES.get(name) or [f"{name} {number}" for number in range(100)]
    return [json.dumps(value, ensure_ascii=False).encode() for value in values]


_ATTRIBUTES: Final[Mapping[str, list[str]]] = {
    "plan": ["free", "starter", "pro", "team", "enterprise"],
    "country": [
        *(
            "AR",
            "AU",
            "BR",
            "CA",
            "CH",
            "CN",
            "DE",
            "DK",
            "ES",
            "FI",
            "FR",
            "GB",
            "IE",
            "IN",
            "IT",
            "JP",
            "KR",
        ),
        *("MX", "NL", "NO", "NZ", "PL", "PT", "SE", "US", "ZA"),
    ],
    "city": [
        *("Aarhus", "Amsterdam", "Auckland", "Berlin", "Bogotá", "Cape Town", "Dublin", "Helsinki", "Kraków"),
        *(
            "Köln",
            "Lisboa",
            "London",
            "Madrid",
            "Malmö",
            "México",
            "Milano",
            "New York",
            "Paris",
            "São Paulo",
        ),
        *("Seoul", "Sydney", "Toronto", "Zürich", "東京", "서울", "北京"),
    ],
    "language": [
        "da",
        "de",
        "en",
        "en-GB",
        "es",
        "fi",
        "fr",
        "it",
        "ja",
        "ko",
        "nl",
        "pl",
        "pt-BR",
        "sv",
        "zh",
    ],
    "last_login": [f"2026-{month:02d}-{day:02d}" for month in range(1, 12) for day in range(1, 29)],
    "device": ["phone", "tablet", "laptop", "desktop", "tv", "watch"],
    "os": ["Android 16", "Android 17", "iOS 26", "iOS 27", "Linux", "macOS 27", "Windows 11", "Windows 12"],
    "theme": ["light", "dark", "system"],
    "newsletter": ["yes", "no", "weekly", ""],
    "credits": [str(number) for number in range(0, 5000, 7)],
    "score": [f"{number / 100:.2f}" for number in range(1000)],
    "segment": ["new", "active", "loyal", "at risk", "lost", "won back"],
    "currency": ["AUD", "BRL", "CHF", "DKK", "EUR", "GBP", "INR", "JPY", "SEK", "USD"],
    "timezone": [
        "America/New_York",
        "Asia/Tokyo",
        "Australia/Sydney",
        "Europe/Berlin",
        "Europe/London",
        "UTC",
    ],
    "nickname": [
        'Bob "the builder"',
        "C:\\dev\\null",
        "Ana\tMaria",
        "😀",
        "O'Neil",
        "Zoë",
        "null",
        "0",
        "  ",
    ],
    "referrer": ["search", "friend", "podcast", "newsletter", "conference", "unknown"],
    "cart_items": [str(number) for number in range(30)],
    "cart_value": [f"{number / 4:.2f}" for number in range(2000)],
    "consent": ["all", "necessary", "none"],
    "app_version": [
        f"{major}.{minor}.{patch}" for major in (6, 7) for minor in range(10) for patch in range(4)
    ],
}
