"""Limits over several workers, with clocks that tests move: what is admitted, and when again."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.manual_clock import ManualClock
from tests.serving.access.hammering import SharedClock, hammered, held
from thermocline.errors import InternalError, TooManyRequests
from thermocline.process.metrics import REGISTRY
from thermocline.serving.access.limits import FILE, Limits, RateLimits, identity_of_address
from thermocline.serving.access.shared_cells import SharedCells

DAY = 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(1_000.0)  # the machine has run for a while
    return clock


@pytest.fixture
def open_worker(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., RateLimits]]:
    """Opens one more worker of the same server; four at most, with their successors."""
    with ExitStack() as opened:

        def opening(**more: Any) -> RateLimits:
            worker = RateLimits(tmp_path, 2, clock, **more)
            opened.callback(worker.close)
            return worker

        yield opening


def admitted(worker: RateLimits, limits: Limits, times: int, identity: str = "billing") -> list[bool]:
    return [worker.try_admit(identity, limits) for _ in range(times)]


def refusal(worker: RateLimits, limits: Limits, identity: str = "billing") -> TooManyRequests:
    with pytest.raises(TooManyRequests) as met:
        worker.admit(identity, limits)
    return met.value


def limited(client: str, reason: str) -> float:
    labels = {"client": client, "reason": reason}
    return REGISTRY.get_sample_value("thermocline_requests_limited_total", labels) or 0.0


def test_a_burst_is_admitted_and_then_what_the_rate_brings(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker, limits = open_worker(), Limits(requests_per_second=4, burst=3)
    assert admitted(worker, limits, 4) == [True, True, True, False]
    clock.advance(0.125)
    assert admitted(worker, limits, 1) == [False]
    clock.advance(0.125)
    assert admitted(worker, limits, 2) == [True, False]
    clock.advance(0.5)
    assert admitted(worker, limits, 3) == [True, True, False]
    clock.advance(3_600.0)  # no more than a burst comes together
    assert admitted(worker, limits, 4) == [True, True, True, False]


@pytest.mark.parametrize(("rate", "at_once"), [(0.5, 1), (1, 1), (2.5, 2), (4, 4)])
def test_as_many_as_a_seconds_come_at_once_where_nothing_is_said(
    open_worker: Callable[..., RateLimits], rate: float, at_once: int
) -> None:
    worker = open_worker()
    assert sum(admitted(worker, Limits(requests_per_second=rate), 10)) == at_once


def test_workers_count_together(open_worker: Callable[..., RateLimits], clock: ManualClock) -> None:
    one, other, limits = open_worker(), open_worker(), Limits(requests_per_second=4, burst=3)
    assert [*admitted(one, limits, 1), *admitted(other, limits, 1), *admitted(one, limits, 2)] == [
        *(True, True, True),
        False,
    ]
    assert admitted(other, limits, 1) == [False]
    clock.advance(0.25)
    assert (admitted(other, limits, 1), admitted(one, limits, 1)) == ([True], [False])


def test_a_worker_that_was_quiet_has_no_burst_of_its_own(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    one, other, limits = open_worker(), open_worker(), Limits(requests_per_second=4, burst=2)
    assert admitted(other, limits, 1) == [True]
    clock.advance(100.0)
    assert admitted(one, limits, 3) == [True, True, False]
    assert admitted(other, limits, 1) == [False]
    for _ in range(400):  # for 100 s, the first worker takes all that comes
        clock.advance(0.25)
        assert admitted(one, limits, 2) == [True, False]
    assert admitted(other, limits, 1) == [False]


def test_a_refusal_says_why_and_when_to_come_again(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker, limits = open_worker(), Limits(requests_per_second=4, burst=3)
    admitted(worker, limits, 3)
    error = refusal(worker, limits)
    assert (error.status, error.code, error.retryable) == (429, "too-many-requests", True)
    assert (error.client, error.retry_after_seconds) == ("billing", 0.25)
    assert error.what == "billing has reached a limit: 4 requests per second, 3 at once."
    clock.advance(0.125)
    assert refusal(worker, limits).retry_after_seconds == 0.125
    clock.advance(0.125)
    worker.admit("billing", limits)


def test_identities_have_limits_of_their_own(open_worker: Callable[..., RateLimits]) -> None:
    worker, limits = open_worker(), Limits(requests_per_second=1)
    names = ["billing", "reports", "address:192.0.2.1", "address:192.0.2.2"]
    assert [admitted(worker, limits, 2, name) for name in names] == [[True, False]] * 4


def test_who_is_not_limited_is_admitted_however_often(open_worker: Callable[..., RateLimits]) -> None:
    worker = open_worker()
    worker.spend_bytes("billing", Limits(), 10**15)
    assert all(admitted(worker, Limits(), 1_000))


def test_other_limits_count_at_once_and_what_was_taken_stays(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker = open_worker()
    assert admitted(worker, Limits(requests_per_second=4, burst=3), 4) == [True, True, True, False]
    slower = Limits(requests_per_second=0.5, burst=1)  # 0.75 s were taken
    assert refusal(worker, slower).retry_after_seconds == 0.75
    clock.advance(0.75)
    assert admitted(worker, slower, 2) == [True, False]
    assert all(admitted(worker, Limits(), 10))


def test_bytes_are_paid_after_they_were_sent(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    one, other, limits = open_worker(), open_worker(), Limits(bytes_per_minute=600)
    for _ in range(59):
        one.spend_bytes("billing", limits, 10)
    assert admitted(other, limits, 3) == [True, True, True]  # 10 of 600 are left
    other.spend_bytes("billing", limits, 10)
    assert admitted(one, limits, 1) == [False]
    clock.advance(0.125)  # 1.25 came back, and an answer of 601 bytes takes more than there is
    assert admitted(one, limits, 1) == [True]
    one.spend_bytes("billing", limits, 601)
    error = refusal(other, limits)
    assert error.what == "billing has reached a limit: 600 bytes of answers per minute."
    assert error.retry_after_seconds == pytest.approx(59.976, abs=0.0011)  # 599.75 bytes, at 10 a second
    clock.advance(59.9)
    assert admitted(other, limits, 1) == [False]
    clock.advance(0.1)
    assert admitted(other, limits, 1) == [True]


def test_a_long_answer_is_paid_as_it_goes(open_worker: Callable[..., RateLimits], clock: ManualClock) -> None:
    worker, limits = open_worker(), Limits(bytes_per_minute=6_000)
    for _ in range(100):  # 100 a second for 100 s is just what comes back
        worker.spend_bytes("billing", limits, 100)
        assert admitted(worker, limits, 1) == [True]
        clock.advance(1.0)
    for _ in range(60):  # twice as much for 60 s takes all that was left
        assert admitted(worker, limits, 1) == [True]
        worker.spend_bytes("billing", limits, 200)
        clock.advance(1.0)
    assert admitted(worker, limits, 1) == [False]


def test_what_is_owed_for_an_answer_is_forgotten_after_a_day(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker, limits = open_worker(), Limits(bytes_per_minute=1)
    worker.spend_bytes("billing", limits, 10**15)
    clock.advance(DAY - 61.0)
    worker.spend_bytes("billing", limits, 0)
    assert admitted(worker, limits, 1) == [False]
    clock.advance(2.0)
    assert admitted(worker, limits, 1) == [True]


def test_a_request_that_is_refused_for_bytes_takes_none_of_the_requests(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker, limits = open_worker(), Limits(requests_per_second=0.01, bytes_per_minute=600)
    worker.spend_bytes("billing", limits, 600)
    assert admitted(worker, limits, 1) == [False]
    clock.advance(1.0)
    assert admitted(worker, limits, 1) == [True]


def test_no_more_extracts_run_at_once_than_may_on_any_worker(
    open_worker: Callable[..., RateLimits],
) -> None:
    one, other, limits = open_worker(), open_worker(), Limits(extracts=2)
    with one.extract("billing", limits), ExitStack() as second:
        second.enter_context(other.extract("billing", limits))
        for worker in (one, other):
            with pytest.raises(TooManyRequests) as met, worker.extract("billing", limits):
                pass
            assert met.value.what == "billing has reached a limit: 2 extracts at once."
            assert met.value.retry_after_seconds == 1.0
        with other.extract("reports", limits), one.extract("billing", Limits()):
            pass
        second.close()
        with one.extract("billing", limits), pytest.raises(TooManyRequests):
            other.extract("billing", limits).__enter__()


def test_an_extract_that_fails_gives_its_turn_back(open_worker: Callable[..., RateLimits]) -> None:
    worker, limits = open_worker(), Limits(extracts=1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), worker.extract("billing", limits):
            raise ZeroDivisionError


def test_a_worker_that_dies_leaves_what_it_counted_and_no_extract(tmp_path: Path) -> None:
    clock = SharedClock(tmp_path / "clock")
    clock.set(1_000.0)
    limits = Limits(requests_per_second=4, burst=3, extracts=1)
    process, was_admitted = held(tmp_path, clock, limits)
    assert was_admitted == [True, True]
    # The place of the one that dies is taken by the next one; this one has the other.
    beside = RateLimits(tmp_path, 1, clock)
    with pytest.raises(TooManyRequests), beside.extract("billing", limits):
        pass
    process.kill()
    process.join()
    with beside.extract("billing", limits):
        pass
    successor = RateLimits(tmp_path, 1, clock)
    assert admitted(successor, limits, 2) == [True, False]
    clock.set(1_000.5)
    assert [*admitted(beside, limits, 1), *admitted(successor, limits, 2)] == [True, True, False]
    successor.close()
    beside.close()


def test_more_workers_than_there_may_be_wait_for_one_to_end(tmp_path: Path, clock: ManualClock) -> None:
    before, after = RateLimits(tmp_path, 1, clock), RateLimits(tmp_path, 1, clock)
    with pytest.raises(InternalError, match="an API process"):
        RateLimits(tmp_path, 1, clock)
    before.close()
    limits = Limits(requests_per_second=1)
    again = RateLimits(tmp_path, 1, clock)
    assert [*admitted(again, limits, 1), *admitted(after, limits, 1)] == [True, False]
    again.close()
    after.close()


def test_processes_that_hammer_are_admitted_what_there_is_and_no_count_is_lost(tmp_path: Path) -> None:
    clock = SharedClock(tmp_path / "clock")
    clock.set(1_000.0)
    limits = Limits(requests_per_second=512, burst=30_000)
    times = hammered(tmp_path, 4, clock, limits, attempts=20_000, ticks=400)
    last = RateLimits(tmp_path, 4, clock)
    while last.try_admit("billing", limits):
        times.append(clock.read)
    last.close()
    assert clock.monotonic() == 1_000 + 400 / 1024
    assert 30_000 + 200 <= len(times) <= 30_000 + 200 + 3
    admitted_at = sorted(Counter(times).items())
    for first, (began, _) in enumerate(admitted_at):
        count = 0
        for ended, more in admitted_at[first:]:
            count += more
            assert count <= 30_000 + 512 * (ended - began) + 3


def test_workers_that_decide_at_once_admit_one_more_each_and_pay_for_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    limits = Limits(requests_per_second=1, burst=3)
    workers = [RateLimits(tmp_path, 4, clock) for _ in range(4)]
    assert [admitted(worker, limits, 1) for worker in workers[:2]] == [[True]] * 2
    for worker in workers[2:]:  # which find their place, so that they only decide below
        worker.spend_bytes("billing", Limits(bytes_per_minute=600), 0)
    all_have_read = threading.Barrier(4)

    def admitted_at_once(worker: RateLimits) -> bool:
        def wait(_: FrameType, event: str, called: object) -> None:
            if event == "c_return" and called is max:  # the last that is read
                all_have_read.wait(60)

        sys.setprofile(wait)
        try:
            return worker.try_admit("billing", limits)
        finally:
            sys.setprofile(None)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(admitted_at_once, workers)) == [True] * 4  # one was left: 4 - 1 too many
    clock.advance(3.0)
    assert admitted(workers[0], limits, 1) == [False]
    clock.advance(1.0)
    assert admitted(workers[1], limits, 2) == [True, False]
    for worker in workers:
        worker.close()


def test_a_worker_that_froze_after_it_read_the_clock_neither_lifts_nor_lowers_a_limit(
    tmp_path: Path, clock: ManualClock
) -> None:
    limits = Limits(requests_per_second=1, burst=2)

    class Freezing(ManualClock):
        meanwhile: Callable[[], None] | None = None

        def monotonic(self) -> float:
            seconds = clock.monotonic()
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()
            return seconds

    freezing = Freezing()
    frozen, other = RateLimits(tmp_path, 1, freezing), RateLimits(tmp_path, 1, clock)
    admitted(frozen, limits, 1)

    def hundred_seconds() -> None:
        for _ in range(100):
            clock.advance(1.0)
            admitted(other, limits, 2)

    freezing.meanwhile = hundred_seconds
    assert admitted(frozen, limits, 1) == [False]  # by its clock, it is 100 s too early
    clock.advance(1.0)
    assert admitted(other, limits, 2) == [True, False]
    frozen.close()
    other.close()


@given(
    cost=st.sampled_from([2, 4, 8, 1_024, 8_192]),  # of a request, in 1/1024 s: whole nanoseconds
    burst=st.integers(1, 5),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9) | st.integers(0, 30_000)), max_size=60),
)
def test_a_request_is_admitted_just_if_no_time_gets_more_than_its_share(
    cost: int, burst: int, steps: list[tuple[int, int]]
) -> None:
    """Several workers in turn; the oracle is the definition: all the times that end with the request."""
    limits = Limits(requests_per_second=1024 / cost, burst=burst)
    clock = ManualClock()
    clock.advance(1_000.0)
    with TemporaryDirectory() as folder:
        workers = [RateLimits(Path(folder), 2, clock, places=16) for _ in range(4)]
        before: list[int] = []
        ticks = 0
        for number, step in steps:
            ticks += step
            clock.advance(step / 1024)
            # Since each earlier one and with it, no more than the burst and what came back meanwhile.
            expected = all(
                len(before) - first + 1 <= burst + (ticks - began) / cost
                for first, began in enumerate(before)
            )
            assert workers[number].try_admit("billing", limits) is expected
            if expected:
                before.append(ticks)
        for worker in workers:
            worker.close()


def test_a_full_table_refuses_sooner_and_lifts_no_limit(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker, limits = open_worker(places=4), Limits(requests_per_second=1, burst=2)
    slow = Limits(requests_per_second=0.25, burst=1)
    assert admitted(worker, slow, 2) == [True, False]
    names = ["a", "b", "c"]
    assert [admitted(worker, limits, 1, name) for name in names] == [[True]] * 3
    # For the fifth and the sixth there is no place: they share what one would have.
    assert admitted(worker, limits, 1, "fifth") == [True]
    assert admitted(worker, limits, 2, "sixth") == [True, False]
    assert admitted(worker, limits, 1, "fifth") == [False]
    assert [admitted(worker, limits, 2, name) for name in names] == [[True, False]] * 3
    assert admitted(worker, slow, 1) == [False]
    assert admitted(worker, limits, 3, "address:192.0.2.1") == [True, True, False]
    clock.advance(2.0)  # all have their budgets back but the slow one, which keeps its place
    assert admitted(worker, limits, 3, "fifth") == [True, True, False]
    assert admitted(worker, limits, 3, "sixth") == [True, True, False]
    assert admitted(worker, slow, 1) == [False]
    clock.advance(2.0)
    assert admitted(worker, slow, 2) == [True, False]


def test_who_lost_its_place_while_it_was_quiet_counts_in_another_one(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    one, other, limits = open_worker(places=1), open_worker(places=1), Limits(requests_per_second=1)
    assert admitted(one, limits, 1) == [True]
    clock.advance(1.0)
    assert admitted(other, limits, 1, "reports") == [True]  # it gets the only place
    assert admitted(one, limits, 2) == [True, False]
    assert admitted(one, limits, 1, "reports") == [False]
    clock.advance(1.0)
    paid = Limits(bytes_per_minute=600)
    one.spend_bytes("billing", paid, 0)
    other.spend_bytes("reports", paid, 600)
    one.spend_bytes("billing", paid, 10)
    assert (admitted(one, paid, 1), admitted(other, paid, 1, "reports")) == ([True], [False])


def test_hashes_that_collide_share_a_budget_and_places_that_do_share_none(
    open_worker: Callable[..., RateLimits],
) -> None:
    limits = Limits(requests_per_second=1)
    alike = open_worker(places=8, hash_of=lambda key, name: 5)
    assert [*admitted(alike, limits, 1, "a"), *admitted(alike, limits, 1, "b")] == [True, False]
    same_place = open_worker(places=8, hash_of=lambda key, name: int(name))
    names = ["8", "16", "-24", "0"]
    assert [admitted(same_place, limits, 2, name) for name in names] == [[True, False]] * 4


def test_hashes_are_known_to_nobody_outside(tmp_path: Path, clock: ManualClock) -> None:
    keys: list[bytes] = []

    def hash_of(key: bytes, _: bytes) -> int:
        keys.append(key)
        return 1

    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        for _ in range(2):
            worker = RateLimits(folder, 2, clock, hash_of=hash_of)
            admitted(worker, Limits(requests_per_second=1), 1)
            worker.close()
        assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    one, again, other, _ = keys
    assert one == again != other
    assert len(one) == 16


def test_a_worker_that_froze_while_it_gave_a_place_away_holds_up_nobody(
    tmp_path: Path, open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker, limits = open_worker(places=8), Limits(requests_per_second=1)
    assert admitted(worker, limits, 1) == [True]
    frozen = SharedCells(tmp_path / FILE, 2, [(8, 4), (8, 4), (8, 2)], clock)
    clock.advance(1.0)
    with frozen.giving_places() as is_alone:
        assert is_alone
        assert admitted(worker, limits, 2) == [True, False]
        assert [*admitted(worker, limits, 1, "a"), *admitted(worker, limits, 1, "b")] == [True, False]
        for _ in range(9):
            worker.failed("192.0.2.1")
        worker.check_failures("192.0.2.1")
    assert admitted(worker, limits, 2, "b") == [True, False]
    frozen.close()


def fail(worker: RateLimits, address: str, times: int = 1) -> None:
    for _ in range(times):
        worker.check_failures(address)
        worker.failed(address)


def wait_of(worker: RateLimits, address: str) -> float:
    with pytest.raises(TooManyRequests) as met:
        worker.check_failures(address)
    return met.value.retry_after_seconds


def test_an_address_whose_credentials_fail_is_refused_for_longer_and_longer_and_no_other_one(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    one, other = open_worker(), open_worker()
    fail(one, "192.0.2.1", 2)
    fail(other, "192.0.2.1", 2)
    waits = []
    for worker in (one, other, one, other, one, other, one, one):
        fail(worker, "192.0.2.1")
        waits.append(wait_of(other, "192.0.2.1"))
        assert wait_of(one, "192.0.2.1") == waits[-1]
        fail(one, "192.0.2.2", times=0)
        clock.advance(waits[-1])
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    one.check_failures("192.0.2.1")


def test_failures_are_forgotten_after_ten_quiet_minutes(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    one, other = open_worker(), open_worker()
    fail(one, "192.0.2.1", 3)
    clock.advance(300.0)
    fail(other, "192.0.2.1", 1)
    clock.advance(300.0)  # those of the first worker are 600 s old
    fail(one, "192.0.2.1", 4)
    assert wait_of(other, "192.0.2.1") == 1.0
    clock.advance(600.0)
    fail(other, "192.0.2.1", 4)
    one.check_failures("192.0.2.1")


def test_a_refused_attempt_says_so(open_worker: Callable[..., RateLimits]) -> None:
    worker = open_worker()
    fail(worker, "192.0.2.1", 5)
    with pytest.raises(TooManyRequests) as met:
        worker.check_failures("192.0.2.1")
    assert met.value.what == "address:192.0.2.1 has reached a limit: credentials from there failed 5 times."


def test_many_addresses_that_fail_take_the_place_of_the_one_that_failed_longest_ago(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker = open_worker(places=2)
    fail(worker, "192.0.2.1", 5)
    clock.advance(0.125)
    fail(worker, "192.0.2.2", 5)
    clock.advance(0.125)
    fail(worker, "192.0.2.3", 1)
    worker.check_failures("192.0.2.3")  # the failures of the first one are not its own
    assert wait_of(worker, "192.0.2.2") == 0.875
    worker.check_failures("192.0.2.1")


@pytest.mark.parametrize(
    ("address", "identity"),
    [
        ("192.0.2.1", "address:192.0.2.1"),
        ("::ffff:192.0.2.1", "address:192.0.2.1"),
        ("2001:db8:0:1::1", "address:2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", "address:2001:db8:0:1::/64"),
        ("2001:db8:0:2::1", "address:2001:db8:0:2::/64"),
        ("fe80::1%eth0", "address:fe80::/64"),
        ("", "address:unknown"),
        ("proxy", "address:unknown"),
    ],
)
def test_addresses_of_one_customer_are_one_identity(address: str, identity: str) -> None:
    assert identity_of_address(address) == identity


def test_who_has_a_whole_network_fails_as_one(open_worker: Callable[..., RateLimits]) -> None:
    worker = open_worker()
    for host in range(5):
        fail(worker, f"2001:db8:0:1::{host}")
    assert wait_of(worker, "2001:db8:0:1:2:3:4:5") == 1.0
    worker.check_failures("2001:db8:0:2::1")


def test_limits_hold_after_years(open_worker: Callable[..., RateLimits], clock: ManualClock) -> None:
    worker, limits = open_worker(), Limits(requests_per_second=2, burst=2, bytes_per_minute=600)
    for _ in range(4):
        clock.advance(5 * 365 * DAY)
        assert admitted(worker, limits, 3) == [True, True, False]
        clock.advance(0.5)
        assert admitted(worker, limits, 2) == [True, False]
        clock.advance(1.0)
        worker.spend_bytes("billing", limits, 600)
        assert admitted(worker, limits, 1) == [False]
        fail(worker, "192.0.2.1", 5)
        assert wait_of(worker, "192.0.2.1") == 1.0


def test_days_at_the_limit_admit_just_what_the_rate_brings(
    open_worker: Callable[..., RateLimits], clock: ManualClock
) -> None:
    worker, limits = open_worker(), Limits(requests_per_second=1 / 64, burst=1)
    for _ in range(3 * 1_350):  # 3 days
        clock.advance(64.0)
        assert admitted(worker, limits, 2) == [True, False]


def test_refusals_are_counted_by_client_and_reason_and_those_of_addresses_together(
    open_worker: Callable[..., RateLimits],
) -> None:
    worker = open_worker()
    told = [("counted", "requests"), ("counted", "bytes"), ("counted", "extracts")]
    of_addresses = [("address", "requests"), ("address", "failures")]
    before = [limited(*one) for one in (*told, *of_addresses)]
    limits = Limits(requests_per_second=0.01, extracts=1)
    for name in ("counted", "address:192.0.2.1", "address:192.0.2.2"):
        assert admitted(worker, limits, 2, name) == [True, False]  # which counts nothing there
        refusal(worker, limits, name)
    paid = Limits(bytes_per_minute=1)
    worker.spend_bytes("counted", paid, 1)
    refusal(worker, paid, "counted")
    with worker.extract("counted", limits), pytest.raises(TooManyRequests):
        worker.extract("counted", limits).__enter__()
    fail(worker, "192.0.2.1", 5)
    wait_of(worker, "192.0.2.1")
    after = [limited(*one) for one in (*told, *of_addresses)]
    assert [new - old for old, new in zip(before, after, strict=True)] == [1.0, 1.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"requests_per_second": 0}, "greater than 0"),
        ({"requests_per_second": float("nan")}, "less than or equal to 1000000"),
        ({"requests_per_second": float("inf")}, "less than or equal to 1000000"),
        ({"burst": 2}, "burst is of requests_per_second: set that, too"),
        ({"requests_per_second": 1, "burst": 0}, "greater than or equal to 1"),
        (
            {"requests_per_second": 0.5, "burst": 43_201},
            "at 0.5 requests per second, 43201 at once would take more than a day to come back",
        ),
        ({"requests_per_second": 0.00001}, "at 1e-05 requests per second, 1 at once would take more"),
        ({"extracts": 0}, "greater than or equal to 1"),
        ({"extracts": 65}, "less than or equal to 64"),
        ({"bytes_per_minute": 0}, "greater than 0"),
        ({"bytes_per_minute": "much"}, "is not a size"),
        ({"requests": 1}, "Extra inputs are not permitted"),
    ],
)
def test_limits_that_are_none_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Limits(**given)


def test_sizes_are_written_as_in_the_configuration() -> None:
    limits = Limits.model_validate({"bytes_per_minute": "5MB", "requests_per_second": 0.5, "burst": 43_200})
    assert (limits.bytes_per_minute, limits.requests_at_once) == (5_000_000, 43_200)


def test_the_largest_limits_fit(open_worker: Callable[..., RateLimits], clock: ManualClock) -> None:
    worker, limits = open_worker(), Limits(requests_per_second=1_000_000, burst=1_000)
    assert sum(admitted(worker, limits, 1_500)) == 1_000
    clock.advance(0.001)
    assert sum(admitted(worker, limits, 1_500)) == 1_000
