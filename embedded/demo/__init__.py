"""``thermocline demo``: all of Thermocline on this machine, watched for a minute and compared with the truth.

Read `acts` first: the order of events. While the traffic runs, four threads (`background`) work: `traffic`
writes, `readers` look up, `freshness` measures, `story` tells of one row; the last two through `witness`,
which checks each answer at once. `scene` is what they have come to at one moment; `stage` shows it, as a
screen (`screen`, `views`), as plain lines (`lines`) or as one JSON document at the end (`document`). Then
`examination` asks for everything, and `verdict` compares it with the oracle, as well as the answers that were
given under way, for which `history` knows what each row was at any read point.

With Trino, `view_traffic` adds two threads that ask the views: `analysts` and `view_freshness`, each through
a `view_door`. Such an answer names no read point: `cuts` says how much of the log it must reflect, and how
much it may, and `view_verdict` judges it by that. Nobody but the command imports `analyst`, which needs an
optional package.
"""

from __future__ import annotations

from embedded.demo.acts import run
from embedded.demo.options import DemoOptions

__all__ = ["DemoOptions", "run"]
