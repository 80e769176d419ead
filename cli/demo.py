"""``thermocline demo``: all of it on this machine, against a real broker, with a verdict at the end."""

from __future__ import annotations

from typing import Annotated

import typer

from thermocline.cli.session import AsJson


def demo(  # noqa: PLR0913, PLR0917  (a command has as many options)
    rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Rows in the table before the traffic starts.")
    ] = 50_000,
    rate: Annotated[int, typer.Option(metavar="N", min=1, help="Messages per second.")] = 2_000,
    seconds: Annotated[int, typer.Option(metavar="N", min=1, help="Duration of the traffic.")] = 60,
    users: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of users that the rows belong to. Default: one for every ten rows.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed of the traffic.")] = 1,
    with_trino: Annotated[bool, typer.Option("--trino", help="Also run Trino, with the live views.")] = False,
    lake: Annotated[
        bool,
        typer.Option(
            "--lake",
            help="Use an S3 store, a REST catalog, a Spark cluster for ingest, and two servers.",
        ),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run a local demo and verify it.

    Starts Kafka, Spark, Iceberg and a server on this machine, and generates traffic.
    """
    if with_trino:
        # Before anything starts: its client is an optional package.
        import thermocline.views.trino_client  # noqa: F401
    from thermocline.dev.demo import DemoOptions, run

    return run(DemoOptions(rows, rate, seconds, users, seed, with_trino, lake, keep, as_json))
