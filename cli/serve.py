"""``thermocline serve``: the lookup API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from thermocline.cli.session import AsJson, session_of

if TYPE_CHECKING:
    from thermocline.process import logs

LOG_LEVEL: Final[logs.Level] = "info"


def serve(context: typer.Context, as_json: AsJson = False) -> int:  # noqa: ARG001 -- its errors are JSON then
    """Serve lookups and extracts of all tables over HTTP.

    Runs until SIGTERM or Ctrl-C. On SIGHUP, reads the configuration again and serves its tables from then
    on; all other settings count from the next start.
    """
    session = session_of(context)
    settings = session.settings()
    session.configure_logs(LOG_LEVEL)
    from thermocline.serving.process.server import serve as serve_until_stopped

    return serve_until_stopped(
        settings, session.log_level or LOG_LEVEL, session.log_json, read_again=session.settings
    )
