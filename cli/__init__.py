"""The command line: one file for each group of commands, each importing its room when it is called.

``main`` (``entry``) runs a command and turns whatever goes wrong into one clear error and an exit code;
``session`` is what the global options say; ``output`` prints results on stdout and talk on stderr.
"""

from __future__ import annotations

from thermocline.cli.entry import main, run

__all__ = ["main", "run"]
