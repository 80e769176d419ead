"""``thermocline demo``: all of it on this machine, against a real broker, with a verdict at the end."""

from __future__ import annotations

from typing import Annotated

import typer

from thermocline.cli.session import AsJson


def demo(
    rows: Annotated[int, typer.Option(min=1, help="Rows in the table before the traffic starts.")] = 50_000,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 2_000,
    seconds: Annotated[int, typer.Option(min=1, help="How long the traffic lasts.")] = 60,
    users: Annotated[
        int | None, typer.Option(min=1, help="How many users the rows belong to. Default: one for ten rows.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same traffic.")] = 1,
    with_trino: Annotated[
        bool, typer.Option("--trino", help="With Trino beside the server, and the live views in it.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Stay up after the verdict, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> int:
    """Start everything here, generate traffic, and verify what the table holds and what was answered."""
    if with_trino:
        # Before anything starts: its client is an optional package.
        import views.trino_client  # noqa: F401
    from embedded.demo import DemoOptions, run

    return run(DemoOptions(rows, rate, seconds, users, seed, with_trino, keep, as_json))
