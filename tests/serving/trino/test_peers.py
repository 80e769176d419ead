"""Two servers that answer Trino together: a query's calls meet either of them, and see one state."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.serving.trino.test_endpoint import COLUMNS, a_token, produce
from tests.serving.trino.test_listener import TLS
from tests.serving.trino.trino_calls import Queries, Refused
from thermocline.errors import ConfigInvalid
from thermocline.process.clock import SystemClock
from thermocline.rules.hot_columns import group_of, hot_table
from thermocline.serving.store.layout import own_name
from thermocline.serving.trino import pins as pins_module
from thermocline.serving.trino.endpoint import Endpoint
from thermocline.serving.trino.listener import Listener, tls_of
from thermocline.serving.trino.peers import Peers, peers_of
from thermocline.serving.trino.process import TrinoTable
from thermocline.settings.model import TrinoEndpointSettings


@dataclass
class Server:
    """A server's part that answers Trino, at an address; both read one hot tier, by pins of their own."""

    address: str
    queries: Queries
    peers: Peers
    listener: Listener


Started = Callable[[Sequence[TrinoEndpointSettings]], list[Server]]


@pytest.fixture
def world_and_servers(
    served: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Any, Started]]:
    monkeypatch.setattr(pins_module, "AHEAD_MICROSECONDS", 0)
    monkeypatch.setattr(pins_module, "SHARED_SECONDS", 0.0)
    world, table = served()
    with ExitStack() as ending:

        def started(all_settings: Sequence[TrinoEndpointSettings]) -> list[Server]:
            return [ending.enter_context(_started(world, table, settings)) for settings in all_settings]

        yield world, started


@contextmanager
def _started(world: Any, table: Any, settings: TrinoEndpointSettings) -> Iterator[Server]:
    trino = TrinoTable(table, world.folder, SystemClock(), 5.0)
    trino.refresh()
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", settings.port or 0))
    state_dir = world.folder / str(settings.port)
    state_dir.mkdir()
    peers = peers_of(settings, own_name(state_dir))
    assert own_name(state_dir) == own_name(state_dir)
    endpoint = Endpoint([trino], peers)
    with Listener(bound, endpoint.reply, tls_of(settings)) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        queries = Queries(endpoint, hot_table(world.definition), world.newest, servers=peers.group)
        yield Server(settings.address or "", queries, peers, listener)
        listener.shutdown()
    peers.close()
    trino.pins.close()
    trino.snapshots.close()


def together(**more: Any) -> list[TrinoEndpointSettings]:
    """Of two servers that know of each other."""
    addresses = tuple(f"127.0.0.1:{port}" for port in _free_ports(2))
    return [_settings(own, addresses, **more) for own in addresses]


def _settings(own: str, addresses: Sequence[str], **more: Any) -> TrinoEndpointSettings:
    port = int(own.rpartition(":")[2])
    return TrinoEndpointSettings(port=port, servers=tuple(addresses), address=own, **more)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_query_whose_calls_meet_either_server_sees_one_state(
    world_and_servers: tuple[Any, Started], has_tls: bool
) -> None:
    world, started = world_and_servers
    files = {"certificate_file", "key_file", "client_ca_file"}
    one, other = started(together(**(TLS.model_dump(include=files) if has_tls else {})))
    draw, owners = random.Random(5), set()
    produce(world, 60)
    for number in range(12):
        token = a_token()
        owners.add(Peers(one.address, (one.address, other.address)).owner_of(token))
        first, second = draw.sample([one, other], 2)
        splits = first.queries.splits(token, scans=2)
        produce(world, 20, seed=number)  # so that a state taken now is another one
        seen = second.queries.all_rows(token, COLUMNS, scans=2)
        assert sorted(seen) == sorted(row for split in splits for row in second.queries.rows(split, COLUMNS))
    assert owners == {None, other.address}


