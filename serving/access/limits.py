"""Limits of each client, counted over all API workers of a server: requests, bytes, extracts, failures.

Who asks is an *identity*: the name of a client, or an address (`identity_of_address`). Clients and addresses
have places of their own, so that no number of addresses takes a client's.

What is promised, with n workers (while the configuration is read again, those that leave are among them):

- Of requests, at most ``burst + requests_per_second * seconds + n - 1`` are admitted within any time.
- Of bytes, none is refused that is being sent; after it, requests are refused until the budget is refilled.
- Of extracts, never more than ``extracts`` run at once; those of a worker that dies end with it.
- A worker that dies leaves what it counted; its successor goes on from there.

There are `PLACES` places for clients, and as many for addresses. One whose counts matter no more, since its
budgets are full, is given to the next one who needs it; a request that another worker is counting in this
moment counts for the next one. If none can be given, those who find no place share one, each within its own
limits, and are refused the sooner for what the others take. Whoever gets a place of its own after that has a
full budget in it, so one burst more; and a shared place owes no more bytes than two minutes bring.

Places are found by 64 bits of a keyed hash. Two identities of the same hash, of which there are none in
practice, would share a place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from thermocline.errors import TooManyRequests
from thermocline.serving.access import budget, failures
from thermocline.serving.access.addresses import PREFIX, identity_of_address
from thermocline.serving.access.budget import SECOND_NS, Budget
from thermocline.serving.access.failures import Failures
from thermocline.serving.access.shared_cells import SharedCells
from thermocline.serving.store.measures import REQUESTS_LIMITED
from thermocline.settings.limits import EXTRACTS_AT_ONCE_MAX, REFILL_SECONDS_MAX, Limits

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.process.clock import Clock
    from thermocline.serving.access.shared_cells import Places

__all__ = ["FILE", "PLACES", "Limits", "RateLimits", "identity_of_address", "refused"]

FILE: Final = "limits"
"""In the folder that the processes of a running server share, which nobody else can enter."""
PLACES: Final = 16_384
"""Of clients, and as many of addresses and of failures: 11 MB for all with 4 workers."""
EXTRACT_RETRY_SECONDS: Final = 1
"""An extract takes seconds; nobody knows when one ends."""
RETRY_SECONDS_MIN: Final = 0.001
SPOTS_KEPT_MAX: Final = 8_192
"""Identities of which each worker remembers the place."""
_MINUTE_NS: Final = 60 * SECOND_NS
# A client is not refused for longer, however much larger than its budget an answer was.
_DEBT_NS_MAX: Final = REFILL_SECONDS_MAX * SECOND_NS
# Those who share a place owe no more than what two minutes bring: it is not all theirs.
_SHARED_DEBT_NS_MAX: Final = 2 * _MINUTE_NS
_REQUESTS, _BYTES = 0, budget.KINDS  # the first kinds of the budgets in a row
# Each extract of an identity has a number below 64, and locks it, behind 56 bits of the identity's hash.
_NUMBER_BITS: Final = 6
_HASH_BITS: Final = 56
assert EXTRACTS_AT_ONCE_MAX <= 1 << _NUMBER_BITS


class _Spot:
    """An identity's place, with its limits as the counts need them. ``key`` is 0 where others share it.

    ``requests`` and ``bytes`` are None where they are not limited.
    """

    __slots__ = ("bytes", "cost", "debt_max", "is_counted", "key", "limits", "requests", "row", "tolerance")

    def __init__(self, limits: Limits, shared: SharedCells, row: int, key: int) -> None:
        self.limits = limits
        self.row, self.key = row, key
        self.requests: Budget | None = None
        self.bytes: Budget | None = None
        self.cost = self.tolerance = 0
        if limits.requests_per_second is not None:
            self.requests = Budget(shared, row, _REQUESTS)
            self.cost = math.ceil(SECOND_NS / limits.requests_per_second)
            self.tolerance = (limits.requests_at_once - 1) * self.cost
        if limits.bytes_per_minute is not None:
            self.bytes = Budget(shared, row, _BYTES)
        self.debt_max = _DEBT_NS_MAX if key else _SHARED_DEBT_NS_MAX
        self.is_counted = self.requests is not None or self.bytes is not None


class RateLimits:
    """The limits of a server, as one of its workers keeps them. To be asked on one event loop."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        clock: Clock,
        places: int = PLACES,
        hash_of: Callable[[bytes, bytes], int] | None = None,
    ) -> None:
        """``folder`` is one that the workers of this server share, and no other one has had.

        ``hash_of`` gives 64 bits for a secret key and the name of an identity.

        Raises:
            InternalError: there are more workers than there should be, and they don't end.
            OSError: its file can't be made.
        """
        buckets = (places, 2 * budget.KINDS)
        areas = (buckets, buckets, (places, failures.KINDS))
        self._shared = SharedCells(folder / FILE, workers, areas, clock)
        self._monotonic = clock.monotonic
        self._cells = self._shared.cells
        self._hash_of = hash_of or _hash
        self._clients: Places = self._shared.places(0, self._due)
        self._addresses: Places = self._shared.places(1, self._due)
        self._failures = Failures(self._shared, 2, self._key)
        self._spots: dict[str, _Spot] = {}
        self._extracts: set[int] = set()

    def admit(self, identity: str, limits: Limits) -> None:
        """Counts a request. Raises `TooManyRequests`; one that is refused is not counted."""
        if not self.try_admit(identity, limits):
            raise self._refusal(identity, limits)

    def try_admit(self, identity: str, limits: Limits) -> bool:
        """Whether a request is within the limits; it is counted then, and not in the metrics if it isn't."""
        spot = self._spots.get(identity)
        if spot is None or spot.limits is not limits:
            spot = self._spot(identity, limits)
        if not spot.is_counted:
            return True
        if self._cells[spot.row] != spot.key:  # safety: limits-own-place
            spot = self._spot(identity, limits)
        now = int(self._monotonic() * SECOND_NS)
        if spot.bytes is not None and spot.bytes.due() - now >= _MINUTE_NS:  # safety: limits-bytes
            return False
        return spot.requests is None or not spot.requests.take(now, spot.cost, spot.tolerance)

    def spend_bytes(self, identity: str, limits: Limits, count: int) -> None:
        """Counts bytes of an answer that was sent, or of a part of it."""
        if limits.bytes_per_minute is None:
            return
        spot = self._spots.get(identity)
        if spot is None or spot.limits is not limits or self._cells[spot.row] != spot.key:
            spot = self._spot(identity, limits)
        assert spot.bytes is not None
        cost = -(-count * _MINUTE_NS // limits.bytes_per_minute)
        spot.bytes.spend(int(self._monotonic() * SECOND_NS), cost, spot.debt_max)

    @contextmanager
    def extract(self, identity: str, limits: Limits) -> Iterator[None]:
        """One of the extracts at once, until the block ends. Raises `TooManyRequests`."""
        if limits.extracts is None:
            yield
            return
        number = self._extract_number(identity, limits.extracts)
        if number is None:
            plural = "s" if limits.extracts > 1 else ""
            detail = f"{limits.extracts} extract{plural} at once"
            raise refused(identity, "extracts", detail, EXTRACT_RETRY_SECONDS * SECOND_NS)
        try:
            yield
        finally:
            self._extracts.discard(number)
            self._shared.unlock(number)

    def failed(self, address: str) -> None:
        """Counts credentials from an address that admit nobody."""
        self._failures.add(identity_of_address(address), int(self._monotonic() * SECOND_NS))

    def check_failures(self, address: str) -> None:
        """Raises `TooManyRequests` while credentials from an address are not even looked at."""
        now = int(self._monotonic() * SECOND_NS)
        identity = identity_of_address(address)
        count, left = self._failures.refused(identity, now)
        if left:
            detail = f"credentials from there failed {count} times"
            raise refused(identity, "failures", detail, left)

    def close(self) -> None:
        """Gives back what is the worker's; what was counted stays."""
        self._spots.clear()
        self._shared.close()

    def _refusal(self, identity: str, limits: Limits) -> TooManyRequests:
        """Why a request was refused just now."""
        spot = self._spot(identity, limits)
        now = int(self._monotonic() * SECOND_NS)
        early = -1 if spot.bytes is None else spot.bytes.due() - now - _MINUTE_NS
        if early >= 0 or spot.requests is None:
            detail = f"{limits.bytes_per_minute:,} bytes of answers per minute"
            return refused(identity, "bytes", detail, early + 1)
        early = spot.requests.due() - now - spot.tolerance
        detail = f"{limits.requests_per_second:g} requests per second, {limits.requests_at_once} at once"
        return refused(identity, "requests", detail, early)

    def _spot(self, identity: str, limits: Limits) -> _Spot:
        key = self._key(identity)
        if limits.requests_per_second is None and limits.bytes_per_minute is None:
            spot = _Spot(limits, self._shared, 0, key)  # it needs no place
        else:
            places = self._addresses if identity.startswith(PREFIX) else self._clients
            row = places.find(key)
            if row is None:
                now = int(self._monotonic() * SECOND_NS)
                row = places.take(key, now, now)
            if row == places.overflow:
                return _Spot(limits, self._shared, row, 0)
            spot = _Spot(limits, self._shared, row, key)
        if len(self._spots) >= SPOTS_KEPT_MAX:
            self._spots.clear()
        self._spots[identity] = spot
        return spot

    def _due(self, row: int) -> int:
        """When the budgets of a row are full."""
        return max(Budget(self._shared, row, kind).due() for kind in (_REQUESTS, _BYTES))

    def _extract_number(self, identity: str, extracts: int) -> int | None:
        first = (self._key(identity) & ((1 << _HASH_BITS) - 1)) << _NUMBER_BITS
        for number in range(first, first + extracts):
            # What this worker has locked, it could lock again.
            if number not in self._extracts and self._shared.try_lock(number):  # safety: limits-extracts
                self._extracts.add(number)
                return number
        return None

    def _key(self, identity: str) -> int:
        """Not 0."""
        return self._hash_of(self._shared.key, identity.encode()) or 1


def _hash(key: bytes, name: bytes) -> int:
    return int.from_bytes(blake2b(name, digest_size=8, key=key).digest(), "little", signed=True)


def refused(identity: str, reason: str, detail: str, early_ns: float) -> TooManyRequests:
    """What is told to whoever came too early. It is counted by client; of all addresses together."""
    name = PREFIX.removesuffix(":") if identity.startswith(PREFIX) else identity
    REQUESTS_LIMITED.labels(name, reason).inc()
    seconds = max(math.ceil(early_ns / 1_000_000) / 1000, RETRY_SECONDS_MIN)
    return TooManyRequests(client=identity, detail=detail, retry_after_seconds=seconds)
