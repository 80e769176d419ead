"""The stack of all tests of views that ingest for real: one broker, one catalog, one Trino.

Ingest runs on the local engine, in the tests' own process and in commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.behaviour.live import APPEND_TIME
from tests.behaviour.test_other_formats import VARIANTS
from thermocline.dev.ports import HOST, ports_of
from thermocline.dev.stack import TABLE, TRINO_ADMIN, Stack, StackOptions
from thermocline.ingest.table.create import create_table
from thermocline.settings import ViewsSettings, load_settings
from thermocline.views.access import Names
from thermocline.views.config import trino_files, write_files

FORMATS = [
    replace(variant, format_version=2)
    for variant in VARIANTS
    if variant.name in ("keyed", "in_value", "appended")
]
"""Other definitions than the stack's own: transactional with deletions, the key in the value, no key."""
OF_TESTS = (
    *("busy", "scores", "newer", "aged", "widened", "spread", "rolled_back", "cut_off", "outlived", "killed"),
    *(
        "optimized",
        "split",
        "live_typed",
        "live_filtered",
        "hot_typed",
        "hot_partial",
        "hot_busy",
        "hot_altered",
        "hot_broken",
        "hot_compared",
    ),
    *(one.name for one in FORMATS),
)
"""The tables and topics besides the stack's own: Trino has to know them when it starts."""
LIVE_CATALOG = "live"
"""Trino's catalog of a server's live tables."""
MARGIN_SECONDS = 0.3  # of the tables of tests: it shortens what they wait for


@contextmanager
def started(folder: Path) -> Iterator[Stack]:
    """The stack, with the tables of `FORMATS` beside its own.

    Trino reads every manifest to plan a query, so there are few buckets.
    """
    with Stack(folder, StackOptions(partitions=4, buckets=2, trino_gb=1, engine="local")) as stack:
        assert stack.trino is not None
        own, _, views = stack.config_path.read_text().partition("[views]")
        base, _, table = own.partition("[tables.")
        views = f"[views]{views}margin_seconds = {MARGIN_SECONDS}\n"
        stack.config_path.write_text(
            "".join([base, views, f"[tables.{table}", *(one.section for one in FORMATS)])
        )
        stack.settings = load_settings(stack.config_path)
        stack.start_broker()
        _start_trino(stack)
        create_table(stack.settings, TABLE)
        for one in FORMATS:
            stack.kafka.create_topic(one.name, 2, APPEND_TIME)
            create_table(stack.settings, one.name)
        stack.trino.wait()
        yield stack


def live_port(stack: Stack) -> int:
    """Where Trino expects the server whose live tables it reads."""
    folder = stack.folder / "live"
    folder.mkdir(exist_ok=True)
    return ports_of(folder, 1)[0]


def _start_trino(stack: Stack) -> None:
    """As the stack does, knowing the tables of tests, too, and where a server has live ones."""
    assert stack.trino is not None
    own = stack.settings.table(TABLE)
    others = {
        name: own.model_copy(update={"identifier": f"app.{name}", "topics": (name,)}) for name in OF_TESTS
    }
    views = ViewsSettings(live_uri=f"http://{HOST}:{live_port(stack)}/iceberg")
    of_tests = {"tables": {TABLE: own, **others}, "views": views}
    files = trino_files(stack.settings.model_copy(update=of_tests), Names(admin=TRINO_ADMIN))
    write_files(files, stack.trino.configuration)
    stack.trino.start()
