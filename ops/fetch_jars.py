"""`python ops/fetch_jars.py GROUP...`: the jars of these groups of the lock, into the cache folder."""

from __future__ import annotations

import sys
from functools import partial

from thermocline.jvm.jars import jars_of

for group in sys.argv[1:]:
    jars_of(group, report=partial(print, flush=True))
