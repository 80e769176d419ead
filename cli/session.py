"""The global options, handed to every command, and the options that commands share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from thermocline.cli.output import show_error
from thermocline.process import logs

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError
    from thermocline.settings import Settings

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="Table name, as in [tables.NAME].")]
Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Ask the server at URL. Default: read table and Kafka directly."),
]


@dataclass(frozen=True, slots=True)
class Session:
    """The global options of one call."""

    config: Path | None
    log_level: logs.Level | None
    log_json: bool

    def settings(self) -> Settings:
        """The settings of this call, with the tables that routes made, which the catalog knows.

        Raises `ConfigInvalid`, and where there are routes, what `with_routed_tables` raises.
        """
        settings = self.declared_settings()
        if not settings.routes:
            return settings
        from thermocline.iceberg.routed_tables import with_routed_tables

        return with_routed_tables(settings)

    def declared_settings(self) -> Settings:
        """The settings of this call, with no other tables than the file names. Raises `ConfigInvalid`."""
        from thermocline.settings import load_settings

        return load_settings(self.config)

    def settings_if_any(self) -> Settings | None:
        """The same; None where no configuration was named and this folder has none."""
        from thermocline.settings.environment import FILE_VARIABLE
        from thermocline.settings.load import FILE_NAME

        if self.config or os.environ.get(FILE_VARIABLE) or Path(FILE_NAME).exists():
            return self.declared_settings()
        return None

    def configure_logs(self, level: logs.Level) -> None:
        """Logs at a command's own level, unless --log-level says otherwise."""
        logs.configure(self.log_level or level, self.log_json)

    def show_error(self, error: ThermoclineError, as_json: bool) -> None:
        """An error on standard error, which is a log with --log-json."""
        show_error(error, as_json, self.log_json)


def session_of(context: typer.Context) -> Session:
    """The session that the global options made."""
    return cast("Session", context.obj)
