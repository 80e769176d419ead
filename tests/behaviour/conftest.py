"""Real parts, once for the whole suite: a broker, a warm Spark session, and folders for stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from embedded.stack import TABLE, Stack
from ingest.owner import Owner
from thermocline.process.clock import SystemClock


@pytest.fixture(scope="session")
def new_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stack]]:
    """Makes a started stack: its own broker, catalog and table; all are stopped at the end.

    The catalog has the stack's name: a Spark session keeps the first catalog that it met by a name.
    """
    stacks: list[Stack] = []

    def start(name: str, **options: object) -> Stack:
        stack = Stack(tmp_path_factory.mktemp(name), catalog=name, **options)  # type: ignore[arg-type]
        stacks.append(stack)
        return stack.start()

    yield start
    for stack in stacks:
        stack.stop()


@pytest.fixture(scope="session")
def new_owner() -> Iterator[Callable[[Stack], Owner]]:
    """Takes ownership of a stack's table in this process; all owners share one Spark session.

    An owner before goes on without a lease, as one that was frozen for longer than it.
    """
    owners: list[Owner] = []

    def take(stack: Stack) -> Owner:
        for owner in owners:
            if owner.table.location().startswith((stack.folder / "data").as_uri()):
                owner.lease.release()
        owners.append(Owner.open(stack.settings, TABLE, SystemClock()))
        return owners[-1]

    yield take
    if owners:
        owners[-1].close()
