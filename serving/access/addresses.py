"""Addresses as those who ask are told apart by them, as long as nothing else is known of who asks."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

PREFIX: Final = "address:"
"""What the identity of an address begins with; the name of a client has no colon."""
IPV6_PREFIX_BITS: Final = 64
"""Of one customer: each of the 2^64 addresses behind them is theirs to ask from."""
ADDRESSES_KEPT_MAX: Final = 4_096


@lru_cache(ADDRESSES_KEPT_MAX)
def identity_of_address(address: str) -> str:
    """``address:192.0.2.1``, or ``address:2001:db8::/64``; ``address:unknown`` for what is no address."""
    try:
        found = ip_address(address)
    except ValueError:
        return f"{PREFIX}unknown"
    if not isinstance(found, IPv6Address):
        return f"{PREFIX}{found}"
    if found.ipv4_mapped is not None:  # as a socket for both has them
        return f"{PREFIX}{found.ipv4_mapped}"
    return f"{PREFIX}{IPv6Network((int(found), IPV6_PREFIX_BITS), strict=False)}"  # safety: limits-ipv6
