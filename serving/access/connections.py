"""Connections: whom one comes from, which proxies may say for whom they ask, and which hosts we are.

What is learned of a connection once is a `Peer`. `Connections` makes `Credentials` of it for each request, by
its headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from thermocline.serving.read.caller import Credentials

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from thermocline.settings import ServingSettings

__all__ = ["Connections", "Peer"]

# Of X-Forwarded-For, from the right: a request passes two or three proxies, and each is looked up.
HOPS_MAX: Final = 16
# By these, a machine asks itself, and no name is looked up that somebody else could let point here.
_LOOPBACK: Final = ("127.0.0.1", "[::1]", "localhost")
_PORT: Final = re.compile(r":\d*\Z")
_BRACKETED: Final = re.compile(r"\[([^\]]*)\](?::\d+)?")


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: its IP address, and the names in the certificate that it has shown.

    ``is_proxy``: whether it is trusted to say for whom it asks.
    """

    address: str = ""
    certificates: tuple[str, ...] = ()
    is_proxy: bool = False


class Connections:
    """What the server makes of connections. ``hosts`` and ``forwarded_from`` are as in the settings."""

    def __init__(self, hosts: Iterable[str] = (), forwarded_from: Iterable[str] = ()) -> None:
        lowered = [host.lower() for host in hosts]
        self._hosts = frozenset(host for host in lowered if not host.startswith("*."))
        self._suffixes = tuple(host.removeprefix("*") for host in lowered if host.startswith("*."))
        self._takes_all = not lowered
        self._proxies = tuple(ip_network(one) for one in forwarded_from)

    @classmethod
    def of(cls, serving: ServingSettings) -> Self:
        """As the settings say; by its own address, the server is asked by its own processes, too."""
        own = urlsplit(serving.url).netloc
        hosts = (*serving.hosts, *_LOOPBACK, _PORT.sub("", own)) if serving.hosts else ()
        return cls(hosts, serving.forwarded_from)

    def peer(self, transport: BaseTransport) -> Peer:
        """Whom a connection comes from, as it is when it has been made, after the handshake of TLS."""
        name = transport.get_extra_info("peername")
        address = _address_of(name[0]) if isinstance(name, tuple | list) else None
        if address is None:
            return Peer(certificates=_names_of(transport))
        return Peer(str(address), _names_of(transport), self._is_proxy(address))

    def is_for_us(self, hosts: Sequence[str]) -> bool:
        """Whether a request with these Host headers is to be answered: it has one, and it names us."""
        if self._takes_all:
            return True
        if len(hosts) != 1:
            return False
        host = _PORT.sub("", hosts[0].strip().lower()).removesuffix(".")
        return host in self._hosts or host.endswith(self._suffixes)  # safety: host-allowed

    def credentials(
        self, peer: Peer, authorization: str | None, forwarded: Sequence[str] = ()
    ) -> Credentials:
        """Who asks, by a request's headers; ``forwarded`` are its X-Forwarded-For."""
        address = peer.address
        if forwarded and peer.is_proxy:  # safety: forwarded-from-proxies
            address = self._forwarded_for(address, forwarded)
        return Credentials(authorization, peer.certificates, address)

    def _forwarded_for(self, address: str, forwarded: Sequence[str]) -> str:
        """The first address from the right that is not a proxy's: what stands before it, anybody may write.

        Where that is no address, it is the proxy that had it from there.
        """
        for hop in _from_the_right(forwarded):
            found = _address_of(hop)
            if found is None:
                break
            address = str(found)
            if not self._is_proxy(found):  # safety: forwarded-from-the-right
                break
        return address

    def _is_proxy(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._proxies)


def _from_the_right(forwarded: Sequence[str]) -> Iterator[str]:
    hops = ",".join(forwarded).rsplit(",", HOPS_MAX)
    return (hop.strip() for hop in reversed(hops[-HOPS_MAX:]))


def _address_of(text: Any) -> IPv4Address | IPv6Address | None:
    """An IP address, which some proxies give with a port; None where it is none."""
    given = str(text)
    bracketed = _BRACKETED.fullmatch(given)
    if bracketed is not None:
        given = bracketed[1]
    elif given.count(":") == 1:
        given = given.partition(":")[0]
    try:
        address = ip_address(given)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _names_of(transport: BaseTransport) -> tuple[str, ...]:
    """The names in the certificate that the client has shown, and that was verified."""
    certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
    kinds = {"DNS": "dns", "URI": "uri"}
    names = [
        f"{kinds[kind]}:{name.lower() if kind == 'DNS' else name}"
        for kind, name in certificate.get("subjectAltName", ())
        if kind in kinds
    ]
    parts = [part for relative in certificate.get("subject", ()) for part in relative]
    return (*names, *(f"cn:{value}" for kind, value in parts if kind == "commonName"))
