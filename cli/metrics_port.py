"""``--metrics-port``: the metrics of a command that runs for long, for Prometheus to scrape."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from thermocline.errors import PortTaken

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=1,
        max=65535,
        help="Serve Prometheus metrics on this port, on all interfaces. Default: off.",
    ),
]

_EVERY_INTERFACE = "0.0.0.0"  # noqa: S104  Prometheus asks from another machine


@contextmanager
def metrics_served(port: int | None) -> Iterator[None]:
    """Within the block, the metrics of this process at that port; none where it is None.

    Raises:
        PortTaken: it can't listen there.
    """
    if port is None:
        yield
        return
    from prometheus_client import start_http_server

    from thermocline.process.metrics import REGISTRY

    try:
        server, thread = start_http_server(port, _EVERY_INTERFACE, REGISTRY)
    except OSError as error:
        raise PortTaken.of(_EVERY_INTERFACE, port, error) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
