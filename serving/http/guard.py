"""The guard of an app: who is let in, what is written down of it, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import ThermoclineError
from thermocline.serving.access.connections import Connections
from thermocline.serving.access.limits import identity_of_address
from thermocline.serving.read.caller import EVERYONE, Caller, Credentials
from thermocline.settings.limits import Limits

if TYPE_CHECKING:
    from thermocline.serving.access.audit import AuditLog
    from thermocline.serving.access.limits import RateLimits

__all__ = ["ALLOWANCE", "OPEN", "Admit", "Allowance", "Guard", "admit_everyone"]

ALLOWANCE: Final = "thermocline.allowance"
"""Where a request's scope has what may still be asked for, or None."""

Admit = Callable[[Credentials], Caller]
"""Gives the caller, or raises the error by which a request is refused; must return at once."""


def admit_everyone(_: Credentials) -> Caller:
    """Whoever reaches the port may read all tables, where there is no clients file."""
    return EVERYONE


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one who asks may still ask for."""

    rates: RateLimits
    identity: str
    limits: Limits

    def take(self) -> None:
        """Counts a request. Raises `TooManyRequests`."""
        self.rates.admit(self.identity, self.limits)

    def try_take(self) -> bool:
        """Counts a request, if there may be one."""
        return self.rates.try_admit(self.identity, self.limits)

    def extract(self) -> AbstractContextManager[None]:
        """One of the extracts at once, until the block ends. Raises `TooManyRequests`."""
        return self.rates.extract(self.identity, self.limits)

    def spend(self, count: int) -> None:
        """Counts bytes that were sent."""
        self.rates.spend_bytes(self.identity, self.limits, count)


@dataclass(frozen=True, slots=True)
class Guard:
    """Stands before the endpoints of one worker. Each of ``tended`` runs for as long as the app does.

    ``recognise`` gives the caller where that takes no more than a look; None: `admit` is to be asked. Each of
    ``problems`` gives a sentence for operators, or None. ``connections`` say who asks from where. Whoever has
    no limits of their own has ``limits``, which ``rates`` count. ``has_own_ca``: whether clients have to be
    given the CA by which they know the server.
    """

    admit: Admit = admit_everyone
    audit: AuditLog | None = None
    tended: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    problems: Sequence[Callable[[], str | None]] = ()
    connections: Connections = field(default_factory=Connections)
    recognise: Callable[[Credentials], Caller | None] | None = None
    rates: RateLimits | None = None
    limits: Limits = field(default_factory=Limits)
    has_own_ca: Callable[[], bool] = lambda: False

    def recognised(self, credentials: Credentials) -> Caller | None:
        """Who asks, if it is known at once."""
        if self.recognise is not None:
            return self.recognise(credentials)
        try:
            return self.admit(credentials)
        except ThermoclineError:  # which the app meets again
            return None

    def allowance(self, caller: Caller, credentials: Credentials) -> Allowance | None:
        """How much they may ask for; None: as much as they like. Who brings nothing is their address."""
        if self.rates is None:
            return None
        # safety: limits-of-addresses
        identity = identity_of_address(credentials.address) if caller.key is None else caller.name
        return Allowance(self.rates, identity, caller.limits or self.limits)

    def all_problems(self) -> list[str]:
        """What is wrong now."""
        return [problem for find in self.problems if (problem := find()) is not None]


OPEN: Final = Guard()
"""Lets everybody in, and writes nothing down."""
