"""Every error-like failpoint of serving: answers are right or refused, and right again afterwards.

Goal: wherever a tailer, an API worker or a command without a server fails, nobody gets a wrong answer; and
each point of the registry is met, so that a new one is tested too, or fails here.
Method: the real tailer and API worker run in this process. One point is armed through the file, records are
written and committed and read through HTTP meanwhile, and every answer is compared with the oracle at its own
read point.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.behaviour.armed import armed_by, error_like, has_fired
from tests.behaviour.live import MANY, Live
from tests.behaviour.reads import write
from tests.behaviour.served import Served
from tests.behaviour.topic import APP
from tests.failpoints.arming import arm, disarm
from tests.failpoints.point import Action, Process
from thermocline.dev.stack import Stack
from thermocline.ingest.owner.owner import Owner
from thermocline.serving.hot import tier
from thermocline.serving.read import private
from thermocline.serving.tail import follower, tailer

pytestmark = pytest.mark.full

NAME = "served"
# The fourth one changes rows of the first, so that there are deletes, too.
BATCHES = 4
# Records, a tailer that begins again, and a commit: after so many rounds of them every point was met.
ROUNDS_MAX = 4


@pytest.fixture(scope="module")
def live(new_stack: Callable[..., Stack]) -> Live:
    return Live(new_stack("failpoints-serving", partitions=1, buckets=1), NAME)


@pytest.fixture(scope="module")
def owner(live: Live) -> Iterator[Owner]:
    """It has committed some rows, and others are in the log."""
    owner = live.open()
    live.write_many()
    owner.catch_up(threading.Event())
    for number in range(BATCHES):
        write(live.topic, -number)
        live.write([MANY[number]], "changed")
        owner.catch_up(threading.Event())
    write(live.topic, -BATCHES)
    yield owner
    owner.lease.release()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with armed_by(tmp_path_factory.mktemp("failpoints") / "armed") as path:
        yield path


def read_without_a_server(live: Live) -> None:
    """An extract and a lookup of each user, compared with the oracle."""
    wanted = {key: row["value"] for key, row in live.topic.oracle.rows().items()}
    sink = io.BytesIO()
    private.extract(live.settings, NAME, None, "arrow", sink, None, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    assert {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows} == wanted
    user = next(iter(wanted))[1]
    found = private.lookup(live.settings, NAME, {"app_id": str(APP), "user_id": user})["rows"]
    assert {row["key"]: row["value"] for row in found} == {
        key: value for (_, name, key), value in wanted.items() if name == user
    }


@pytest.mark.parametrize(("name", "action"), error_like(Process.COMMAND))
def test_a_command_without_a_server_answers_right_or_fails(
    live: Live, owner: Owner, file: Path, name: str, action: Action
) -> None:
    """Method: hot and cold rows are there, and no tailer yet that could come by first."""
    entry = f"{name}={action}@1"
    arm(file, entry)
    try:
        read_without_a_server(live)
    except AssertionError:
        raise
    except Exception:  # noqa: BLE001  what it is, is the point's
        pass
    assert has_fired(file, entry), "never met"
    read_without_a_server(live)
    disarm(file)


@pytest.fixture(scope="module")
def served(live: Live, owner: Owner, file: Path) -> Iterator[Served]:
    """Everything that happens once in a while happens all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tailer, "RETRY_SECONDS", 0.1)
        patch.setattr(tailer, "STATUS_SECONDS", 0.1)
        patch.setattr(follower, "FOLLOW_SECONDS", 0.1)
        patch.setattr(tier, "SEAL_SECONDS_MIN", 0.02)
        patch.setattr(tier, "UPKEEP_SECONDS", 0.1)
        patch.setattr(tier, "GENERATIONS_MAX", 2)
        served = Served(live)
        served.reads.wait_until_right()
        yield served
        served.close()


def rounds(served: Served, owner: Owner, count: int = ROUNDS_MAX) -> Iterator[None]:
    """What there is to happen, a step at a time; the commit last, since ingest comes by some points, too."""
    for _ in range(count):
        served.write()
        served.reads.read()
        yield
        served.restart_tailer()
        served.write()
        served.reads.wait_until_right()
        yield
        owner.catch_up(threading.Event())
        served.reads.read()
        yield


@pytest.mark.parametrize(("name", "action"), error_like(Process.TAILER, Process.API))
def test_whatever_fails_answers_are_right_or_refused_and_right_again_afterwards(
    served: Served, owner: Owner, file: Path, name: str, action: Action
) -> None:
    entry = f"{name}={action}@1"
    arm(file, entry)
    for _ in rounds(served, owner):
        if has_fired(file, entry):
            break
    assert has_fired(file, entry), f"never met: {served.crashes[-1:]}"
    served.write()
    served.reads.wait_until_right()
    disarm(file)


@pytest.mark.parametrize("skew_ms", [-7_200_000, 7_200_000])
def test_a_server_whose_clock_is_hours_wrong_answers_right(
    served: Served, owner: Owner, file: Path, skew_ms: int
) -> None:
    arm(file, f"clock=skew:{skew_ms}")
    for _ in rounds(served, owner, 1):
        served.reads.wait_until_right()
    disarm(file)
