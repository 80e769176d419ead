"""The connections that an API process has open: a bound, and which one has to go when there are more.

One that asks for nothing costs a file and some kilobytes, so whoever opens thousands takes neither the memory
nor the files of those who ask. The one that goes is the one that has been of no use for longest. Each address
has a bound of its own before that, within which it is one of its own that goes: an address can't take the
connections of others.
"""

from __future__ import annotations

import logging
import resource
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, Self

from thermocline.errors import TooManyConnections
from thermocline.process.logs import fields
from thermocline.serving.access.addresses import identity_of_address
from thermocline.serving.access.budget import SECOND_NS
from thermocline.serving.access.limits import refused
from thermocline.serving.store.measures import ADDRESS_CONNECTIONS_ENDED
from thermocline.settings.model import CONNECTIONS_MAX, REQUEST_SECONDS_MAX

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError
    from thermocline.serving.access.connections import Peer
    from thermocline.settings import ServingSettings

__all__ = ["UNCONFIGURED", "Bounds", "OpenConnections"]

# Of the files that the process may have open; the others are those of tables.
FILES_SHARE: Final = 0.5
# Of the connections, where the settings don't say how many an address may have: others always find some.
ADDRESS_SHARE: Final = 0.5
# A flood is said once a minute, and not once for each of its connections.
SAID_SECONDS: Final = 60.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Those of connections and requests, as in the settings."""

    connections_max: int = CONNECTIONS_MAX
    connections_per_address_max: int | None = None
    request_seconds_max: float = REQUEST_SECONDS_MAX

    @classmethod
    def of(cls, serving: ServingSettings) -> Self:
        """As the settings say."""
        return cls(serving.connections_max, serving.connections_per_address_max, serving.request_seconds_max)


UNCONFIGURED: Final = Bounds()


class Idle(Protocol):
    """A connection, as it is judged. ``answered_at`` is when it last was, by the loop's clock."""

    answered_at: float

    def is_idle(self) -> bool:
        """Whether nothing is being answered on it."""

    def close_idle(self) -> None:
        """Ends it."""


class OpenConnections:
    """Those of one worker."""

    def __init__(self, count_max: int, address_max: int | None = None) -> None:
        """``address_max``: how many of them an address may have; None: a share."""
        self.count_max = min(count_max, _files_max())
        self.address_max = address_max or round(self.count_max * ADDRESS_SHARE)
        self._all = _Queue()
        self._of: dict[str, _Queue] = {}
        self._addresses: dict[Idle, str] = {}
        self._said_at: dict[str, float] = {}  # each by itself: an address that floods hides nothing else

    def __len__(self) -> int:
        return len(self._all)

    def take(self, connection: Idle, peer: Peer, now: float) -> ThermoclineError | None:
        """Adds a connection; the refusal where there are too many, and all of them are being answered.

        An idle one is closed for it, if need be. Proxies that are trusted to say for whom they ask have no
        bound of their own, since many are behind each; nor has who comes from no address.
        """
        address = None
        if peer.address and not peer.is_proxy:  # safety: connections-of-proxies
            address = identity_of_address(peer.address)
            own = self._of.get(address)
            if own is not None and len(own) >= self.address_max:  # safety: connections-of-address
                ADDRESS_CONNECTIONS_ENDED.inc()
                self._say("too many connections of an address", now, address=address, open=len(own))
                if not self._has_made_room(own):
                    detail = f"{self.address_max:,} connections at once, of each address"
                    return refused(address, "connections", detail, SECOND_NS)
        if len(self._all) >= self.count_max:
            self._say("too many connections: idle ones are closed", now, open=len(self._all))
            if not self._has_made_room(self._all):  # safety: connections-refused
                return TooManyConnections(connections_max=self.count_max)
        self._all.add(connection, now)
        if address is not None:
            self._addresses[connection] = address
            self._of.setdefault(address, _Queue()).add(connection, now)
        return None

    def forget(self, connection: Idle) -> None:
        """It is closed."""
        self._all.remove(connection)
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._of[address].remove(connection)
            if not self._of[address]:
                del self._of[address]

    def _has_made_room(self, among: _Queue) -> bool:
        idle = among.idle_longest()
        if idle is None:
            return False
        self.forget(idle)
        idle.close_idle()
        return True

    def _say(self, what: str, now: float, **facts: object) -> None:
        if now - self._said_at.get(what, -SAID_SECONDS) >= SAID_SECONDS:
            self._said_at[what] = now
            log.warning(what, extra=fields(**facts))


class _Queue:
    """Connections, the one that is looked at first in front."""

    def __init__(self) -> None:
        self._open: OrderedDict[Idle, float] = OrderedDict()  # with when it was last looked at

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Idle, now: float) -> None:
        self._open[connection] = now

    def remove(self, connection: Idle) -> None:
        self._open.pop(connection, None)

    def idle_longest(self) -> Idle | None:
        """One that was not answered since it was last looked at; each is looked at twice at most.

        Those that were stay, and are looked at again when all others were. So nothing is kept in order as
        requests are answered.
        """
        for _ in range(2 * len(self._open)):
            connection, looked_at = next(iter(self._open.items()))
            # safety: connections-idle
            if connection.is_idle() and connection.answered_at <= looked_at:
                return connection
            self._open.move_to_end(connection)
            self._open[connection] = max(looked_at, connection.answered_at)
        return None


def _files_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return round(soft * FILES_SHARE)