def test_a_query_of_a_server_that_is_away_is_refused_and_those_of_the_other_are_answered(
    world_and_servers: tuple[Any, Started],
) -> None:
    world, started = world_and_servers
    one, other = started(together())
    produce(world, 20)
    names = Peers(one.address, (one.address, other.address))
    for is_away in (False, True):
        if is_away:
            other.listener.shutdown()
            other.listener.server_close()
            one.peers.close()  # those that are open it would still answer
        for _ in range(20):
            token = a_token()
            if is_away and names.owner_of(token) is not None:
                with pytest.raises(Refused, match=f"{other.address}, the server that the query belongs to"):
                    one.queries.splits(token)
            else:
                assert one.queries.all_rows(token, COLUMNS)


def test_servers_that_name_others_than_the_view_or_each_other_refuse(
    world_and_servers: tuple[Any, Started],
) -> None:
    _, started = world_and_servers
    addresses = tuple(f"127.0.0.1:{port}" for port in _free_ports(3))
    one, other, alone = started(
        [
            _settings(addresses[0], addresses[:2]),
            _settings(addresses[1], addresses),
            TrinoEndpointSettings(port=int(addresses[2].rpartition(":")[2])),
        ]
    )
    for server, group in [(one, group_of(addresses)), (other, one.queries.servers), (alone, 1), (one, 0)]:
        server.queries.servers = group
        with pytest.raises(Refused, match="published for another server"):
            server.queries.splits(a_token())


def test_a_call_is_passed_on_once(world_and_servers: tuple[Any, Started]) -> None:
    _, started = world_and_servers
    pair = together()
    mistaken = pair[1].model_copy(update={"address": pair[0].address})
    one, _ = started([pair[0], mistaken])
    names = Peers(pair[0].servers[0], pair[0].servers)
    token = next(token for token in map(a_token, range(100)) if names.owner_of(token) is not None)
    with pytest.raises(Refused, match="two servers disagree"):
        one.queries.splits(token)


def test_of_servers_that_do_not_know_of_each_other_one_answers_and_the_other_refuses(
    world_and_servers: tuple[Any, Started],
) -> None:
    """Each scan of a query may meet another one of them, and then all of its calls."""
    world, started = world_and_servers
    one, other = started([TrinoEndpointSettings(port=port) for port in _free_ports(2)])
    produce(world, 20)
    group = other.queries.servers = one.queries.servers
    token = a_token()
    assert one.queries.all_rows(token, COLUMNS, scans=2)
    for _ in range(3):
        with pytest.raises(Refused, match="published for another server"):
            other.queries.all_rows(token, COLUMNS, scans=2)
    assert group == one.peers.group != other.peers.group


def test_servers_that_were_given_one_address_do_not_both_answer(
    world_and_servers: tuple[Any, Started],
) -> None:
    world, started = world_and_servers
    pair = together()
    one, copied = started([pair[0], pair[1].model_copy(update={"address": pair[0].address})])
    produce(world, 20)
    names = Peers(pair[0].servers[0], pair[0].servers)
    token = next(token for token in map(a_token, range(100)) if names.owner_of(token) is None)
    with pytest.raises(Refused, match=f"another server answers at {one.address}"):
        copied.queries.splits(token)
    one.listener.shutdown()
    one.listener.server_close()
    copied.peers.close()
    with pytest.raises(Refused, match="does not reach itself"):
        copied.queries.splits(token)


def test_a_server_among_several_has_to_know_which_one_it_is() -> None:
    with pytest.raises(ConfigInvalid, match="which of them this server is"):
        peers_of(TrinoEndpointSettings(port=9200, servers=("a:1", "b:1")), "")


def test_each_of_several_servers_has_its_share_of_the_queries_by_every_server_s_account() -> None:
    names = [f"h{number}:9200" for number in range(3)]
    servers = [Peers(own, draw) for own, draw in zip(names, (names, names[::-1], names), strict=True)]
    counts = dict.fromkeys(names, 0)
    for token in range(3_000):
        owners = {one.owner_of(token) or own for own, one in zip(names, servers, strict=True)}
        (owner,) = owners
        counts[owner] += 1
    assert min(counts.values()) > 800
