"""``thermocline demo``: all of Thermocline on this machine, watched for a minute and verified.

Read `play` first: the order of events. `site` starts the processes. While the `traffic` runs, some threads
write and look up, measure freshness and tell the `story` of one row, whose answers are checked at once; with
Trino, others ask the views (`views`). What they have come to is a scene (`figures`), which the
`reporter` shows. At the end comes the `verdict`: ``thermocline verify``, and the answers under way against a
plain replay of the log.
"""

from __future__ import annotations

from thermocline.dev.demo.play import run
from thermocline.dev.demo.site import DemoOptions

__all__ = ["DemoOptions", "run"]
