"""``thermocline demo``: all of it on this machine, against a real broker, with a verdict at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from thermocline.cli.session import AsJson

if TYPE_CHECKING:
    from embedded.demo.view_door import Connect


def demo(
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows in the table before the traffic starts.")
    ] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Messages a second.")] = None,
    seconds: Annotated[int | None, typer.Option(min=1, help="How long the traffic lasts.")] = None,
    users: Annotated[int | None, typer.Option(min=1, help="How many users the rows belong to.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same traffic.")] = None,
    with_trino: Annotated[
        bool, typer.Option("--trino", help="With Trino beside the server, and the live views in it.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Stay up after the verdict, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> int:
    """Start everything here, generate traffic, and compare every answer with an oracle. Takes two minutes."""
    from embedded.demo import DemoOptions
    from embedded.demo import run as run_demo

    connect: Connect | None = None
    if with_trino:
        # Before anything starts: its client is an optional package.
        from embedded.demo.analyst import Analyst

        connect = Analyst
    chosen: dict[str, Any] = {"rows": rows, "rate": rate, "seconds": seconds, "users": users, "seed": seed}
    given = {name: value for name, value in chosen.items() if value is not None}
    return run_demo(DemoOptions(**given, keep=keep, as_json=as_json), connect)
