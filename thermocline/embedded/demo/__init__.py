"""``thermocline demo``: all of Thermocline on this machine, watched for a minute, then compared with the truth.

Read `acts` first: the order of events. While the traffic runs, four threads (`background`) work: `traffic`
writes, `readers` look up, `freshness` measures, `story` tells of one row; the last two through `witness`, which
checks each answer at once. `scene` is what they have come to at one moment; `stage` shows it, as a screen
(`screen`), as lines (`lines`) or as one document at the end. `verdict` compares everything that was answered
with the oracle, and `history` knows what a row was at any read point.
"""

from __future__ import annotations

from thermocline.embedded.demo.acts import run
from thermocline.embedded.demo.options import DemoOptions

__all__ = ["DemoOptions", "run"]
